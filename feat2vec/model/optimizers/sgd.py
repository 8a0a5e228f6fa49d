"""Stochastic gradient descent, with momentum or without, for the rows that a step touches."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from feat2vec.model.optimizers.base import LearningRate, RowSparse, require
from feat2vec.model.optimizers.row_gradients import sum_duplicates
from feat2vec.model.optimizers.row_updates import RowsOfTable, RowUpdate, Updated, WholeVariable
from feat2vec.model.optimizers.tables import Variable, mark_slots


def sgd_rows(
    table: Variable,
    velocity: Variable | None,
    gradient: tf.IndexedSlices,
    learning_rate: float | tf.Tensor,
    momentum: float = 0.0,
    nesterov: bool = False,
) -> None:
    """Make one step for the rows of the gradient: x -= lr g; with momentum v = momentum v - lr g, x += v.

    With `nesterov` x += momentum v - lr g, of the new v: x is then the point that is looked ahead to, at which
    Nesterov's method takes its gradient. A skipped step decays no velocity: a row is where momentum would bring it on
    the subsequence of steps that touch it.

    Args:
        table: the variable x, or one shard of it.
        velocity: a variable v of its shape and type; None without momentum.
        gradient: g; values that share an id are summed.
        learning_rate: lr.
        momentum: the share of the velocity that a step keeps.
        nesterov: whether the gradient is that of the point looked ahead to.

    """
    rows = sum_duplicates(gradient)
    v = None if velocity is None else RowsOfTable(velocity, rows.ids)
    _update(RowsOfTable(table, rows.ids), v, rows.values, learning_rate, momentum, nesterov)


def _update(
    table: Updated | WholeVariable,
    velocity: Updated | WholeVariable | None,
    gradient: tf.Tensor,
    learning_rate: float | tf.Tensor,
    momentum: float,
    nesterov: bool,
) -> None:
    g = tf.cast(gradient, table.dtype)
    step = g * tf.cast(learning_rate, g.dtype)
    if velocity is None:
        table.write(table.read() - step)
        return
    kept = tf.cast(momentum, g.dtype)
    v = velocity.read() * kept - step
    velocity.write(v)
    table.write(table.read() + (v * kept - step if nesterov else v))


@keras.saving.register_keras_serializable(package="feat2vec")
class SparseSgd(RowSparse):
    """Stochastic gradient descent with Keras' formula and defaults; lazy for rows, see `sgd_rows`.

    Args:
        learning_rate: a number or a schedule.
        momentum: the share of the velocity that a step keeps: heavy ball.
        nesterov: whether the gradient is that of the point looked ahead to; needs momentum.
        **kwargs: those of `keras.optimizers.Optimizer`; not all are possible for rows.

    Raises:
        ValueError: if an argument has no meaning, or would touch each row in each step.

    Example:
        >>> table = keras.Variable([[1.0], [2.0], [3.0]])
        >>> gradient = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([1]))
        >>> SparseSgd(0.5).apply([gradient], [table])
        >>> table.numpy().ravel()
        array([1. , 1.5, 3. ], dtype=float32)

    """

    def __init__(
        self, learning_rate: LearningRate = 0.01, momentum: float = 0.0, nesterov: bool = False, **kwargs: Any
    ) -> None:
        require(0 <= momentum < 1, "SparseSgd: `momentum` must be at least 0 and below 1", repr(momentum))
        require(momentum > 0 or not nesterov, "SparseSgd: `nesterov` needs a `momentum` above 0", repr(momentum))
        super().__init__(learning_rate, **kwargs)
        self.momentum, self.nesterov = momentum, nesterov

    def build_slots(self, variables: list[Variable]) -> None:
        """Create the velocities; without momentum there are none."""
        self._velocities: list[Variable] = []
        if self.momentum:
            (self._velocities,) = self.add_optimizer_variables(variables, ["momentum"])
            mark_slots(self._velocities, variables)

    def update_rows(self, update: RowUpdate, learning_rate: tf.Tensor) -> None:
        """Make a step for rows of tables of one kind."""
        velocities = self.rows_of_slots(self._velocities, update) if self.momentum else None
        table = update.rows_of(update.variables)
        _update(table, velocities, update.gradient, learning_rate, self.momentum, self.nesterov)

    def update_step(self, gradient: tf.Tensor, variable: Variable, learning_rate: tf.Tensor) -> None:
        """Make a step for a whole variable."""
        velocity = WholeVariable(self._velocities[self.index(variable)]) if self.momentum else None
        _update(WholeVariable(variable), velocity, gradient, learning_rate, self.momentum, self.nesterov)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}
