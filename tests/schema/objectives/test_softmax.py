"""Cross-entropy of classes that training has not seen."""

from __future__ import annotations

import math

import tensorflow as tf

from feat2vec.schema.objectives import Softmax, supervised


def test_an_unseen_class_has_no_probability() -> None:
    """And is not the last one."""
    scores = tf.constant([[0.0, 1.0], [0.0, 1.0]])
    loss = supervised(Softmax(target="y"), scores, tf.constant([-1.0, 1.0])).numpy()
    assert loss[0] == math.inf
    assert math.isclose(loss[1], math.log1p(math.exp(-1)), rel_tol=1e-6)
