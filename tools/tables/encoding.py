"""A table's training and test rows as matrices: what every peer sees.

A key is an item, a list several, a text its words; a number is one of ten quantile bins of the training rows, and a
date also has its month, weekday and hour. Items that training has not seen are left out of test rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from tables.spec import Frame, Group, Series

Counts: TypeAlias = Any  # a scipy CSR matrix [rows, items]
Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

BINS = 10
MOST_WORDS = 50_000  # the most frequent are kept
DATE_PARTS: dict[str, Callable[[Series], Series]] = {
    "year": lambda dates: dates.dt.year,
    "month": lambda dates: dates.dt.month,
    "weekday": lambda dates: dates.dt.day_of_week,
    "hour": lambda dates: dates.dt.hour,
}


@dataclass(frozen=True)
class EncodedGroup:
    """A group's items and numbers in the training and the test rows.

    Attributes:
        group: The group.
        names: The items that training has seen.
        train: How often each item is in each training row [rows, items].
        test: The same of the test rows.
        train_numbers: The numbers of a number, date or time, NaN where they are missing [rows, columns].
        test_numbers: The same of the test rows.

    """

    group: Group
    names: Sequence[str]
    train: Counts
    test: Counts
    train_numbers: Floats
    test_numbers: Floats


Encoded: TypeAlias = Mapping[str, EncodedGroup]  # by column


def encode(groups: Sequence[Group], train: Frame, test: Frame) -> dict[str, EncodedGroup]:
    """The groups of the training and test rows, by column."""
    return {group.column: _encode_group(group, train[group.column], test[group.column]) for group in groups}


def _encode_group(group: Group, train: Series, test: Series) -> EncodedGroup:
    if group.kind in AS_NUMBERS:
        as_numbers = AS_NUMBERS[group.kind]
        train_numbers, test_numbers = as_numbers(train), as_numbers(test)
        parts = [_bins(train_numbers[:, i], test_numbers[:, i], i) for i in range(train_numbers.shape[1])]
        names = [name for part in parts for name in part[0]]
        train_items, test_items = (sparse.hstack([part[i] for part in parts], format="csr") for i in (1, 2))
        return EncodedGroup(group, names, train_items, test_items, train_numbers, test_numbers)
    vocabulary: dict[str, int] = {}
    train_items = _counts(items_of(group, train), vocabulary, grow=True)
    if group.kind == "text" and len(vocabulary) > MOST_WORDS:
        rows_of_word = np.asarray((train_items > 0).sum(axis=0)).ravel()
        kept = np.sort(np.argsort(-rows_of_word, kind="stable")[:MOST_WORDS])
        words = list(vocabulary)
        vocabulary = {words[old]: new for new, old in enumerate(kept)}
        train_items = train_items[:, kept]
    test_items = _counts(items_of(group, test), vocabulary, grow=False)
    none = (np.zeros((len(rows), 0)) for rows in (train, test))
    return EncodedGroup(group, list(vocabulary), train_items, test_items, *none)


def items_of(group: Group, column: Series) -> list[list[str]]:
    """The distinct items of each row of a key or list, or the words of a text."""
    values = column.tolist()
    if group.kind == "key":
        return [[] if _is_missing(value) else [key_text(value)] for value in values]
    if group.kind == "text":
        return [[] if _is_missing(value) else re.findall(r"\w+", str(value).lower()) for value in values]
    lists: list[Iterable[Any]] = [
        [] if _is_missing(value) else value if group.separator is None else str(value).split(group.separator)
        for value in values
    ]
    return [list(dict.fromkeys(str(item).strip() for item in items if str(item).strip())) for items in lists]


def key_text(value: object) -> str:
    """A key as text, the same for a whole number however it is held."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _is_missing(value: object) -> bool:
    return (
        value is None
        or (isinstance(value, (float, np.floating)) and np.isnan(value))
        or str(value) in ("<NA>", "NaT", "")
    )


def _counts(rows: Sequence[Sequence[str]], vocabulary: dict[str, int], *, grow: bool) -> Counts:
    """How often each item of the vocabulary is in each row; items are added to the vocabulary if it may grow."""
    indices: list[int] = []
    ends = [0]
    for items in rows:
        for item in items:
            place = vocabulary.setdefault(item, len(vocabulary)) if grow else vocabulary.get(item, -1)
            if place >= 0:
                indices.append(place)
        ends.append(len(indices))
    ones = np.ones(len(indices), np.float32)
    counts = sparse.csr_matrix((ones, indices, ends), shape=(len(rows), len(vocabulary)))
    counts.sum_duplicates()
    return counts


def numbers_of(column: Series) -> Floats:
    """A column's numbers as floats [rows, 1], NaN where there is none."""
    import pandas

    floats = pandas.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(floats)[:, None]


def numbers_of_dates(column: Series) -> Floats:
    """Days since 1970, year, month, weekday and hour [rows, 5]."""
    import pandas

    dates = pandas.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
    days = (dates - pandas.Timestamp("1970-01-01", tz="UTC")) / pandas.Timedelta(days=1)
    parts = [days, *(part(dates) for part in DATE_PARTS.values())]
    return np.stack([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts], axis=1)


def hours_of_times(column: Series) -> Floats:
    """Times of day such as 17:30:00 as hours [rows, 1]."""
    import pandas

    times = pandas.to_timedelta(column, errors="coerce") / pandas.Timedelta(hours=1)
    return np.asarray(times.to_numpy(dtype=np.float64, na_value=np.nan))[:, None]


AS_NUMBERS: dict[str, Callable[[Series], Floats]] = {
    "number": numbers_of,
    "date": numbers_of_dates,
    "time": hours_of_times,
}


def _bins(train: Floats, test: Floats, part: int) -> tuple[list[str], Counts, Counts]:
    """Names of a number's quantile bins, and which of them each training and test row is in."""
    present = train[~np.isnan(train)]
    distinct = np.unique(present)
    few = len(distinct) <= BINS  # a bin for each number
    edges = distinct[1:] if few else np.unique(np.quantile(present, np.arange(1, BINS) / BINS))
    total = len(edges) + 1 if len(distinct) > 1 else 0  # a constant says nothing

    def of(numbers: Floats) -> Counts:
        rows = np.flatnonzero(~np.isnan(numbers) & (total > 0))
        bins = np.searchsorted(edges, numbers[rows], side="right")
        return sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, bins)), shape=(len(numbers), total))

    return [f"{part}:{i}" for i in range(total)], of(train), of(test)


def rows_of(encoded: Encoded, train_rows: Ints, test_rows: Ints) -> dict[str, EncodedGroup]:
    """The same items and numbers of some of the rows."""
    return {
        column: EncodedGroup(
            group.group, group.names, group.train[train_rows], group.test[test_rows],
            group.train_numbers[train_rows], group.test_numbers[test_rows],
        )
        for column, group in encoded.items()
    }  # fmt: skip
