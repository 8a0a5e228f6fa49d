"""Vectors and scores of rows by NumPy, where every group is a lookup: what `ScoreModel` computes, without TensorFlow.

Only the keys that the rows name are in memory, as rows of the tables in the model's file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Bools, Float32s, Int64s, Ints
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.levels import Levels


class KeyRows(NamedTuple):
    """The vectors of some keys of a lookup.

    Args:
        ids: Their ids [keys], ascending.
        sizes: The number of keys of the whole group that have a vector at each level; the unseen key has level 1.
        tables: Their vectors at each level, [keys that reach level k, D_k].
        linear: Their linear terms [keys], zero without bias.

    """

    ids: Ints
    sizes: tuple[int, ...]
    tables: list[Float32s]
    linear: Float32s

    @property
    def tops(self) -> Ints:
        """The highest level of each key, counted from 0, -1 without a vector.

        The keys of a higher level are the first of a vocabulary.
        """
        tops = np.where(self.ids < UNSEEN + self.sizes[0], 0, -1).astype(np.int32)
        for size in self.sizes[1:]:
            tops += (self.ids >= FIRST) & (self.ids < FIRST + size)
        return tops


class BagSums(NamedTuple):
    """What the bags of a group are at each level, [rows, D_k], and their linear terms [rows].

    `free` is of the keys whose top level it is, `dependent` of those that go higher.
    """

    free: list[Float32s]
    dependent: list[Float32s]
    linear: Float32s

    def plus(self, more: BagSums) -> BagSums:
        """The sums of two groups."""
        free = [a + b for a, b in zip(self.free, more.free, strict=True)]
        dependent = [a + b for a, b in zip(self.dependent, more.dependent, strict=True)]
        return BagSums(free, dependent, self.linear + more.linear)


def item_ids(entries: Array, *, weighted: bool) -> Array:
    """The ids [rows, items] of a lookup's entries, in which the items' weights follow if it is weighted."""
    return entries[:, : entries.shape[1] // 2] if weighted else entries


def distinct_ids(entries: Array, vocabulary_size: int, *, weighted: bool) -> Ints:
    """The ids of the keys that entries name, ascending."""
    is_named = np.zeros(vocabulary_size, np.bool_)
    is_named[item_ids(entries, weighted=weighted)] = True
    is_named[PADDING] = False
    return np.flatnonzero(is_named).astype(np.int32)


def places_of_items(keys: KeyRows, entries: Array, vocabulary_size: int, *, weighted: bool) -> Ints:
    """The place of each item [rows, items] among keys, -1 where there is none."""
    place_of_id = np.full(vocabulary_size, -1, np.int32)
    place_of_id[keys.ids] = np.arange(len(keys.ids), dtype=np.int32)
    return place_of_id[item_ids(entries, weighted=weighted)]


def item_weights(entries: Array) -> Float32s:
    """The weights [rows, items] in the entries of a weighted lookup."""
    return np.ascontiguousarray(entries[:, entries.shape[1] // 2 :]).view(np.float32)


def bag_sums(keys: KeyRows, places: Ints, weights: Float32s | None, options: Lookup) -> BagSums:
    """The sums of the items of each bag, item by item.

    Args:
        keys: The keys that the items are.
        places: The place of each item among them [rows, items], -1 where there is none.
        weights: The weights of items [rows, items]; None where each is 1.
        options: Those of the extractor.

    """
    rows = len(places)
    sums = BagSums(
        [np.zeros((rows, table.shape[1]), np.float32) for table in keys.tables],
        [np.zeros((rows, table.shape[1]), np.float32) for table in keys.tables],
        np.zeros(rows, np.float32),
    )
    tops = keys.tops  # [keys]
    unseen = int(np.searchsorted(keys.ids, FIRST))  # 1 if the unseen key, which has no row above level 1, is among them
    for item in range(places.shape[1]):
        bags = np.flatnonzero(places[:, item] >= 0)  # [items]
        items = places[bags, item]
        of_items = None if weights is None else weights[bags, item]
        sums.linear[bags] += _times(keys.linear[items], of_items)
        for level, table in enumerate(keys.tables):
            table_rows = items - (unseen if level else 0)
            for part, ends_here in ((sums.free[level], True), (sums.dependent[level], False)):
                chosen = tops[items] == level if ends_here else tops[items] > level
                if chosen.any():
                    _add(part, bags, table, table_rows, of_items, chosen)
    return _scaled(sums, bag_scale(places, weights, options.combiner), options.gain)


def _add(
    sums: Float32s, bags: Int64s, table: Float32s, table_rows: Ints, weights: Float32s | None, chosen: Bools
) -> None:
    """Add to bags, each of which is there once, the rows of a table that are chosen, times their weights."""
    if not chosen.all():
        bags, table_rows = bags[chosen], table_rows[chosen]
        weights = None if weights is None else weights[chosen]
    vectors = _times(table.take(table_rows, axis=0), weights)
    if len(bags) == len(sums):
        sums += vectors
    else:
        sums[bags] += vectors


def _times(numbers: Float32s, weights: Float32s | None) -> Float32s:
    """Numbers [items, ...] times the items' weights."""
    return numbers if weights is None else numbers * weights.reshape(-1, *[1] * (numbers.ndim - 1))


def bag_scale(places: Ints, weights: Float32s | None, combiner: str) -> Float32s | None:
    """What the sum of each bag is multiplied by, [rows]; 0 where the weights sum to 0, None where it is 1."""
    if combiner == "sum":
        return None
    is_item = places >= 0
    if weights is None:
        size = np.count_nonzero(is_item, axis=1).astype(np.float32)
    else:
        kept = np.where(is_item, weights, np.float32(0))
        size = np.sum(kept if combiner == "mean" else np.square(kept), axis=1)
    divisor = size if combiner == "mean" else np.sqrt(size)
    scale: Float32s = np.divide(np.float32(1), divisor, out=np.zeros_like(divisor), where=divisor != 0)
    return scale


def _scaled(sums: BagSums, scale: Float32s | None, gain: float) -> BagSums:
    """The sums as the combiner and the gain want them; the gain is of vectors, not of linear terms."""
    for part in (*sums.free, *sums.dependent):
        if scale is not None:
            part *= scale[:, None]
        if gain != 1:
            part *= np.float32(gain)
    if scale is not None:
        sums.linear[:] *= scale
    return sums


def vectors_in_space(sums: BagSums, level: int, levels: Levels) -> Float32s:
    """The bags' vectors [rows, dim] in the space of a level, counted from 1; zero for values of lower levels."""
    of_levels = levels.parts_of(level)
    parts = [free + dependent for free, dependent in zip(sums.free[of_levels], sums.dependent[of_levels], strict=True)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def fm_scores(
    groups: Mapping[str, BagSums], partners: Sequence[Sequence[str]], bias: float, level: int, *, nested: bool
) -> Float32s:
    """The scores [rows] of the submodel B_{1,level}; see `pair_scores`.

    Args:
        groups: The sums of each group.
        partners: What meets in pairs, each a group or some that are added up.
        bias: What every score has.
        level: The submodel's level, counted from 1. The highest is that of the whole model.
        nested: Whether the levels are truncated, so that every part of a vector is free.

    """
    sums = []
    for first, *later_names in partners:
        total = groups[first]
        for name in later_names:
            total = total.plus(groups[name])
        sums.append(total)
    scores = np.full(len(sums[0].linear), bias, np.float32)
    for partner in sums:
        scores += partner.linear
    for p in range(level):
        free, dependent = [partner.free[p] for partner in sums], [partner.dependent[p] for partner in sums]
        if nested:
            free, dependent = [f + d for f, d in zip(free, dependent, strict=True)], [np.zeros_like(f) for f in free]
        free_total, dependent_total = np.sum(free, axis=0), np.sum(dependent, axis=0)  # [rows, D_p]
        for f, d in zip(free, dependent, strict=True):
            scores += _dots(np.float32(0.5) * f + d, free_total - f)  # the pairs that are settled at this level
            if p == level - 1:
                scores += _dots(np.float32(0.5) * d, dependent_total - d)  # and those above it
    return scores


def _dots(a: Float32s, b: Float32s) -> Float32s:
    """The dot products of rows, [rows]."""
    dots: Float32s = np.einsum("ij,ij->i", a, b)
    return dots
