"""Rows with a target: the loss of their scores and levels, and of implicit negatives."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from feat2vec.model.candidate_scores import score_candidates, sum_context
from feat2vec.model.extractors import Extracted
from feat2vec.model.pair_scores import Submodels, Tensor
from feat2vec.sampling.noise import Draw
from feat2vec.schema.objectives import supervised
from feat2vec.schema.options import Schema


def has_level_losses(schema: Schema) -> bool:
    """Whether lower levels have losses of their own, and learn from the level above (Chen et al., 2019)."""
    return schema.model.levels.submodels > 1


def labelled_losses(schema: Schema, scores: Submodels, labels: Tensor, *, training: bool) -> Tensor:
    """The loss of each score, in training with the losses of the lower levels.

    Args:
        schema: The model's.
        scores: Scores [...] at each level; [rows, classes] for a softmax objective.
        labels: The targets, of the scores' shape; [rows] for a softmax objective.
        training: Whether the loss is to learn from, not to measure.

    Returns:
        Losses of the labels' shape.

    """
    objective = schema.objective
    if training:
        labels = objective.learnt_labels(labels)
    top_scores = scores.scores[-1]
    if scores.members is None:
        losses = supervised(objective, top_scores, tf.cast(labels, top_scores.dtype))
    else:
        losses = _mean_over_members(schema, scores.members, labels)
    if training and has_level_losses(schema):
        for level_scores, targets in zip(scores.scores, scores.targets, strict=False):  # the top level has no target
            losses += supervised(objective, level_scores, tf.cast(labels, level_scores.dtype), targets)
    return losses


def _mean_over_members(schema: Schema, scores: Tensor, labels: Tensor) -> Tensor:
    """The mean of the losses of each member's scores [rows, members] or [rows, members, classes]: [rows].

    It is not the loss of the mean: each member learns to predict by itself (Gorishniy et al., 2024).
    """
    rows, members = tf.shape(scores)[0], scores.shape[1]
    flat_scores = tf.reshape(scores, [rows * members, *scores.shape[2:]])
    flat_labels = tf.repeat(tf.cast(labels, scores.dtype), members)
    losses = supervised(schema.objective, flat_scores, flat_labels)  # [rows * members]
    return tf.reduce_mean(tf.reshape(losses, [rows, members]), axis=1)


def has_label(schema: Schema, labels: Tensor) -> Tensor:
    """The rows that have a loss, bool [rows]: a class that training has not seen, -1, has no probability."""
    if schema.objective.has_classes:
        return tf.cast(labels, tf.int32) >= 0
    return tf.ones(tf.shape(labels)[:1], tf.bool)


def mean_over_labelled(schema: Schema, losses: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of losses [rows], times their weights, over the rows that have a label: scalar."""
    if weights is not None:
        losses *= tf.cast(weights, losses.dtype)
    labelled = has_label(schema, labels)  # bool [rows]
    count = tf.math.count_nonzero(labelled, dtype=tf.int32)
    return tf.reduce_sum(tf.where(labelled, losses, 0)) / tf.cast(tf.maximum(count, 1), losses.dtype)


def implicit_losses(
    schema: Schema,
    group: int,
    draw: Draw,
    row_vectors: Sequence[Extracted],
    negative_vectors: Extracted,
    bias: Tensor,
    *,
    training: bool,
) -> Tensor:
    """The loss of each row's implicit negatives: the same row with a drawn value in one group, labelled 0.

    Args:
        schema: The model's.
        group: The group whose value is replaced.
        draw: The rows and their negatives.
        row_vectors: Each group's vectors of the rows, [rows, D_k] at each level.
        negative_vectors: The group's vectors of the negatives, [rows * k, D_k], or [K, D_k] if the rows share them.
        bias: Scalar, what every score has.
        training: Whether the loss is to learn from, not to measure.

    Returns:
        The sum over the negatives of each row, [rows]; 0 where the row has no value in the group.

    """
    rows, dtype = tf.shape(draw.rows)[0], row_vectors[0].levels[0].free.dtype
    outside_group = tf.constant([[float(g != group) for g in range(len(row_vectors))]], dtype)  # [1, groups]
    keep = tf.tile(outside_group, [rows, 1])
    context = sum_context(schema, row_vectors, keep, bias)
    negatives = score_candidates(schema, context, [negative_vectors], tf.shape(draw.values[0]))  # [rows, k]
    losses = labelled_losses(schema, negatives, tf.zeros_like(negatives.scores[-1]), training=training)
    losses = tf.reduce_sum(losses, axis=1)  # [rows]
    return tf.where(draw.present, losses, 0)
