"""Scores of rows from vectors that are read once a key: FM, RaFM and DiFacto.

With S the sum of a row's vectors and Q that of their squares, coordinate by coordinate, its pairs add up to
(S^2 - Q) / 2. Both sums are taken from the keys' vectors by the places of the keys; so no array of
[batch, groups, rank] is made, nor one for its gradient, and a step moves a fraction of the memory. Levels, parts and
gradients are those of `interactions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from feat2vec.model.custom_gradients import custom_gradient
from feat2vec.model.pair_scores import Dependents, Level, Part, Submodels, chain, is_joint

Tensor: TypeAlias = Any


class Column(NamedTuple):
    """One group's vectors at a level, and where in them a row's are: one more than the place, 0 for none."""

    vectors: Tensor  # [keys, rank]
    free: Tensor  # [batch], of values whose top level this is
    dependent: Tensor | None = None  # [batch], of values of higher levels
    is_bag: bool = False  # a row may have both


class Occurrences(NamedTuple):
    """Which vector is in which row."""

    places: Tensor  # [occurrences]
    rows: Tensor  # [occurrences], ascending


class Both(NamedTuple):
    """A bag's free and its dependent vector in a row; they are no pair."""

    free: Tensor  # [bags], places
    dependent: Tensor
    rows: Tensor  # [bags]


class Keyed(NamedTuple):
    """All groups' vectors at a level."""

    vectors: Tensor  # [keys, rank]
    free: Occurrences
    dependent: Occurrences | None = None
    both: Both | None = None
    reach: Tensor | None = None  # [rows], ascending: `rows` counts among these rows of the batch; None is all of them


def column(level: Level) -> Column:
    """A group of which each row has vectors of its own, [batch, rank]."""
    batch = tf.shape(level.free)[0]
    places = tf.range(1, batch + 1)
    if level.dependent is None:
        return Column(level.free, places)
    return Column(tf.concat([level.free, level.dependent], axis=0), places, places + batch, is_bag=True)


def merged(column: Column) -> Column:
    """With truncation a level's free and dependent parts are one."""
    if column.dependent is None:
        return column
    if not column.is_bag:
        return Column(column.vectors, tf.maximum(column.free, column.dependent))  # a value is one or the other
    free, dependent = (tf.gather(column.vectors, places - 1) for places in (column.free, column.dependent))
    return Column(free + dependent, tf.range(1, tf.size(column.free) + 1))


def added(columns: Sequence[Column]) -> Column:
    """Groups whose vectors add up to one: each row has a sum of its own."""
    level, rows = side_by_side(columns), tf.size(columns[0].free)
    free, dependent = (of and _row_sums(level.vectors, of, rows) for of in (level.free, level.dependent))
    return column(Level(free, dependent))


def side_by_side(columns: Sequence[Column], *, sparse: bool = False) -> Keyed:
    """The groups' columns as a level; of a `sparse` one only the rows that have a vector are computed."""
    sizes = [tf.shape(column.vectors)[0] for column in columns]
    starts = tf.concat([[0], tf.cumsum(tf.stack(sizes))[:-1]], axis=0)
    vectors = tf.concat([column.vectors for column in columns], axis=0)
    free = _occurrences([column.free for column in columns], starts)
    if all(column.dependent is None for column in columns):
        if not sparse:
            return Keyed(vectors, free)
        reach, rows = tf.unique(free.rows)
        return Keyed(vectors, free._replace(rows=rows), reach=reach)
    none = tf.zeros_like(columns[0].free)
    dependents = [none if column.dependent is None else column.dependent for column in columns]
    rows = tf.range(tf.size(none))
    bags = [
        (column.free + start - 1, column.dependent + start - 1, rows)
        for column, start in zip(columns, tf.unstack(starts, num=len(columns)), strict=True)
        if column.is_bag and column.dependent is not None
    ]
    both = Both(*(tf.concat(parts, axis=0) for parts in zip(*bags, strict=True))) if bags else None
    return Keyed(vectors, free, _occurrences(dependents, starts), both)


def _occurrences(columns: Sequence[Tensor], starts: Tensor) -> Occurrences:
    """Row by row, and in each row group by group."""
    places = tf.stack(columns, axis=1)  # [batch, groups]
    there = tf.where(places > 0)
    rows, groups = tf.unstack(tf.cast(there, tf.int32), num=2, axis=1)
    return Occurrences(tf.gather_nd(places, there) - 1 + tf.gather(starts, groups), rows)


def keyed_submodels(
    levels: Sequence[Keyed],
    linear: Tensor,  # [batch], bias included
    dependents: Dependents = "joint",
    masks: Sequence[Tensor] | None = None,  # a level: [batch, rank], factors of the interaction vector's coordinates
) -> Submodels:
    """`submodels` of the same vectors."""
    low = linear if is_joint(dependents) else tf.stop_gradient(linear)
    each = zip(levels, masks or [None] * len(levels), strict=True)
    parts = [_part(level, mask, tf.shape(linear)[0], dependents) for level, mask in each]
    return chain(parts, [low] * len(parts), linear)


def _part(level: Keyed, mask: Tensor | None, batch: Tensor, dependents: Dependents) -> Part:
    """The scores of the pairs settled at a level and of all its pairs, and both without the mask."""
    vectors, free, dependent, both, reach = level
    if reach is not None:
        mask = None if mask is None else tf.gather(mask, reach)
    rows = batch if reach is None else tf.size(reach)

    def back(scores: Tensor) -> Tensor:
        return scores if reach is None else tf.scatter_nd(reach[:, None], scores, [batch])

    def share(upstream: Tensor) -> Tensor:
        some = (upstream if reach is None else tf.gather(upstream, reach))[:, None]
        return some if mask is None else some * mask

    def meet(vectors: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., Tensor]]:
        squares = tf.square(vectors)
        if mask is None:  # then one number a key will do
            squares = tf.reduce_sum(squares, axis=1, keepdims=True)
        keys, total = tf.shape(vectors)[0], _sums(vectors, free, rows)
        products = [0.5 * tf.square(total)], [0.5 * _sums(squares, free, rows)]
        above = None
        if dependent is not None:
            higher = _sums(vectors, dependent, rows)
            products[0].append(total * higher)
            if both is not None:
                own_free, own_dependent = tf.gather(vectors, both.free), tf.gather(vectors, both.dependent)
                products[0].append(-tf.math.unsorted_segment_sum(own_free * own_dependent, both.rows, rows))
            above = [0.5 * tf.square(higher)], [0.5 * _sums(squares, dependent, rows)]
        scores = []
        for factors in (None,) if mask is None else (mask, None):
            settled = _add_up(*products, factors)
            scores.append(back(settled))
            if above is not None:
                scores.append(back(settled + _add_up(*above, factors)))

        def gradient(*upstream: Tensor) -> Tensor:
            top = share(upstream[0])
            if dependent is None:
                return _scattered(top * total, free, keys) - vectors * _scattered(top, free, keys)
            low, whole = share(upstream[1]), total + higher
            to_dependent = low * whole if not is_joint(dependents) else low * whole + top * total
            own = _scattered(top, free, keys) + _scattered(low, dependent, keys)  # a key is not its own partner
            found = _scattered(top * whole, free, keys) + _scattered(to_dependent, dependent, keys) - vectors * own
            if both is None:
                return found
            to_free = tf.gather(top, both.rows) * own_dependent
            slope = low + top if is_joint(dependents) else low
            to_both = tf.concat([to_free, tf.gather(slope, both.rows) * own_free], axis=0)
            return tf.tensor_scatter_nd_sub(found, tf.concat([both.free, both.dependent], axis=0)[:, None], to_both)

        return tuple(scores), gradient

    settled, *others = custom_gradient(meet)(vectors)
    if dependent is None:
        unmasked = tf.stop_gradient(others[0]) if others else None
        return Part(settled, tf.stop_gradient(settled), None if unmasked is None else (unmasked, unmasked))
    every, *unmasked = others
    return Part(settled, every, tuple(map(tf.stop_gradient, unmasked)) if unmasked else None)


def _sums(vectors: Tensor, of: Occurrences, rows: Tensor) -> Tensor:
    """[rows, rank]."""
    return tf.sparse.segment_sum(vectors, of.places, of.rows, num_segments=rows)


def _row_sums(vectors: Tensor, of: Occurrences, rows: Tensor) -> Tensor:
    """`_sums`, with `_scattered` as its gradient."""
    keys = tf.shape(vectors)[0]
    sums = custom_gradient(lambda x: (_sums(x, of, rows), lambda upstream: _scattered(upstream, of, keys)))
    return sums(vectors)


def _scattered(of_rows: Tensor, of: Occurrences, keys: Tensor) -> Tensor:
    """What each key gets from its rows, [keys, rank]: the transpose of `_sums`."""
    return tf.cond(
        tf.size(of.places) > 0,
        lambda: tf.raw_ops.SparseSegmentSumGrad(grad=of_rows, indices=of.places, segment_ids=of.rows, output_dim0=keys),
        lambda: tf.zeros([keys, tf.shape(of_rows)[1]], of_rows.dtype),  # of no places the operation leaves memory as is
    )


def _add_up(products: Sequence[Tensor], squares: Sequence[Tensor], factors: Tensor | None) -> Tensor:
    """The sum over the coordinates of products [rows, rank] less squares, [rows, rank] or [rows, 1]: [rows]."""
    if factors is not None:
        return tf.reduce_sum((tf.add_n(products) - tf.add_n(squares)) * factors, axis=1)
    return tf.reduce_sum(tf.add_n(products), axis=1) - tf.reduce_sum(tf.add_n(squares), axis=1)
