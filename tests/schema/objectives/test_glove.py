"""The weight of GloVe's loss."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from feat2vec.schema.objectives.glove import glove


def test_glove_weight() -> None:
    count = tf.constant([1e-30, 0.5, 3.0, 30.0, 1e30])
    got = glove(tf.math.log(count) + 1, count, n_max=3.0, alpha=0.75)
    np.testing.assert_allclose(got, [0.0, (0.5 / 3) ** 0.75, 1.0, 1.0, 1.0], rtol=1e-5, atol=1e-20)
    np.testing.assert_allclose(glove(tf.math.log(count) + 1, count, 3.0, 0.0), 1.0, rtol=1e-5)
