"""Rows on a worker: every row once an epoch, in an order that follows from the seed, with what belongs to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.cluster.row_feed import WORK_SIGNATURE, RowFeed, Work
from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.left_out import LeftOut
from feat2vec.sampling.joint_values import joint_values
from feat2vec.schema.reading import read_schema
from feat2vec.shards.encoded_folder import EncodedTable
from tests.cluster.folders import encoded_table
from tests.training.tables import LABELLED, table

ROWS, STEPS = 1201, 76
SCHEMA = {
    **LABELLED,
    "objective": {"type": "logistic", "target": "good", "weight": "number", "implicit": "title"},
    "noise": {"negatives": 4, "joint": [["who", "place"]]},
    "training": {"validation": 0, "epochs": 1, "batch_size": 16},
}
NUMBERED = table(ROWS).append_column("number", [np.arange(1, ROWS + 1, dtype=np.float64)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> EncodedTable:
    """Rows whose weight is their number, in seven shards."""
    encoded = encoded_table(tmp_path_factory.mktemp("encoded") / "people", SCHEMA, NUMBERED, shard_bytes=5000)
    assert len(encoded.shards()) == 7
    return encoded


@pytest.fixture(scope="module")
def local() -> Encoded:
    return fit(read_schema(SCHEMA), NUMBERED)


def batches_of(feed: RowFeed, works: list[Work]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The batches of some pieces of work, read in a graph as on a worker."""

    @tf.function(input_signature=[WORK_SIGNATURE])
    def read(work: Work) -> tuple[tf.Tensor, ...]:
        rows = feed.read(work)
        ends = tf.TensorArray(tf.int32, work.steps)
        for step in tf.range(work.steps):
            ends = ends.write(step, tf.shape(rows.batch(step, work.steps).ids)[0])
        return (*rows, ends.stack())

    batches = []
    for work in works:
        ids, target, weight, sizes = (np.asarray(part) for part in read(Work(*map(tf.constant, work))))
        assert sizes.sum() == len(ids) == work.rows
        if not len(ids):
            continue
        bounds = np.cumsum(sizes)[:-1]
        batches += list(zip(*(np.split(part, bounds) for part in (ids, target, weight)), strict=True))
    return batches


def numbers_of(batches: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> np.ndarray:
    """The numbers of the rows, in the order in which they are used."""
    return np.concatenate([weight for _, _, weight in batches]).astype(np.int64) - 1


def works_of(feed: RowFeed, epoch: int, sizes: Sequence[int] = (1, 5, 2)) -> list[Work]:
    """The pieces of work of an epoch, which have so many steps in turn."""
    works: list[Work] = []
    of_epoch, first = feed.epoch(epoch), 0
    while first < feed.steps:
        steps = min(sizes[len(works) % len(sizes)], feed.steps - first)
        works.append(of_epoch.work(first, steps))
        first += steps
    return works


def test_every_row_is_used_once_an_epoch_with_what_belongs_to_it(folder: EncodedTable, local: Encoded) -> None:
    feed = RowFeed(folder, STEPS, seed=3)
    joint = joint_values(local.rows, (0, 2))
    assert local.target is not None
    orders = []
    for epoch in range(2):
        batches = batches_of(feed, works_of(feed, epoch))
        assert len(batches) == STEPS
        assert {len(ids) for ids, _, _ in batches} == {15, 16}
        order = numbers_of(batches)
        assert sorted(order.tolist()) == list(range(ROWS))
        ids, targets = (np.concatenate(parts) for parts in list(zip(*batches, strict=True))[:2])
        np.testing.assert_array_equal(ids[:, :4], local.rows[order])
        np.testing.assert_array_equal(ids[:, 4], joint.ids(local.rows[order]))
        np.testing.assert_array_equal(targets, local.target[order])
        orders.append(order)
    assert (orders[0] != orders[1]).mean() > 0.9  # shuffled anew
    distances = np.abs(np.diff(orders[0]))
    assert np.median(distances) > ROWS / 10  # rows that are neighbours in the table are far from each other


def test_the_parts_of_several_workers_are_all_rows(folder: EncodedTable) -> None:
    """Whichever worker gets a piece of work, and if one is lost and its piece is done again by another."""
    feed = RowFeed(folder, STEPS, seed=3)
    works = works_of(feed, 5)
    parts = [numbers_of(batches_of(RowFeed(folder, STEPS, seed=3), works[worker::3])) for worker in range(3)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(ROWS))
    again = numbers_of(batches_of(feed, works[4:5]))
    np.testing.assert_array_equal(again, numbers_of(batches_of(feed, works[4:5])))


def test_the_rows_of_a_step_do_not_follow_from_how_many_a_piece_has(folder: EncodedTable) -> None:
    feed = RowFeed(folder, STEPS, seed=3)
    one_by_one, together = feed.epoch(5), numbers_of(batches_of(feed, [feed.epoch(5).work(7, 6)]))
    apart = numbers_of(batches_of(feed, [one_by_one.work(step, 1) for step in range(7, 13)]))
    assert sorted(together.tolist()) == sorted(apart.tolist())
    assert (together != apart).any()  # all rows of a piece are shuffled


def test_rows_that_are_left_out_are_in_no_batch(folder: EncodedTable) -> None:
    left_out = np.unique(np.random.default_rng(0).integers(0, ROWS, 300))
    feed = RowFeed(folder, STEPS, LeftOut(left_out), seed=3)
    order = numbers_of(batches_of(feed, works_of(feed, 0)))
    assert sorted(order.tolist()) == sorted(set(range(ROWS)) - set(left_out.tolist()))


def test_a_piece_whose_rows_are_all_left_out_has_no_step(folder: EncodedTable) -> None:
    feed = RowFeed(folder, STEPS, LeftOut(np.arange(ROWS - 1)), seed=3)
    works = works_of(feed, 0, [1])
    assert sorted(int(work.steps) for work in works) == [0] * (STEPS - 1) + [1]
    assert numbers_of(batches_of(feed, works)).tolist() == [ROWS - 1]


def test_columns_are_in_the_order_that_is_asked_for(folder: EncodedTable) -> None:
    groups = [column.name for column in folder.record() if column.kind == "value"]
    feed, turned = RowFeed(folder, STEPS, seed=3), RowFeed(folder, STEPS, groups=groups[::-1], seed=3)
    work = feed.epoch(0).work(0, 1)
    ids, same = (np.asarray(rows.read(work).ids) for rows in (feed, turned))
    np.testing.assert_array_equal(same, ids[:, [3, 2, 1, 0, 4]])
    assert (ids[:, 0] != ids[:, 3]).any()
