"""The text of a proposed schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import learning, propose, propose_schema
from feat2vec.table.propose.defaults import GroupFacts, Section, TableFacts
from tests.table.propose.columns import HOSTILE, PAIR, ROWS, WORDS, fitted, proposed

SECTIONS = {
    "model": Section({"dim": 8}, "dimensions"),
    "noise": Section({"negatives": 9}, ""),
    "objective": Section(
        {"type": "contrastive", "temperature": 0.5},
        "a reason that does not stand behind the options, as the line would be longer than a terminal is wide",
    ),
    "training": Section(
        {
            "epochs": 2, "batch_size": 512, "optimizer": {"type": "adagrad", "learning_rate": 0.1}, "patience": 0,
            "seed": 0, "checkpoint_minutes": 7,
        },
        "many options",
    ),
}  # fmt: skip


def _bins_of_numbers(group: GroupFacts, facts: TableFacts) -> dict[str, object]:
    del facts
    return {"type": "lookup", "bins": 9} if group.kind == "numbers" else group.extractor


def test_the_whole_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With defaults of its own, as those are what the benchmark chooses."""
    films = pa.table(
        {
            "film": [f"f{i:03}" for i in range(2000)],
            "title": [" ".join(WORDS[(i * k) % 12] for k in (1, 5, 7)) + f" {i}" for i in range(2000)],
            "genres": ["|".join(WORDS[(i + j) % 12] for j in range(i % 3 + 1)) for i in range(2000)],
            "year": [1950 + i % 70 for i in range(2000)],
            "score": [None if i % 50 == 0 else (i % 97) / 10 for i in range(2000)],
            "language": ["en"] * 2000,
        }
    )
    path = tmp_path / "my films.csv"
    arrow_csv.write_csv(films, path)
    monkeypatch.setattr(learning, "unlabelled_defaults", lambda _: SECTIONS)
    monkeypatch.setattr(learning, "extractor_for", _bins_of_numbers)
    expected = """\
# Written by `feat2vec init` from my films.csv: 2,000 rows, 6 columns.
# Next: feat2vec check schema.yaml --data 'my films.csv'

version: 1
name: my_films
id: film  # names every row
model: {dim: 8}  # dimensions
groups:
  # 2,000 texts, 4.0 words on average; text_cnn or text_attention would read them in order
  title:  {column: title, extractor: {type: text_cnn, max_tokens: 4}}
  genres: {column: genres, extractor: {type: lookup, split: "|", max_items: 3}}  # lists, nearly all of 3 or fewer
  year:   {column: year, extractor: lookup}  # 70 numbers, 1950 to 2019
  score:  {column: score, extractor: {type: lookup, bins: 9}}  # 0 to 9.6, 2 % missing

# Left out:
#   film: an identifier: 2,000 values in 2,000 rows; it names the rows
#   language: one value in every row

noise: {negatives: 9}
# a reason that does not stand behind the options, as the line would be longer than a terminal is wide
objective: {type: contrastive, temperature: 0.5}
# To predict a column from labels instead: feat2vec init 'my films.csv' --target COLUMN
# many options
training:
  epochs: 2
  batch_size: 512
  optimizer: {type: adagrad, learning_rate: 0.1}
  patience: 0
  seed: 0
  checkpoint_minutes: 7
"""
    text, schema = fitted(str(path), tmp_path / "encoded")
    assert text == expected
    assert (schema.model.dim, schema.training.checkpoint_minutes) == (8, 7)


def test_an_option_that_is_too_long_for_a_line_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a_group_of_numbers_{i}" for i in range(12)]
    sections = {**SECTIONS, "noise": Section({"negatives": 9, "targets": dict.fromkeys(names, 1.5)}, "a reason")}
    monkeypatch.setattr(learning, "unlabelled_defaults", lambda _: sections)
    text, schema = proposed(pa.table({name: np.arange(ROWS) % 7 for name in names}))
    assert schema.noise.targets == dict.fromkeys(names, 1.5)
    assert "\n  targets:\n    a_group_of_numbers_0: 1.5\n" in text
    assert max(map(len, text.splitlines())) <= 120


def test_hostile_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"": PAIR["kind"], **{name: rng.integers(0, 7, ROWS) for name in HOSTILE}})
    text, schema = fitted(table, tmp_path / "encoded")
    assert '#   "": its name is empty; give it one to use it' in text
    assert {column for group in schema.groups.values() for column in group.columns} == set(HOSTILE)
    assert all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize(("first", "reason"), [(0, "an index that pandas wrote"), (1, "an index"), (2, "its name is")])
def test_an_index_without_a_name(first: int, reason: str, tmp_path: Path) -> None:
    table = pa.table({"": range(first, first + ROWS), **PAIR})
    arrow_csv.write_csv(table, tmp_path / "made.csv")
    for source in (table, str(tmp_path / "made.csv")):
        proposal = propose_schema(source)
        assert f'#   "": {reason}' in proposal.text
        assert "left out: the column without a name" in proposal.choices


def test_the_name_and_the_source_are_the_callers() -> None:
    table = pa.table(PAIR)
    assert read_schema(parse_document(propose(table, "no"))).name == "no"
    assert proposed("dataset:artworks")[1].name == "artworks"
    assert "feat2vec check schema.yaml --data dataset:artworks\n" in propose("dataset:artworks")
    assert "feat2vec check 'a b.yaml' --data dataset:artworks\n" in propose("dataset:artworks", path=Path("a b.yaml"))
