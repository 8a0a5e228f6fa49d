"""Encoded rows as batches: shuffled anew each epoch, read from disk in blocks, gathered in the graph.

An epoch's order follows from the seed and the epoch's number alone, so that any batch of it can be found again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from feat2vec.encode import Encoded
from feat2vec.joints import Joint

Ints = npt.NDArray[np.int64]
CHUNK = 1 << 14  # neighbouring rows of a table that is larger than a block
BLOCK = 1 << 20  # rows that are shuffled among each other
MOST_STEPS = 16  # that run in the graph before Python looks at them


class Batches:
    """The batches of each epoch: rows of value ids (and joint sets), the entries of their values, target and weight.

    A table of more than `block` rows is shuffled in two steps: chunks of neighbouring rows, then the rows of as many
    chunks as fill a block. An epoch is a multiple of `steps_at_once` batches, for Keras'
    `steps_per_execution`. `epoch` and `step` say where the next iteration of `dataset()` begins; it counts on.
    """

    def __init__(
        self,
        encoded: Encoded,
        tables: Mapping[str, Any],  # {group: entries}, value id v in row v + 1, the missing entry in row 0
        batch_size: int,
        joints: Sequence[Joint] = (),
        *,
        labelled: bool,
        shuffle: bool = True,
        seed: int = 0,
        block: int = BLOCK,
    ) -> None:
        self.rows, self.tables, self.joints = encoded.rows, tables, joints
        self.target = encoded.target if labelled else None
        self.weight = encoded.weight if labelled else None
        self.shuffle, self.seed = shuffle, seed
        executions = -(-len(encoded.rows) // (batch_size * MOST_STEPS))
        self.steps_at_once = -(-len(encoded.rows) // (batch_size * executions))
        self.steps = self.steps_at_once * executions  # of nearly equal size, so that no batch is a few rows
        self.block = max(block // batch_size, 1) * batch_size
        self.epoch = self.step = 0

    def bounds(self, step: int) -> int:
        """The number of rows in the batches before a step."""
        return step * len(self.rows) // self.steps

    def dataset(self, *, endless: bool = False) -> tf.data.Dataset:
        """The next epoch each time, or all epochs: `(inputs, rows)` or `(inputs, target[, weight])`.

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
            inputs = {name: tf.gather(table, rows[:, g] + 1) for g, (name, table) in enumerate(self.tables.items())}
            return (inputs, *(beside or (rows,)))

        def epochs() -> Iterator[Any]:
            while endless:
                yield from self._blocks()
            yield from self._blocks()

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
        left, skip = np.zeros(0, np.int64), self.bounds(step)
        for order in self._order(epoch):
            if skip >= len(order):
                skip -= len(order)
                continue
            left, skip = np.concatenate([left, order[skip:]]), 0
            first, start = step, self.bounds(step)
            while step < self.steps and self.bounds(step + 1) - start <= len(left):
                step += 1
            if step > first:
                bounds = np.array([self.bounds(i) - start for i in range(first, step + 1)])
                yield bounds, self._read(left[: bounds[-1]])
                left = left[bounds[-1] :]

    def _order(self, epoch: int) -> Iterator[Ints]:
        """Row numbers of the epoch, block by block."""
        total = len(self.rows)
        if not self.shuffle:
            yield from (np.arange(at, min(at + self.block, total)) for at in range(0, total, self.block))
            return
        rng = np.random.default_rng([self.seed, epoch])
        if total <= self.block:
            yield rng.permutation(total)
            return
        chunks = rng.permutation(-(-total // CHUNK))
        several = max(self.block // CHUNK, 1)
        for at in range(0, len(chunks), several):
            some = [np.arange(c * CHUNK, min((c + 1) * CHUNK, total)) for c in chunks[at : at + several]]
            yield rng.permutation(np.concatenate(some))

    def _read(self, order: Ints) -> tuple[Any, ...]:
        """The rows in that order, those of a large table read in the order of the file."""
        by_place = np.argsort(order) if len(self.rows) > self.block else None

        def take(array: Any) -> Any:
            if by_place is None:
                return array[order]
            taken = np.empty((len(order), *array.shape[1:]), array.dtype)
            taken[by_place] = array[order[by_place]]
            return taken

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
