"""Entries of value ids are those of a local training, wherever their tables lie."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.cluster import spread_arrays
from feat2vec.cluster.spread_arrays import SpreadArray
from feat2vec.cluster.value_entries import ValueEntries
from feat2vec.encode.encoder import fit
from feat2vec.sampling.batches import value_tables
from tests.encode.tables import EVERY_ROWS, EVERY_SCHEMA, arrow


@pytest.mark.parametrize("most_graph_bytes", [0, 1 << 20])
def test_entries_are_those_of_a_local_training(most_graph_bytes: int) -> None:
    encoded = fit(EVERY_SCHEMA, arrow(EVERY_ROWS))
    tables = {name: values.entries for name, values in encoded.values.items()}
    entries = ValueEntries(tables, ["CPU:0"] * 3, most_graph_bytes)
    assert entries.first_keys  # groups of single keys have no table
    assert bool(entries.on_servers) == (most_graph_bytes == 0)
    ids = np.concatenate([encoded.rows, np.full((2, encoded.rows.shape[1]), -1, np.int32)])
    inputs = tf.function(entries.inputs)(tf.constant(ids))
    for place, (name, table) in enumerate(zip(tables, value_tables(encoded), strict=True)):
        np.testing.assert_array_equal(inputs[name], table[ids[:, place] + 1])
        assert inputs[name].dtype == table.dtype


def test_an_array_is_on_its_servers_in_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_arrays, "PIECE_BYTES", 1000)  # 83 rows
    array = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    spread = SpreadArray(array, ["CPU:0"] * 3)
    assert [part.shape[0] for part in spread.parts] == [334, 333, 333]
    np.testing.assert_array_equal(spread.parts[1], array[1::3])
    rows = np.array([5, 999, 0, 5, 334])
    np.testing.assert_array_equal(tf.function(spread.gather)(tf.constant(rows)), array[rows])
