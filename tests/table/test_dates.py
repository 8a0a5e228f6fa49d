"""Columns as dates."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.schema.extractor_options import Lookup
from feat2vec.table.dates import dates_of
from feat2vec.table.keys import items_of
from feat2vec.table.numbers import numbers_of
from tests.table.stages import bags, csv_stage, refuse, stage_of


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
