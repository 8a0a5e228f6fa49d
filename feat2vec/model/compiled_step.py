"""A training step of labelled rows as one compiled function: reading, loss, gradients and updates.

TensorFlow's operations for it are many and short, and each leaves its result in memory for the next. XLA makes one
function of them, in which loops over the coordinates are vectorized for the processor. It needs arrays of fixed shapes,
which `PaddedKeys` gives, and writes the rows of tables where they are. Random bits are drawn outside, as XLA takes a
hundred times as long for the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from feat2vec.model.many_groups import ENTRIES, ManyLookups, ReadBatch
from feat2vec.model.padded_keys import KEY_COUNTS, KEY_ROWS, SIZE, SLOTS, PaddedKeys
from feat2vec.model.pair_scores import Tensor

Batch = tuple[Any, ...]  # inputs, labels and, if there are any, weights


class StepOfBatch(Protocol):
    """What a step does with a batch whose vectors are read: the loss, after the weights are updated."""

    def __call__(
        self, lookups: ManyLookups, batch: ReadBatch, labels: Tensor, weights: Tensor, draws: Sequence[Tensor]
    ) -> Tensor:
        """Return the loss."""


class CompiledStep:
    """A step that XLA compiles.

    Args:
        lookups: The tables of all groups, whose keys all have a vector.
        rows: The largest number of rows of a batch.
        draws: Returns the random bits of a step for that many rows.
        step: What a step does with the vectors that are read.

    """

    def __init__(
        self, lookups: ManyLookups, rows: int, draws: Callable[[int], Sequence[Tensor]], step: StepOfBatch
    ) -> None:
        self.lookups, self.rows, self.draws, self.step = lookups, rows, draws, step
        self.keys = PaddedKeys(lookups, rows)
        self.compiled = tf.function(self._step, jit_compile=True, autograph=False)

    def prepare(self, inputs: Mapping[str, Tensor], labels: Tensor, weights: Tensor | None = None) -> Batch:
        """Find the distinct keys of a batch, beside the steps.

        Args:
            inputs: The entries of all groups as one array, as `Batches` give them.
            labels: [rows of the batch].
            weights: [rows of the batch], if rows have any.

        Returns:
            The batch as `__call__` takes it: labels and weights of as many rows as the largest batch has.

        """
        of_keys = self.keys.of_batch(inputs[ENTRIES])
        if weights is None:
            weights = tf.ones([of_keys[SIZE]])
        return of_keys, self._padded(labels), self._padded(weights)

    def _padded(self, numbers: Tensor) -> Tensor:
        padded = tf.pad(numbers, [[0, self.rows - tf.shape(numbers)[0]]])
        padded.set_shape([self.rows])
        return padded

    def __call__(self, inputs: Mapping[str, Tensor], labels: Tensor, weights: Tensor) -> Tensor:
        """Update the weights by a batch.

        Args:
            inputs: Those that `prepare` returns.
            labels: [rows], 0 where there is no row.
            weights: [rows], 0 where there is no row.

        Returns:
            The mean loss of the batch's rows.

        """
        return self.compiled(inputs, labels, weights, self.draws(self.rows))

    def _step(self, inputs: Mapping[str, Tensor], labels: Tensor, weights: Tensor, draws: Sequence[Tensor]) -> Tensor:
        read = self.keys.read(inputs[KEY_ROWS], inputs[KEY_COUNTS])
        batch = ReadBatch(read, inputs[SLOTS], None, fixed_size=inputs[SIZE])
        return self.step(self.lookups, batch, labels, weights, draws)
