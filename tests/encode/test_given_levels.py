"""Levels that a column of the rows tells: the ids of keys, their vocabulary in files, and what is refused."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.workspace import PieceSizes
from feat2vec.errors import UserError
from feat2vec.model.vector_model import shapes_of

KEYS = ["a"] * 6 + ["b"] * 4 + ["c"] * 3 + ["d"] * 2 + ["e"] * 2 + [None]
LEVELS = [1] * 6 + [None] * 3 + [1] + [1, 2, 1] + [3, 2] + [None, None] + [3]
EXPECTED = {"a": 1, "b": 1, "c": 2, "d": 3, "e": 1}  # e has the level of its count


def encoded(levels: list[Any] = LEVELS, **options: Any) -> Encoded:
    table = pa.table({"key": KEYS, "other": ["x", "y"] * 9, "depth": levels})
    schema = {
        "version": 1,
        "model": {"ranks": [2, 4, 8], "levels": {"columns": {"key": "depth"}, "counts": [100, 200]}},
        "groups": {"key": {"column": "key"}, "other": {"column": "other"}},
    }
    return fit(schema, table, **options)


@pytest.mark.parametrize("held_key_bytes", [1 << 20, 0])
def test_ids_are_by_level_then_count(held_key_bytes: int) -> None:
    rows = encoded(sizes=PieceSizes(held_key_bytes=held_key_bytes, stage_bytes=40))
    vocabulary = rows.encoder.codecs["key"].vocabulary
    assert vocabulary is not None
    assert vocabulary.keys.to_pylist() == ["d", "c", "a", "b", "e"]
    levels = vocabulary.levels_in(rows.encoder.schema.model.levels)
    assert dict(zip(vocabulary.keys.to_pylist(), levels.tolist(), strict=True)) == EXPECTED
    assert vocabulary.counts.tolist() == [2, 3, 6, 4, 2]
    entries = rows.values["key"].entries
    decoded = [None if i < 0 else rows.encoder.decode("key", entries[[i]])[0][0] for i in rows.rows[:, 0]]
    assert decoded == KEYS
    assert shapes_of(rows.encoder)["key"].sizes == (6, 2, 1)
    assert shapes_of(rows.encoder)["other"].sizes == (3, 0, 0)  # of a group without a column, by counts


def test_levels_are_in_the_files_of_an_encoder(tmp_path: Path) -> None:
    rows = encoded()
    rows.encoder.save(tmp_path / "encoder")
    loaded = feat2vec.Encoder.load(tmp_path / "encoder")
    vocabulary = loaded.codecs["key"].vocabulary
    assert vocabulary is not None
    assert vocabulary.levels is not None
    assert vocabulary.levels.tolist() == [3, 2, 1, 1, 1]
    assert shapes_of(loaded) == shapes_of(rows.encoder)
    new_rows = loaded.encode(pa.table({"key": ["c", "new"], "other": ["x", "y"]}))  # which have no column of levels
    assert new_rows.rows.shape == (2, 2)
    facts = tmp_path / "encoder" / "encoder.json"
    facts.write_text(facts.read_text().replace('"levels_given": true,', ""))
    with pytest.raises(UserError, match="counts do not descend"):
        feat2vec.Encoder.load(tmp_path / "encoder")


@pytest.mark.parametrize("level", [0, 4, 1.5, -1])
def test_what_is_no_level_is_refused_with_its_row(level: float) -> None:
    levels = [*LEVELS[:7], level, *LEVELS[8:]]
    message = f"row 8: column 'depth': received {level!r}; a level is a whole number, 1 to 3"
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        encoded(levels if isinstance(level, int) else [None if x is None else float(x) for x in levels])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            [str(level) if level else None for level in LEVELS],
            "row 1: column 'depth': received '1'; {}, and the column h",
        ),
        ([level and datetime.date(2020, 1, 1) for level in LEVELS], r"row 1: column 'depth' holds date32.*; {}"),
        ([level and level == 1 for level in LEVELS], "row 1: column 'depth' holds bool; {}"),
        ([None] * 18, r"column 'depth', of model.levels, tells no level in any row that has a key; fill it, or remove"),
        ([None] * 17 + [3], "tells no level in any row that has a key"),
    ],
)
def test_a_column_of_something_else_holds_no_levels(column: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message.format("a level is a whole number, 1 to 3")):
        encoded(column)


def test_levels_of_a_csv_are_whole_numbers(tmp_path: Path) -> None:
    model = {"ranks": [2, 4], "levels": {"columns": {"key": "depth"}}}
    schema = {"version": 1, "model": model, "groups": {"key": {"column": "key"}, "other": {"column": "other"}}}
    path = tmp_path / "rows.csv"
    path.write_text("key,other,depth\na,x,1.0\nb,y, 2\nc,x,\nb,x,NA\n")
    vocabulary = fit(schema, path).encoder.codecs["key"].vocabulary
    assert vocabulary is not None
    assert vocabulary.keys.to_pylist()[0] == "b"
    path.write_text("key,other,depth\na,x,\nb,y,deep\n")
    with pytest.raises(UserError, match=r"row 2: column 'depth': received 'deep'; a level is a whole number, 1 to 2$"):
        fit(schema, path)


def test_a_column_that_is_not_there_is_refused() -> None:
    table = pa.table({"key": KEYS, "other": ["x", "y"] * 9})
    model = {"ranks": [2, 4], "levels": {"columns": {"key": "depth"}}}
    groups = {"key": {"column": "key"}, "other": {"column": "other"}}
    with pytest.raises(UserError, match=r"has no column 'depth', which model\.levels\.columns\.key names"):
        fit({"version": 1, "model": model, "groups": groups}, table)


def test_the_levels_of_a_vocabulary_descend() -> None:
    vocabulary = encoded().encoder.codecs["key"].vocabulary
    assert vocabulary is not None
    table = vocabulary.table((2, 4, 8))
    for levels, message in (([1, 2, 1, 1, 1], "levels do not descend"), ([3, 2, 1, 1, None], "lacks a level")):
        altered = table.set_column(3, "level", pa.array(levels, pa.int8()))
        with pytest.raises(ValueError, match=message):
            type(vocabulary).from_table(altered, 0, "text", levels_given=True)
    loaded = type(vocabulary).from_table(table, 0, "text", levels_given=True)
    assert loaded.levels is not None
    assert loaded.levels.tolist() == [3, 2, 1, 1, 1]
