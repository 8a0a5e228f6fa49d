"""The text of a proposed schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import propose
from tests.table.propose.columns import HOSTILE, PAIR, ROWS, WORDS, fitted, proposed


def test_the_whole_text(tmp_path: Path) -> None:
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
    expected = """\
# Written by `feat2vec init` from my films.csv: 2,000 rows, 6 columns.
# Next: feat2vec check schema.yaml --data 'my films.csv'

version: 1
name: my_films
id: film  # names every row
model: {dim: 64}  # dimensions of every vector
groups:
  title:  {column: title, extractor: {type: text_cnn, max_tokens: 4}}  # 2,000 texts, 4.0 words on average
  genres: {column: genres, extractor: {type: lookup, split: "|", max_items: 3}}  # lists, 99 % of them of 3 or fewer
  year:   {column: year, extractor: lookup}  # 70 numbers, 1950 to 2019
  score:  {column: score, extractor: {type: lookup, bins: 16}}  # 0 to 9.6, 2 % missing

# Left out:
#   film: an identifier: 2,000 values in 2,000 rows; it names the rows
#   language: one value in every row

noise: {sharing: batch, negatives: 256}  # values that the row's own are told from, shared by a batch
# candidates are compared by cosine, so they are learnt so
objective: {type: contrastive, unit: true, temperature: 0.2, correction: true}
# To predict a column from labels instead: feat2vec init 'my films.csv' --target COLUMN
# 2,000 rows: fewer rows need more epochs, in smaller batches
training:
  epochs: 80
  batch_size: 512
  optimizer: {type: adagrad, learning_rate: 0.1}
  group_dropout: 0.1
  l2: 0
  seed: 0
"""
    text, schema = fitted(str(path), tmp_path / "encoded")
    assert text == expected
    assert (schema.objective.type, schema.noise.sharing) == ("contrastive", "batch")


def test_hostile_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"": PAIR["kind"], **{name: rng.integers(0, 7, ROWS) for name in HOSTILE}})
    text, schema = fitted(table, tmp_path / "encoded")
    assert '#   "": its name is empty; give it one to use it' in text
    assert {column for group in schema.groups.values() for column in group.columns} == set(HOSTILE)
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_name_and_the_source_are_the_callers() -> None:
    table = pa.table(PAIR)
    assert read_schema(parse_document(propose(table, "no"))).name == "no"
    assert proposed("dataset:artworks")[1].name == "artworks"
    assert "feat2vec check schema.yaml --data dataset:artworks\n" in propose("dataset:artworks")
    assert "feat2vec check 'a b.yaml' --data dataset:artworks\n" in propose("dataset:artworks", path=Path("a b.yaml"))
