"""In which way the values of a column are dates."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from feat2vec.table.profile import profile_table
from feat2vec.table.table import open_table

COLUMNS: dict[str, tuple[str, list[Any], str | None]] = {
    "days first": ("sold", ["31/12/2024", "1/5/2024"], "%d/%m/%Y"),
    "months first": ("sold", ["12/31/2024", "5/1/2024"], "%m/%d/%Y"),
    "firsts of months, days first": ("sold", [f"1/{month}/2024" for month in range(1, 13)], "%d/%m/%Y"),
    "firsts of months, months first": ("sold", [f"{month}/1/2024" for month in range(1, 13)], "%m/%d/%Y"),
    "points": ("sold", ["31.12.2024", "01.05.2024"], "%d.%m.%Y"),
    "words": ("sold", ["January 31, 2024", "May 1, 2024"], "%b %d, %Y"),
    "with a time": ("sold", ["12/31/2024 1:05 PM", "5/1/2024 10:05 AM"], "%m/%d/%Y %I:%M %p"),
    "of a log": ("stamp", ["10/Oct/2000:13:55:36 -0700", "11/Oct/2000:13:55:36 -0700"], "%d/%b/%Y:%H:%M:%S %z"),
    "of a message": ("sent", ["Wed Aug 27 13:08:45 +0000 2008"], "%a %b %d %H:%M:%S %z %Y"),
    "times": ("departure", ["23:59", "01:05"], "%H:%M"),
    "durations": ("duration", ["23:59", "01:05"], None),
    "seconds": ("created_at", [1_500_000_000, 1_600_000_000], "seconds"),
    "milliseconds": ("ts", [1_500_000_000_000, 1_600_000_000_000], "milliseconds"),
    "milliseconds of any name": ("x", [1_500_000_000_000, 1_600_000_000_000], "milliseconds"),
    "amounts": ("revenue", [1_500_000_000, 1_600_000_000], None),
    "compact": ("date", [20200131, 20201231], "%Y%m%d"),
    "compact of any name": ("ymd", [20200131, 20201231], "%Y%m%d"),
    "compact texts": ("ymd", ["20200131", "20201231"], "%Y%m%d"),
    "no such days": ("date", [20200131, 20209931], None),
    "versions": ("version", ["2.1.10", "2.2.12"], None),
    "short years": ("date", ["2.1.10", "2.2.12"], "%d.%m.%y"),
    "one that is no date": ("sold", ["31/12/2024", "soon"], None),
    "words alone": ("sold", ["yes", "no"], None),
    "ISO dates, which have a kind of their own": ("sold", ["2024-12-31", "2024-05-01"], None),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("stage_bytes", [1, 1 << 20], ids=["many stages", "one stage"])
def test_the_form_of_a_column(name: str, stage_bytes: int) -> None:
    column, values, expected = COLUMNS[name]
    table = open_table(pa.table({column: values, "beside": ["x"] * len(values)}))
    profile = profile_table(table, stage_bytes).columns[0]
    best = profile.written_dates.best
    assert (None if best is None else best.form) == expected


def test_what_the_dates_are() -> None:
    table = pa.table({"sold": ["31/12/2024", "", "1/5/2023"]})
    best = profile_table(open_table(table)).columns[0].written_dates.best
    assert best is not None
    assert (best.low, best.high, best.has_days) == (19478, 20088, True)
    assert {"year=2024", "month=5", "day=31", "weekday=Monday", "hour=0"} <= set(best.parts)
