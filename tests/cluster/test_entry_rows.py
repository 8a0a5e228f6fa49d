"""Entries that workers have without a server."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.entry_rows import GraphRows, KeyRows, key_rows
from feat2vec.cluster.servers import Servers
from feat2vec.cluster.spread_rows import SpreadRows

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"
KEYS = np.array([[0], [2], [3], [4], [5]], np.int32)
LISTS = np.arange(24, dtype=np.int32).reshape(6, 4)


@pytest.mark.parametrize(
    ("array", "least_bytes", "kind"),
    [(KEYS, 1, KeyRows), (LISTS, 1 << 10, GraphRows), (LISTS, 1, SpreadRows), (LISTS[:, 0], 1, SpreadRows)],
)
def test_an_array_is_kept_where_it_is_read_fastest(array: Array, least_bytes: int, kind: type) -> None:
    with Servers([DEVICE, DEVICE], least_bytes).holding():
        rows = tf.Variable(array, trainable=False)
    assert isinstance(rows, kind)
    numbers = tf.constant([[1, 0], [4, 1]])
    read = tf.gather(rows, numbers)
    np.testing.assert_array_equal(read, array[numbers.numpy()])
    assert read.dtype == array.dtype


def test_keys_in_another_order_are_no_key_rows() -> None:
    assert key_rows(KEYS) is not None
    assert key_rows(KEYS[::-1].copy()) is None
    assert key_rows(KEYS.astype(np.float32)) is None
    assert key_rows(KEYS[:1]) is None


def test_other_variables_are_on_the_server_that_has_least() -> None:
    servers = Servers([DEVICE, DEVICE])
    with servers.holding():
        variables = [keras.Variable(np.ones(size, np.float32)) for size in (10, 4, 4, 4)]
    assert [variable.shape[0] for variable in variables] == [10, 4, 4, 4]
    assert sum(servers.bytes) == 4 * 22
