"""The contrastive loss of rows that share negatives, against a loop in float64; `test_noise_loss` has whole batches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.arrays import Floats
from feat2vec.model.contrastive_loss import contrastive_losses
from feat2vec.sampling.noise import Draw
from feat2vec.schema.objectives import Contrastive

ROWS, NEGATIVES, DIM = 7, 5, 3


def drawn(rng: np.random.Generator) -> Draw:
    hits = rng.random((ROWS, NEGATIVES)) < 0.2
    hits[0] = True  # a row all of whose negatives are its own value
    log_q = tf.constant(rng.normal(size=NEGATIVES).astype(np.float32))
    of_rows = tf.constant(rng.normal(size=ROWS).astype(np.float32))
    values = (tf.range(NEGATIVES),)
    return Draw(tf.zeros([ROWS, 1], tf.int32), tf.ones(ROWS, tf.bool), of_rows, values, log_q, tf.constant(hits))


def losses_row_by_row(objective: Contrastive, draw: Draw, vectors: list[Floats]) -> Floats:
    """The formula of `contrastive_loss`, term by term."""
    contexts, positives, negatives = vectors
    losses = np.zeros(ROWS)

    def score(context: Floats, vector: Floats, log_q: float) -> float:
        length = max(float(vector @ vector), 1e-6) ** 0.5 if objective.unit else 1.0
        return float(context @ vector) / length / objective.temperature - (log_q if objective.correction else 0.0)

    for row in range(ROWS):
        own = score(contexts[row], positives[row], float(draw.log_q_positive[row]))
        rivals = []
        for k in range(NEGATIVES):
            if not (objective.correction and bool(draw.hits[row, k])):
                rivals.append(score(contexts[row], negatives[k], float(draw.log_q[k])))
        losses[row] = np.log(np.exp(np.array([own, *rivals])).sum()) - own
    return losses


@pytest.mark.thinned(2)
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("correction", [True, False])
def test_losses_and_gradients_are_those_of_a_loop(unit: bool, correction: bool) -> None:
    rng = np.random.default_rng(3)
    objective = Contrastive(unit=unit, correction=correction, temperature=0.7)
    draw = drawn(rng)
    vectors = [rng.normal(size=(count, DIM)) for count in (ROWS, ROWS, NEGATIVES)]
    vectors[1][2] = vectors[2][1] = [1e-4, -2e-4, 0]  # shorter than what they are divided by at least
    weights = rng.normal(size=ROWS)
    variables = [tf.Variable(array.astype(np.float32)) for array in vectors]

    @tf.function
    def losses_and_gradients() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            losses = contrastive_losses(objective, draw, *map(tf.convert_to_tensor, variables))
            total = tf.reduce_sum(losses * weights.astype(np.float32))
        return losses, tape.gradient(total, variables)

    losses, gradients = losses_and_gradients()
    np.testing.assert_allclose(losses, losses_row_by_row(objective, draw, vectors), rtol=1e-5, atol=1e-6)
    assert float(losses[0]) == 0 or not correction
    for array, gradient in zip(vectors, gradients, strict=True):
        for place in np.ndindex(*array.shape):
            before, step = array[place], 1e-6
            differences = []
            for sign in (1, -1):
                array[place] = before + sign * step
                differences.append(weights @ losses_row_by_row(objective, draw, vectors))
            array[place] = before
            slope = (differences[0] - differences[1]) / (2 * step)
            np.testing.assert_allclose(gradient.numpy()[place], slope, rtol=2e-4, atol=2e-4 * np.abs(gradient).max())
