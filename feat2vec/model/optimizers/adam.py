"""Adam (Kingma and Ba, 2015), lazy for the rows that a step touches."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from feat2vec.model.optimizers.base import LearningRate, RowSparse, require
from feat2vec.model.optimizers.row_gradients import sum_duplicates
from feat2vec.model.optimizers.row_updates import RowsOfTable, RowUpdate, Updated
from feat2vec.model.optimizers.tables import Variable, mark_slot, mark_slots, resource_of


def adam_rows(
    table: Variable,
    momentum: Variable,
    velocity: Variable,
    steps: Variable,
    gradient: tf.IndexedSlices,
    learning_rate: float | tf.Tensor,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> None:
    """Make one step of lazy Adam for the rows of the gradient.

    `steps` [rows] counts each row's own updates. For a touched row, with t its count after this step:
    m += (1 - beta_1) (g - m), v += (1 - beta_2) (g^2 - v), alpha = lr sqrt(1 - beta_2^t) / (1 - beta_1^t),
    x -= alpha m / (sqrt(v) + epsilon). A skipped step decays nothing and counts nothing: a row is where Adam would
    bring it on the subsequence of steps that touch it, each with its own gradient and learning rate. m and v are the
    unbiased estimates *given that the row is touched*. With the skipped steps counted but not decayed, a rare row's
    first update would be (1 - beta_1) / sqrt(1 - beta_2) = 3.2 times too large.

    Args:
        table: the variable x, or one shard of it.
        momentum: a variable m of its shape and type.
        velocity: a variable v of its shape and type.
        steps: a variable of integers, [rows].
        gradient: g; values that share an id are summed.
        learning_rate: lr.
        beta_1: the decay of m.
        beta_2: the decay of v.
        epsilon: a small number, so that nothing is divided by zero.

    """
    rows = sum_duplicates(gradient)
    x, m, v, t = (RowsOfTable(variable, rows.ids) for variable in (table, momentum, velocity, steps))
    _update(x, m, v, t, rows.values, learning_rate, beta_1, beta_2, epsilon)


def _update(
    table: Updated,
    momentum: Updated,
    velocity: Updated,
    steps: Updated,
    gradient: tf.Tensor,
    learning_rate: float | tf.Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> None:
    g = tf.cast(gradient, table.dtype)
    count = steps.update(lambda old: old + 1)
    m = momentum.update(lambda old: old + (g - old) * (1 - beta_1))
    v = velocity.update(lambda old: old + (tf.square(g) - old) * (1 - beta_2))
    t = tf.reshape(count, [-1] + [1] * (g.shape.rank - 1))  # [n] -> [n, 1, ...]
    lr = tf.cast(learning_rate, g.dtype)
    alpha = lr * tf.sqrt(1 - _power(beta_2, t, g.dtype)) / (1 - _power(beta_1, t, g.dtype))
    table.update(lambda old: old - m * alpha / (tf.sqrt(v) + epsilon))


def _power(base: float, exponent: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    # float64: the float32 kernel's last bit depends on a row's place in the batch. The base is rounded as in Keras.
    rounded = tf.cast(tf.cast(base, dtype), tf.float64)
    return tf.cast(tf.pow(rounded, tf.cast(exponent, tf.float64)), dtype)


@keras.saving.register_keras_serializable(package="feat2vec")
class SparseAdam(RowSparse):
    """Adam (Kingma and Ba, 2015) with Keras' formula and defaults; lazy for rows, see `adam_rows`.

    Args:
        learning_rate: a number or a schedule.
        beta_1: the decay of the mean of gradients.
        beta_2: the decay of the mean of their squares.
        epsilon: a small number, so that nothing is divided by zero.
        **kwargs: those of `keras.optimizers.Optimizer`; not all are possible for rows.

    Raises:
        ValueError: if an argument has no meaning, or would touch each row in each step.

    Example:
        >>> table = keras.Variable([[1.0], [2.0], [3.0]])
        >>> gradient = tf.IndexedSlices(tf.constant([[4.0]]), tf.constant([1]))
        >>> SparseAdam(0.5).apply([gradient], [table])
        >>> table.numpy().ravel().round(3)
        array([1. , 1.5, 3. ], dtype=float32)

    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **kwargs: Any,
    ) -> None:
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            require(0 <= beta < 1, f"SparseAdam: `{name}` must be at least 0 and below 1", repr(beta))
        require(epsilon >= 0, "SparseAdam: `epsilon` must be at least 0", repr(epsilon))
        super().__init__(learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self._gradient_kinds: frozenset[tuple[int, bool]] = frozenset()  # (variable's index, whether by rows)

    def build_slots(self, variables: list[Variable]) -> None:
        """Create momentums, velocities and the counts of steps."""
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        for slots in (self._momentums, self._velocities):
            mark_slots(slots, variables)
        self._steps = []
        for variable in variables:
            # a row's count lives where the row lives
            with tf.distribute.get_strategy().extended.colocate_vars_with(resource_of(variable)):
                steps = self.add_variable(variable.shape[:1], dtype="int64", name="steps")
            self._steps.append(mark_slot(steps, variable))

    def update_rows(self, update: RowUpdate, learning_rate: tf.Tensor) -> None:
        """Make a step for rows of tables of one kind."""
        for variable in update.variables:
            self._refuse_two_kinds(variable, by_rows=True)
        m, v, t = (self.rows_of_slots(slots, update) for slots in (self._momentums, self._velocities, self._steps))
        x = update.rows_of(update.variables)
        _update(x, m, v, t, update.gradient, learning_rate, self.beta_1, self.beta_2, self.epsilon)

    def update_step(self, gradient: tf.Tensor, variable: Variable, learning_rate: tf.Tensor) -> None:
        """Make a step for a whole variable."""
        self._refuse_two_kinds(variable, by_rows=False)
        index = self.index(variable)
        m, v = self._momentums[index], self._velocities[index]
        g = tf.cast(gradient, variable.dtype)
        t = tf.cast(self.iterations + 1, g.dtype)
        power_1, power_2 = (tf.pow(tf.cast(beta, g.dtype), t) for beta in (self.beta_1, self.beta_2))
        alpha = tf.cast(learning_rate, g.dtype) * tf.sqrt(1 - power_2) / (1 - power_1)
        m.assign_add((g - m) * (1 - self.beta_1))
        v.assign_add((tf.square(g) - v) * (1 - self.beta_2))
        variable.assign_sub(m * alpha / (tf.sqrt(v) + self.epsilon))

    def _refuse_two_kinds(self, variable: Variable, *, by_rows: bool) -> None:
        """Rows count their own steps, a whole variable does not: one variable cannot have both."""
        index = self.index(variable)
        rule = f"SparseAdam: '{variable.name}' needs one kind of gradient; read it with tf.gather always or never"
        require((index, not by_rows) not in self._gradient_kinds, rule, "row-sparse and dense gradients")
        self._gradient_kinds |= {(index, by_rows)}

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        arguments = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), **arguments}
