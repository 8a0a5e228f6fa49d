"""Arrays in equal parts on servers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.cluster import spread_arrays
from feat2vec.cluster.spread_arrays import SpreadArray


def test_an_array_is_on_its_servers_in_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_arrays, "PIECE_BYTES", 1000)  # 83 rows
    array = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    spread = SpreadArray(array, ["CPU:0"] * 3)
    assert [part.shape[0] for part in spread.parts] == [334, 333, 333]
    np.testing.assert_array_equal(spread.parts[1], array[1::3])
    rows = np.array([5, 999, 0, 5, 334])
    np.testing.assert_array_equal(tf.function(spread.gather)(tf.constant(rows)), array[rows])
