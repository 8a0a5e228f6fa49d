"""Groups' vectors put together: stacked side by side, added up, joined and split by rows.

An `Extracted` is what an extractor returns for one group: vectors [rows, D_k] at each level k, and linear terms [rows].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from feat2vec.model.extractors import Extracted
from feat2vec.model.pair_scores import Level, Submodels, Tensor
from feat2vec.model.pair_scores_by_key import (
    KeyVectors,
    LevelByKey,
    key_vectors_of,
    member_scores,
    side_by_side,
    submodels_by_key,
    sum_of_groups,
    without_levels,
)
from feat2vec.schema.options import Schema


def map_level(change: Callable[[Tensor], Tensor], level: Level) -> Level:
    """A level whose free part, and dependent part if there is one, are changed by a function."""
    return Level(change(level.free), None if level.dependent is None else change(level.dependent))


def merge_level(level: Level) -> Level:
    """A level with its dependent part added to its free part, as truncated models have it."""
    return level if level.dependent is None else Level(level.free + level.dependent)


def levels_of(group: Extracted, *, truncated: bool) -> list[Level]:
    """A group's levels; those of a truncated model have no dependent part."""
    return [merge_level(level) for level in group.levels] if truncated else list(group.levels)


# --- side by side ---------------------------------------------------------------------------------------------------


def stack_vectors(groups: Sequence[Extracted], *, truncated: bool) -> list[Level]:
    """The vectors of all groups at each level: [rows, groups, D_k]."""
    stacked = []
    for group_levels in zip(*(levels_of(group, truncated=truncated) for group in groups), strict=True):
        free = tf.stack([level.free for level in group_levels], axis=1)
        dependent = None
        if group_levels[0].dependent is not None:
            dependent = tf.stack([level.dependent for level in group_levels], axis=1)
        stacked.append(Level(free, dependent))
    return stacked


def stack_linear(groups: Sequence[Extracted], *, bias: bool) -> Tensor:
    """The linear terms of all groups, [rows, groups]; zeros in a model without bias."""
    if bias:
        return tf.stack([group.linear for group in groups], axis=1)
    vectors = groups[0].levels[0].free
    return tf.zeros([tf.shape(vectors)[0], len(groups)], vectors.dtype)


def key_vectors_of_levels(group: Extracted) -> list[KeyVectors]:
    """A group's vectors at each level, which refer to each key's vector instead of holding one vector a row."""
    return list(group.key_vectors) or [key_vectors_of(level) for level in group.levels]


def stack_key_vectors(groups: Sequence[Extracted], *, truncated: bool) -> list[LevelByKey]:
    """The vectors of all groups at each level, once a key, with the rows in which they occur."""
    stacked = []
    for k, level_groups in enumerate(zip(*(key_vectors_of_levels(group) for group in groups), strict=True)):
        key_vectors = [without_levels(group) for group in level_groups] if truncated else level_groups
        stacked.append(side_by_side(key_vectors, sparse=k > 0))
    return stacked


def scores_by_key(
    schema: Schema, levels: Sequence[LevelByKey], linear: Tensor, masks: Sequence[Tensor] | None, *, training: bool
) -> Submodels:
    """The scores of rows from vectors once a key, in training also those of each member.

    Args:
        schema: The model's.
        levels: The vectors of all groups at each level.
        linear: The linear part with the bias, [batch].
        masks: For each level [batch, D_k], factors of the interaction vector's coordinates.
        training: Whether members learn each by itself.

    Returns:
        The scores at every level.

    """
    dims = schema.model.member_dims
    if not training or len(dims) == 1:
        return submodels_by_key(levels, linear, schema.model.dependents, masks)
    members = member_scores(levels[0], linear, dims, None if masks is None else masks[0])
    return Submodels([tf.reduce_mean(members, axis=1)], [], members=members)


def add_groups(groups: Sequence[Extracted]) -> Extracted:
    """The sums of several groups' vectors and linear terms, as those of one group."""
    linear = None if groups[0].linear is None else tf.add_n([group.linear for group in groups])
    if any(group.key_vectors for group in groups):
        level_groups = zip(*(key_vectors_of_levels(group) for group in groups), strict=True)
        return Extracted((), linear, 0.0, key_vectors=tuple(sum_of_groups(key_vectors) for key_vectors in level_groups))
    levels = []
    for group_levels in zip(*(group.levels for group in groups), strict=True):
        free = tf.add_n([level.free for level in group_levels])
        dependent_parts = [level.dependent for level in group_levels if level.dependent is not None]
        levels.append(Level(free, tf.add_n(dependent_parts) if dependent_parts else None))
    return Extracted(tuple(levels), linear, 0.0)


# --- rows -----------------------------------------------------------------------------------------------------------


def join_entries(entries: Sequence[Tensor]) -> Tensor:
    """Entries [rows, width] below each other; narrower ones are padded with zeros, which stand for no item."""
    width = max(part.shape[1] for part in entries)
    padded = []
    for part in entries:
        missing = width - part.shape[1]
        padded.append(tf.pad(part, [[0, 0], [0, missing]]) if missing else part)
    return tf.concat(padded, axis=0)


def split_level(level: Level, sizes: Tensor) -> list[Level]:
    """A level cut into parts of so many rows; `sizes` is [parts]."""
    free_parts = tf.split(level.free, sizes)
    if level.dependent is None:
        return [Level(free) for free in free_parts]
    return [Level(*parts) for parts in zip(free_parts, tf.split(level.dependent, sizes), strict=True)]


def split_rows(group: Extracted, sizes: Tensor) -> list[Extracted]:
    """A group's rows cut into parts; `sizes` is [parts].

    What the L2 penalty counts is a sum over all rows. It stays with the first part.
    """
    count = sizes.shape[0]
    levels = zip(*(split_level(level, sizes) for level in group.levels), strict=True)  # [parts][levels]
    linear = [None] * count if group.linear is None else tf.split(group.linear, sizes)
    first_part, *later_parts = [Extracted(part, terms, 0.0) for part, terms in zip(levels, linear, strict=True)]
    return [first_part._replace(square=group.square, linear_square=group.linear_square), *later_parts]


def slice_rows(group: Extracted, start: Tensor, size: Tensor) -> Extracted:
    """A group's `size` rows from row `start` on, without what the L2 penalty counts."""
    levels = tuple(map_level(lambda part: part[start : start + size], level) for level in group.levels)
    linear = None if group.linear is None else group.linear[start : start + size]
    return Extracted(levels, linear, 0.0)
