"""The order in time of a group's values, and which rows are of a new time."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.time_order import are_of_new_times, times_of_values
from feat2vec.space.geometry import dense

FIRST_DAY = datetime.datetime(2019, 11, 30, 23)
MOMENTS = [
    FIRST_DAY + datetime.timedelta(hours=int(hours)) for hours in np.random.default_rng(0).integers(0, 9000, 200)
]


def fitted(times: pa.Array, extractor: Any) -> Any:
    rows = pa.table({"time": times, "who": [str(i % 5) for i in range(len(times))]})
    groups = {"time": {"column": "time", "extractor": extractor}, "who": {"column": "who"}}
    return feat2vec.fit(
        {"version": 1, "model": {"dim": 2}, "groups": groups, "objective": {"type": "contrastive"}}, rows
    )


def new_ones(encoder: Any, times: list[Any]) -> list[bool]:
    rows = pa.table({"time": pa.array(times), "who": ["1"] * len(times)})
    (batch,) = encoder.entries(rows)
    return are_of_new_times(encoder, "time", dense(batch["time"])).tolist()


@pytest.mark.parametrize(
    ("extractor", "floor"),
    [
        ({"type": "lookup", "parts": ["weekday", "hour", "day", "month", "year"]}, None),
        ({"type": "lookup", "parts": ["quarter", "year"]}, lambda t: (t.year, (t.month - 1) // 3)),
        ({"type": "numeric"}, None),
        ({"type": "numeric", "scale": "quantile"}, None),
    ],
)  # fmt: skip
def test_later_moments_have_larger_numbers(extractor: Any, floor: Any) -> None:
    encoded = fitted(pa.array(MOMENTS), extractor)
    times = times_of_values(encoded.encoder, "time")[encoded.rows[:, 0]]
    order = np.argsort(times, kind="stable")
    rounded = [MOMENTS[i] if floor is None else floor(MOMENTS[i]) for i in order]
    assert rounded == sorted(rounded)
    assert len(set(times.tolist())) == len(set(rounded))


def test_years_are_in_their_order_and_what_is_no_number_tells_no_time() -> None:
    years = ["1999", "2007", "850", "long ago", "inf"]
    encoded = fitted(pa.array(years), "lookup")
    times = times_of_values(encoded.encoder, "time")[encoded.rows[:, 0]]
    np.testing.assert_array_equal(times, [1999, 2007, 850, np.nan, np.nan])


def test_new_times_are_unseen_keys_parts_or_larger_numbers() -> None:
    years = fitted(pa.array([2001, 2003] * 10), "lookup").encoder
    assert new_ones(years, [2001, 2003, 2004, None]) == [False, False, True, False]
    dates = [datetime.date(2020, month, 3) for month in (1, 2, 4)]
    months = fitted(pa.array(dates * 5), {"type": "lookup", "parts": ["month", "weekday"]}).encoder
    assert new_ones(months, [*dates, datetime.date(2020, 9, 4), None]) == [False, False, False, True, False]
    for scale in ("standard", "minmax", "none", "log1p", "quantile"):
        numbers = fitted(pa.array([float(i // 40) for i in range(400)]), {"type": "numeric", "scale": scale}).encoder
        assert new_ones(numbers, [0.0, 9.0, 9.1, 50.0]) == [False, False, True, True]
