"""Joint sets of groups: the distinct tuples of value ids that they take in the rows, and a tuple's id.

NumPy only, so that encoding a table needs no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Int64s, Integers, Ints
from feat2vec.encode.left_out import LeftOut

ValueIds = Integers  # [rows, groups], -1 where a group is missing

MISSING = -1  # the id of a tuple of which a member is missing
ID_BITS = 31  # value ids and tuple ids are int32
UNKNOWN = (1 << ID_BITS) - 1  # the id of a prefix that was not counted; longer ones are unknown as well
ROWS_PER_PASS = 1 << 22  # rows that are counted at once


class Joint(NamedTuple):
    """The distinct tuples of value ids that a joint set of groups takes; tuples are numbered in lexicographic order.

    `levels[m]` is sorted and holds, for each distinct prefix of m + 2 members, the id of the prefix one shorter and the
    value id of the last member: prefix << 31 | value. So any number of members fits in 63 bits.
    """

    groups: tuple[int, ...]
    levels: tuple[Int64s, ...]
    counts: Int64s  # [tuples]

    def ids(self, rows: ValueIds) -> Ints:
        """The extra column of these `rows`: -1 where a member is missing, `len(counts)` for a tuple never counted."""
        members = np.asarray(rows[:, list(self.groups)], np.int64)  # [rows, members]
        tuple_ids = _prefix_ids(self.levels, members)
        tuple_ids[tuple_ids == UNKNOWN] = len(self.counts)
        tuple_ids[(members < 0).any(axis=1)] = MISSING
        return tuple_ids.astype(np.int32)

    def values(self) -> Ints:
        """The value ids of every tuple: [tuples, members]."""
        prefix_ids = np.arange(len(self.counts))
        last_to_first: list[Int64s] = []
        for prefixes in reversed(self.levels):
            last_to_first.append(prefixes[prefix_ids] & UNKNOWN)
            prefix_ids = prefixes[prefix_ids] >> ID_BITS
        return np.stack([prefix_ids, *reversed(last_to_first)], axis=1).astype(np.int32)


def joint_values(
    rows: ValueIds, groups: Sequence[int], rows_per_pass: int = ROWS_PER_PASS, left_out: LeftOut | None = None
) -> Joint:
    """Count the tuples of `groups` over `rows`, with memory for some rows at a time and the distinct tuples.

    A row where a member is missing is no positive of the joint unit, so its tuple is not counted and never drawn; nor
    is that of a row that is left out.
    """
    if len(groups) < 2 or len(set(groups)) < len(groups):
        raise ValueError(f"a joint set needs two or more different groups. Received: groups={tuple(groups)}")
    levels: tuple[Int64s, ...] = ()
    counts = np.zeros(0, np.int64)
    for last in range(1, len(groups)):  # one pass over the rows for each member after the first
        prefixes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for members in _complete_tuples(rows, groups, rows_per_pass, left_out or LeftOut()):
            shorter_ids = _prefix_ids(levels, members[:, :last])
            new, new_counts = np.unique(shorter_ids << ID_BITS | members[:, last], return_counts=True)
            prefixes, counts = _add_equal(np.concatenate([prefixes, new]), np.concatenate([counts, new_counts]))
        levels = (*levels, prefixes)
    return Joint(tuple(groups), levels, counts)


def _complete_tuples(rows: ValueIds, groups: Sequence[int], rows_per_pass: int, left_out: LeftOut) -> Iterator[Int64s]:
    """The members of the rows where none is missing, [rows, members], in pieces."""
    for piece in left_out.pieces(rows, rows_per_pass):
        members = np.asarray(piece[:, list(groups)], np.int64)
        yield members[(members >= 0).all(axis=1)]


def _prefix_ids(levels: Sequence[Int64s], members: Int64s) -> Int64s:
    """The id of each row's tuple [rows] by way of its prefixes; UNKNOWN for one that was not counted."""
    ids = members[:, 0].copy()
    for prefixes, last_member in zip(levels, members.T[1:], strict=True):
        if not len(prefixes):
            return np.full(len(members), UNKNOWN)
        # in ascending order, so that the search sweeps over the prefixes once
        distinct, place_of_row = np.unique(ids << ID_BITS | last_member, return_inverse=True)
        places = np.minimum(np.searchsorted(prefixes, distinct), len(prefixes) - 1)
        ids = np.where(prefixes[places] == distinct, places, UNKNOWN)[place_of_row]
    return ids


def _add_equal(prefixes: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """The distinct prefixes in ascending order, and the sum of the counts of each."""
    if not len(prefixes):
        return prefixes, counts
    order = np.argsort(prefixes, kind="stable")  # two sorted runs: linear
    prefixes = prefixes[order]
    firsts = np.flatnonzero(np.diff(prefixes, prepend=prefixes[0] - 1))
    return prefixes[firsts], np.add.reduceat(counts[order], firsts)
