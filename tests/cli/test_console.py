"""How the command line prints: names on a terminal, long texts, stray bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

import feat2vec as library
from feat2vec.cli import console
from feat2vec.cli.console import json_row
from feat2vec.errors import UserError
from feat2vec.pages.explanation_views import Contribution, Explanation
from feat2vec.training.reporting import Reporter
from tests.cli.films import SCHEMA
from tests.commands import feat2vec

HOSTILE = "a\x1b[31m\nb\u202e\udc80"
ESCAPED = r"a\x1b[31m\nb\u202e\udc80"


@pytest.mark.parametrize("error", [False, True])
def test_a_line_is_one_line_without_what_a_terminal_obeys(capsys: pytest.CaptureFixture[str], error: bool) -> None:
    console.say(HOSTILE, error=error)
    shown = capsys.readouterr()
    assert (shown.err if error else shown.out) == f"{ESCAPED}\n"


def test_a_name_in_a_message_and_in_a_path_is_escaped(folder: Path) -> None:
    (folder / "films.yaml").write_text(SCHEMA.replace("groups:", '"x\\e[31m\\ny\\u202e": 1\ngroups:'))
    for words in (["check", "films.yaml"], ["check", "no\x1b[2J\nfile"], ["\x1b[31mcheck"], ["check", "--\x1b\n"]):
        done = feat2vec(*words, folder=folder, code=2)
        assert done.stderr.replace("\n", "").isprintable()
        assert len(done.stderr.splitlines()) <= 4


def test_an_explanation_is_a_table_whatever_names_hold() -> None:
    parts = [Contribution("pair", (HOSTILE, "x"), 1.0), Contribution("linear", ("long" * 99,), 1.0)]
    text = Explanation(f"score of {HOSTILE}", 2.0, parts, [{HOSTILE: HOSTILE, "long" * 99: "y" * 999}]).text()
    lines = text.splitlines()
    assert len(lines) == 2 + 1 + 2 + 1
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 200


def test_progress_is_escaped_and_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter(1, 1).say(f":smile: [red]\x1b[31m\n{'w' * 999}")
    first, second = capsys.readouterr().err.splitlines()
    assert first == r":smile: [red]\x1b[31m"
    assert len(second) <= 200


def test_the_summary_of_many_groups_is_short() -> None:
    groups = {f"{i}\n\x1b": {"column": f"c{i}"} for i in range(200)}
    rows = pa.table({f"c{i}": ["x", "y", None] for i in range(200)})
    lines = library.fit({"version": 1, "groups": groups}, rows).summary().splitlines()
    assert len(lines) == 22
    assert lines[1] == r"0\n\x1b: 2 values, 2 keys, 1 missing"
    assert lines[-1] == "and 180 more groups: 360 values, 360 keys, 180 missing"


def test_a_table_of_many_columns_is_not_listed(folder: Path) -> None:
    names = [f"other{i}" for i in range(10_000)]
    (folder / "films.csv").write_text(",".join(names) + "\n" + ",".join("x" for _ in names) + "\n")
    groups = "".join(f"  g{i}: {{column: absent {i}}}\n" for i in range(200))
    (folder / "films.yaml").write_text(f"version: 1\ngroups:\n{groups}")
    lines = feat2vec("check", "films.yaml", "--data", "films.csv", folder=folder, code=2).stderr.splitlines()
    assert len(lines) <= 5
    assert max(map(len, lines)) <= 200
    assert "other0, other1" in lines[0]
    assert "(10,000 in all)" in lines[0]
    assert lines[-1].endswith(" more")


@pytest.mark.parametrize(
    "words",
    [
        "train films.yaml --data films.csv --out DIR/run",
        "similar DIR/run director Ana",
        "evaluate DIR/run --data films.csv --task rank --target director",
        "export DIR/run --format npz --out x",
    ],
)
def test_a_folder_of_stray_bytes_is_refused_before_anything_is_made(folder: Path, words: str) -> None:
    before = sorted(folder.iterdir())
    done = feat2vec(*words.replace("DIR", "caf\udce9").split(), folder=folder, code=2)
    assert done.stderr == "caf\\udce9/run: its name, or that of a folder above it, is not UTF-8; rename it\n"
    assert sorted(folder.iterdir()) == before


def test_a_temporary_folder_of_stray_bytes_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "caf\udce9"))
    done = feat2vec("check", "films.yaml", "--data", "films.csv", folder=folder, code=2)
    assert "caf\\udce9: its name, or that of a folder above it, is not UTF-8; rename it\n" in done.stderr


BASE = "version: 1\ngroups:\n  a: {column: a}\n  b: {column: b}\n"
TEXTS = {
    "a long scalar": f"{BASE}model: {{dim: {'x' * 1_000_000}}}\n",
    "a long key": f"{BASE}? {'k' * 1_000_000}\n: 1\n",
    "unknown keys": BASE + "".join(f"key{i}: 1\n" for i in range(1000)),
    "a key again": BASE + "dup: 1\n" * 1000,
    "deep lists": f"{BASE}x: {'[' * 1000}{']' * 1000}\n",
    "deep keys": BASE + "".join(f"{' ' * i}a:\n" for i in range(1000)),
    "a huge whole number": f"{BASE}model: {{dim: 1{'0' * 5000}}}\n",
    "a huge number": f"{BASE}model: {{scale: 1{'0' * 5000}.5}}\n",
    "no finite number": f"{BASE}training: {{l2: .inf, epochs: .nan}}\n",
    "an unknown group": f"{BASE}noise: {{targets: [{'t' * 50_000}]}}\n",
    "an unknown plugin": f"{BASE}plugins: [{'p' * 5000}]\n",
    "control characters": f'{BASE}"\\e[31m\\n\\u202e": "\\e"\n',
    "binary": "\x7fELF\x00\x01",
    "empty": "",
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("command", ["check", "run"])
def test_whatever_a_file_holds_the_answer_is_short(tmp_path: Path, name: str, command: str) -> None:
    (tmp_path / "s.yaml").write_text(TEXTS[name])
    lines = feat2vec(command, "s.yaml", folder=tmp_path, code=2).stderr.splitlines()
    assert 1 <= len(lines) <= 5
    assert all(line.isprintable() and len(line) <= 200 and "s.yaml" in line for line in lines)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "latin.yaml").write_bytes(f"{BASE}name: é\n".encode("latin-1"))
    for schema in ("folder.yaml", "latin.yaml", "/dev/null", ".", "", "a\0b"):
        done = feat2vec("check", schema, folder=tmp_path, code=2)
        (line,) = done.stderr.splitlines()
        assert line.isprintable()


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "--row: is nested too deeply"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "--row: is nested too deeply"),
        ('{"a": "\\ud800"}', "--row: holds half of a surrogate pair, which is no text"),
        ('{"a": 1' + "0" * 5000 + "}", "--row: is no JSON .Exceeds the limit"),
        ('{"a": [1.5, 9007199254740993.0]}', "--row: 9007199254740993.0 has more digits than a column with fractions"),
        ('{"a": 1e-400}', "--row: 1e-400 is too small for a float of 64 bits"),
        ('{"a": -1e400}', "--row: -1e400 is too large for a float of 64 bits"),
    ],
    ids=["deep", "200 lists", "surrogate", "digits", "inexact", "small", "large"],
)
def test_rows_of_json_that_no_table_holds(row: str, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        json_row("--row", row)
    assert len(str(caught.value)) <= 200
