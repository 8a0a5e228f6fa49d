"""Records of fixed length: TensorFlow and NumPy read what was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.sampling.joint_values import joint_values
from feat2vec.shards.records import record_columns, rows_of_shards, shard_name, write_shard
from tests.training.tables import LABELLED, table


def test_a_shard_is_read_by_tensorflow_as_records_of_fixed_length(tmp_path: Path) -> None:
    encoded = fit(LABELLED, table(50))
    joint = joint_values(encoded.rows, (0, 2))
    columns = record_columns(encoded, [joint])
    assert [column.kind for column in columns] == ["value"] * 4 + ["joint", "target"]
    rows = range(10, 50)
    write_shard(tmp_path / "rows", encoded, [joint], rows)
    records = tf.data.FixedLengthRecordDataset(str(tmp_path / "rows"), len(columns) * 4)
    numbers = np.stack([tf.io.decode_raw(record, tf.int32).numpy() for record in records])  # [rows, columns]
    np.testing.assert_array_equal(numbers[:, :4], encoded.rows[10:])
    np.testing.assert_array_equal(numbers[:, 4], joint.ids(encoded.rows[10:]))
    assert encoded.target is not None
    np.testing.assert_array_equal(numbers[:, 5].copy().view(np.float32), encoded.target[10:])


def test_shards_have_about_the_size_that_is_asked_for() -> None:
    shards = rows_of_shards(1_000_000, 9)
    assert shards == [range(1_000_000)]
    million = rows_of_shards(10_000_000, 9)
    assert [len(rows) for rows in million] == [7_456_540, 2_543_460]
    assert 7_456_540 * 9 * 4 <= 256 << 20 < 7_456_541 * 9 * 4
    assert sorted(shard_name(i) for i in range(12)) == [shard_name(i) for i in range(12)]
