"""Items of rows: read from a stage, binned, cut, and laid out as padded rows of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Floats, Ints
from feat2vec.encode.codecs.entries import Entries, Tally
from feat2vec.encode.vocabulary import PADDING
from feat2vec.schema.extractor_options import ItemsSpec, TokensSpec
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items, items_of, tokens_of
from feat2vec.table.kinds import Kind
from feat2vec.table.numbers import numbers_of
from feat2vec.table.stages import Stage

LARGEST_ID = np.iinfo(np.int32).max


def parse_items(stage: Stage, group: Group, edges: Sequence[float] = (), kind: Kind | None = None) -> Items:
    """A stage's items: keys, tokens, or numbers as bins between `edges`."""
    spec, column = group.extractor, group.columns[0]
    if isinstance(spec, TokensSpec):
        return tokens_of(stage, column, spec)
    assert isinstance(spec, ItemsSpec)
    if not spec.bins:
        return items_of(stage, column, spec)
    numbers, _ = numbers_of(stage, column, kind)
    return binned(numbers, edges)


def binned(numbers: Floats, edges: Sequence[float]) -> Items:
    """Numbers as the bin they fall into, `[low, high)`; missing ones have none."""
    present = ~np.isnan(numbers)
    ends = ["-inf", *(f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge) for edge in edges), "inf"]
    keys = [f"[{low}, {high})" for low, high in pairwise(ends)]
    codes = np.searchsorted(np.array(edges), numbers[present], side="right").astype(np.int32)
    return Items(present.astype(np.int32), codes, pa.array(keys, pa.string()), None, 0)


def pack(items: Items, ids: Ints, width: int, *, ordered: bool) -> Entries:
    """The items' ids as padded rows; those of a bag in ascending order, as its order has no meaning.

    Args:
        items: The items of all rows.
        ids: The id of each item, [items].
        width: Items in a padded row.
        ordered: Whether the order of the items has a meaning.

    Returns:
        Entries of the width `width`, or twice that if the items have weights: the ids, then the bits of the weights.

    """
    present = items.lengths > 0
    if width == 1 and items.weights is None:
        return Entries(present, ids[:, None], Tally())
    lengths = items.lengths[present]
    is_filled = np.arange(width, dtype=np.int32) < lengths[:, None]  # [present rows, width]
    rows = np.zeros((len(lengths), width), np.int32)
    rows[is_filled] = ids
    if items.weights is not None:
        weights = np.zeros((len(lengths), width), np.float32)
        weights[is_filled] = items.weights
        padding_last = np.where(is_filled, rows, LARGEST_ID)
        order = np.lexsort((weights, padding_last), axis=1)
        rows, weights = np.take_along_axis(rows, order, 1), np.take_along_axis(weights, order, 1)
        rows = np.concatenate([rows, weights.view(np.int32)], axis=1)  # [present rows, 2 width]
    elif not ordered:
        unsigned = rows.view(np.uint32)
        unsigned -= 1  # padding becomes the largest number and is sorted to the end
        unsigned.sort(axis=1)
        unsigned += 1
    return Entries(present, rows, Tally())


def without_padding(items: Items, ids: Ints) -> tuple[Items, Ints]:
    """Items and their ids, without the items that are treated as missing."""
    keep = ids != PADDING
    row_of_item = np.repeat(np.arange(len(items.lengths)), items.lengths)
    lengths = np.bincount(row_of_item[keep], minlength=len(items.lengths)).astype(np.int32)
    return _selected(items, keep, lengths), ids[keep]


def first_items(items: Items, ids: Ints, most: int) -> tuple[Items, Ints]:
    """The first `most` items of each row: a text may be longer than any of the training rows."""
    longer_rows = int(np.count_nonzero(items.lengths > most))
    if not longer_rows:
        return items, ids
    first_of_row = np.cumsum(items.lengths, dtype=np.int64) - items.lengths
    keep = np.arange(len(items.codes)) - np.repeat(first_of_row, items.lengths) < most
    lengths = np.minimum(items.lengths, np.int32(most))
    kept = replace(_selected(items, keep, lengths), truncated=max(items.truncated, longer_rows))
    return kept, ids[keep]


def _selected(items: Items, keep: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], lengths: Ints) -> Items:
    weights = None if items.weights is None else items.weights[keep]
    return Items(lengths, items.codes[keep], items.keys, weights, items.truncated)
