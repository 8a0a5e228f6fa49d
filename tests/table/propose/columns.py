"""Columns that rules decide on, and the schema that is proposed for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

import feat2vec
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.propose import propose
from feat2vec.table.propose.defaults import GroupFacts, TableFacts, extractor_for

ROWS = 120
PAIR: dict[str, Any] = {"kind": ["a", "b", "c"] * 40, "size": [i % 7 / 4 for i in range(ROWS)]}
WORDS = ["red", "green", "blue", "old", "new", "house", "river", "night", "war", "love", "garden", "king"]
HOSTILE = [
    "no", "on", "null", "~", "010", "1_000", "12", "1e3", "12:30", "2020-01-01", "a: b", "a #b", "#", " lead", "trail ",
    "'", '"', "\\", "{x}", "[x]", "- x", "?", "%", "@", "`", "&a", "*a", "!x", "|", ">", ",", ":", "=", "<<", "a\nb",
    "a\tb", "\x07", "\x7f", "\x85", "\u2028", "\ufeff", "東京", "naïve", "🎬", "a" * 200, "word " * 60,
    "東" * 100, "A", "a", "A.b",
]  # fmt: skip


def proposed(table: object, target: str | None = None) -> tuple[str, Schema]:
    text = propose(table, target=target)
    return text, read_schema(parse_document(text))


def fitted(table: object, folder: Path) -> tuple[str, Schema]:
    text, schema = proposed(table)
    feat2vec.fit(schema, table, folder)
    return text, schema


def numbers_of(present: int, *, has_nan: bool = False) -> dict[str, Any]:
    """The extractor of a column of numbers with so many values, as a schema has it, whatever the defaults are."""
    options: dict[str, Any] = {"type": "numeric", "hidden": [32]} | ({"nan": "missing"} if has_nan else {})
    group = GroupFacts("numbers", present, present, 1.0, 1.0, 1, has_nan=has_nan, extractor=options)
    extractor = extractor_for(group, TableFacts(ROWS, {"it": group}))
    return {key: tuple(value) if isinstance(value, list) else value for key, value in extractor.items()}


def column(values: list[Any], *, csv: bool, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """What is proposed for a column beside two plain ones: the text, and the extractor if there is one."""
    table: Any = pa.table({"it": values, **{name: plain[: len(values)] for name, plain in PAIR.items()}})
    if csv:
        arrow_csv.write_csv(table, tmp_path / "made.csv")
        table = str(tmp_path / "made.csv")
    text, schema = fitted(table, tmp_path / "encoded")
    group = schema.groups.get("it")
    return text, {} if group is None else group.extractor.model_dump(exclude_defaults=True) | {
        "type": group.extractor.type
    }


def texts(seed: int, words: int = 4) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, words)) for _ in range(ROWS)]


def bags(delimiter: str) -> list[str]:
    rng = np.random.default_rng(5)
    return [delimiter.join(rng.choice(WORDS, rng.integers(1, 5), replace=False)) for _ in range(ROWS)]
