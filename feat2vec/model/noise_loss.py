"""The noise loss: rows without a target learn to tell their own values from drawn ones.

The noise divides a batch among *target units*, each a group or a joint set of groups (two-step noise: Armona,
González-Brenes and Edezath). In the rows of unit u, the row's own value of u is the positive, and k values drawn for u
are the negatives; `candidate_scores` scores each of them in the row's context. The losses of these scores are those of
noise-contrastive estimation, of negative sampling (Mikolov et al., 2013) or of contrastive learning; see `losses`.

    draws     = noise.sample(rows, seed)                     one `Draw` a unit
    keep      = context_mask(...)                            [batch, groups]
    contexts  = context_of_each_unit(...)                    one `RowContext` a unit
    loss      = sum over units, rows of unit_losses / batch

A batch is ordered by unit: the first rows are those of the first unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.custom_gradients import custom_gradient
from feat2vec.model.candidate_scores import (
    RowContext,
    score_candidates,
    split_context,
    sum_context,
)
from feat2vec.model.contrastive_loss import contrastive_alone, contrastive_losses
from feat2vec.model.extractors import Extracted
from feat2vec.model.group_vectors import levels_of, slice_rows
from feat2vec.model.labelled_loss import has_level_losses
from feat2vec.model.pair_scores import Level, Submodels, Tensor
from feat2vec.sampling.noise import Draw, Unit
from feat2vec.schema.objectives import Noisy, self_supervised
from feat2vec.schema.options import Schema

MAX_SPLIT_GROUPS = 16  # above this many groups, splitting each of them by unit takes too many operations


class BatchVectors(NamedTuple):
    """The vectors of a batch's rows and of their negatives."""

    rows: Sequence[Extracted]  # of each group: [batch, D_k] at each level
    negatives: Mapping[int, Extracted]  # of each group that is in a unit: [rows * k, D_k], or [K, D_k] if rows share
    positives: Mapping[int, Extracted]  # of groups by item, of the items drawn in their unit's rows: [rows, D_k]


class UnitRows(NamedTuple):
    """The rows of a batch whose target is one unit."""

    context: RowContext  # [rows, D_k] at each level
    positives: list[Extracted]  # of each group of the unit: [rows, D_k] at each level


def noise_loss(
    schema: Schema,
    units: Sequence[Unit],
    draws: Sequence[Draw],
    vectors: BatchVectors,
    keep: Tensor,
    bias: Tensor,
    offsets: Tensor | None,
    *,
    training: bool,
    max_split_groups: int = MAX_SPLIT_GROUPS,
) -> Tensor:
    """The mean loss of a batch's rows against their negatives.

    Args:
        schema: The model's.
        units: The target units of the noise.
        draws: For each unit its rows of the batch, and their negatives.
        vectors: The vectors of the rows and of the negatives.
        keep: [batch, groups], 1 for the groups of a row's context; see `context_mask`.
        bias: Scalar, what every score has.
        offsets: [groups], what noise-contrastive estimation adds to the scores of a unit's candidates.
        training: Whether the loss is to learn from: then lower levels have losses, too.
        max_split_groups: With more groups than this, the contexts of all units are summed in one go.

    Returns:
        A scalar. Rows whose unit has no value count in the mean, with a loss of 0.

    """
    unit_sizes = tf.stack([tf.shape(draw.rows)[0] for draw in draws])  # [units]
    if schema.objective.compares_candidates and len(vectors.rows) <= max_split_groups:
        unit_rows = rows_of_units_by_group(schema, units, unit_sizes, vectors.rows, keep)
    else:
        unit_rows = rows_of_units_at_once(schema, units, unit_sizes, vectors.rows, keep, bias)
    total = 0.0
    for unit, draw, rows in zip(units, draws, unit_rows, strict=True):
        negatives = [vectors.negatives[g] for g in unit.groups]
        if unit.groups[0] in vectors.positives:
            rows = rows._replace(positives=[vectors.positives[unit.groups[0]]])
        offset = 0.0 if offsets is None else offsets[unit.groups[0]]
        losses = unit_losses(schema, draw, rows, negatives, offset, training=training)  # [rows of the unit]
        total += tf.reduce_sum(tf.where(draw.present, losses, tf.zeros_like(losses)))
    return total / tf.cast(tf.shape(keep)[0], keep.dtype)


def unit_losses(
    schema: Schema,
    draw: Draw,
    rows: UnitRows,
    negatives: Sequence[Extracted],
    offset: Tensor | float,
    *,
    training: bool,
) -> Tensor:
    """The loss of each row of one unit, [rows].

    Args:
        schema: The model's.
        draw: The rows, their negatives and the negatives' probabilities.
        rows: The rows' contexts and positives.
        negatives: For each group of the unit, the vectors of the negatives, as in `BatchVectors`.
        offset: Scalar, added to each score by noise-contrastive estimation.
        training: Whether lower levels have losses, too.

    """
    alone = contrastive_alone(schema, draw, rows.context.sums, rows.positives, negatives)
    if alone is not None:
        contexts, of_rows, of_negatives = (
            level.free for level in (rows.context.sums[0], rows.positives[0].levels[0], negatives[0].levels[0])
        )
        return contrastive_losses(alone, draw, contexts, of_rows, of_negatives)
    positive_scores = score_candidates(schema, rows.context, rows.positives, (-1, 1))  # [rows, 1]
    negative_scores = score_candidates(schema, rows.context, negatives, tf.shape(draw.values[0]))  # [rows, k]
    level_scores = _pair_levels(positive_scores.scores, negative_scores.scores)
    level_targets = _pair_levels(positive_scores.targets, negative_scores.targets)
    log_q = Noisy(draw.log_q_positive, draw.log_q)
    losses = self_supervised(schema.objective, level_scores[-1], log_q, draw.hits, offset)
    if training and has_level_losses(schema):
        for scores, targets in zip(level_scores, level_targets, strict=False):  # the top level has no target
            losses += self_supervised(schema.objective, scores, log_q, draw.hits, offset, targets)
    return losses


def _pair_levels(positives: Sequence[Tensor], negatives: Sequence[Tensor]) -> list[Noisy]:
    """For each level the positive's score [rows] and those of the negatives [rows, k]."""
    return [Noisy(positive[:, 0], negative) for positive, negative in zip(positives, negatives, strict=True)]


# --- the context of each row ----------------------------------------------------------------------------------------


def context_mask(
    units: Sequence[Unit],
    unit_sizes: Tensor,
    groups: int,
    dtype: str,
    *,
    group_dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """The groups that are a row's context: not in its target unit, and not dropped.

    Args:
        units: The target units of the noise.
        unit_sizes: [units], the rows of each, which stand one after the other.
        groups: The number of groups.
        dtype: The type of the mask.
        group_dropout: The share of the groups that are left out.
        seed: Two integers, which decide what is left out.

    Returns:
        [batch, groups], 1 for the groups of the context and 0 for the others.

    """
    outside_unit = np.ones((len(units), groups), dtype)
    for u, unit in enumerate(units):
        outside_unit[u, list(unit.groups)] = 0
    unit_ends = tf.cumsum(unit_sizes)
    unit_of_row = tf.searchsorted(unit_ends, tf.range(unit_ends[-1]), side="right")  # [batch]
    keep = tf.gather(outside_unit, unit_of_row)
    if group_dropout:
        dropout_seed = tf.random.split(tf.cast(seed, tf.int64), 3, alg="philox")[2]  # the noise has the first two
        keep *= tf.cast(tf.random.stateless_uniform(tf.shape(keep), dropout_seed) >= group_dropout, keep.dtype)
    return keep


def rows_of_units_by_group(
    schema: Schema, units: Sequence[Unit], unit_sizes: Tensor, groups: Sequence[Extracted], keep: Tensor
) -> list[UnitRows]:
    """The rows of each unit, without scores of their contexts, for objectives that compare candidates alone.

    The score of the context is the same for all candidates of a row, and cancels in their differences. So it is left
    out, and no array of [batch, groups, D_k] is made.
    """
    vectors_of_levels = zip(*(levels_of(group, truncated=schema.model.levels.nested) for group in groups), strict=True)
    # contexts[k][u] and positives[k][u][place in the unit]: [rows of u, D_k] at level k
    contexts: list[list[Level]] = []
    positives: list[list[list[Level]]] = []
    for group_levels in vectors_of_levels:
        free = split_by_unit(units, unit_sizes, [level.free for level in group_levels], keep)
        if group_levels[0].dependent is None:
            contexts.append([Level(context) for context in free.contexts])
            positives.append([[Level(vectors) for vectors in of_unit] for of_unit in free.positives])
            continue
        dependent = split_by_unit(units, unit_sizes, [level.dependent for level in group_levels], keep)
        contexts.append([Level(*parts) for parts in zip(free.contexts, dependent.contexts, strict=True)])
        own_parts = zip(free.positives, dependent.positives, strict=True)
        positives.append([[Level(*parts) for parts in zip(*of_unit, strict=True)] for of_unit in own_parts])
    linear = [None if group.linear is None else tf.split(group.linear, unit_sizes) for group in groups]
    unit_rows = []
    for u, (unit, unit_keep) in enumerate(zip(units, tf.split(keep, unit_sizes), strict=True)):
        no_scores = [tf.zeros_like(unit_keep[:, 0])] * len(contexts)
        own_groups = []
        for place, g in enumerate(unit.groups):
            terms = linear[g]
            own_levels = tuple(of_level[u][place] for of_level in positives)
            own_groups.append(Extracted(own_levels, None if terms is None else terms[u], 0.0))
        sums = [of_level[u] for of_level in contexts]
        unit_rows.append(UnitRows(RowContext(Submodels(no_scores, []), sums), own_groups))
    return unit_rows


class UnitParts(NamedTuple):
    """What the rows of each unit have at a level, [rows of the unit, D_k] each."""

    contexts: list[Tensor]  # the sum of the groups that are kept, by unit
    positives: list[list[Tensor]]  # the vectors of the unit's own groups, by unit


def split_by_unit(units: Sequence[Unit], unit_sizes: Tensor, vectors: Sequence[Tensor], keep: Tensor) -> UnitParts:
    """The contexts and the own vectors of the rows of each unit, with a gradient of its own.

    The graph has operations by the number of groups, not by its square. A group's gradient in a row is that of the
    context if the group is kept, or that of the own vector if it is in the row's unit, where it is never kept.

    Args:
        units: The target units.
        unit_sizes: [units], the rows of each, which stand one after the other.
        vectors: Those of each group, [batch, D].
        keep: [batch, groups], 0 for a group in the rows of its unit.

    """
    columns = tf.split(keep, len(vectors), axis=1)  # [batch, 1] each
    own_places = [(u, g) for u, unit in enumerate(units) for g in unit.groups]

    def parts_and_gradient(*vectors: Tensor) -> tuple[tuple[Tensor, ...], Callable[..., list[Tensor]]]:
        contexts = tf.add_n([part * column for part, column in zip(vectors, columns, strict=True)])
        parts_of_groups = {g: tf.split(vectors[g], unit_sizes) for g in {g for _, g in own_places}}
        parts = [*tf.split(contexts, unit_sizes), *(parts_of_groups[g][u] for u, g in own_places)]

        def gradient(*upstream: Tensor) -> list[Tensor]:
            by_contexts = tf.concat(upstream[: len(units)], axis=0)  # [batch, D]
            by_vectors = [by_contexts * column for column in columns]
            for g in parts_of_groups:
                by_units = list(tf.split(by_vectors[g], unit_sizes))
                for (u, own_group), by_own in zip(own_places, upstream[len(units) :], strict=True):
                    if own_group == g:
                        by_units[u] = by_own
                by_vectors[g] = tf.concat(by_units, axis=0)
            return by_vectors

        return tuple(parts), gradient

    parts = iter(custom_gradient(parts_and_gradient)(*vectors))
    contexts = [next(parts) for _ in units]
    return UnitParts(contexts, [[next(parts) for _ in unit.groups] for unit in units])


def rows_of_units_at_once(
    schema: Schema,
    units: Sequence[Unit],
    unit_sizes: Tensor,
    groups: Sequence[Extracted],
    keep: Tensor,
    bias: Tensor,
) -> list[UnitRows]:
    """The rows of each unit, with contexts that are summed and scored for the whole batch, then split.

    Of the groups only those of the unit are sliced: slices of each group for each unit would take operations by the
    square of the number of groups.
    """
    unit_starts = tf.unstack(tf.cumsum(unit_sizes) - unit_sizes, num=len(units))
    sizes = tf.unstack(unit_sizes, num=len(units))
    contexts = split_context(sum_context(schema, groups, keep, bias), unit_sizes)
    unit_rows = []
    for unit, start, size, context in zip(units, unit_starts, sizes, contexts, strict=True):
        positives = [slice_rows(groups[g], start, size) for g in unit.groups]
        unit_rows.append(UnitRows(context, positives))
    return unit_rows
