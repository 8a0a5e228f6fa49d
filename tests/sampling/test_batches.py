"""Batches: every row once an epoch, the same order from the same seed, from any step on, in blocks or whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.sampling.batches import Batches, shuffled_blocks, value_tables
from feat2vec.sampling.joint_values import joint_values
from feat2vec.schema.reading import read_schema

Array = npt.NDArray[Any]


def encoded(rows: int) -> Encoded:
    numbers = [str(i) for i in range(rows)]
    table = pa.table({"a": numbers, "b": [f"b{i % 7}" for i in range(rows)], "y": np.arange(rows, dtype=np.float32)})
    groups = {"a": {"column": "a"}, "b": {"column": "b"}}
    objective = {"type": "regression", "target": "y"}
    return fit(read_schema({"version": 1, "groups": groups, "objective": objective}), table)


def batches_of(rows: Encoded, **options: Any) -> Batches:
    tables = dict(zip(("a", "b"), value_tables(rows), strict=True))
    return Batches(rows.rows, tables, **{"batch_size": 16, "chunk": 8, **options})


def read(batches: Batches, epoch: int = 0, step: int = 0) -> list[tuple[dict[str, Array], Array]]:
    """(Inputs, rows or target) of each batch of an epoch from a step on."""
    batches.epoch, batches.step = epoch, step
    return [
        ({name: np.asarray(entries) for name, entries in inputs.items()}, np.asarray(second))
        for inputs, second in batches.dataset()
    ]


def all_rows(epoch: list[tuple[dict[str, Array], Array]]) -> Array:
    return np.concatenate([rows for _, rows in epoch])


@pytest.mark.parametrize("block", [1 << 20, 64])
def test_an_epoch_has_every_row_once_in_batches_of_nearly_equal_size(block: int) -> None:
    rows = encoded(205)
    batches = batches_of(rows, block=block)
    epoch = read(batches)
    assert len(epoch) == batches.steps == int(batches.dataset().cardinality()) == 13
    assert {len(ids) for _, ids in epoch} == {15, 16}
    for inputs, ids in epoch:
        for g, name in enumerate(("a", "b")):
            np.testing.assert_array_equal(inputs[name], np.asarray(batches.tables[name])[ids[:, g] + 1])
    shuffled = all_rows(epoch)
    np.testing.assert_array_equal(np.sort(shuffled[:, 0]), np.sort(np.asarray(rows.rows)[:, 0]))
    assert not np.array_equal(shuffled, rows.rows)
    np.testing.assert_array_equal(shuffled, all_rows(read(batches)))
    assert not np.array_equal(shuffled, all_rows(read(batches, epoch=1)))
    assert not np.array_equal(shuffled, all_rows(read(batches_of(rows, block=block, seed=1))))
    for step in (1, 5, 12):  # an epoch goes on where it was left
        rest = read(batches, 0, step)
        assert len(rest) == batches.steps - step
        for (_, ids), (_, same_ids) in zip(rest, epoch[step:], strict=True):
            np.testing.assert_array_equal(ids, same_ids)


def test_blocks_mix_rows_from_all_over_the_table() -> None:
    orders = []
    for block in shuffled_blocks(1024, 64, 8, np.random.default_rng(0)):
        rows = np.concatenate([np.arange(1024)[part] for part in block.slices])
        assert len(rows) == len(block) == 64
        orders.append(rows[block.order])
    assert sorted(np.concatenate(orders)) == list(range(1024))
    first = orders[0]
    assert len(set(first // 8)) == 8
    assert np.ptp(first) > 512
    assert np.abs(np.diff(first) == 1).mean() < 0.2


@pytest.mark.parametrize(("most", "at_once"), [(16, 13), (5, 5), (1, 1)])
def test_steps_that_run_at_once_divide_an_epoch(most: int, at_once: int) -> None:
    batches = batches_of(encoded(205), most_steps_at_once=most)
    assert batches.steps_at_once == at_once
    assert batches.steps % at_once == 0
    assert [batches.bounds(0), batches.bounds(batches.steps)] == [0, 205]
    assert len(read(batches)) == batches.steps


@pytest.mark.parametrize(("rows", "at_once"), [(40, 10), (41, 1), (17, 1), (5, 5), (1, 1)])
def test_a_batch_of_one_row_is_never_empty(rows: int, at_once: int) -> None:
    batches = batches_of(encoded(rows), batch_size=1)
    assert (batches.steps, batches.steps_at_once) == (rows, at_once)
    assert {len(ids) for _, ids in read(batches)} == {1}


def test_targets_follow_their_rows() -> None:
    rows = encoded(100)
    for inputs, target in read(batches_of(rows, target=rows.target, keep_rows=False)):
        assert [float(key) for (key,) in rows.encoder.decode("a", inputs["a"])] == target.tolist()


def test_targets_and_weights_beside_the_rows() -> None:
    rows = encoded(100)
    for inputs, (ids, target), weight in batches_of(rows, target=rows.target, weight=rows.target).dataset():
        np.testing.assert_array_equal(target, weight)
        assert [float(key) for (key,) in rows.encoder.decode("a", np.asarray(inputs["a"]))] == target.numpy().tolist()
        assert ids.shape == (len(target), 2)


def test_in_order_without_shuffling_and_with_joint_sets() -> None:
    rows = encoded(50)
    joint = joint_values(rows.rows, [0, 1])
    ids = all_rows(read(batches_of(rows, shuffle=False, joints=[joint])))
    np.testing.assert_array_equal(ids[:, :2], rows.rows)
    np.testing.assert_array_equal(ids[:, 2], joint.ids(np.asarray(rows.rows)))
