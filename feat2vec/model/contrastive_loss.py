"""The contrastive loss of rows that share their negatives, with a gradient of its own.

It is what `candidate_scores` and `Contrastive.noise_loss` make of a unit of one group, at one level and without linear
terms, in a third of the operations: of the arrays [rows, negatives] each is made once. With the context c of a row, its
own value's vector p and the negatives n_k, u(x) = x / |x| (or x, without `unit`), and T the temperature,

    s_0 = c . u(p) / T - log Q2(p)    s_k = c . u(n_k) / T - log Q2(n_k)    loss = log sum_i exp(s_i) - s_0

where a negative that is the row's own value is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from feat2vec.custom_gradients import custom_gradient
from feat2vec.model.extractors import Extracted
from feat2vec.model.pair_scores import Level, Tensor
from feat2vec.sampling.noise import Draw
from feat2vec.schema.objectives import Contrastive
from feat2vec.schema.objectives.formulas import UNIT_EPSILON
from feat2vec.schema.options import Schema


def contrastive_alone(
    schema: Schema, draw: Draw, sums: Sequence[Level], positives: Sequence[Extracted], negatives: Sequence[Extracted]
) -> Contrastive | None:
    """The options by which `contrastive_losses` computes the loss of a unit's rows; None if it cannot.

    Args:
        schema: The model's.
        draw: The rows and their negatives.
        sums: The contexts of the rows, [rows, D_k] at each level.
        positives: For each group of the unit, the vectors of the rows' own values.
        negatives: For each group of the unit, the vectors of the negatives.

    """
    if type(schema.objective) is not Contrastive or schema.model.bias or len(positives) > 1 or len(sums) > 1:
        return None
    levels = [sums[0], positives[0].levels[0], negatives[0].levels[0]]
    is_plain = all(level.dependent is None and level.free.dtype == tf.float32 for level in levels)
    return schema.objective if is_plain and draw.values[0].shape.rank == 1 else None


def contrastive_losses(
    objective: Contrastive, draw: Draw, contexts: Tensor, positives: Tensor, negatives: Tensor
) -> Tensor:
    """The loss of each row.

    Args:
        objective: The options.
        draw: The rows and their negatives.
        contexts: c, [rows, D].
        positives: p, [rows, D].
        negatives: n_k, which all rows share, [K, D].

    Returns:
        The losses, [rows].

    """

    def losses_and_gradient(
        contexts: Tensor, positives: Tensor, negatives: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], list[Tensor]]]:
        scale = 1 / objective.temperature
        of_positives, of_negatives = (_scaled(vectors, scale, objective.unit) for vectors in (positives, negatives))
        products = tf.reduce_sum(contexts * of_positives.vectors, axis=1)  # [rows]
        rivals = tf.matmul(contexts, of_negatives.vectors, transpose_b=True)  # [rows, K]
        own_scores = products
        if objective.correction:
            own_scores -= draw.log_q_positive
            rivals = tf.where(draw.hits, -math.inf, rivals - draw.log_q)
        top = tf.maximum(own_scores, tf.reduce_max(rivals, axis=1))  # [rows]
        rivals = tf.exp(rivals - top[:, None])
        of_rivals = tf.reduce_sum(rivals, axis=1)  # [rows]
        total = of_rivals + tf.exp(own_scores - top)

        def gradient(upstream: Tensor) -> list[Tensor]:
            share = upstream / total  # [rows]
            by_score = rivals * share[:, None]  # [rows, K]
            by_own = -of_rivals * share  # [rows]
            by_contexts = tf.matmul(by_score, of_negatives.vectors) + by_own[:, None] * of_positives.vectors
            by_negatives = tf.matmul(by_score, contexts, transpose_a=True)  # [K, D]
            # c . u(p) / T is known for the own value; of negatives the products with their gradients are taken here.
            along = tf.reduce_sum(by_negatives * of_negatives.vectors, axis=1)  # [K]
            return [
                by_contexts,
                of_positives.gradient(by_own[:, None] * contexts, by_own * products),
                of_negatives.gradient(by_negatives, along),
            ]

        return top - own_scores + tf.math.log(total), gradient

    losses: Tensor = custom_gradient(losses_and_gradient)(contexts, positives, negatives)
    return losses


class _Scaled(NamedTuple):
    """Vectors as scores meet them: of length 1 / T, or divided by T."""

    vectors: Tensor  # [n, D]
    factors: Tensor | float  # what the given ones are multiplied by: [n, 1], or a number
    turns: Tensor | None  # [n, 1], 1 where a vector's length is taken off and 0 where it is too short; None without
    scale: float

    def gradient(self, upstream: Tensor, along: Tensor) -> Tensor:
        """The gradient of the given vectors; `along` [n] is the product of `upstream` with the scaled ones."""
        if self.turns is None:
            return upstream * self.factors
        across = upstream - self.vectors * (self.turns * along[:, None] / self.scale**2)
        return across * self.factors


def _scaled(vectors: Tensor, scale: float, unit: bool) -> _Scaled:
    """Vectors [n, D] as scores meet them."""
    if not unit:
        return _Scaled(vectors * scale, scale, None, scale)
    squares = tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True)  # [n, 1]
    factors = tf.math.rsqrt(tf.maximum(squares, UNIT_EPSILON)) * scale
    return _Scaled(vectors * factors, factors, tf.cast(squares >= UNIT_EPSILON, vectors.dtype), scale)
