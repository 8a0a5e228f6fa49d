"""The logit of noise-contrastive estimation."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from feat2vec.schema.objectives import Nce
from feat2vec.schema.objectives.nce import nce_logit
from tests.schema.objectives.cases import Case


def test_nce_probability() -> None:
    """p(y=1|x) = exp(s) / (exp(s) + k Q2(x_i))."""
    scores = np.array([-2.0, 0.0, 1.5])
    log_q = np.log([0.2, 0.01, 0.9])
    got = tf.sigmoid(nce_logit(tf.constant(scores), log_q.astype(np.float32), 7, 0.25))
    shifted = np.exp(scores + 0.25)
    np.testing.assert_allclose(got, shifted / (shifted + 7 * np.exp(log_q)), rtol=1e-6)


def test_nce_in_a_graph_that_does_not_know_k() -> None:
    case = Case()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float64)])
    def loss(scores: Any) -> Any:
        return case.loss(Nce(), "float64", False, scores)

    np.testing.assert_allclose(loss(case.scores), case.expected(Nce(), False))
