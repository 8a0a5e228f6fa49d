"""Mistakes that new users make: each answer says where, what was received and what to do, in at most five lines."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from feat2vec.training import memory_estimate
from tests.cli.films import SCHEMA as FILMS
from tests.commands import feat2vec

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")

SCHEMA = f"{FILMS}model: {{dim: 4}}\ntraining: {{epochs: 1}}\n"
TYPOS = """\
version: 1
nam: films
groups:
  director: {colum: director, extractor: lokup}
model: {dmi: 8}
noise: {alpha_group: 0.25}
objective: {type: nec}
head: {type: mpl}
training: {epoch: 1, optimizer: {type: adagrd}}
"""


def rows(count: int = 60) -> str:
    rng = random.Random(0)
    lines = ["director,cast,score,empty,one,hit"]
    for i in range(count):
        cast = "|".join(rng.sample("abcdef", 2))
        lines.append(f"{rng.choice(['Ana', 'Bo', 'Cy'])},{cast},{rng.randrange(90) / 10},,x,{i % 2}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def user_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a new user has it, with a run."""
    folder = tmp_path_factory.mktemp("films")
    (folder / "films.yaml").write_text(SCHEMA)
    (folder / "numeric.yaml").write_text(SCHEMA.replace("director, extractor: lookup", "director, extractor: numeric"))
    (folder / "people.csv").write_text("name,age\nAna,3\nBo,4\n")
    (folder / "directors.csv").write_text("director\nAna\nBo\n")
    (folder / "typos.yaml").write_text(TYPOS)
    (folder / "films.csv").write_text(rows())
    (folder / "tilde.csv").write_text(rows().replace(",", "~"))
    (folder / "one.csv").write_text(rows(1))
    (folder / "three.csv").write_text(rows(3))
    (folder / "header.csv").write_text("director,cast,score\n")
    (folder / "empty.csv").write_text("")
    (folder / "ones.csv").write_text(re.sub(r"\d$", "1", rows(), flags=re.M))
    (folder / "broken.parquet").write_bytes(b"PAR1 no table PAR1")
    (folder / "people.parquet").write_text("a,b\n1,2\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.txt").write_text("keep")
    feat2vec("train", "films.yaml", "--data", "films.csv", "--out", "run", "--quiet", folder=folder)
    shutil.copytree(folder / "run", folder / "damaged")
    (folder / "damaged" / "model.keras").write_bytes(b"PK")
    return folder


class Mistake(NamedTuple):
    """What a user types, and what each line of the answer has to say."""

    words: str
    where: str
    received: str
    remedy: str


FIT, TRAIN = "check films.yaml --data", "train films.yaml --data films.csv --out new"
MISTAKES = {
    # 1: no such column
    "no such column": Mistake(
        "train films.yaml --data films.csv --out new --set groups.cast.column=csat",
        "films.csv: ", "has no column 'csat'", "did you mean 'cast'?",
    ),
    "no such target": Mistake("finetune run --data films.csv --target hitt --out new", "films.csv", "'hitt'", "'hit'?"),
    "no such column to find": Mistake(
        "evaluate run --data people.csv --task rank --target director",
        "people.csv: ", "has no column 'director'", "the columns are name, age",
    ),
    # 2: another delimiter
    "a delimiter that nobody knows": Mistake(
        f"{FIT} tilde.csv", "tilde.csv: ", "one column, 'director~cast~", "put commas, semicolons, tabs or |",
    ),
    "the same, at the first step": Mistake("init tilde.csv", "tilde.csv: ", "1 of 1 columns", "put commas"),
    # 3: text declared numeric
    "text declared numeric": Mistake(
        "check numeric.yaml --data films.csv",
        "films.csv: row 1: column 'director'", "received 'Ana'", "`extractor: lookup`",
    ),
    # 4: nothing to draw
    "groups of one value": Mistake(
        f"{TRAIN} --set groups.director.column=one --set noise.targets=[director]",
        "noise: director", "has one value", "give rows that differ",
    ),
    "a target of one class": Mistake(
        "finetune run --data ones.csv --target hit --out new --quiet",
        "ones.csv: the target 'hit'", "is 1 in every row", "give rows of 0 and of 1",
    ),
    "a target of one class by name": Mistake(
        "finetune run --data films.csv --target one --out new --quiet",
        "films.csv: the target 'one'", "is 'x' in every row", "two or more classes",
    ),
    # 5: nothing in a column
    "a column without values": Mistake(
        f"{TRAIN} --set groups.cast.column=empty", "films.csv: ", "'cast' has no value in any row (column empty)",
        "remove it",
    ),
    # 6: tiny tables
    "one row": Mistake(
        "train films.yaml --data one.csv --out new", "noise: director, cast, score", "one value each", "give rows",
    ),
    "no row": Mistake(f"{FIT} header.csv", "header.csv: ", "has no rows", "needs at least one"),
    "an empty file": Mistake("init empty.csv", "empty.csv: ", "is empty", "a header line"),
    # 7: too large
    "a dimension out of range": Mistake(
        f"{TRAIN} --set model.dim=1000000", "model.dim: ", "received 1000000", "at most 65536",
    ),
    "dimensions without room": Mistake(
        f"{TRAIN} --set model.dim=65536 --set noise.sharing=batch", "the group 'cast', 7 keys of 65,536 numbers",
        " of memory, and 8.0 MB are free",
        "use a smaller model.dim",
    ),
    "negatives out of range": Mistake(
        f"{TRAIN} --set noise.negatives=100000000", "noise.negatives: ", "received 100000000", "at most 1000000",
    ),
    "negatives without room": Mistake(
        f"{TRAIN} --set noise.negatives=1000000", "noise.negatives, 1,000,000 for each of 60 rows", "take 2.7 GB",
        "use fewer of them",
    ),
    # 8: a typo in every section
    "typos": Mistake("check typos.yaml", "typos.yaml:2: nam", "unknown key", "did you mean 'name'?"),
    # 9: broken files
    "a broken file": Mistake(f"{FIT} broken.parquet", "broken.parquet: ", "cannot be read", "write it again"),
    "another kind of file": Mistake("init people.parquet", "people.parquet: ", "magic bytes", "really Parquet"),
    "no such file": Mistake(f"{FIT} film.csv", "film.csv: ", "no such file", "did you mean 'films.csv'"),
    "no such schema": Mistake("check zzz.yaml", "zzz.yaml: ", "No such file", "`feat2vec init DATA -o SCHEMA`"),
    "a table for a schema": Mistake("check films.csv", "films.csv:1: ", "received a single value", "`feat2vec init"),
    # 10: no run
    "a folder that is no run": Mistake(
        "similar notes director Ana", "notes: ", "is no run (it has no manifest.json)", "`feat2vec train",
    ),
    "no folder": Mistake("embed nowhere --data films.csv --out v", "nowhere: ", "does not exist", "`feat2vec train"),
    "a run without its model": Mistake(
        "similar damaged director Ana", "damaged/model.keras: ", "is not the file", "train it again",
    ),
    # places to write to
    "a folder below a file": Mistake(f"{TRAIN[:-4]} films.csv/x", "films.csv/x: ", "is a file", "another place"),
    "an export below a file": Mistake(
        "export run --format npz --out films.csv/x", "films.csv/x: ", "films.csv is a file", "choose another place",
    ),
    "a file in no folder": Mistake("init films.csv -o no/f.yaml", "no/f.yaml: ", "no folder no", "make it first"),
    "a file below a file": Mistake("init films.csv -o empty.csv/f", "empty.csv/f: ", "is a file", "another place"),
    "a folder that is taken": Mistake(f"{TRAIN[:-4]} notes", "notes: ", "exists already", "choose another folder"),
    "a folder of other things": Mistake(
        f"{TRAIN[:-4]} notes --force", "notes: ", "is no run, and --force replaces nothing else", "another folder",
    ),
    # words
    "no such group": Mistake("similar run directr Ana", "group", "'directr'", "did you mean 'director'?"),
    "no such key": Mistake("similar run director Anna", "the group 'director'", "has no 'Anna'", "did you mean 'Ana'?"),
    "no such level": Mistake("embed run --data films.csv --level 2 --out v", "level: ", "no level 2", "level 1 only"),
    "no such row": Mistake("explain run --data films.csv --index 0", "--index: ", "received 0", "counted from 1"),
    "no such other row": Mistake(
        "explain run --data films.csv --index 1 --to-index 99", "--to-index: ", "received 99", "has 60 rows",
    ),
    "a run without a target": Mistake(
        "evaluate run --data films.csv --task predict", "--task predict: ", "nce has no target", "`--task rank`",
    ),
    "nothing to find by": Mistake(
        "evaluate run --data directors.csv --task rank --target director --given cast",
        "directors.csv: ", "none of the columns cast", "it has director",
    ),
    # what is proposed
    "a target of another name": Mistake(
        "init films.csv --target scor", "films.csv: ", "no column 'scor' to be the target", "did you mean 'score'?",
    ),
    "a target beside a schema": Mistake(f"{TRAIN} --target score", "train", "--target is for", "remove one of them"),
    "three rows": Mistake("init three.csv", "three.csv: ", "has 3 rows", "give it some hundreds"),
    "three rows without a schema": Mistake(
        "train --data three.csv --out new", "three.csv: ", "has 3 rows", "give it some hundreds",
    ),
    "an option without a value": Mistake("train films.yaml --data films.csv", "train", "Missing option", "--out"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_answered(user_folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    monkeypatch.setattr(memory_estimate, "free_memory", lambda: 8 << 20 if "dim" in name else 2 << 30)
    before = sorted(user_folder.rglob("*"))
    done = feat2vec(*mistake.words.split(), folder=user_folder, code=2)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 5
    assert max(map(len, lines)) <= 200
    for part in mistake[1:]:
        assert part in done.stderr
    assert sorted(user_folder.rglob("*")) == before, "a mistake leaves nothing behind"


def test_every_problem_is_told_on_five_lines(user_folder: Path) -> None:
    lines = feat2vec("check", "typos.yaml", folder=user_folder, code=2).stderr.splitlines()
    assert len(lines) == 5
    for key in ("nam", "dmi", "lokup", "colum", "alpha_group", "nec", "mpl", "epoch", "adagrd"):
        assert any(key in line for line in lines), key


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_table_of_a_few_rows_trains(user_folder: Path, tmp_path: Path, count: int) -> None:
    (tmp_path / "few.csv").write_text(rows(count))
    done = feat2vec("train", user_folder / "films.yaml", "--data", "few.csv", "--out", "run", folder=tmp_path)
    assert f"{count} rows" in done.stderr
    assert feat2vec("similar", "run", "director", "Bo", folder=tmp_path).stdout


def test_a_group_of_one_value_is_never_drawn_and_others_are(user_folder: Path, tmp_path: Path) -> None:
    words = ["train", "films.yaml", "--data", "films.csv", "--out", tmp_path / "run"]
    feat2vec(*words, "--set", "groups.score.column=one", "--set", "groups.score.extractor=lookup", folder=user_folder)
    assert feat2vec("similar", tmp_path / "run", "director", "Bo").stdout
