"""Columns as numbers; each mistake is named with its file, row, column and value."""

from __future__ import annotations

import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.schema.extractor_options import Lookup
from feat2vec.table.keys import items_of
from feat2vec.table.numbers import dates_of, numbers_of, vectors_of
from tests.table.stages import INF, NAN, bags, csv_stage, refuse, stage_of


@pytest.mark.parametrize(
    ("cells", "type_", "numbers", "kind"),
    [
        ([1, None], pa.int64(), [1, NAN], "number"),
        ([2**60 + 1], pa.int64(), [2.0**60], "number"),
        ([2**64 - 1], pa.uint64(), [2.0**64], "number"),
        ([0.5, None], pa.float32(), [0.5, NAN], "number"),
        ([True, None, False], pa.bool_(), [1, NAN, 0], "boolean"),
        ([date(1970, 1, 2), date(1969, 12, 31), None], pa.date32(), [1, -1, NAN], "date"),
        ([datetime(1970, 1, 1, 6), datetime(9999, 1, 1)], pa.timestamp("us"), [0.25, 2932532], "date"),
        ([datetime(1970, 1, 1, 12)], pa.timestamp("us", "America/New_York"), [0.5], "date"),
        ([None], pa.null(), [NAN], "number"),
        (["1970-01-03", "", None], pa.string(), [2, NAN, NAN], "date"),
        (["1970-01-01T12:00:00Z", "1970-01-01 13:00:00+01:00"], pa.string(), [0.5, 0.5], "date"),
    ],
)
def test_typed_numbers(cells: list[Any], type_: pa.DataType, numbers: list[float], kind: str) -> None:
    found, found_kind = numbers_of(stage_of(cells, type_), "a")
    np.testing.assert_array_equal(found, np.array(numbers, np.float64))
    assert (found.dtype, found_kind) == (np.dtype(np.float64), kind)


@pytest.mark.parametrize(
    ("cells", "numbers", "kind"),
    [
        (["1", " 2.5 ", "", "1e3", "-0"], [1, 2.5, NAN, 1000, 0], "number"),
        (["NA", "7", "NaN", "nan", "null", "NULL", "N/A", "None", "<NA>"], [NAN, 7, *[NAN] * 7], "number"),
        (["true", "False", "", "TRUE"], [1, 0, NAN, 1], "boolean"),
        (["", "1970-01-02", "1970-01-01 12:00:00"], [NAN, 1, 0.5], "date"),
        (["", "NA"], [NAN, NAN], "number"),
        (["2024"], [2024], "number"),
    ],
)
def test_numbers_from_text(cells: list[str], numbers: list[float], kind: str, tmp_path: Path) -> None:
    found, found_kind = numbers_of(csv_stage(tmp_path, *cells), "a")
    np.testing.assert_array_equal(found, numbers)
    assert found_kind == kind


def test_text_is_read_as_before(tmp_path: Path) -> None:
    """An earlier stage, or the training rows, say what text is."""
    assert numbers_of(csv_stage(tmp_path, "1", "0"), "a", "boolean")[0].tolist() == [1, 0]
    assert numbers_of(csv_stage(tmp_path, "true"), "a", "boolean")[0].tolist() == [1]
    stage = csv_stage(tmp_path, "3", "1970-01-02")
    refuse("row 2: column 'a': received '1970-01-02'; a number is needed", lambda: numbers_of(stage, "a", "number"))
    refuse("row 1: column 'a': received '3'; a date such as", lambda: numbers_of(stage, "a", "date"))


@pytest.mark.parametrize(
    ("cells", "match"),
    [
        ([0.5, NAN, NAN], "the table: row 2: column 'a': received nan; write null .*, or set `nan: missing`"),
        ([0.5, None, INF], "row 3: column 'a': received inf; numbers must be finite"),
        ([-INF], "row 1: column 'a': received -inf"),
        (["x", "1"], "row 1: column 'a': received 'x'; a number is needed, and the column holds text; cast it"),
        ([None, "1.5"], "row 2: column 'a': received '1.5'; a number is needed"),
        (["2024-01-01", "NA"], "row 2: column 'a': received 'NA'; a date such as 2024-01-31 is needed"),
        (["2024-01-01", "2023-02-29"], "row 2: column 'a': received '2023-02-29'; a date"),
        ([[1.0]], r"row 1: column 'a' holds list<.*double>; a number is needed"),
    ],
)
def test_what_is_no_number(cells: list[Any], match: str) -> None:
    refuse(match, lambda: numbers_of(stage_of(cells), "a"))


@pytest.mark.parametrize(
    "cells", [("1", "x"), ("1", "inf"), ("1", "-Infinity"), ("1", "1,5"), ("1", "0x10"), ("1", "true")]
)
def test_what_is_no_number_in_text(cells: tuple[str, ...], tmp_path: Path) -> None:
    stage = csv_stage(tmp_path, *cells)
    refuse(r"t\.csv: row 2: column 'a': received .*; .*number", lambda: numbers_of(stage, "a"))


def test_nan_may_be_missing() -> None:
    found, _ = numbers_of(stage_of([NAN, 1.0]), "a", nan="missing")
    np.testing.assert_array_equal(found, [NAN, 1])
    refuse("row 2: .* received inf", lambda: numbers_of(stage_of([NAN, INF]), "a", nan="missing"))


def test_the_row_of_a_later_batch() -> None:
    cells = pa.chunked_array([[1.0] * 70_000, [1.0] * 70_000, [1.0, NAN]])
    refuse("row 140002: column 'a'", lambda: [numbers_of(each, "a") for each in [stage_of(cells)]])


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        (("2020-01-01", "2020-01-01T00:00:00+99:99"), 2),
        (("2020-01-01T00:00:00+99:99", "2020-01-01"), 1),
        (("NA", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00+02", "2020-01-01"), 4),
    ],
)
def test_the_row_whose_time_zone_is_wrong_is_named(cells: tuple[str, ...], row: int, tmp_path: Path) -> None:
    stage = csv_stage(tmp_path, *cells)
    refuse(f"row {row}: column 'a': received '{re.escape(cells[row - 1])}'; a date", lambda: dates_of(stage, "a"))


def test_nanoseconds_are_cut_off_where_days_are_counted() -> None:
    """A float64 holds days to a microsecond; keys are what needs all the digits."""
    stage = stage_of([86_400_000_000_000 + 1500, None], pa.timestamp("ns"))
    days, kind = numbers_of(stage, "a")
    assert (days[0], kind) == (1 + 1e-6 / 86400, "date")
    assert np.isnan(days[1])
    assert bags(items_of(stage, "a", Lookup(parts=("day", "hour")))) == [["day=2", "hour=0"], []]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([[1, 2.5], None, [], [0, -1]], pa.list_(pa.float64())),
        ([[1, 2.5], None, None, [0, -1]], pa.list_(pa.float32(), 2)),
        (["[1, 2.5]", None, "", "(0; -1)"], pa.string()),
        (["1 2.5", " ", "[]", "0,-1"], pa.string()),
    ],
)
def test_vectors(cells: list[Any], kind: pa.DataType) -> None:
    present, vectors = vectors_of(stage_of(cells, kind), "a", None)
    assert present.tolist() == [True, False, False, True]
    assert vectors.tolist() == [[1, 2.5], [0, -1]]
    assert vectors.dtype == np.float32
    assert vectors_of(stage_of(cells, kind), "a", 2)[1].tolist() == vectors.tolist()


def test_vectors_of_integers() -> None:
    assert vectors_of(stage_of([[2**30 + 1, 0]]), "a", 2)[1].tolist() == [[2.0**30, 0.0]]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.null(), pa.string(), pa.list_(pa.null())])
def test_no_vectors(kind: pa.DataType) -> None:
    cells: list[Any] = [None, [] if pa.types.is_list(kind) else None]
    for size in (None, 3):
        present, vectors = vectors_of(stage_of(cells, kind), "a", size)
        assert (present.tolist(), len(vectors)) == ([False, False], 0)


def test_a_number_is_the_same_in_text() -> None:
    """Rounded to 64 bits first, as typed columns are."""
    number = 1 + 2**-24 + 2**-53
    _, typed = vectors_of(stage_of([[number]]), "a", 1)
    _, text = vectors_of(stage_of([f"[{number!r}]"]), "a", 1)
    assert typed.tobytes() == text.tobytes()


@pytest.mark.parametrize(
    ("cells", "size", "match"),
    [
        (
            [[1.0, 2.0], [1.0]],
            None,
            r"row 2: column 'a': received \[1.0\]; a vector of 2 .* needed, this has 1",
        ),
        ([[1.0, 2.0]], 3, r"row 1: column 'a': received \[1.0, 2.0\]; a vector of 3 numbers is needed, this has 2"),
        ([None, [1.0, NAN]], None, r"row 2: column 'a': received \[1.0, nan\]; a vector's numbers must be finite"),
        ([[1.0, None]], None, r"row 1: column 'a': received \[1.0, None\]; a vector's numbers must be finite"),
        ([[1e39]], None, r"row 1: column 'a': received \[1e\+39\]; a vector's numbers must be finite"),
        (["[1, 2]", "[1, x]"], None, r"row 2: column 'a': received '\[1, x\]'; a list of numbers is needed"),
        (["[1, nan]"], None, r"row 1: column 'a': received '\[1, nan\]'; a vector's numbers must be finite"),
        ([1.0], None, "row 1: column 'a' holds double; a list of numbers is needed"),
        ([["a"]], None, r"column 'a' holds list<.*string>; a list of numbers is needed"),
    ],
)
def test_what_is_no_vector(cells: list[Any], size: int | None, match: str) -> None:
    refuse(match, lambda: vectors_of(stage_of(cells), "a", size))
