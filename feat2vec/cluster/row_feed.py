"""Rows of value ids where the workers are: read from shards by operations that run in TensorFlow.

The chief says which rows a piece of work has, and the worker that gets it reads them; a worker keeps nothing. So a
piece of work that is done again after a worker was lost has the same rows, all rows are used in each epoch, and a
training goes on from the number of an epoch and of a step in it. Workers need to see the files, and no Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array, Int64s
from feat2vec.encode.left_out import LeftOut
from feat2vec.shards.encoded_folder import EncodedTable
from feat2vec.shards.records import RecordColumn, places_of_groups

RUNS_OF_STEP = 64  # runs of neighbouring rows that are shuffled together, about
MOST_RUN_ROWS = 4096


class Work(NamedTuple):
    """Which rows a worker reads for some steps.

    Args:
        shards: The shard of each run of neighbouring rows, int32 [pieces].
        firsts: The first row of each in its shard, int64 [pieces].
        counts: The number of its rows, int64 [pieces].
        left_out: The places in these rows, put one after the other, that nothing is learnt from: int32 [left out].
        seed: What the order of the rows follows from, int64 [2].
        steps: In how many batches they are used, int32 [].

    """

    shards: Array
    firsts: Array
    counts: Array
    left_out: Array
    seed: Array
    steps: Array

    @property
    def rows(self) -> int:
        """The number of rows that are learnt from."""
        return int(self.counts.sum()) - len(self.left_out)


WORK_SIGNATURE = Work(
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([2], tf.int64),
    tf.TensorSpec([], tf.int32),
)  # of a `tf.function` that takes a piece of work


class WorkRows(NamedTuple):
    """Rows in the order in which they are used.

    Args:
        ids: Value ids and the ids of joint tuples, int32 [rows, groups and joint sets].
        target: float32 or int32 [rows]; None without one.
        weight: float32 [rows]; None without one.

    """

    ids: tf.Tensor
    target: tf.Tensor | None
    weight: tf.Tensor | None

    def batch(self, step: tf.Tensor, steps: tf.Tensor) -> WorkRows:
        """The rows of one of several steps, which have nearly the same number of rows.

        Args:
            step: The number of the step, from 0.
            steps: The number of steps.

        """
        rows = tf.shape(self.ids)[0]
        begin, end = step * rows // steps, (step + 1) * rows // steps
        return WorkRows(*(None if numbers is None else numbers[begin:end] for numbers in self))


class RowFeed:
    """The rows of a folder of encoded rows as pieces of work, shuffled anew in each epoch.

    Which rows a step has is known on the chief, from the manifest alone, and follows from the seed and the number of
    the epoch; a piece of work has the rows of neighbouring steps. `read` is called in a graph, on a worker.

    Args:
        table: The folder. Workers see it at the same path.
        steps: The number of steps of an epoch.
        left_out: Rows that are in no batch.
        groups: The names of the groups in the order of their columns; by default the folder's.
        seed: Of the order.

    """

    def __init__(
        self,
        table: EncodedTable,
        steps: int,
        left_out: LeftOut | None = None,
        *,
        groups: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.columns: Sequence[RecordColumn] = table.record()
        if groups is None:
            groups = [column.name for column in self.columns if column.kind == "value"]
        self.id_places = places_of_groups(self.columns, groups)  # in a record
        self.id_places += [place for place, column in enumerate(self.columns) if column.kind == "joint"]
        shards = table.shards()
        self.files = [str((table.folder / name).resolve()) for name, _ in shards]
        self.shard_rows = np.array([rows for _, rows in shards], np.int64)
        self.left_out = LeftOut() if left_out is None else left_out
        self.steps, self.seed = steps, seed
        self.rows = int(self.shard_rows.sum())
        self.run_rows = min(max(self.rows // (steps * RUNS_OF_STEP), 1), MOST_RUN_ROWS)

    def epoch(self, epoch: int) -> EpochWorks:
        """The order of the rows of an epoch.

        Args:
            epoch: Its number.

        """
        shards, firsts, counts = self._runs(np.random.default_rng([self.seed, epoch]))  # [runs] each
        ends = np.cumsum(counts)
        # A step ends with the run of rows that reaches its share of the rows.
        bounds = np.searchsorted(ends, self.rows * np.arange(1, self.steps + 1) // self.steps, side="left") + 1
        bounds = np.concatenate([[0], np.minimum(bounds, len(ends))])
        return EpochWorks(self, epoch, shards, firsts, counts, bounds)

    def _runs(self, rng: np.random.Generator) -> tuple[Int64s, Int64s, Int64s]:
        """Runs of neighbouring rows in random order: the shard, the first row in it and the number of rows of each.

        They begin elsewhere in each epoch, so that rows next to each other do not stay together.
        """
        shards, firsts, counts = [], [], []
        for shard, rows in enumerate(self.shard_rows):
            inner = np.arange(rng.integers(1, self.run_rows + 1), rows, self.run_rows)
            bounds = np.concatenate([[0], inner, [rows]])
            shards.append(np.full(len(bounds) - 1, shard))
            firsts.append(bounds[:-1])
            counts.append(np.diff(bounds))
        order = rng.permutation(sum(map(len, shards)))
        return tuple(np.concatenate(parts)[order].astype(np.int64) for parts in (shards, firsts, counts))  # type: ignore[return-value]

    # --- on a worker ------------------------------------------------------------------------------------------------

    def read(self, work: Work) -> WorkRows:
        """The rows of a piece of work, shuffled.

        Args:
            work: The piece, as tensors (see `WORK_SIGNATURE`).

        """
        numbers = self._numbers(work)  # [rows, columns]
        rows = tf.shape(numbers)[0]
        is_kept = tf.tensor_scatter_nd_update(
            tf.ones([rows], tf.bool), work.left_out[:, None], tf.zeros_like(work.left_out, tf.bool)
        )
        kept = tf.random.experimental.stateless_shuffle(tf.where(is_kept)[:, 0], work.seed)
        numbers = tf.gather(numbers, kept)
        labels = {
            column.kind: tf.bitcast(numbers[:, place], column.type)
            for place, column in enumerate(self.columns)
            if column.kind in ("target", "weight")
        }
        return WorkRows(tf.gather(numbers, self.id_places, axis=1), labels.get("target"), labels.get("weight"))

    def _numbers(self, work: Work) -> tf.Tensor:
        """The records of a piece of work, int32 [rows, columns].

        A shard is a constant whose memory is the file, so that a row is found by its number. A dataset of records would
        read all that stands before them in the file.
        """
        ends = tf.cumsum(work.counts)
        rows = tf.range(ends[-1]) + tf.repeat(work.firsts - (ends - work.counts), work.counts)  # [rows], in their shard
        shard_of_row = tf.repeat(work.shards, work.counts)
        places = tf.dynamic_partition(tf.range(tf.size(rows)), shard_of_row, len(self.files))
        rows_of_shards = tf.dynamic_partition(rows, shard_of_row, len(self.files))
        numbers = [
            tf.cond(tf.size(rows) > 0, partial(self._records, shard, rows), self._no_records)
            for shard, rows in enumerate(rows_of_shards)
        ]
        return tf.dynamic_stitch(places, numbers)

    def _records(self, shard: int, rows: tf.Tensor) -> tf.Tensor:
        """Records of a shard by their numbers, int32 [rows, columns]."""
        shape = [int(self.shard_rows[shard]), len(self.columns)]
        content = tf.raw_ops.ImmutableConst(dtype=tf.int32, shape=shape, memory_region_name=self.files[shard])
        return tf.gather(content, rows)

    def _no_records(self) -> tf.Tensor:
        return tf.zeros([0, len(self.columns)], tf.int32)


@dataclass(frozen=True)
class EpochWorks:
    """The pieces of work of an epoch.

    Args:
        feed: The rows.
        epoch: The number of the epoch.
        shards: The shard of each run of neighbouring rows, in the order in which runs are used: [runs].
        firsts: The first row of each in its shard, [runs].
        counts: The number of its rows, [runs].
        bounds: The number of runs before each step, and of all: [steps + 1].

    """

    feed: RowFeed
    epoch: int
    shards: Int64s
    firsts: Int64s
    counts: Int64s
    bounds: Int64s

    def work(self, first: int, steps: int) -> Work:
        """The rows of neighbouring steps; fewer steps, or none, where rows are left out.

        Args:
            first: The first step.
            steps: How many.

        """
        part = slice(self.bounds[first], self.bounds[first + steps])
        starts = np.cumsum(self.feed.shard_rows) - self.feed.shard_rows  # of the shards, in the table
        counts = self.counts[part]
        left_out = self._left_out_of(starts[self.shards[part]] + self.firsts[part], counts)
        kept = int(counts.sum()) - len(left_out)
        return Work(
            self.shards[part].astype(np.int32),
            self.firsts[part],
            counts,
            left_out,
            np.array([self.feed.seed, (self.epoch << 32) + first], np.int64),
            np.array(min(steps, kept), np.int32),
        )

    def _left_out_of(self, firsts: Int64s, counts: Int64s) -> Array:
        """Which of the rows of some runs, put one after the other, are left out: int32 [left out]."""
        if not len(self.feed.left_out):
            return np.zeros(0, np.int32)
        offsets = np.cumsum(counts) - counts
        places = self.feed.left_out.places
        parts = []
        for first, count, offset in zip(firsts, counts, offsets, strict=True):
            begin, end = np.searchsorted(places, [first, first + count])
            parts.append(np.asarray(places[begin:end]) - first + offset)
        return np.concatenate(parts).astype(np.int32)
