"""Batches: every row once an epoch, the same order from the same seed, from any step on, in blocks or whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.sampling import batches as module
from feat2vec.sampling.batches import Batches, value_tables
from feat2vec.sampling.joint_values import joint_values
from feat2vec.schema.reading import read_schema


def encoded(rows: int) -> Encoded:
    numbers = [str(i) for i in range(rows)]
    table = pa.table({"a": numbers, "b": [f"b{i % 7}" for i in range(rows)], "y": np.arange(rows, dtype=np.float32)})
    objective = {"type": "regression", "target": "y"}
    return fit(
        read_schema({"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}, "objective": objective}),
        table,
    )


def read(feed: Batches, epoch: int = 0, step: int = 0) -> list[Any]:
    feed.epoch, feed.step = epoch, step
    return [
        [
            np.asarray(part) if not isinstance(part, dict) else {k: np.asarray(v) for k, v in part.items()}
            for part in batch
        ]
        for batch in feed.dataset()
    ]


def feed(rows: Encoded, **options: Any) -> Batches:
    tables = dict(zip(("a", "b"), value_tables(rows), strict=True))
    return Batches(rows.rows, tables, **{"batch_size": 16, **options})


@pytest.mark.parametrize("block", [1 << 20, 64])
def test_an_epoch_has_every_row_once_in_batches_of_nearly_equal_size(block: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    rows = encoded(205)
    one = feed(rows, block=block)
    found = read(one)
    assert len(found) == one.steps == int(one.dataset().cardinality()) == 13
    assert {len(batch[1]) for batch in found} == {15, 16}
    for inputs, ids in found:
        for g, name in enumerate(("a", "b")):
            np.testing.assert_array_equal(inputs[name], one.tables[name][ids[:, g] + 1])
    every = np.concatenate([ids for _, ids in found])
    np.testing.assert_array_equal(np.sort(every[:, 0]), np.sort(np.asarray(rows.rows)[:, 0]))
    assert not np.array_equal(every, rows.rows)
    again, other, reseeded = read(one), read(one, 1), read(feed(rows, block=block, seed=1))
    np.testing.assert_array_equal(every, np.concatenate([ids for _, ids in again]))
    for changed in (other, reseeded):
        assert not np.array_equal(every, np.concatenate([ids for _, ids in changed]))
    for step in (1, 5, 12):  # an epoch goes on where it was left
        rest = read(one, 0, step)
        assert len(rest) == one.steps - step
        for (_, ids), (_, same) in zip(rest, found[step:], strict=True):
            np.testing.assert_array_equal(ids, same)


def test_blocks_mix_rows_from_all_over_the_table(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    rows = encoded(1024)
    pools = feed(rows, block=64)._pools(0)
    order = np.concatenate([np.concatenate([np.arange(1024)[s] for s in some])[places] for some, places in pools])
    assert sorted(order) == list(range(1024))
    first = order[:64]
    assert len(set(first // 8)) == 8
    assert np.ptp(first) > 512
    assert np.abs(np.diff(first) == 1).mean() < 0.2


def test_targets_follow_their_rows() -> None:
    rows = encoded(100)
    for inputs, target in read(feed(rows, target=rows.target, keep_rows=False)):
        assert [float(key) for (key,) in rows.encoder.decode("a", inputs["a"])] == target.tolist()


def test_in_order_without_shuffling_and_with_joint_sets() -> None:
    rows = encoded(50)
    joint = joint_values(rows.rows, [0, 1])
    found = np.concatenate([ids for _, ids in read(feed(rows, shuffle=False, joints=[joint]))])
    np.testing.assert_array_equal(found[:, :2], rows.rows)
    np.testing.assert_array_equal(found[:, 2], joint.ids(np.asarray(rows.rows)))
