"""Negative sampling at extreme scores."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from feat2vec.schema.objectives import NegativeSampling, Noisy, self_supervised
from tests.schema.objectives.cases import for_each_dtype


@for_each_dtype
def test_confident_logits_keep_their_gradient(dtype: str) -> None:
    scores = tf.constant([[-20.0, 20.0], [20.0, -20.0]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = self_supervised(NegativeSampling(), Noisy(scores[:, 0], scores[:, 1:]), Noisy(0.0, 0.0), None, 0.0)
    low = math.exp(-20) / (1 + math.exp(-20))
    np.testing.assert_allclose(loss, [40 + 2 * low, 2 * low], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, scores)[1], [-low, low], rtol=1e-6)
