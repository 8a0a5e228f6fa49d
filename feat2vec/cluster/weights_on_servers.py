"""`WeightsOnServers`: another value of each weight on the server that has it, for averages along a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from feat2vec.cluster.servers import Servers
from feat2vec.model.large_variables import row_slices
from feat2vec.model.optimizers import is_by_row, resource_of
from feat2vec.model.optimizers.tables import parts_of
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed
from feat2vec.training.checkpoint_variables import restore_variable, streamed_variable

TwoTensors = tuple[tf.Tensor, tf.Tensor]


class WeightsOnServers:
    """Weights aside, computed where they are: neither they nor the weights are sent anywhere.

    Args:
        weights: The weights.
        servers: Their servers, each of which gets as much again.

    """

    def __init__(self, weights: Sequence[keras.Variable], servers: Servers) -> None:
        self.variables = [servers.beside(weight) for weight in weights]
        self.is_full = False

    def keep(self, weights: Sequence[keras.Variable]) -> None:
        """Copy the weights."""
        self._change(weights, lambda weight, _: (weight, weight))
        self.is_full = True

    def swap(self, weights: Sequence[keras.Variable]) -> None:
        """Exchange the two."""
        self._change(weights, lambda weight, aside: (aside, weight))

    def swap_average(self, weights: Sequence[keras.Variable], share: float) -> None:
        """Put aside + share * (weights - aside) into the weights, and what they were aside."""
        self._change(weights, lambda weight, aside: (aside + tf.cast(share, aside.dtype) * (weight - aside), weight))

    def streamed(self) -> list[Streamed]:
        """The values, for a checkpoint."""
        return [streamed_variable(variable) for variable in self.variables] if self.is_full else []

    def read(self, weights: Sequence[keras.Variable], checkpoint: CheckpointReader, name: str) -> None:
        """Take the values from a checkpoint."""
        del weights
        for i, variable in enumerate(self.variables):
            restore_variable(checkpoint, f"{name} {i}", variable)
        self.is_full = True

    def _change(self, weights: Sequence[keras.Variable], new: Callable[[tf.Tensor, tf.Tensor], TwoTensors]) -> None:
        """Replace weights and what is aside by functions of both, tables in pieces."""
        for weight, aside in zip(weights, self.variables, strict=True):
            for part, part_aside in zip(parts_of(weight), parts_of(aside), strict=True):
                pair = resource_of(part), resource_of(part_aside)
                with tf.device(pair[0].device):
                    for ids in _pieces(pair[0], by_row=is_by_row(weight)):
                        if ids is None:
                            values = new(*(variable.read_value() for variable in pair))
                            for variable, value in zip(pair, values, strict=True):
                                variable.assign(value)
                            continue
                        values = new(*(variable.sparse_read(ids) for variable in pair))
                        for variable, value in zip(pair, values, strict=True):
                            variable.scatter_update(tf.IndexedSlices(value, ids))


def _pieces(variable: tf.Variable, *, by_row: bool) -> Iterator[tf.Tensor | None]:
    """The ids of neighbouring rows of a table, piece by piece; None for another variable, which is read whole."""
    if not by_row:
        yield None
        return
    for rows in row_slices(variable.shape, variable.dtype.as_numpy_dtype):
        yield tf.range(rows.start, rows.stop)
