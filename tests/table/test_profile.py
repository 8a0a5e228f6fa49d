"""Profiles of columns."""

from __future__ import annotations

import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.table.profile import profile_table
from feat2vec.table.table import open_table


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


def test_lists_that_begin_in_a_later_stage(tmp_path: Path) -> None:
    """The first stage has no list with items."""
    kind = pa.list_(pa.string())
    pq.write_table(pa.table({"tags": pa.array([[], None], kind)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"tags": pa.array([["x", "y"], ["x"]], kind)}), tmp_path / "b.parquet")
    (column,), _ = profile_table(open_table(f"{tmp_path}/*.parquet"), stage_bytes=1)
    assert column.list_lengths is not None
    assert column.list_lengths.tolist() == [2, 1]
    assert (column.missing, column.distinct, column.lists_differ) == (2, 2, True)


def test_profiles_do_not_depend_on_stages(tmp_path: Path) -> None:
    films = pa.table({"year": [1960, None, 1969, 1969], "score": [0.5, float("nan"), 2.0, 8.0], "title": [*"abca"]})
    for i in range(2):
        pq.write_table(films[2 * i : 2 * i + 2], tmp_path / f"{i}.parquet")
    for stage_bytes in (1, 1 << 20):
        (year, score, title), _ = profile_table(open_table(tmp_path), stage_bytes=stage_bytes)
        assert (year.kind, year.low, year.high, year.are_integers, year.missing, year.distinct) == (
            *("number", 1960, 1969, True, 1, 2),
        )
        assert (score.low, score.high, score.are_integers, score.missing, score.absent) == (0.5, 8, False, 1, 1)
        assert (title.kind, title.present, title.distinct_share) == ("text", 4, 0.75)
