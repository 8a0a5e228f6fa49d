"""The few types of columns, and the values that do not fit them."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.table.table import open_table
from feat2vec.table.types import kind_of_type
from tests.table.tables import S, column, refuse

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
    (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["x", None]).dictionary_encode()), S, ["x", "x", None]),
    (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([[1], None])), pa.list_(pa.int64()), [[1], [1], None]),
    (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
    (pa.array([2**64 - 1], pa.uint64()), pa.uint64(), [2**64 - 1]),
    (pa.array([1.5, None], pa.float16()), pa.float32(), [1.5, None]),
    (pa.array([1.5], pa.float32()), pa.float32(), [1.5]),
    (pa.array([Decimal("1.25"), None]), pa.float64(), [1.25, None]),
    (pa.array([Decimal("1.25"), None], pa.decimal32(5, 2)), pa.float64(), [1.25, None]),
    (pa.array([Decimal(7), None], pa.decimal64(17)), pa.int64(), [7, None]),
    (pa.array([[Decimal("1.25")], None], pa.list_(pa.decimal32(5, 2))), pa.list_(pa.float64()), [[1.25], None]),
    (pa.DictionaryArray.from_arrays([0, 0], pa.array([Decimal("0.5")], pa.decimal32(3, 1))), pa.float64(), [0.5, 0.5]),
    (pa.RunEndEncodedArray.from_arrays([2], pa.array([Decimal(12300)], pa.decimal32(9, -2))), pa.int64(), [12300] * 2),
    (pa.array([Decimal(10**17 + 1), None], pa.decimal128(18)), pa.int64(), [10**17 + 1, None]),
    (pa.array([Decimal(2**60 + 1)], pa.decimal128(19)), pa.decimal128(19), [Decimal(2**60 + 1)]),
    (pa.array([Decimal("1.25")], pa.decimal128(20, 2)), pa.decimal128(20, 2), [Decimal("1.25")]),
    (pa.array([Decimal(12300)], pa.decimal128(18, -2)), pa.decimal128(20), [Decimal(12300)]),
    (pa.array([Decimal(5)], pa.decimal256(60)), pa.decimal256(60), [Decimal(5)]),
    (pa.array([date(2024, 1, 2)], pa.date64()), pa.date32(), [date(2024, 1, 2)]),
    (pa.array([52_200, None], pa.time32("s")), S, ["14:30:00", None]),
    (pa.array([time(14, 30), time(14, 30, 0, 500_000), time(0)]), S, ["14:30:00", "14:30:00.5", "00:00:00"]),
    (pa.array([1], pa.time64("ns")), S, ["00:00:00.000000001"]),
    (pa.array([1000, None, 1000], pa.time32("ms")).dictionary_encode(), S, ["00:00:01", None, "00:00:01"]),
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
    "list<item: time32": pa.array([[1]], pa.list_(pa.time32("s"))),
    "fixed_size_binary": pa.array([b"xx"], pa.binary(2)),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([1], pa.RunEndEncodedArray.from_arrays([1], ["x"])),
    "list<item: run_end_encoded": pa.ListArray.from_arrays([0, 1], pa.RunEndEncodedArray.from_arrays([1], ["x"])),
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


def test_kinds_of_types() -> None:
    kinds = {pa.string(): "text", pa.int64(): "number", pa.list_(pa.float32()): "number", pa.bool_(): "boolean"}
    kinds |= {
        pa.date32(): "date",
        pa.timestamp("us", "UTC"): "date",
        pa.list_(pa.bool_(), 2): "boolean",
        pa.null(): "text",
    }
    assert {kind: kind_of_type(kind) for kind in kinds} == kinds
