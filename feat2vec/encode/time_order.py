"""The order in time of a group's values (`training.time`), and which rows are of a time that training has not seen.

The group holds numbers, keys that are numbers such as years, or parts of dates.
"""

from __future__ import annotations

import numpy as np

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.encode.codecs import NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Vocabulary

# The parts of a date from the longest time to the shortest, each with how many there may be. Weekdays tell no order.
PARTS = {"year": 10_000, "quarter": 4, "month": 13, "day": 32, "hour": 24}
HIGHEST_QUANTILE = 0.9995  # of numbers that are scaled by 1,000 quantiles, and are 1 from the highest one on


def times_of_values(encoder: Encoder, group: str, entries: Array | None = None) -> Floats:
    """A number for each value of a group that grows with the time that it tells.

    Args:
        encoder: The encoder.
        group: A group of one column.
        entries: The values' entries, [values, width]; by default those of the rows that the encoder was fitted to.

    Returns:
        The numbers [values]; NaN for a value that tells no time, and for a key or a part of a date that is unseen.

    """
    codec = encoder.codecs[group]
    entries = encoder.values[group].entries if entries is None else entries
    if isinstance(codec, NumbersCodec):
        return np.asarray(entries[:, 0], np.float64)
    assert codec.vocabulary is not None
    times = times_of_keys(codec.vocabulary)[np.asarray(entries)]  # [values, keys]
    tells_nothing = np.isnan(times).all(axis=1) | (np.asarray(entries) == UNSEEN).any(axis=1)
    return np.where(tells_nothing, np.nan, np.nansum(times, axis=1))


def tells_time(encoder: Encoder, group: str) -> bool:
    """Whether any key of a group is a number or a part of a date; numbers are.

    Args:
        encoder: The encoder.
        group: A group of one column.

    """
    vocabulary = encoder.codecs[group].vocabulary
    if isinstance(encoder.codecs[group], NumbersCodec) or vocabulary is None or not len(vocabulary.keys):
        return True
    return not np.isnan(times_of_keys(vocabulary)).all()


def times_of_keys(vocabulary: Vocabulary) -> Floats:
    """What each key adds to the time that its row tells.

    Args:
        vocabulary: Keys that are numbers, or parts of dates such as `month=5`.

    Returns:
        The numbers by id, [ids]; NaN for ids that are no keys, and for keys that tell no time.

    >>> import pyarrow as pa
    >>> times_of_keys(Vocabulary(pa.array(["2007", "2009", "long ago"]), np.ones(3, np.int64))).tolist()
    [nan, nan, 2007.0, 2009.0, nan]

    """
    times = np.full(len(vocabulary), np.nan)
    for id_, key in enumerate(vocabulary.keys.to_pylist(), start=FIRST):
        part, equals, number = key.rpartition("=")
        unit = _units()[part] if part in PARTS else 1.0 if not equals else np.nan
        try:
            times[id_] = unit * float(number)
        except ValueError:
            continue
    times[np.isinf(times)] = np.nan
    return times


def are_of_new_times(encoder: Encoder, group: str, entries: Array) -> Bools:
    """Which rows are of a time that training has not seen.

    Args:
        encoder: The encoder.
        group: A group of one column.
        entries: The rows' entries of the group, [rows, width].

    Returns:
        [rows]: the number is larger than all, or the key or a part of the date is unseen.

    """
    return are_later(entries, last_number(encoder, group))


def are_later(entries: Array, last: float) -> Bools:
    """Which entries [rows, width] are of a new time: larger than the last number, or unseen keys."""
    is_new = entries[:, 0] > last if entries.dtype.kind == "f" else (entries == UNSEEN).any(axis=1)
    return np.asarray(is_new, np.bool_)


def last_number(encoder: Encoder, group: str) -> float:
    """The number that those of a new time exceed, of a group as it is encoded; infinity for keys."""
    codec = encoder.codecs[group]
    if not isinstance(codec, NumbersCodec):
        return np.inf
    if codec.columns[0].scale == "quantile":
        return HIGHEST_QUANTILE
    return float(np.nanmax(np.asarray(encoder.values[group].entries[:, 0]), initial=-np.inf))


def _units() -> dict[str, float]:
    """The hours, or a little more, that one of each part counts."""
    units, unit = {}, 1.0
    for part, count in reversed(PARTS.items()):
        units[part], unit = unit, unit * count
    return units
