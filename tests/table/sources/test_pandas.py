"""Frames of pandas: missing values, and columns of Python objects."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.table.tables import column, refuse

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
        (
            [datetime(2020, 1, 1, 10), pd.NaT, datetime(2020, 1, 1, 10, tzinfo=UTC)],
            r"row 3: column 'a': datetime\S+.*received timestamps and timestamps with a time zone: convert",
        ),
        (
            [[pd.Timestamp(0, tz="UTC")], [pd.Timestamp(0)]],
            r"row 2: column 'a': .*received lists and lists of timestamps and lists of timestamps with a time zone",
        ),
        ([pd.Timestamp(1), datetime(1500, 1, 1)], r"row 2: column 'a': datetime\S+.*nanosecond"),
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


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_pandas_objects_keep_nanoseconds(zone: str | None) -> None:
    first, second = pd.Timestamp(1, tz=zone), pd.Timestamp(2, tz=zone)
    frame = pd.DataFrame({"a": pd.Series([first, second, pd.NaT], dtype=object)})
    assert column(frame) == [first, second, None]
    frame = pd.DataFrame({"a": pd.Series([[first], (second,), None], dtype=object)})
    assert column(frame) == [[first], [second], None]
