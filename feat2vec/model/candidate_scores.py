"""Scores of candidates: values that take the place of a row's own value in one group, or in one joint set of groups.

The groups that are replaced are the *unit*; the row's other groups are its *context*, which all candidates share. With
C the sum of the context's vectors, a candidate x for one group has the score

    s(x) = (linear terms and pairs of the context) + (linear term of x) + x . C

so the context is summed once a row, and each candidate costs one dot product. A candidate for a joint set also has the
pairs between its own groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import tensorflow as tf

from feat2vec.model.extractors import Extracted
from feat2vec.model.group_vectors import map_level, split_level, stack_linear, stack_vectors
from feat2vec.model.pair_scores import Level, Submodels, Tensor, context, replaced, submodels
from feat2vec.schema.objectives.formulas import UNIT_EPSILON
from feat2vec.schema.options import Schema


class RowContext(NamedTuple):
    """What the context of each row adds to the scores of its candidates."""

    scores: Submodels  # the context's own score at each level, [rows]
    sums: list[Level]  # the sum of its vectors at each level, [rows, D_k]


def sum_context(schema: Schema, groups: Sequence[Extracted], keep: Tensor, bias: Tensor) -> RowContext:
    """The scores and sums of the groups that are kept.

    Args:
        schema: The model's.
        groups: All groups' vectors, [rows, D_k] at each level.
        keep: [rows, groups], 1 for the groups of a row's context and 0 for the others.
        bias: Scalar, what every score has.

    Returns:
        The context of each row.

    """
    vectors = stack_vectors(groups, truncated=schema.model.levels.nested)
    kept_vectors = [map_level(lambda part: part * keep[..., None], level) for level in vectors]  # [rows, groups, D_k]
    linear = stack_linear(groups, bias=schema.model.bias)  # [rows, groups]
    kept_linear = tf.reduce_sum(linear * keep, axis=1) + bias  # [rows]
    scores = submodels(kept_vectors, kept_linear, schema.model.dependents)
    return RowContext(scores, context(kept_vectors))


def split_context(rows: RowContext, sizes: Tensor) -> list[RowContext]:
    """The contexts of a batch cut into parts of so many rows; `sizes` is [parts]."""
    score_parts = zip(*(tf.split(score, sizes) for score in rows.scores.scores), strict=True)  # [parts][levels]
    sum_parts = zip(*(split_level(level, sizes) for level in rows.sums), strict=True)  # [parts][levels]
    return [
        RowContext(Submodels(list(scores), []), list(sums)) for scores, sums in zip(score_parts, sum_parts, strict=True)
    ]


def score_candidates(
    schema: Schema, rows: RowContext, candidates: Sequence[Extracted], shape: Tensor | tuple[int, ...]
) -> Submodels:
    """The scores of each row with each of its candidates in place of the unit.

    Args:
        schema: The model's.
        rows: The context of each row.
        candidates: For each group of the unit, the candidates' vectors, [candidates, D_k] at each level.
        shape: [rows, k] if each row has k candidates of its own, [K] if all rows share them.

    Returns:
        Scores [rows, k] or [rows, K] at each level.

    """
    dependents = schema.model.dependents
    shape = tf.convert_to_tensor(shape)

    def by_row(part: Tensor) -> Tensor:  # [candidates, members, D_k] -> [rows, k, members, D_k] or [K, members, D_k]
        return tf.reshape(part, tf.concat([shape, part.shape[1:]], 0))

    levels = stack_vectors(candidates, truncated=schema.model.levels.nested)  # [candidates, members, D_k]
    if schema.objective.unit_candidates:
        normalize = partial(tf.math.l2_normalize, axis=-1, epsilon=UNIT_EPSILON)
        levels = [map_level(normalize, level) for level in levels]
    vectors = [map_level(by_row, level) for level in levels]  # [..., members, D_k]
    linear = stack_linear(candidates, bias=schema.model.bias)  # [candidates, members]
    linear = tf.reshape(linear, tf.concat([shape, [len(candidates)]], 0))  # [..., members]
    if len(candidates) == 1:
        single = [map_level(lambda part: part[..., 0, :], level) for level in vectors]
        return replaced(rows.scores, single, rows.sums, linear[..., 0], dependents)
    within = submodels(vectors, tf.reduce_sum(linear, axis=-1), dependents)  # the unit's own pairs and linear terms
    with_context = replaced(rows.scores, context(vectors), rows.sums, tf.zeros_like(linear[..., 0]), dependents)
    scores = [outer + inner for outer, inner in zip(with_context.scores, within.scores, strict=True)]
    return Submodels(scores, [tf.stop_gradient(score) for score in scores[1:]])
