"""Dates that are written in another way than 2024-01-31."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.table.table import open_table, stages
from feat2vec.table.written_dates import written_dates

FORMS: dict[str, tuple[list[Any], str, list[datetime | None]]] = {
    "seconds": ([0, 86_400, None, 1_000_000_000], "seconds",
                [datetime(1970, 1, 1), datetime(1970, 1, 2), None, datetime(2001, 9, 9, 1, 46, 40)]),
    "fractions of seconds": ([0.25, 1.5], "seconds", [datetime(1970, 1, 1, 0, 0, 0, 250_000),
                                                      datetime(1970, 1, 1, 0, 0, 1, 500_000)]),
    "milliseconds": ([0, 1500], "milliseconds", [datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 1, 500_000)]),
    "seconds before": ([-1], "seconds", [datetime(1969, 12, 31, 23, 59, 59)]),
    "a pattern": (["31.12.2024", "", "1.2.1999"], "%d.%m.%Y", [datetime(2024, 12, 31), None, datetime(1999, 2, 1)]),
    "numbers by a pattern": ([20241231, None], "%Y%m%d", [datetime(2024, 12, 31), None]),
    "times": (["23:59", " 1:05"], "%H:%M", [datetime(1900, 1, 1, 23, 59), datetime(1900, 1, 1, 1, 5)]),
    "fractions of a time": (["23:59:10.25"], "%H:%M:%S", [datetime(1900, 1, 1, 23, 59, 10)]),
    "dates": ([datetime(2024, 12, 31)], "seconds", [datetime(2024, 12, 31)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("csv", [False, True], ids=["typed", "csv"])
def test_each_form_is_read(name: str, csv: bool, tmp_path: Path) -> None:
    values, form, expected = FORMS[name]
    if csv and name == "dates":
        pytest.skip("a CSV has no dates but text")
    source: Any = pa.table({"it": values, "beside": ["x"] * len(values)})
    if csv:
        texts = ["" if value is None else str(value) for value in values]
        source = tmp_path / "made.csv"
        source.write_text("it,beside\n" + "".join(f"{text},x\n" for text in texts))
    (stage,) = stages(open_table(source), ["it"])
    assert written_dates(stage, "it", form).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "form", "message"),
    [
        (["31.12.2024", "31.13.2024"], "%d.%m.%Y", r"row 2: .*'31\.13\.2024'; a date that is written as %d\.%m\.%Y is"),
        (["28.02.2024", "31.02.2024"], "%d.%m.%Y", r"row 2: .*'31\.02\.2024'; a date that is written as"),
        (["Mar 3, 2024", "Feb 30, 2024"], "%b %d, %Y", r"row 2: .*'Feb 30, 2024'; a date that is written as"),
        ([20240229, 20230229], "%Y%m%d", r"row 2: .*20230229.*; a date that is written as"),
        ([1, 10**12], "seconds", r"row 2: .*1000000000000.*; dates must be in the years 1 to 9999"),
        (["1", "x"], "seconds", "row 2: .*'x'; a number is needed"),
    ],
)
def test_what_is_no_such_date_is_named(values: list[Any], form: str, message: str) -> None:
    (stage,) = stages(open_table(pa.table({"it": values})), ["it"])
    with pytest.raises(UserError, match=message):
        written_dates(stage, "it", form)


def test_a_group_reads_the_parts_of_written_dates(tmp_path: Path) -> None:
    rows = pa.table({"at": [1_000_000_000, 1_000_086_400, None], "who": ["a", "b", "a"]})
    group = {"column": "at", "extractor": {"type": "lookup", "parts": ["year", "weekday", "hour"], "dates": "seconds"}}
    schema = feat2vec.read_schema({"version": 1, "groups": {"at": group, "who": {"column": "who"}}})
    encoded = feat2vec.fit(schema, rows, tmp_path / "encoded")
    codec = encoded.encoder.codecs["at"]
    decoded = {tuple(sorted(keys)) for keys in codec.decode(encoded.values["at"].entries)}
    assert decoded == {("hour=1", f"weekday={day}", "year=2001") for day in ("Sunday", "Monday")}
