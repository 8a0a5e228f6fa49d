"""Entries of rows as a sparse matrix of items: keys, words, and numbers as bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Bools, Floats, Integers
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST
from feat2vec.evaluation.baselines.base import ROWS_LEARNT_FROM
from feat2vec.table.table import Table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BINS = 10  # of a column of numbers, by quantile
SEED = 0


class _GroupItems(NamedTuple):
    """Where the items of a group stand among all."""

    first: int
    is_weighted: bool  # the second half of an entry holds weights
    edges: Floats | None  # of a group of numbers [columns, BINS - 1]; None for ids


class ItemColumns:
    """The items of groups, as the columns of a matrix of rows.

    Args:
        encoder: The run's encoder.
        groups: The groups; those of vectors have no items.

    """

    def __init__(self, encoder: Encoder, groups: Sequence[str]) -> None:
        self.groups: dict[str, _GroupItems] = {}
        self.total = 0
        for name in groups:
            codec = encoder.codecs[name]
            if isinstance(codec, ItemsCodec):
                self.groups[name] = _GroupItems(self.total, codec.weighted, None)
                self.total += len(codec.vocabulary.keys)
            elif isinstance(codec, NumbersCodec):
                values = encoder.values[name]
                edges = _edges(np.asarray(values.entries), np.asarray(values.counts))
                self.groups[name] = _GroupItems(self.total, False, edges)
                self.total += len(edges) * BINS

    def matrix(self, entries: Mapping[str, Array]) -> csr_array:
        """How often each row has each item: [rows, items], of entries [rows, width] of each group."""
        from scipy import sparse

        rows = len(next(iter(entries.values())))
        row_parts: list[Integers] = [np.zeros(0, np.int64)]
        column_parts: list[Integers] = [np.zeros(0, np.int64)]
        for name, group in self.groups.items():
            group_entries = entries[name]
            places, present = _places(group, group_entries)
            row_parts.append(np.nonzero(present)[0])
            column_parts.append(places[present] + group.first)
        row_of_item, column_of_item = np.concatenate(row_parts), np.concatenate(column_parts)
        ones = np.ones(len(row_of_item))
        return sparse.csr_array((ones, (row_of_item, column_of_item)), shape=(rows, self.total))


def _places(group: _GroupItems, entries: Array) -> tuple[Integers, Bools]:
    """The items of entries [rows, items], counted from the group's first, and which of them are there."""
    if group.edges is None:
        ids = entries[:, : entries.shape[1] // 2] if group.is_weighted else entries
        return ids.astype(np.int64) - FIRST, ids >= FIRST
    bins = [np.searchsorted(edges, entries[:, i], side="right") for i, edges in enumerate(group.edges)]
    places = np.stack(bins, axis=1) + np.arange(len(bins)) * BINS
    present: Bools = ~np.isnan(entries[:, : len(bins)])
    return places, present


def _edges(entries: Array, counts: Array) -> Floats:
    """The edges between bins that hold about as many training rows: [columns, BINS - 1]."""
    edges = []
    for column in entries.T:
        present = ~np.isnan(column)
        order = np.argsort(column[present], kind="stable")
        ascending, rows_so_far = column[present][order], np.cumsum(counts[present][order])
        total = rows_so_far[-1] if len(rows_so_far) else 0
        places = np.searchsorted(rows_so_far, np.arange(1, BINS) / BINS * total, side="right")
        edges.append(ascending[np.minimum(places, len(ascending) - 1)] if len(ascending) else np.zeros(BINS - 1))
    return np.array(edges, np.float64)


def sampled_rows(table: Table, most: int = ROWS_LEARNT_FROM) -> Bools:
    """Which rows of a table [rows] to learn from: all, or `most` of them at random."""
    total = sum(batch.data.num_rows for batch in table.batches([next(iter(table.columns))]))
    if total <= most:
        return np.ones(total, np.bool_)
    is_sampled = np.zeros(total, np.bool_)
    is_sampled[np.random.default_rng(SEED).choice(total, most, replace=False)] = True
    return is_sampled
