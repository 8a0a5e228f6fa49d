"""Encoded rows as batches: shuffled anew each epoch, read from disk in blocks, gathered in the graph.

An epoch's order follows from the seed and the epoch's number alone, so that any batch of it can be found again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from feat2vec.encode.encoder import Encoded
from feat2vec.encode.entry_tables import Array, forget
from feat2vec.sampling.joint_values import Joint
from feat2vec.schema.options import BLOCK_ROWS

Ints = npt.NDArray[np.int64]
CHUNK = 1 << 14  # neighbouring rows of a table that is larger than a block
MOST_STEPS = 16  # that run in the graph before Python looks at them


class Batches:
    """The batches of each epoch: rows of value ids (and joint sets), the entries of their values, target and weight.

    A batch is `(inputs, rows)`, `(inputs, target[, weight])`, or with both `(inputs, (rows, target)[, weight])`.

    A table of more than `block` rows is shuffled in two steps: chunks of neighbouring rows, then the rows of as many
    chunks as fill a block. An epoch is a multiple of `steps_at_once` batches, for Keras'
    `steps_per_execution`. `epoch` and `step` say where the next iteration of `dataset()` begins; it counts on.
    """

    def __init__(
        self,
        rows: Array,
        tables: Mapping[str, Any],  # {group: entries}, value id v in row v + 1, the missing entry in row 0
        batch_size: int,
        joints: Sequence[Joint] = (),
        *,
        target: Array | None = None,
        weight: Array | None = None,
        keep_rows: bool = True,
        shuffle: bool = True,
        seed: int = 0,
        block: int = BLOCK_ROWS,
        starts: Ints | None = None,  # [groups], where a group's entries begin in the one table that all share
    ) -> None:
        self.rows, self.tables, self.joints = rows, tables, joints
        self.target, self.weight, self.keep_rows = target, weight, keep_rows
        self.shuffle, self.seed, self.starts = shuffle, seed, starts
        executions = -(-len(rows) // (batch_size * MOST_STEPS))
        self.steps_at_once = -(-len(rows) // (batch_size * executions))
        self.steps = self.steps_at_once * executions  # of nearly equal size, so that no batch is a few rows
        self.block = max(block // batch_size, 1) * batch_size
        self.epoch = self.step = 0

    def bounds(self, step: int) -> int:
        """The number of rows in the batches before a step."""
        return step * len(self.rows) // self.steps

    def dataset(self, *, endless: bool = False) -> tf.data.Dataset:
        """The next epoch each time, or all epochs.

        `endless` saves making an iterator for each epoch, which takes longer than a short epoch's steps.
        """
        columns = self.rows.shape[1] + len(self.joints)
        whole: list[Any] = [tf.TensorSpec([None, columns], tf.int32)]
        whole += [tf.TensorSpec([None], array.dtype) for array in (self.target, self.weight) if array is not None]

        def split(bounds: Any, block: Any) -> tf.data.Dataset:
            def cut(i: Any) -> Any:
                return tuple(part[bounds[i] : bounds[i + 1]] for part in block)

            return tf.data.Dataset.range(tf.size(bounds, tf.int64) - 1).map(cut)

        def gather(rows: Any, *beside: Any) -> Any:
            if self.starts is None:
                inputs = {name: tf.gather(table, rows[:, g] + 1) for g, (name, table) in enumerate(self.tables.items())}
            else:
                places = tf.cast(rows[:, : len(self.starts)], tf.int64) + 1 + self.starts
                inputs = {name: tf.gather(table, places) for name, table in self.tables.items()}
            if self.target is None:
                return inputs, rows
            return (inputs, (rows, beside[0]), *beside[1:]) if self.keep_rows else (inputs, *beside)

        # TensorFlow never frees a generator's function: it may not hold the rows. The dataset holds them, by `gather`.
        reference = weakref.ref(self)

        def epochs() -> Iterator[Any]:
            batches = reference()
            assert batches is not None
            while endless:
                yield from batches._blocks()
            yield from batches._blocks()

        blocks = tf.data.Dataset.from_generator(
            epochs, output_signature=(tf.TensorSpec([None], tf.int64), tuple(whole))
        )
        batches = blocks.prefetch(1).flat_map(split).map(gather, num_parallel_calls=1).prefetch(4)
        number = tf.data.INFINITE_CARDINALITY if endless else self.steps - self.step
        return batches.apply(tf.data.experimental.assert_cardinality(number))

    def _blocks(self) -> Iterator[tuple[Ints, tuple[Any, ...]]]:
        """Where each batch of a block begins, and its end, with the block's arrays."""
        epoch, step = self.epoch, self.step
        self.epoch, self.step = epoch + 1, 0
        left: tuple[Any, ...] | None = None
        skip = self.bounds(step)
        for slices, order in self._pools(epoch):
            size = sum(some.stop - some.start for some in slices)
            if skip >= size:
                skip -= size
                continue
            block = tuple(array[skip:] for array in self._read(slices, order))
            if left is not None:
                block = tuple(np.concatenate(pair) for pair in zip(left, block, strict=True))
            skip, first, start = 0, step, self.bounds(step)
            while step < self.steps and self.bounds(step + 1) - start <= len(block[0]):
                step += 1
            bounds = np.array([self.bounds(i) - start for i in range(first, step + 1)])
            if step > first:
                yield bounds, tuple(array[: bounds[-1]] for array in block)
            left = tuple(array[bounds[-1] :] for array in block)

    def _pools(self, epoch: int) -> Iterator[tuple[list[slice], Ints | None]]:
        """The epoch's rows: slices of the table, and the order of their rows."""
        total = len(self.rows)
        whole = [slice(at, min(at + self.block, total)) for at in range(0, total, self.block)]
        if not self.shuffle:
            yield from (([some], None) for some in whole)
            return
        rng = np.random.default_rng([self.seed, epoch])
        if len(whole) == 1:
            yield whole, rng.permutation(total)
            return
        chunks = [slice(at, min(at + CHUNK, total)) for at in range(0, total, CHUNK)]
        mixed = rng.permutation(len(chunks))
        several = max(self.block // CHUNK, 1)
        for at in range(0, len(mixed), several):
            some = [chunks[c] for c in mixed[at : at + several]]
            yield some, rng.permutation(sum(chunk.stop - chunk.start for chunk in some))

    def _read(self, slices: Sequence[slice], order: Ints | None) -> tuple[Any, ...]:
        """The rows of the slices in an order."""

        def take(array: Any) -> Any:
            taken = np.concatenate([array[some] for some in slices])
            forget(array)
            return taken if order is None else taken[order]

        rows = take(self.rows)
        if self.joints:
            rows = np.concatenate([rows, *(joint.ids(rows)[:, None] for joint in self.joints)], axis=1)
        return (rows, *(take(array) for array in (self.target, self.weight) if array is not None))


def value_tables(encoded: Encoded) -> list[npt.NDArray[Any]]:
    """Each group's entries with value id v in row v + 1; row 0 is the missing entry."""
    tables = []
    for name in encoded.encoder.codecs:
        values = np.asarray(encoded.values[name].entries)
        missing = np.full((1, values.shape[1]), np.nan if values.dtype == np.float32 else 0, values.dtype)
        tables.append(np.concatenate([missing, values]))
    return tables
