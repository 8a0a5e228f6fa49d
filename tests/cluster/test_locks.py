"""Updates of one variable, one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import numpy as np
import tensorflow as tf

from feat2vec.cluster.locks import Locks

SECONDS = 0.3  # that a step waits for the other one between its read and its write


def test_of_two_steps_at_the_same_time_none_is_lost() -> None:
    """Without the lock both read before one writes, if TensorFlow has two threads for operations."""
    locks, table, both_have_read = Locks(), tf.Variable(tf.zeros([3, 1])), Barrier(2)

    def wait(rows: tf.Tensor) -> tf.Tensor:
        with suppress(BrokenBarrierError):
            both_have_read.wait(SECONDS)
        return rows

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        with locks([table], [gradient]):
            rows = tf.ensure_shape(tf.numpy_function(wait, [tf.gather(table, [1])], tf.float32), [1, 1])
            table.scatter_update(tf.IndexedSlices(rows + gradient, [1]))

    traced = step.get_concrete_function(tf.TensorSpec([1, 1]))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(traced, [tf.ones([1, 1])] * 2))
    np.testing.assert_array_equal(table, [[0], [2], [0]])
