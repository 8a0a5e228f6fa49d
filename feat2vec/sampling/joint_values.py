"""Joint sets of groups: the distinct tuples of value ids that they take in the rows, and a tuple's id.

NumPy only, so that encoding a table needs no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MISSING = -1
ID_BITS = 31  # value ids and tuple ids are int32
UNKNOWN = (1 << ID_BITS) - 1  # the id of no prefix: what is built on it is unknown as well


class Joint(NamedTuple):
    """The distinct tuples of value ids that a joint set of groups takes; tuples are numbered in lexicographic order.

    `levels[m]` is sorted and holds, for each distinct prefix of m + 2 members, the id of the prefix one shorter and the
    value id of the last member: prefix << 31 | value. So any number of members fits in 63 bits.
    """

    groups: tuple[int, ...]
    levels: tuple[Ints, ...]
    counts: Ints  # [tuples]

    def ids(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
        """The extra column of these `rows`: -1 where a member is missing, `len(counts)` for a tuple never counted."""
        block = np.asarray(rows[:, list(self.groups)], np.int64)  # [rows, members]
        found = _fold(self.levels, block)
        found[found == UNKNOWN] = len(self.counts)
        found[(block < 0).any(axis=1)] = MISSING
        return found.astype(np.int32)

    def values(self) -> npt.NDArray[np.int32]:
        """The value ids of every tuple: [tuples, members]."""
        prefix, columns = np.arange(len(self.counts)), []
        for keys in reversed(self.levels):
            columns.append(keys[prefix] & UNKNOWN)
            prefix = keys[prefix] >> ID_BITS
        return np.stack([prefix, *reversed(columns)], axis=1).astype(np.int32)


def joint_values(rows: npt.NDArray[np.integer[Any]], groups: Sequence[int], chunk: int = 1 << 22) -> Joint:
    """Count the tuples of `groups` over `rows`, with memory for one chunk of rows and the distinct tuples.

    A row where a member is missing is no positive of the joint unit, so its tuple is not counted and never drawn.
    """
    if len(groups) < 2 or len(set(groups)) < len(groups):
        raise ValueError(f"a joint set needs two or more different groups. Received: groups={tuple(groups)}")
    levels: tuple[Ints, ...] = ()
    counts = np.zeros(0, np.int64)
    for last in range(1, len(groups)):  # one pass over the rows for each member after the first
        keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for block in _complete(rows, groups, chunk):
            prefix = _fold(levels, block[:, :last])
            more, times = np.unique(prefix << ID_BITS | block[:, last], return_counts=True)
            keys, counts = _merge(np.concatenate([keys, more]), np.concatenate([counts, times]))
        levels = (*levels, keys)
    return Joint(tuple(groups), levels, counts)


def _complete(rows: npt.NDArray[np.integer[Any]], groups: Sequence[int], chunk: int) -> Iterator[Ints]:
    for start in range(0, len(rows), chunk):
        block = np.asarray(rows[start : start + chunk][:, list(groups)], np.int64)
        yield block[(block >= 0).all(axis=1)]


def _fold(levels: Sequence[Ints], block: Ints) -> Ints:
    found = block[:, 0].copy()
    for keys, column in zip(levels, block.T[1:], strict=True):
        if not len(keys):
            return np.full(len(block), UNKNOWN)
        wanted, back = np.unique(found << ID_BITS | column, return_inverse=True)  # in order: one sweep over the keys
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found = np.where(keys[at] == wanted, at, UNKNOWN)[back]
    return found


def _merge(keys: Ints, counts: Ints) -> tuple[Ints, Ints]:
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")  # two sorted runs: linear
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    return keys[first], np.add.reduceat(counts[order], first)
