"""The commands check and init, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.films import CSV, SCHEMA
from tests.commands import PROGRAM, feat2vec


def test_check_a_schema(folder: Path) -> None:
    done = feat2vec("check", "films.yaml", folder=folder)
    assert done.stderr == ""
    assert done.stdout == "films.yaml: no problems, 3 groups, objective nce\n"


def test_check_resolved_is_a_schema_that_resolves_to_itself(folder: Path) -> None:
    full = feat2vec("check", "films.yaml", "--resolved", folder=folder).stdout
    (folder / "full.yaml").write_text(full)
    assert "negatives: 5" in full
    assert feat2vec("check", "full.yaml", "--resolved", folder=folder).stdout == full


def test_check_json_schema(folder: Path) -> None:
    printed = json.loads(feat2vec("check", "--json-schema", folder=folder).stdout)
    assert printed["$schema"].endswith("schema")
    assert set(printed["required"]) == {"version", "groups"}


def test_check_data_says_what_it_found(folder: Path) -> None:
    done = feat2vec("check", "films.yaml", "--data", "films.csv", folder=folder)
    assert done.stdout.splitlines() == [
        "films.yaml fits films.csv",
        "4 rows",
        "director: 3 values, 3 keys",
        "cast: 3 values, 2 keys, 1 missing",
        "score: 3 values, 1 missing",
    ]


MISTAKES = {
    "no such column": (
        SCHEMA.replace("column: director", "column: directr"), CSV,
        [r"films\.csv: has no column 'directr', which groups\.director\.columns names; did you mean 'director'\?"],
    ),
    "text where numbers are needed": (
        SCHEMA.replace("column: score", "column: director"), CSV,
        [r"films\.csv: row 1: column 'director': received 'Ana'; a number is needed; text is for .*"],
    ),
    "a bad number in a later row": (
        SCHEMA, CSV.replace("Ana,,3", "Ana,,three"),
        [r"films\.csv: row 3: column 'score': received 'three'; a number is needed; text is for .*"],
    ),
    "infinity, and an empty group": (
        SCHEMA, CSV.replace("2\n", "inf\n").replace("x|y", "").replace("y,", ",").replace("Cy,x", "Cy,"),
        [r"films\.csv: row 2: column 'score': received inf; numbers must be finite"],
    ),
    "a group without any value": (
        SCHEMA, "director,cast,score\nAna,,1\nBo,,2\n",
        [r"films\.csv: the group 'cast' has no value in any row \(column cast\); remove it"],
    ),
    "no rows": (SCHEMA, "director,cast,score\n", [r"films\.csv: .*row.*"]),
    "two typos": (
        SCHEMA.replace("split", "splt").replace("numeric", "numerc"), CSV,
        [
            r"films\.yaml:5: groups\.cast\.extractor\.splt: unknown key; did you mean 'split'\?",
            r"films\.yaml:6: groups\.score\.extractor: unknown type 'numerc'; did you mean 'numeric'\?",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_exit_with_2_and_say_where_and_what(folder: Path, mistake: str) -> None:
    schema, csv, messages = MISTAKES[mistake]
    (folder / "films.yaml").write_text(schema)
    (folder / "films.csv").write_text(csv)
    done = feat2vec("check", "films.yaml", "--data", "films.csv", folder=folder, code=2)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 5
    for line, message in zip(lines, messages, strict=True):
        assert re.fullmatch(message, line), line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "Name a schema"),
        (["check", "nowhere.yaml"], "nowhere.yaml: "),
        (["check", "films.yaml", "--data", "nowhere.csv"], "nowhere.csv"),
        (["check", "films.yaml", "--json-schema", "--resolved"], "stands alone"),
        (["check", "films.csv"], "films.csv:1: "),
        (["chek", "films.yaml"], "No such command 'chek'"),
        (["init"], "Missing argument 'DATA'"),
        (["init", "nowhere.csv"], "nowhere.csv"),
        (["init", "films.csv", "-o", "films.yaml"], "films.yaml: exists already"),
    ],
)
def test_wrong_words_exit_with_2(folder: Path, words: list[str], message: str) -> None:
    done = feat2vec(*words, folder=folder, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_init_writes_a_schema_that_check_accepts(folder: Path) -> None:
    rows = "".join(f"{i},{('Ana', 'Bo', 'Cy')[i % 3]},{i % 7}.5,{('red', 'blue')[i % 2]}\n" for i in range(60))
    (folder / "people.csv").write_text("id,name,score,colour\n" + rows)
    done = feat2vec("init", "people.csv", "-o", "people.yaml", folder=folder)
    assert "feat2vec check people.yaml --data people.csv" in done.stdout
    feat2vec("check", "people.yaml", "--data", "people.csv", folder=folder)
    feat2vec("init", "people.csv", "-o", "people.yaml", folder=folder, code=2)
    feat2vec("init", "people.csv", "-o", "people.yaml", "--force", folder=folder)
    *lines, signature = (folder / "people.yaml").read_text().splitlines(keepends=True)
    assert "# Next: feat2vec check people.yaml --data people.csv\n" in lines
    printed = feat2vec("init", "people.csv", folder=folder).stdout
    assert printed == "".join(lines).replace("check people.yaml", "check schema.yaml")
    assert signature.startswith("# written by feat2vec, ")


def test_init_writes_the_schema_of_a_target(folder: Path) -> None:
    rows = "".join(f"{i},{('Ana', 'Bo', 'Cy')[i % 3]},{i % 7}.5\n" for i in range(60))
    (folder / "people.csv").write_text("id,name,score\n" + rows)
    done = feat2vec("init", "people.csv", "--target", "score", "-o", "score.yaml", folder=folder)
    assert done.stderr.startswith("weak: 60 labels are too few to predict well from")
    feat2vec("check", "score.yaml", "--data", "people.csv", folder=folder)
    text = (folder / "score.yaml").read_text()
    assert "objective: {type: regression, target: score}" in text
    assert text.startswith("# Written by `feat2vec init --target score` from people.csv: 60 rows, 3 columns.\n")


def test_an_unwritable_place_is_said_without_a_traceback(folder: Path) -> None:
    done = feat2vec("init", "films.csv", "-o", "nowhere/films.yaml", folder=folder, code=2)
    assert done.stderr == "nowhere/films.yaml: there is no folder nowhere; make it first\n"


@pytest.mark.usefixtures("sigint_as_in_a_terminal")
def test_ctrl_c_says_interrupted_and_leaves_no_folder_behind(folder: Path) -> None:
    rows = "".join(f"name {i},a{i}|b{i % 999},{i}\n" for i in range(400_000))
    (folder / "films.csv").write_text("director,cast,score\n" + rows)
    (folder / "tmp").mkdir()
    command = [*PROGRAM, "check", "films.yaml", "--data", "films.csv"]
    process = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder / "tmp")}
    )
    deadline = time.monotonic() + 30
    while not list((folder / "tmp").glob(".feat2vec-*")) and process.poll() is None and time.monotonic() < deadline:
        pass
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr.strip() == "interrupted"
    assert not list((folder / "tmp").glob(".feat2vec-*"))
