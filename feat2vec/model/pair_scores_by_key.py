"""Scores of rows from vectors that are read once a key: FM, RaFM and DiFacto.

With S the sum of a row's vectors and Q that of their squares, coordinate by coordinate, its pairs add up to
(S^2 - Q) / 2. Both sums are taken from the keys' vectors by the places of the keys; so no array of
[batch, groups, rank] is made, nor one for its gradient, and a step moves a fraction of the memory. Levels, scores and
gradients are those of `pair_scores`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.custom_gradients import custom_gradient
from feat2vec.model.pair_scores import (
    Dependents,
    Level,
    LevelScores,
    Submodels,
    Tensor,
    add_levels,
    is_joint,
    level_gradients,
)

SORTED_RANK = 64  # of vectors, from which occurrences are sorted by key before their gradients are added up

# --- one group ------------------------------------------------------------------------------------------------------


class KeyVectors(NamedTuple):
    """One group's vectors at a level, and where among them a row's are: the place + 1, or 0 for none."""

    vectors: Tensor  # [keys, rank]
    free: Tensor  # [batch], of values whose top level this is
    dependent: Tensor | None = None  # [batch], of values of higher levels
    is_bag: bool = False  # a row may have both


def key_vectors_of(level: Level) -> KeyVectors:
    """Return a group of which each row has vectors of its own, [batch, rank]."""
    batch = tf.shape(level.free)[0]
    places = tf.range(1, batch + 1)
    if level.dependent is None:
        return KeyVectors(level.free, places)
    return KeyVectors(tf.concat([level.free, level.dependent], axis=0), places, places + batch, is_bag=True)


def without_levels(group: KeyVectors) -> KeyVectors:
    """Return a group whose free and dependent parts are one, as with truncation."""
    if group.dependent is None:
        return group
    if not group.is_bag:
        return KeyVectors(group.vectors, tf.maximum(group.free, group.dependent))  # a value is one or the other
    free, dependent = (tf.gather(group.vectors, places - 1) for places in (group.free, group.dependent))
    return KeyVectors(free + dependent, tf.range(1, tf.size(group.free) + 1))


def sum_of_groups(groups: Sequence[KeyVectors]) -> KeyVectors:
    """Return groups whose vectors add up as one group: each row has a sum of its own."""
    level, batch = side_by_side(groups), tf.size(groups[0].free)
    free = sums_of_rows(level.vectors, level.free, batch)
    dependent = None if level.dependent is None else sums_of_rows(level.vectors, level.dependent, batch)
    return key_vectors_of(Level(free, dependent))


# --- all groups -----------------------------------------------------------------------------------------------------


class Occurrences(NamedTuple):
    """Which vector is in which row."""

    places: Tensor  # [occurrences]
    rows: Tensor  # [occurrences], ascending

    def by_place(self) -> Occurrences:
        """Return the same in the order of places; those of one place in the order of rows."""
        order = tf.argsort(self.places, stable=True)
        return Occurrences(tf.gather(self.places, order), tf.gather(self.rows, order))

    def sums(self, vectors: Tensor, rows: Tensor) -> Tensor:
        """Return the sum of each row's vectors, [rows, rank]."""
        return tf.sparse.segment_sum(vectors, self.places, self.rows, num_segments=rows)

    def adding_to_keys(self, keys: Tensor, rank: int) -> Callable[[Tensor], Tensor]:
        """Return the function that gives each key the sum of what its rows get, [rows, n] -> [keys, n].

        Sums over neighbouring places take a fifth of the time of adding row by row where rows are long; to sort the
        places once for several sums pays from a rank on.
        """
        if rank < SORTED_RANK:
            return lambda of_rows: _scattered(of_rows, self, keys)
        places, rows = self.by_place()
        return lambda of_rows: tf.sparse.segment_sum(of_rows, rows, places, num_segments=keys)


class OccurrenceGrid(NamedTuple):
    """Which vectors are in which row, as an array of fixed shape: what XLA compiles."""

    places: Tensor  # [rows, columns], counted from 1; 0 for none

    def sums(self, vectors: Tensor, rows: Tensor) -> Tensor:
        """Return the sum of each row's vectors, [rows, rank]."""
        del rows  # as many as the grid has
        no_vector = tf.zeros([1, vectors.shape[1]], vectors.dtype)
        return tf.reduce_sum(tf.gather(tf.concat([no_vector, vectors], axis=0), self.places), axis=1)

    def adding_to_keys(self, keys: Tensor, rank: int) -> Callable[[Tensor], Tensor]:
        """Return the function that gives each key the sum of what its rows get, [rows, n] -> [keys, n]."""
        del rank

        def add(of_rows: Tensor) -> Tensor:
            of_keys = tf.zeros(tf.stack([keys + 1, tf.shape(of_rows)[1]]), of_rows.dtype)  # that of no key first
            for column in range(self.places.shape[1]):
                of_keys = tf.tensor_scatter_nd_add(of_keys, self.places[:, column : column + 1], of_rows)
            return of_keys[1:]

        return add


class BagPairs(NamedTuple):
    """The free and the dependent vector of one bag; they are no pair."""

    free: Tensor  # [bags], places
    dependent: Tensor  # [bags], places
    rows: Tensor  # [bags]


class LevelByKey(NamedTuple):
    """All groups' vectors at a level."""

    vectors: Tensor  # [keys, rank]
    free: Occurrences | OccurrenceGrid
    dependent: Occurrences | OccurrenceGrid | None = None
    bag_pairs: BagPairs | None = None
    # [rows], ascending: the rows of the batch that `rows` counts among; None is all of them
    reach: Tensor | None = None


def side_by_side(groups: Sequence[KeyVectors], *, sparse: bool = False) -> LevelByKey:
    """Return the groups as a level; of a `sparse` one only the rows that have a vector are computed."""
    sizes = [tf.shape(group.vectors)[0] for group in groups]
    starts = tf.concat([[0], tf.cumsum(tf.stack(sizes))[:-1]], axis=0)  # [groups], where each group's vectors begin
    vectors = tf.concat([group.vectors for group in groups], axis=0)
    free = _occurrences([group.free for group in groups], starts)
    if all(group.dependent is None for group in groups):
        if not sparse:
            return LevelByKey(vectors, free)
        reach, rows = tf.unique(free.rows)
        return LevelByKey(vectors, free._replace(rows=rows), reach=reach)
    no_places = tf.zeros_like(groups[0].free)
    dependents = [no_places if group.dependent is None else group.dependent for group in groups]
    bag_pairs = _bag_pairs(groups, starts)
    return LevelByKey(vectors, free, _occurrences(dependents, starts), bag_pairs)


def _occurrences(places_of_groups: Sequence[Tensor], starts: Tensor) -> Occurrences:
    """Return the occurrences row by row, and in each row group by group."""
    places = tf.stack(places_of_groups, axis=1)  # [batch, groups]
    occupied = tf.where(places > 0)  # [occurrences, 2]
    rows, groups = tf.unstack(tf.cast(occupied, tf.int32), num=2, axis=1)
    return Occurrences(tf.gather_nd(places, occupied) - 1 + tf.gather(starts, groups), rows)


def _bag_pairs(groups: Sequence[KeyVectors], starts: Tensor) -> BagPairs | None:
    rows = tf.range(tf.size(groups[0].free))
    bags = []
    for group, start in zip(groups, tf.unstack(starts, num=len(groups)), strict=True):
        if group.is_bag and group.dependent is not None:
            bags.append(BagPairs(group.free + start - 1, group.dependent + start - 1, rows))
    if not bags:
        return None
    return BagPairs(*(tf.concat(parts, axis=0) for parts in zip(*bags, strict=True)))


def sum_of_places(vectors: Tensor, free: Tensor, dependent: Tensor | None, *, fixed: bool = False) -> Level:
    """Return the sums of vectors at places of each row, counted from 1, 0 for none.

    Args:
        vectors: [keys, rank].
        free: [batch, groups], of values whose top level this is.
        dependent: the same of values of higher levels, if there are any.
        fixed: whether all shapes are fixed, as XLA needs them.

    Returns:
        The sums, [batch, rank] each.

    """
    batch = tf.shape(free)[0]

    def sums(places: Tensor) -> Tensor:
        return sums_of_rows(vectors, _occurrences_of(places, fixed=fixed), batch)

    return Level(sums(free), None if dependent is None else sums(dependent))


def level_of_places(
    vectors: Tensor,
    free: Tensor,
    dependent: Tensor | None,
    sums: Sequence[Level],
    *,
    sparse: bool,
    fixed: bool = False,
) -> LevelByKey:
    """Return a level of groups that read the same vectors, and of others of which each row has a sum of its own.

    Args:
        vectors: [keys, rank].
        free: [batch, groups], where a group's vector is, counted from 1, 0 for none, of values whose top level this is.
        dependent: the same of values of higher levels, if there are any.
        sums: the rows' own vectors, [batch, rank] each.
        sparse: whether only the rows that have a vector are computed.
        fixed: whether all shapes are fixed, as XLA needs them; all rows are computed then.

    """
    batch = tf.shape(free)[0]
    own_places, parts = tf.range(1, batch + 1), [vectors]
    free_columns, dependent_columns = [free], [] if dependent is None else [dependent]
    bags: list[BagPairs] = []
    start = tf.shape(vectors)[0]
    for level in sums:
        parts.append(level.free)
        free_columns.append((start + own_places)[:, None])
        if level.dependent is not None:
            parts.append(level.dependent)
            dependent_columns.append((start + batch + own_places)[:, None])
            bags.append(BagPairs(start + own_places - 1, start + batch + own_places - 1, tf.range(batch)))
            start += batch
        start += batch
    all_vectors = tf.concat(parts, axis=0)
    occurrences = _occurrences_of(tf.concat(free_columns, axis=1), fixed=fixed)
    if not dependent_columns:
        if not sparse or sums or isinstance(occurrences, OccurrenceGrid):
            return LevelByKey(all_vectors, occurrences)
        reach, rows = tf.unique(occurrences.rows)
        return LevelByKey(all_vectors, occurrences._replace(rows=rows), reach=reach)
    bag_pairs = BagPairs(*(tf.concat(parts, axis=0) for parts in zip(*bags, strict=True))) if bags else None
    dependents = _occurrences_of(tf.concat(dependent_columns, axis=1), fixed=fixed)
    return LevelByKey(all_vectors, occurrences, dependents, bag_pairs)


def _occurrences_of(places: Tensor, *, fixed: bool) -> Occurrences | OccurrenceGrid:
    """Return the occurrences of places [batch, groups] that are counted from 1, row by row; 0 is none."""
    if fixed:
        return OccurrenceGrid(places)
    occupied = tf.where(places > 0)  # [occurrences, 2]
    return Occurrences(tf.cast(tf.gather_nd(places, occupied), tf.int32) - 1, tf.cast(occupied[:, 0], tf.int32))


# --- scores ---------------------------------------------------------------------------------------------------------


def submodels_by_key(
    levels: Sequence[LevelByKey],
    linear: Tensor,
    dependents: Dependents = "joint",
    masks: Sequence[Tensor] | None = None,
) -> Submodels:
    """Return `submodels` of the same vectors.

    Args:
        levels: the groups' vectors at each level.
        linear: the linear part with the bias, [batch].
        dependents: how dependent parts learn, `joint` or `strict`.
        masks: for each level [batch, rank], factors of the interaction vector's coordinates.

    """
    low_linear = linear if is_joint(dependents) else tf.stop_gradient(linear)
    level_scores = [
        _level_scores(level, mask, tf.shape(linear)[0], dependents)
        for level, mask in zip(levels, masks or [None] * len(levels), strict=True)
    ]
    return add_levels(level_scores, [low_linear] * len(levels), linear)


def _level_scores(level: LevelByKey, mask: Tensor | None, batch: Tensor, dependents: Dependents) -> LevelScores:
    """Return the scores of the pairs settled at a level and of all its pairs, and both without the mask."""
    rows = _reached_rows(level, mask, batch)

    def scores_and_gradient(vectors: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., Tensor]]:
        level_of_vectors = level._replace(vectors=vectors)
        sums = _row_sums(level_of_vectors, rows.count)
        scores = _scores_of_sums(level_of_vectors, sums, rows)

        def gradient(*upstream: Tensor) -> Tensor:
            settled = rows.of_coordinates(upstream[0])
            all_pairs = None if level.dependent is None else rows.of_coordinates(upstream[1])
            return _gradient_of_keys(level_of_vectors, sums, settled, all_pairs, dependents)

        return scores, gradient

    scores = custom_gradient(scores_and_gradient)(level.vectors)
    if level.dependent is None:
        settled, *without_mask = scores
        unmasked = None if mask is None else (tf.stop_gradient(without_mask[0]),) * 2
        return LevelScores(settled, tf.stop_gradient(settled), unmasked)
    settled, all_pairs, *without_mask = scores
    return LevelScores(settled, all_pairs, tuple(map(tf.stop_gradient, without_mask)) if without_mask else None)


def member_scores(level: LevelByKey, linear: Tensor, dims: Sequence[int], mask: Tensor | None = None) -> Tensor:
    """Return the scores of members whose coordinates stand side by side in a model of one level.

    A member has the pairs of its own coordinates as many times as there are members, so that the mean of the members is
    the score of the model. With `level_sharing: all` they are the whole models of each rank (MRMA; Li et al., 2017).

    Args:
        level: the groups' vectors.
        linear: the linear part with the bias, [batch], which all members share.
        dims: the coordinates of each member, which are all of the rank.
        mask: [batch, rank], factors of the interaction vector's coordinates.

    Returns:
        [batch, members].

    """
    batch, members = tf.shape(linear)[0], len(dims)

    def scores_and_gradient(vectors: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        level_of_vectors = level._replace(vectors=vectors)
        sums = _row_sums(level_of_vectors, batch)
        pairs = 0.5 * (tf.square(sums.free) - level.free.sums(tf.square(vectors), batch))  # [batch, rank]
        masked = pairs if mask is None else pairs * mask
        scores = members * _sum_by_member(masked, dims)

        def gradient(upstream: Tensor) -> Tensor:
            of_coordinates = members * _repeated(upstream, dims)  # [batch, rank]
            masked_slope = of_coordinates if mask is None else of_coordinates * mask
            return _gradient_of_keys(level_of_vectors, sums, masked_slope, None, "joint")

        return scores, gradient

    return linear[:, None] + custom_gradient(scores_and_gradient)(level.vectors)


def _sum_by_member(coordinates: Tensor, dims: Sequence[int]) -> Tensor:
    """Sum the coordinates [batch, rank] of each member: [batch, members]."""
    if len(set(dims)) == 1:
        return tf.reduce_sum(tf.reshape(coordinates, [-1, len(dims), dims[0]]), axis=2)
    return tf.stack([tf.reduce_sum(part, axis=1) for part in tf.split(coordinates, dims, axis=1)], axis=1)


def _repeated(of_members: Tensor, dims: Sequence[int]) -> Tensor:
    """Give each coordinate the number of its member, [batch, members] -> [batch, rank]."""
    if len(set(dims)) == 1:
        return tf.repeat(of_members, dims[0], axis=1)
    return tf.gather(of_members, np.repeat(np.arange(len(dims)), dims), axis=1)


class ReachedRows(NamedTuple):
    """The rows of the batch that have a vector at a level; only they are computed."""

    batch: Tensor  # the number of rows of the batch
    count: Tensor  # how many of them reach the level: `rows` in the shapes below
    reach: Tensor | None  # [rows], their numbers in the batch; None where all of them reach it
    mask: Tensor | None  # [rows, rank], factors of the interaction vector's coordinates

    def of_batch(self, scores: Tensor) -> Tensor:
        """Return the scores [rows] as those of the batch, [batch]."""
        return scores if self.reach is None else tf.scatter_nd(self.reach[:, None], scores, [self.batch])

    def of_coordinates(self, upstream: Tensor) -> Tensor:
        """Return the gradient of scores [batch] as that of each coordinate, [rows, rank] or [rows, 1]."""
        of_rows = (upstream if self.reach is None else tf.gather(upstream, self.reach))[:, None]
        return of_rows if self.mask is None else of_rows * self.mask


def _reached_rows(level: LevelByKey, mask: Tensor | None, batch: Tensor) -> ReachedRows:
    if level.reach is None:
        return ReachedRows(batch, batch, None, mask)
    reached_mask = None if mask is None else tf.gather(mask, level.reach)
    return ReachedRows(batch, tf.size(level.reach), level.reach, reached_mask)


class RowSums(NamedTuple):
    """The vectors of each row, added up."""

    free: Tensor  # [rows, rank]
    dependent: Tensor | None = None  # [rows, rank]
    bags: tuple[Tensor, Tensor] | None = None  # the free and the dependent vectors of bags, [bags, rank] each


def _row_sums(level: LevelByKey, rows: Tensor) -> RowSums:
    free_sum = level.free.sums(level.vectors, rows)
    if level.dependent is None:
        return RowSums(free_sum)
    dependent_sum = level.dependent.sums(level.vectors, rows)
    if level.bag_pairs is None:
        return RowSums(free_sum, dependent_sum)
    free_of_bags = tf.gather(level.vectors, level.bag_pairs.free)
    dependent_of_bags = tf.gather(level.vectors, level.bag_pairs.dependent)
    return RowSums(free_sum, dependent_sum, (free_of_bags, dependent_of_bags))


def _scores_of_sums(level: LevelByKey, sums: RowSums, rows: ReachedRows) -> tuple[Tensor, ...]:
    """Return [batch] scores: of the settled pairs, of all pairs if some are dependent; with a mask both without it."""
    squares = tf.square(level.vectors)
    if rows.mask is None:  # then one number a key will do
        squares = tf.reduce_sum(squares, axis=1, keepdims=True)
    settled_products = [0.5 * tf.square(sums.free)]
    settled_squares = [0.5 * level.free.sums(squares, rows.count)]
    above: tuple[list[Tensor], list[Tensor]] | None = None
    if level.dependent is not None:
        settled_products.append(sums.free * sums.dependent)
        if level.bag_pairs is not None and sums.bags is not None:
            bag_free, bag_dependent = sums.bags
            of_bags = tf.math.unsorted_segment_sum(bag_free * bag_dependent, level.bag_pairs.rows, rows.count)
            settled_products.append(-of_bags)
        above = [0.5 * tf.square(sums.dependent)], [0.5 * level.dependent.sums(squares, rows.count)]
    scores = []
    for factors in (None,) if rows.mask is None else (rows.mask, None):
        settled = _add_up(settled_products, settled_squares, factors)
        scores.append(rows.of_batch(settled))
        if above is not None:
            scores.append(rows.of_batch(settled + _add_up(*above, factors)))
    return tuple(scores)


def _gradient_of_keys(
    level: LevelByKey, sums: RowSums, top: Tensor, low: Tensor | None, dependents: Dependents
) -> Tensor:
    """Return the gradient of the keys' vectors, [keys, rank].

    Args:
        level: the groups' vectors.
        sums: their sums by row.
        top: the gradient of the settled pairs' coordinates, [rows, rank] or [rows, 1].
        low: that of all pairs; None if no vector is dependent.
        dependents: how dependent parts learn.

    """
    vectors, free, dependent, bag_pairs, _ = level
    keys = tf.shape(vectors)[0]
    add_to_keys = free.adding_to_keys(keys, vectors.shape[1])
    if dependent is None:
        return add_to_keys(top * sums.free) - vectors * add_to_keys(top)
    to_free, to_dependent = level_gradients(top, low, sums.free, sums.free + sums.dependent, dependents)  # [rows, rank]
    add_dependents_to_keys = dependent.adding_to_keys(keys, vectors.shape[1])
    to_keys = add_to_keys(to_free) + add_dependents_to_keys(to_dependent)
    # a key is not its own partner: `level_gradients` with F - f and D - d
    to_keys -= vectors * (add_to_keys(top) + add_dependents_to_keys(low))
    if bag_pairs is None or sums.bags is None:
        return to_keys
    # nor are the free and the dependent vector of one bag
    bag_free, bag_dependent = sums.bags
    to_bag_free = tf.gather(top, bag_pairs.rows) * bag_dependent
    slope = low + top if is_joint(dependents) else low
    to_bag_dependent = tf.gather(slope, bag_pairs.rows) * bag_free
    places = tf.concat([bag_pairs.free, bag_pairs.dependent], axis=0)
    to_bags = tf.concat([to_bag_free, to_bag_dependent], axis=0)
    return tf.tensor_scatter_nd_sub(to_keys, places[:, None], to_bags)


def _add_up(products: Sequence[Tensor], squares: Sequence[Tensor], factors: Tensor | None) -> Tensor:
    """Sum products [rows, rank] less squares, [rows, rank] or [rows, 1], over the coordinates: [rows]."""
    if factors is not None:
        return tf.reduce_sum((tf.add_n(products) - tf.add_n(squares)) * factors, axis=1)
    return tf.reduce_sum(tf.add_n(products), axis=1) - tf.reduce_sum(tf.add_n(squares), axis=1)


# --- sums over rows and keys ----------------------------------------------------------------------------------------


def sums_of_rows(vectors: Tensor, occurrences: Occurrences | OccurrenceGrid, rows: Tensor) -> Tensor:
    """Return the sum of each row's vectors, [rows, rank]; its gradient adds up by key."""
    keys = tf.shape(vectors)[0]

    def sums_and_gradient(vectors: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return occurrences.sums(vectors, rows), occurrences.adding_to_keys(keys, vectors.shape[1])

    return custom_gradient(sums_and_gradient)(vectors)


def _scattered(of_rows: Tensor, occurrences: Occurrences, keys: Tensor) -> Tensor:
    """Return what each key gets from its rows, [keys, rank]: the transpose of `Occurrences.sums`."""
    places, rows = occurrences
    return tf.cond(
        tf.size(places) > 0,
        lambda: tf.raw_ops.SparseSegmentSumGrad(grad=of_rows, indices=places, segment_ids=rows, output_dim0=keys),
        lambda: tf.zeros([keys, tf.shape(of_rows)[1]], of_rows.dtype),  # of no places the operation leaves memory as is
    )
