"""Adagrad (Duchi, Hazan and Singer, 2011) for the rows that a step touches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from feat2vec.model.optimizers.base import LearningRate, RowSparse, require
from feat2vec.model.optimizers.row_gradients import sum_duplicates
from feat2vec.model.optimizers.row_updates import RowsOfTable, RowUpdate, Updated
from feat2vec.model.optimizers.tables import Variable, is_by_row, mark_slot


def adagrad_rows(
    table: Variable,
    accumulator: Variable,
    gradient: tf.IndexedSlices,
    learning_rate: float | tf.Tensor,
    epsilon: float = 1e-7,
) -> None:
    """Make one step of Adagrad for the rows of the gradient: A += g^2, x -= lr g / sqrt(A + epsilon).

    It needs no optimizer object.

    Args:
        table: the variable x, or one shard of it.
        accumulator: a variable A of its shape and type.
        gradient: g; values that share an id are summed.
        learning_rate: lr.
        epsilon: a small number, so that nothing is divided by zero.

    """
    rows = sum_duplicates(gradient)
    _update(RowsOfTable(table, rows.ids), RowsOfTable(accumulator, rows.ids), rows.values, learning_rate, epsilon)


def _update(
    table: Updated, accumulator: Updated, gradient: tf.Tensor, learning_rate: float | tf.Tensor, epsilon: float
) -> None:
    g = tf.cast(gradient, table.dtype)
    total = accumulator.update(lambda old: old + tf.square(g))
    # Not `/`: graphs rewrite that to rsqrt, whose last bit depends on a row's place in the batch.
    step = tf.math.divide_no_nan(tf.cast(learning_rate, g.dtype) * g, tf.sqrt(total + epsilon))
    table.update(lambda old: old - step)


class InitialValue(keras.initializers.Initializer):
    """`keras.initializers.Constant` without a second tensor of that size."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, shape: Sequence[int], dtype: tf.DType | str | None = None) -> tf.Tensor:
        return tf.fill(shape, tf.cast(self.value, dtype or keras.config.floatx()))


@keras.saving.register_keras_serializable(package="feat2vec")
class SparseAdagrad(RowSparse):
    """Adagrad (Duchi, Hazan and Singer, 2011) with Keras' formula and defaults; rows as in `adagrad_rows`.

    A batch's loss is a mean, in which a table's row has the weight of a few rows of data. With `row_scale` = 1 / batch
    size, accumulators and epsilon of tables (see `by_row`) are measured in the gradient of one row of data. With Keras'
    0.1 for a mean over thousands, a vector would hardly move.

    Args:
        learning_rate: a number or a schedule.
        initial_accumulator_value: what accumulators begin with.
        epsilon: a small number, so that nothing is divided by zero.
        row_scale: the unit of tables' gradients.
        **kwargs: those of `keras.optimizers.Optimizer`; not all are possible for rows.

    Raises:
        ValueError: if an argument has no meaning, or would touch each row in each step.

    Example:
        >>> table = keras.Variable([[1.0], [2.0], [3.0]])
        >>> gradient = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([1]))
        >>> SparseAdagrad(0.5, initial_accumulator_value=0.0).apply([gradient], [table])
        >>> table.numpy().ravel()
        array([1. , 1.5, 3. ], dtype=float32)

    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        row_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        start = initial_accumulator_value
        require(start >= 0, "SparseAdagrad: `initial_accumulator_value` must be at least 0", repr(start))
        require(epsilon >= 0, "SparseAdagrad: `epsilon` must be at least 0", repr(epsilon))
        require(row_scale > 0, "SparseAdagrad: `row_scale` must be above 0", repr(row_scale))
        super().__init__(learning_rate, **kwargs)
        self.initial_accumulator_value, self.epsilon = initial_accumulator_value, epsilon
        self.row_scale = row_scale

    def build_slots(self, variables: list[Variable]) -> None:
        """Create the accumulators."""
        self._accumulators = []
        for variable in variables:
            start = InitialValue(self.initial_accumulator_value * self._squared_unit(variable))
            (accumulator,) = self.add_optimizer_variables([variable], "accumulator", initializer=start)
            self._accumulators.append(mark_slot(accumulator, variable))

    def _squared_unit(self, variable: Variable) -> float:
        """The square of the unit that a variable's gradient is measured in."""
        return self.row_scale**2 if is_by_row(variable) else 1.0

    def update_rows(self, update: RowUpdate, learning_rate: tf.Tensor) -> None:
        """Make a step for rows of tables of one kind."""
        epsilon = self.epsilon * self._squared_unit(update.variables[0])
        accumulators = self.rows_of_slots(self._accumulators, update)
        _update(update.rows_of(update.variables), accumulators, update.gradient, learning_rate, epsilon)

    def update_step(self, gradient: tf.Tensor, variable: Variable, learning_rate: tf.Tensor) -> None:
        """Make a step for a whole variable."""
        accumulator, epsilon = self._accumulators[self.index(variable)], self.epsilon * self._squared_unit(variable)
        g = tf.cast(gradient, variable.dtype)
        accumulator.assign_add(tf.square(g))
        variable.assign_sub(tf.cast(learning_rate, g.dtype) * g / tf.sqrt(accumulator + epsilon))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        start = self.initial_accumulator_value
        arguments = {"initial_accumulator_value": start, "epsilon": self.epsilon, "row_scale": self.row_scale}
        return {**super().get_config(), **arguments}
