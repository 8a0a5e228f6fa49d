"""Encoded rows as batches: shuffled anew each epoch, read from disk in blocks, gathered in the graph.

An epoch's order follows from the seed and the epoch's number alone, so that any batch of it can be found again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array, Int64s
from feat2vec.encode.arrays_on_disk import release_pages
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.left_out import LeftOut
from feat2vec.sampling.joint_values import Joint
from feat2vec.schema.training_options import BLOCK_ROWS

CHUNK_ROWS = 1 << 14  # neighbouring rows that are shuffled as one, in a table that is larger than a block
PART_ROWS = 1 << 16  # of a block that are given to TensorFlow at a time
PARTS_AHEAD = 4  # of the step, so that none waits while a block is read and shuffled
MOST_STEPS_AT_ONCE = 16  # steps that run in the graph before Python looks at them

Arrays = tuple[Array, ...]  # of a block: rows of value ids, then target and weight, as far as there are any


@dataclass(frozen=True)
class Block:
    """Rows that are read at once: slices of the table, and the order of the rows of all of them."""

    slices: list[slice]
    order: Int64s | None  # [rows of the block]; None for the order of the table

    def __len__(self) -> int:
        """The number of rows."""
        return sum(part.stop - part.start for part in self.slices)


def blocks_in_order(rows: int, block_rows: int) -> Iterator[Block]:
    """The rows of a table in blocks, in the order of the table."""
    for part in _slices(rows, block_rows):
        yield Block([part], None)


def shuffled_blocks(rows: int, block_rows: int, chunk_rows: int, rng: np.random.Generator) -> Iterator[Block]:
    """The rows of a table in shuffled blocks.

    A table of no more than a block is shuffled row by row. A larger one is shuffled in two steps: chunks of
    neighbouring rows, then the rows of as many chunks as fill a block. So it is read in pieces of a chunk.
    """
    if rows <= block_rows:
        yield Block(_slices(rows, block_rows), rng.permutation(rows))
        return
    chunks = _slices(rows, chunk_rows)
    chunk_order = rng.permutation(len(chunks))
    chunks_per_block = max(block_rows // chunk_rows, 1)
    for first in range(0, len(chunks), chunks_per_block):
        block_chunks = [chunks[c] for c in chunk_order[first : first + chunks_per_block]]
        block_size = sum(part.stop - part.start for part in block_chunks)
        yield Block(block_chunks, rng.permutation(block_size))


def _slices(rows: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


class Batches:
    """The batches of each epoch: rows of value ids (and joint sets), the entries of their values, target and weight.

    A batch is `(inputs, rows)`, `(inputs, target[, weight])`, or with both `(inputs, (rows, target)[, weight])`.

    An epoch is a multiple of `steps_at_once` batches, for Keras' `steps_per_execution`. The next iteration of
    `dataset()` begins at `start_at(epoch, step)`; `dataset()` counts epochs on.

    Args:
        rows: Value ids, int32 [rows, groups], -1 where a group is missing. It may be memory-mapped.
        tables: The entries of each group: value id v in row v + 1, the missing entry in row 0.
        batch_size: The largest number of rows in a batch; batches are of nearly equal size.
        joints: Joint sets of groups, whose ids are further columns of the rows.
        target: [rows], float32 or int32 classes.
        weight: [rows], float32.
        keep_rows: Whether batches with a target also have the rows of value ids, which noise needs.
        shuffle: Whether the rows are shuffled.
        seed: Of the shuffling.
        block: How many rows are read at once.
        starts: Where a group's entries begin in the one table that all groups share, [groups]; None for a table each.
        chunk: How many neighbouring rows are shuffled as one, in a table that is larger than a block.
        most_steps_at_once: The largest `steps_at_once`.
        left_out: Rows that are in no batch.

    """

    def __init__(
        self,
        rows: Array,
        tables: Mapping[str, tf.Tensor | Array],
        batch_size: int,
        joints: Sequence[Joint] = (),
        *,
        target: Array | None = None,
        weight: Array | None = None,
        keep_rows: bool = True,
        shuffle: bool = True,
        seed: int = 0,
        block: int = BLOCK_ROWS,
        starts: Int64s | None = None,
        chunk: int = CHUNK_ROWS,
        most_steps_at_once: int = MOST_STEPS_AT_ONCE,
        left_out: LeftOut | None = None,
    ) -> None:
        self.rows, self.tables, self.joints = rows, tables, joints
        self.target, self.weight, self.keep_rows = target, weight, keep_rows
        self.shuffle, self.seed, self.starts = shuffle, seed, starts
        self.left_out = LeftOut() if left_out is None else left_out
        self.row_count = len(rows) - len(self.left_out)
        executions = -(-self.row_count // (batch_size * most_steps_at_once))
        self.steps_at_once = -(-self.row_count // (batch_size * executions))
        if self.steps_at_once * executions > self.row_count:  # some batches would be empty: one row a batch then
            self.steps_at_once = max(n for n in range(1, most_steps_at_once + 1) if self.row_count % n == 0)
            executions = self.row_count // self.steps_at_once
        self.steps = self.steps_at_once * executions  # of nearly equal size, so that no batch has only a few rows
        self.block = max(block // batch_size, 1) * batch_size
        self.steps_per_part = max(PART_ROWS // batch_size, 1)
        self.chunk = chunk
        self.epoch = self.step = 0
        self.prepare: Callable[..., tuple[object, ...]] | None = None  # what changes each batch, beside the steps

    def start_at(self, epoch: int, step: int) -> None:
        """Let the next iteration of `dataset()` begin at a step of an epoch."""
        self.epoch, self.step = epoch, step

    def bounds(self, step: int) -> int:
        """The number of rows in the batches before a step."""
        return step * self.row_count // self.steps

    def dataset(self, *, endless: bool = False) -> tf.data.Dataset:
        """The next epoch each time it is iterated over, or all epochs one after the other.

        `endless` saves making an iterator for each epoch, which takes longer than a short epoch's steps.
        """
        # TensorFlow never frees a generator's function, so it must not hold the rows. The dataset does, by `map` below.
        reference = weakref.ref(self)

        def epochs() -> Iterator[tuple[Int64s, Arrays]]:
            batches = reference()
            assert batches is not None
            while endless:
                yield from batches._next_epoch()
            yield from batches._next_epoch()

        signature = (tf.TensorSpec([None], tf.int64), tuple(self.signature()))
        blocks = tf.data.Dataset.from_generator(epochs, output_signature=signature).prefetch(PARTS_AHEAD)
        cut, add_entries = map(tf.autograph.experimental.do_not_convert, (_cut_block, self._as_taken))
        batches = blocks.flat_map(cut).map(add_entries, num_parallel_calls=1).prefetch(4)
        cardinality = tf.data.INFINITE_CARDINALITY if endless else self.steps - self.step
        batches = batches.apply(tf.data.experimental.assert_cardinality(cardinality))
        return batches.with_options(_options_without_optimizer())

    def arrays(self) -> Iterator[Arrays]:
        """The batches of the next epoch as they are read: rows of value ids, then target and weight."""
        for batch_bounds, arrays in self._next_epoch():
            for start, end in pairwise(batch_bounds):
                yield tuple(array[start:end] for array in arrays)

    def signature(self) -> list[tf.TensorSpec]:
        """The types and shapes of what `arrays` gives."""
        columns = self.rows.shape[1] + len(self.joints)
        specs = [tf.TensorSpec([None, columns], tf.int32)]
        return specs + [tf.TensorSpec([None], array.dtype) for array in (self.target, self.weight) if array is not None]

    def _as_taken(self, rows: tf.Tensor, *target_and_weight: tf.Tensor) -> tuple[object, ...]:
        """A batch as a step takes it."""
        batch = self.with_entries(rows, *target_and_weight)
        return batch if self.prepare is None else self.prepare(*batch)

    def with_entries(self, rows: tf.Tensor, *target_and_weight: tf.Tensor) -> tuple[object, ...]:
        """A batch as Keras takes it, of value ids [batch, groups and joint sets]."""
        inputs = {}
        if self.starts is None:
            for g, (name, table) in enumerate(self.tables.items()):
                inputs[name] = tf.gather(table, rows[:, g] + 1)  # [batch, width]
        else:
            value_ids = rows[:, : len(self.starts)]
            places = tf.cast(value_ids, tf.int64) + 1 + self.starts  # [batch, groups]
            for name, table in self.tables.items():
                inputs[name] = tf.gather(table, places)
        if self.target is None:
            return inputs, rows
        if not self.keep_rows:
            return inputs, *target_and_weight
        target, *weight = target_and_weight
        return inputs, (rows, target), *weight

    def _next_epoch(self) -> Iterator[tuple[Int64s, Arrays]]:
        """Parts of blocks of whole batches: where each batch begins in the part's arrays, with the end, and the arrays.

        TensorFlow copies what it is given, and so is given a part of a block at a time. Rows at the end of a block that
        do not fill a batch are carried into the next block.
        """
        epoch, step = self.epoch, self.step
        self.epoch, self.step = epoch + 1, 0
        rows_to_skip = self.bounds(step)  # of batches that were trained on before an interruption
        carried: Arrays | None = None
        for block in self._blocks(epoch):
            if rows_to_skip >= len(block):
                rows_to_skip -= len(block)
                continue
            arrays = tuple(array[rows_to_skip:] for array in self._read(block))
            rows_to_skip = 0
            del block  # its order, before the next one has its own
            if carried is not None:
                arrays = tuple(np.concatenate(pair) for pair in zip(carried, arrays, strict=True))
            first_step, first_row = step, self.bounds(step)
            while step < self.steps and self.bounds(step + 1) - first_row <= len(arrays[0]):
                step += 1
            batch_bounds = np.array([self.bounds(i) - first_row for i in range(first_step, step + 1)])
            whole_batches = batch_bounds[-1]  # rows
            for first in range(0, step - first_step, self.steps_per_part):
                bounds = batch_bounds[first : first + self.steps_per_part + 1]
                yield bounds - bounds[0], tuple(array[bounds[0] : bounds[-1]] for array in arrays)
            carried = tuple(array[whole_batches:].copy() for array in arrays)
            del arrays  # before the next block is read

    def _blocks(self, epoch: int) -> Iterator[Block]:
        """The blocks of an epoch."""
        if not self.shuffle:
            return blocks_in_order(self.row_count, self.block)
        rng = np.random.default_rng([self.seed, epoch])
        return shuffled_blocks(self.row_count, self.block, self.chunk, rng)

    def _read(self, block: Block) -> Arrays:
        """The rows of a block with their joint sets, [rows of the block, groups and joint sets]; target and weight."""
        rows = _take(self.rows, block, self.left_out)
        if self.joints:
            joint_ids = [joint.ids(rows)[:, None] for joint in self.joints]
            rows = np.concatenate([rows, *joint_ids], axis=1)
        labels = [_take(array, block, self.left_out) for array in (self.target, self.weight) if array is not None]
        return (rows, *labels)


def _take(array: Array, block: Block, left_out: LeftOut) -> Array:
    """The rows of a block, without those left out; what was read of a memory-mapped array leaves memory."""
    rows = np.empty((len(block), *array.shape[1:]), array.dtype)
    start = 0
    for part in block.slices:
        end = start + part.stop - part.start
        rows[start:end] = left_out.take(array, part.start, part.stop)
        release_pages(array)
        start = end
    return rows if block.order is None else rows[block.order]


def _options_without_optimizer() -> tf.data.Options:
    """Options by which a pipeline runs as it is made: to optimize it takes longer than a short epoch of validation."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


def _cut_block(batch_bounds: tf.Tensor, arrays: tuple[tf.Tensor, ...]) -> tf.data.Dataset:
    """The batches of a block."""

    def batch(i: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(array[batch_bounds[i] : batch_bounds[i + 1]] for array in arrays)

    return tf.data.Dataset.range(tf.size(batch_bounds, tf.int64) - 1).map(batch)


def value_tables(encoded: Encoded) -> list[Array]:
    """Each group's entries with value id v in row v + 1, [values + 1, width]; row 0 is the missing entry."""
    tables = []
    for name in encoded.encoder.codecs:
        entries = np.asarray(encoded.values[name].entries)
        is_number = entries.dtype == np.float32
        missing = np.full((1, entries.shape[1]), np.nan if is_number else 0, entries.dtype)
        tables.append(np.concatenate([missing, entries]))
        release_pages(entries)
    return tables


def table_of_entries(entries: Array | tf.Tensor) -> tf.Variable:
    """A variable of entries, in the memory of the processor: the input pipeline reads it, which never runs on a GPU."""
    with tf.device("CPU:0"):
        return tf.Variable(entries, trainable=False)
