"""The schema that is proposed for a table fits it, and says why it is what it is."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feat2vec
from feat2vec.errors import UserError
from feat2vec.schema.options import Schema, read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.profile import profile_table
from feat2vec.table.propose import propose
from feat2vec.table.table import open_table

ROWS = 120
PAIR: dict[str, Any] = {"kind": ["a", "b", "c"] * 40, "size": [i % 7 / 4 for i in range(ROWS)]}
WORDS = ["red", "green", "blue", "old", "new", "house", "river", "night", "war", "love", "garden", "king"]
HOSTILE = [
    "no", "on", "null", "~", "010", "1_000", "12", "1e3", "12:30", "2020-01-01", "a: b", "a #b", "#", " lead", "trail ",
    "'", '"', "\\", "{x}", "[x]", "- x", "?", "%", "@", "`", "&a", "*a", "!x", "|", ">", ",", ":", "=", "<<", "a\nb",
    "a\tb", "\x07", "\x7f", "\x85", "\u2028", "\ufeff", "東京", "naïve", "🎬", "a" * 200, "word " * 60,
    "東" * 100, "A", "a", "A.b",
]  # fmt: skip


def proposed(table: object) -> tuple[str, Schema]:
    text = propose(table)
    return text, read_schema(parse_document(text))


def fitted(table: object, folder: Path) -> tuple[str, Schema]:
    text, schema = proposed(table)
    feat2vec.fit(schema, table, folder)
    return text, schema


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


NUMERIC = {"type": "numeric", "hidden": (32,)}
LOOKUP = {"type": "lookup"}
DAYS = [date(2015, 1, 1) + timedelta(days=11 * i) for i in range(ROWS)]
TIMES = [datetime(2015, 1, 1) + timedelta(hours=271 * i) for i in range(ROWS)]
CHOICES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "fractions": ([i / 8 for i in range(ROWS)], NUMERIC),
    "many whole numbers": ([i * i % 1009 for i in range(ROWS)], NUMERIC),
    "few whole numbers": ([i % 5 for i in range(ROWS)], LOOKUP),
    "zeros and ones": ([i % 2 for i in range(ROWS)], LOOKUP),
    "years": ([1950 + i % 40 for i in range(ROWS)], LOOKUP),
    "each year once": ([1900 + i for i in range(ROWS)], NUMERIC),
    "booleans": ([i % 3 == 0 for i in range(ROWS)], LOOKUP),
    "a long tail": ([1.6**i for i in range(60)] * 2, {**NUMERIC, "scale": "log1p"}),
    "codes": ([f"0{i % 30}" for i in range(ROWS)], LOOKUP),
    "words": ([WORDS[i % 12] for i in range(ROWS)], LOOKUP),
    "names with a comma": ([f"{WORDS[i % 12].title()}, {WORDS[i % 7]}n" for i in range(ROWS)], LOOKUP),
    "prose": (texts(1), {"type": "text_cnn", "max_tokens": 4}),
    "bars": (bags("|"), {"type": "lookup", "split": "|", "max_items": 4}),
    "semicolons": (bags("; "), {"type": "lookup", "split": ";", "max_items": 4}),
    "commas": (bags(","), {"type": "lookup", "split": ",", "max_items": 4}),
    "slashes": (bags(" / "), {"type": "lookup", "split": "/", "max_items": 4}),
    "vectors as text": ([f"[{i / 8}, {i % 3}, -1e-3]" for i in range(ROWS)], {"type": "vector"}),
    "days": (DAYS, {"type": "lookup", "parts": ("year", "month", "weekday")}),
    "times": (TIMES, {"type": "lookup", "parts": ("year", "month", "weekday", "hour")}),
    "firsts of January": (
        [date(1900 + i % 40, 1, 1) for i in range(ROWS)], {"type": "lookup", "parts": ("year",)},
    ),
    "two days": ([date(2020, 1, 6 + 7 * (i % 2)) for i in range(ROWS)], NUMERIC),
    "gaps": ([None if i % 4 else i / 8 for i in range(ROWS)], NUMERIC),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
def test_each_kind_of_column_gets_its_extractor(name: str, csv: bool, tmp_path: Path) -> None:
    values, expected = CHOICES[name]
    text, extractor = column(values, csv=csv, tmp_path=tmp_path)
    assert extractor == expected, text


LISTS: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "text": (
        pa.array([[WORDS[i % 12], WORDS[i % 5]] if i % 9 else [] for i in range(ROWS)]),
        {"type": "lookup", "multi": True, "max_items": 2},
    ),
    "numbers": (
        pa.array([list(range(i % 4 + 1)) for i in range(ROWS)]),
        {"type": "lookup", "multi": True, "max_items": 4},
    ),
    "vectors": (pa.array([[i / 8, 1.0, 0.5] for i in range(ROWS)], pa.list_(pa.float32(), 3)), {"type": "vector"}),
    "loose vectors": (pa.array([[i / 8, 1.0] if i else None for i in range(ROWS)]), {"type": "vector"}),
    "NaN": (
        pa.array([float("nan") if i % 4 else float(i) for i in range(ROWS)], from_pandas=False),
        {**NUMERIC, "nan": "missing"},
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_typed_columns_of_lists_and_nan(name: str, tmp_path: Path) -> None:
    values, expected = LISTS[name]
    text, schema = fitted(pa.table({"it": values, **PAIR}), tmp_path / "encoded")
    extractor = schema.groups["it"].extractor
    assert extractor.model_dump(exclude_defaults=True) | {"type": extractor.type} == expected, text


LEFT_OUT: dict[str, tuple[Any, str]] = {
    "sequence": (list(range(1, ROWS + 1)), "it: an identifier: 120 numbers in 120 rows; it names the rows"),
    "words": ([f"u{i}" for i in range(ROWS)], "it: an identifier: 120 values in 120 rows; it names the rows"),
    "some words twice": (
        [f"u{i // 2 if i < 4 else i}" for i in range(ROWS)],
        "it: an identifier: 118 values in 120 rows",
    ),
    "constant": (["x"] * ROWS, "it: one value in every row"),
    "constant number": ([5.0] * ROWS, "it: one value in every row"),
    "one or none": (["x", None] * 60, "it: one value, or none"),
    "missing": (pa.nulls(ROWS, pa.string()), "it: no value in any row"),
    "null": (pa.nulls(ROWS), "it: no value in any row"),
    "structs": ([{"x": 1}] * ROWS, "it: is of type struct<x: int64>, which cannot be used"),
    "lists of structs": ([[{"x": 1}]] * ROWS, "it: is of type list<item: struct<x: int64>>"),
    "lists of lists": ([[["x"]]] * ROWS, "it: holds lists of lists"),
    "one list": ([["x", "y"]] * ROWS, "it: one value in every row"),
    "ragged": ([[0.5] * (1 + i % 2) for i in range(ROWS)], "a vector of 1 numbers is needed, this has 2"),
    "infinity": ([0.5 * i for i in range(ROWS - 1)] + [float("inf")], "it: received inf; numbers must be finite"),
    "far apart": ([10.0 ** (250 * (i % 2)) + i for i in range(ROWS)], "too far apart to be scaled"),
    "huge": ([2**60 + i for i in range(ROWS)], "it: an identifier: 120"),
    "bytes": ([b"\xff\xfe%d" % i for i in range(ROWS)], "cannot be read as string"),
    "numbers as text": ([str(i * i) for i in range(ROWS)], "120 values in 120 rows; cast it if these are numbers"),
    "dates of another kind": ([f"{1 + i % 28}.{1 + i // 28}.2020" for i in range(ROWS)], "write dates as 2024-01-31"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_cannot_be_learnt_from_is_left_out_with_the_reason(name: str, tmp_path: Path) -> None:
    values, reason = LEFT_OUT[name]
    text, schema = fitted(pa.table({"it": values, **PAIR}), tmp_path / "encoded")
    assert list(schema.groups) == ["kind", "size"]
    assert reason in re.sub(r"\n#  +", " ", text)
    assert (schema.id == "it") == (
        "names the rows" in reason or name in ("huge", "numbers as text", "dates of another kind")
    )


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
model: {dim: 32}
groups:
  title:  {column: title, extractor: {type: text_cnn, max_tokens: 4}}  # 2,000 texts, 4.0 words on average
  genres: {column: genres, extractor: {type: lookup, split: "|", max_items: 3}}  # lists, 99 % of them of 3 or fewer
  year:   {column: year, extractor: lookup}  # 70 numbers, 1950 to 2019
  score:  {column: score, extractor: {type: numeric, hidden: [32]}}  # 0 to 9.6, 2 % missing

# Left out:
#   film: an identifier: 2,000 values in 2,000 rows; it names the rows
#   language: one value in every row

noise: {alpha_groups: 0.25, alpha_values: 0.75, negatives: 5}
objective: {type: nce}
# objective: {type: softmax, target: year}
#   to learn from labels: this line instead, and without the group year
training: {epochs: 50, batch_size: 128, optimizer: {type: adagrad, learning_rate: 0.1}, seed: 0}
"""
    text, schema = fitted(str(path), tmp_path / "encoded")
    assert text == expected
    assert schema.training.batch_size <= 2000 / 8


@pytest.mark.parametrize(
    "line", ["# objective: {type: softmax, target: kind}", "# objective: {type: logistic, target: it}"]
)
def test_the_commented_objective_can_be_used(line: str, tmp_path: Path) -> None:
    columns = {**PAIR, "it": [i % 2 for i in range(ROWS)]} if "logistic" in line else {**PAIR, "size": texts(1)}
    text = propose(pa.table(columns))
    assert line in text
    target = line.split()[-1].rstrip("}")
    text = re.sub(rf"(?m)^  {target}: .*\n|^objective: .type: nce.\n", "", text.replace(line, line.removeprefix("# ")))
    feat2vec.fit(read_schema(parse_document(text)), pa.table(columns), tmp_path / "encoded")


def test_one_bad_value_in_the_last_row_decides(tmp_path: Path) -> None:
    numbers: list[Any] = [str(i % 11 + i / 8) for i in range(ROWS - 1)]
    text, extractor = column([*numbers, "about 3"], csv=True, tmp_path=tmp_path)
    assert not extractor
    assert '# it: an identifier: 120 values in 120 rows; numbers, but for "about 3"' in re.sub(r"#\s+", "# ", text) or (
        "numbers, but for about 3" in text
    )


@pytest.mark.parametrize("absent", ["NA", "NaN", "null", ""])
def test_the_missing_numbers_of_a_text_file(absent: str, tmp_path: Path) -> None:
    text, extractor = column([absent, *(str(i / 8) for i in range(1, ROWS))], csv=True, tmp_path=tmp_path)
    assert extractor == NUMERIC
    assert "# 0.125 to 14.88, under 1 % missing" in text


def test_a_missing_word_in_a_lookup_is_pointed_out(tmp_path: Path) -> None:
    text, extractor = column(["NA" if i % 4 == 0 else str(i % 3) for i in range(ROWS)], csv=True, tmp_path=tmp_path)
    assert extractor == LOOKUP
    assert "NA counts as a key" in text


def test_numbers_that_are_called_keys_are_keys(tmp_path: Path) -> None:
    table = pa.table(
        {"user_id": [i if i % 4 else 0 for i in range(ROWS)], "itemId": [i // 2 for i in range(ROWS)], **PAIR}
    )
    _, schema = fitted(table, tmp_path / "encoded")
    assert schema.groups["user_id"].extractor == schema.groups["itemId"].extractor == schema.groups["kind"].extractor


def test_the_id_is_the_column_that_is_called_so() -> None:
    table = pa.table({"code": [f"c{i}" for i in range(ROWS)], "name": [f"n{i}" for i in range(ROWS)], **PAIR})
    assert proposed(table)[1].id == "code"
    assert proposed(table.drop_columns(["code"]))[1].id == "name"
    assert proposed(table.set_column(0, "code", pa.array(["c0"] * ROWS)))[1].id == "name"
    assert proposed(pa.table(PAIR))[1].id is None


def test_facts_stand_beside_the_groups(tmp_path: Path) -> None:
    text, _ = column([WORDS[i % 12] if i % 3 else None for i in range(ROWS)], csv=False, tmp_path=tmp_path)
    assert "# 8 keys in 120 rows, 33 % missing" in text


def test_recodings_are_commented_out(tmp_path: Path) -> None:
    table = pa.table(
        {"code": [ord(kind) for kind in PAIR["kind"]], **PAIR, "Size": [2 * size for size in PAIR["size"]]}
    )
    text, schema = fitted(table, tmp_path / "encoded")
    assert list(schema.groups) == ["code", "size"]
    assert "  # kind:   {column: kind, extractor: lookup}  # tells what code tells, one to one" in text
    assert list(proposed(table.select(["code", "kind"]))[1].groups) == ["code", "kind"]  # better than no schema


def test_very_many_numbers_become_a_few_groups(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = {f"sensor_{i}": rng.normal(size=ROWS) for i in range(12)} | {
        name: rng.normal(size=ROWS) for name in "xyz"
    }
    table = pa.table({"kind": PAIR["kind"], **numbers})
    _, schema = fitted(table, tmp_path / "encoded")
    assert {name: len(group.columns) for name, group in schema.groups.items()} == {
        "kind": 1,
        "sensor": 12,
        "numbers": 3,
    }
    assert schema.groups["sensor"].extractor == schema.groups["numbers"].extractor
    few = table.select([f"sensor_{i}" for i in range(12)])
    assert len(proposed(few)[1].groups) == 12
    only = pa.table({f"sensor_{i}": rng.normal(size=ROWS) for i in range(20)})
    assert len(proposed(only)[1].groups) == 20  # one group has nothing to learn from


def test_hostile_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"": PAIR["kind"], **{name: rng.integers(0, 7, ROWS) for name in HOSTILE}})
    text, schema = fitted(table, tmp_path / "encoded")
    assert '#   "": its name is empty; give it one to use it' in text
    assert {column for group in schema.groups.values() for column in group.columns} == set(HOSTILE)
    assert all(char.isprintable() or char == "\n" for char in text)


def test_hopeless_tables_are_refused_with_every_reason() -> None:
    table = pa.table({"id": range(50), "same": [1] * 50, "x": [i / 8 for i in range(50)]})
    message = (
        "the table: 1 of 3 columns can be a group, and a schema needs two, or one and a target; left out:\n"
        "  id: an identifier: 50 numbers in 50 rows\n"
        "  same: one value in every row\n"
        "add columns whose values come again, or write a schema by hand and give it an objective with a target"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        propose(table)
    with pytest.raises(UserError, match="no of 1 columns can be a group"):
        propose(pa.table({"id": range(50)}))


def test_a_broken_text_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_bytes(b"a,b\n" + b"1,\xff\n" * 50)
    with pytest.raises(UserError, match=r"films\.csv"):
        propose(tmp_path / "films.csv")


def test_stages_are_counted_together() -> None:
    rows = 300_000  # three batches
    table = pa.table(
        {
            "unique": [f"k{i}" for i in range(rows)],
            "twice": [f"k{i % (rows // 2)}" for i in range(rows)],
            "few": [i % 6 for i in range(rows)],
            "late": pa.array([None] * (rows - 1000) + [i / 8 for i in range(1000)]),
            "constant": [1] * rows,
        }
    )
    whole = propose(table)
    assert propose(table, stage_bytes=1) == whole
    assert "# 150,000 keys in 300,000 rows" in whole
    assert "id: unique" in whole


def test_it_is_quick_and_imports_no_framework(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = 100_000
    columns: dict[str, Any] = {f"word{i}": np.array(WORDS)[rng.integers(0, 12, rows)] for i in range(4)}
    columns |= {f"number{i}": rng.normal(size=rows) for i in range(4)}
    columns |= {"title": texts(3, 5) * (rows // ROWS) + texts(4, 5)[: rows % ROWS], "id": np.arange(rows)}
    columns |= {"age": rng.integers(0, 99, rows), "genres": bags("|") * (rows // ROWS) + bags("|")[: rows % ROWS]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    start = time.process_time()
    propose(tmp_path / "rows.parquet")
    assert time.process_time() - start < 4
    code = (
        "import sys; from feat2vec.table.propose import propose; propose('dataset:artworks');"
        "print([name for name in ('tensorflow', 'keras', 'duckdb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_pandas_frame_may_hold_anything(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(PAIR["kind"], categories=["d", "c", "b", "a"]),
            "size": [None if i % 5 == 0 else i // 3 for i in range(ROWS)],
            "mixed": ["a", 1] * 60,
            "span": pd.to_timedelta(range(ROWS), unit="h"),
        }
    )
    text, schema = fitted(frame, tmp_path / "encoded")
    assert list(schema.groups) == ["kind", "size"]
    assert "#   mixed: 1: expected one kind of value, received numbers and text" in text
    assert "#   span: is of type duration" in text


def test_the_name_and_the_source_are_the_callers() -> None:
    table = pa.table(PAIR)
    assert read_schema(parse_document(propose(table, "no"))).name == "no"
    assert proposed("dataset:artworks")[1].name == "artworks"
    assert "--data dataset:artworks\n" in propose("dataset:artworks")


# --- any table ------------------------------------------------------------------------------------------------------

LETTERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
VALUES: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 3),
    st.floats(),
    st.floats(0, 1),
    LETTERS.map(lambda text: text[:12]),
    st.sampled_from(WORDS),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("|".join),
    st.sampled_from(["NA", "1", "2.5", "x", "true", "2020-01-01", "1e400", "0x1", "1,5", ""]),
    st.dates(),
    st.datetimes(),
    st.lists(st.integers(0, 5), max_size=3),
    st.lists(st.sampled_from(["", "a", "b"]), max_size=3),
    st.lists(st.floats(0, 1), min_size=2, max_size=2),
    st.lists(st.floats(), max_size=2),
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    names = draw(
        st.lists(LETTERS.map(lambda text: text[:6]) | st.sampled_from(HOSTILE), min_size=2, max_size=5, unique=True)
    )
    columns = {}
    for name in names:
        value = draw(st.sampled_from(VALUES))
        pool = draw(st.lists(value | st.none() if draw(st.booleans()) else value, min_size=1, max_size=rows))
        columns[name] = pa.array([pool[draw(st.integers(0, len(pool) - 1))] for _ in range(rows)], from_pandas=False)
    return pa.table(columns)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(tables(), st.booleans())
def test_any_table_gets_a_schema_that_fits_it(
    tmp_path_factory: pytest.TempPathFactory, table: pa.Table, as_text: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    source: Any = table
    if as_text:
        source = folder / "any.csv"
        table.to_pandas().to_csv(source, index=False, quoting=csv.QUOTE_ALL)
    try:
        text = propose(source)
    except UserError as error:
        if "and a schema needs two" not in str(error):
            raise
        return
    assert all(char.isprintable() or char == "\n" for char in text)
    encoded = feat2vec.fit(read_schema(parse_document(text)), source, folder / "encoded")
    assert len(encoded) == table.num_rows


def test_large_decimals_are_identifiers(tmp_path: Path) -> None:
    """Profiled over more than one stage, whose distinct keys DuckDB counts."""
    numbers = [Decimal(2**53 + i % 4) for i in range(40)]
    table = pa.table({"id": pa.array(numbers, pa.decimal128(38)), "wide": pa.array(numbers, pa.decimal256(76))})
    pq.write_table(table[:20], tmp_path / "a.parquet")
    pq.write_table(table[20:], tmp_path / "b.parquet")
    columns, left_out = profile_table(open_table(f"{tmp_path}/*.parquet"), stage_bytes=1)
    assert not left_out
    assert [(column.kind, column.distinct) for column in columns] == [("text", 4)] * 2


def test_times_with_nanoseconds_are_proposed_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    times = pa.array(np.arange(1, 21), pa.timestamp("ns"))
    (column, _), _ = profile_table(open_table(pa.table({"t": times, "b": range(20)})))
    assert (column.kind, column.distinct, column.sample[0]) == ("date", 20, datetime(1970, 1, 1))
