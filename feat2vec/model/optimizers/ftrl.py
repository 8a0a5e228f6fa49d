"""FTRL-Proximal (McMahan et al., 2013) for the rows that a step touches: penalties that make weights exactly zero."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from feat2vec.model.optimizers.base import LearningRate, RowSparse, require
from feat2vec.model.optimizers.row_gradients import sum_duplicates
from feat2vec.model.optimizers.row_updates import RowsOfTable, RowUpdate, Updated, WholeVariable
from feat2vec.model.optimizers.tables import Variable, is_by_row, is_linear_terms, mark_slot

PENALIZED = ("all", "tables", "linear")


class Penalties(NamedTuple):
    """What a coordinate x costs, once in the whole training: l1 |x| + l2 x^2 / 2."""

    l1: float = 0.0
    l2: float = 0.0


def ftrl_rows(
    table: Variable,
    accumulator: Variable,
    residual: Variable | None,
    gradient: tf.IndexedSlices,
    learning_rate: float | tf.Tensor,
    beta: float = 1.0,
    l1: float = 0.0,
    l2: float = 0.0,
) -> None:
    """Make one step of FTRL-Proximal for the rows of the gradient (McMahan et al., 2013, algorithm 1).

    A coordinate x has n, the sum of the squares of its gradients, and the strength h = (beta + sqrt(n)) / lr. In the
    paper it also has z; a step makes, with the n and h after it and h' before it,

        z += g - (h - h') x;  x = 0 if |z| <= l1, else -(z - sign(z) l1) / (h + l2)

    Here u = z + h x is kept in place of z. It starts at zero wherever x starts, while z would have to begin with
    -beta x / lr where x is not zero. What follows is the same, and holds for a learning rate that changes, too:

        z = u + g - h x;  x as above;  u = z + h x

    Args:
        table: the variable x, or one shard of it.
        accumulator: a variable n of its shape and type, zero at the start.
        residual: a variable u of its shape and type, zero at the start. Without penalties u is always zero: None.
        gradient: g; values that share an id are summed.
        learning_rate: lr, the paper's alpha.
        beta: what is added to the root, so that the first steps are not too long.
        l1: the weight of |x|. Coordinates whose z is no larger are exactly zero.
        l2: the weight of x^2 / 2.

    """
    rows = sum_duplicates(gradient)
    u = None if residual is None else RowsOfTable(residual, rows.ids)
    x, n = RowsOfTable(table, rows.ids), RowsOfTable(accumulator, rows.ids)
    _update(x, n, u, rows.values, learning_rate, beta, Penalties(l1, l2))


def _update(
    table: Updated | WholeVariable,
    accumulator: Updated | WholeVariable,
    residual: Updated | WholeVariable | None,
    gradient: tf.Tensor,
    learning_rate: float | tf.Tensor,
    beta: float,
    penalties: Penalties,
) -> None:
    g = tf.cast(gradient, table.dtype)
    alpha = tf.cast(learning_rate, g.dtype)
    total = accumulator.read() + tf.square(g)
    accumulator.write(total)
    root = tf.cast(beta, g.dtype) + tf.sqrt(total)  # h lr
    x = table.read()
    if residual is None:
        table.write(x - alpha * g / root)
        return
    l1, l2 = (tf.cast(penalty, g.dtype) for penalty in penalties)
    before = residual.read()
    push = before + g
    scaled = alpha * push - root * x  # z lr, also where the learning rate is 0
    sign, is_zero = tf.sign(scaled), tf.abs(scaled) <= alpha * l1
    step = alpha * (push + l2 * x - sign * l1) / (root + alpha * l2)
    moved = tf.where(is_zero, tf.zeros_like(x), x - step)
    # where x is not zero, u is minus the slope of the penalties
    left = tf.where(is_zero, tf.math.divide_no_nan(scaled, alpha), sign * l1 - l2 * moved)
    learns = alpha > 0
    table.write(tf.where(learns, moved, x))
    residual.write(tf.where(learns, left, before))


@keras.saving.register_keras_serializable(package="feat2vec")
class SparseFtrl(RowSparse):
    """FTRL-Proximal (McMahan et al., 2013) with exact zeros; rows as in `ftrl_rows`.

    A row that is not touched is where the dense formula would leave it, while the learning rate stays the same. A
    batch's loss is a mean; with `row_scale` = 1 / batch size the gradients of tables (see `by_row`) are measured in
    that of one row of data, in which the paper has beta, l1 and l2: a coordinate stays zero until its rows push it by
    more than l1.

    The penalties count once in the whole training, as a prior does. An l2 in the loss (`training.l2`) counts at each
    occurrence, so that it weighs frequent and rare keys alike; it is a part of the gradient, and of n.

    Args:
        learning_rate: a number or a schedule.
        beta: what is added to the root of the sum of squares.
        l1: the weight of the absolute values of weights; above 0, many are exactly zero.
        l2: half the weight of their squares.
        penalize: the variables that l1 and l2 are of: `all`, `tables`, or the tables of `linear` terms.
        row_scale: the unit of tables' gradients.
        **kwargs: those of `keras.optimizers.Optimizer`; not all are possible for rows.

    Raises:
        ValueError: if an argument has no meaning, or would touch each row in each step.

    Example:
        >>> table = keras.Variable([[0.0, 0.0], [2.0, 2.0]])
        >>> gradient = tf.IndexedSlices(tf.constant([[3.0, -0.5]]), tf.constant([0]))
        >>> SparseFtrl(0.5, l1=1.0).apply([gradient], [table])
        >>> table.numpy()
        array([[-0.25,  0.  ],
               [ 2.  ,  2.  ]], dtype=float32)

    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.1,
        beta: float = 1.0,
        l1: float = 0.0,
        l2: float = 0.0,
        penalize: str = "all",
        row_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        require(beta > 0, "SparseFtrl: `beta` must be above 0", repr(beta))
        require(l1 >= 0, "SparseFtrl: `l1` must be at least 0", repr(l1))
        require(l2 >= 0, "SparseFtrl: `l2` must be at least 0", repr(l2))
        require(row_scale > 0, "SparseFtrl: `row_scale` must be above 0", repr(row_scale))
        require(penalize in PENALIZED, f"SparseFtrl: `penalize` is one of {', '.join(PENALIZED)}", repr(penalize))
        super().__init__(learning_rate, **kwargs)
        self.beta, self.l1, self.l2 = beta, l1, l2
        self.penalize, self.row_scale = penalize, row_scale

    def build_slots(self, variables: list[Variable]) -> None:
        """Create the accumulators, and the residuals of variables that have penalties."""
        (self._accumulators,) = self.add_optimizer_variables(variables, ["accumulator"])
        self._residuals: list[Variable | None] = []
        for slot, variable in zip(self._accumulators, variables, strict=True):
            mark_slot(slot, variable)
            residual = None
            if any(self._penalties(variable)):
                (residual,) = self.add_optimizer_variables([variable], "residual")
                mark_slot(residual, variable)
            self._residuals.append(residual)

    def _penalties(self, variable: Variable) -> Penalties:
        """Return the penalties of a variable."""
        is_penalized = {"all": True, "tables": is_by_row(variable), "linear": is_linear_terms(variable)}
        return Penalties(self.l1, self.l2) if is_penalized[self.penalize] else Penalties()

    def _in_rows(self, gradient: tf.Tensor, variable: Variable) -> tf.Tensor:
        """Return a gradient in the unit that it is measured in."""
        return gradient / self.row_scale if is_by_row(variable) else gradient

    def update_rows(self, update: RowUpdate, learning_rate: tf.Tensor) -> None:
        """Make a step for rows of tables of one kind."""
        first = update.variables[0]
        residuals = [self._residuals[self.index(table)] for table in update.variables]
        _update(
            update.rows_of(update.variables),
            self.rows_of_slots(self._accumulators, update),
            None if residuals[0] is None else update.rows_of(residuals),
            self._in_rows(update.gradient, first),
            learning_rate,
            self.beta,
            self._penalties(first),
        )

    def update_step(self, gradient: tf.Tensor, variable: Variable, learning_rate: tf.Tensor) -> None:
        """Make a step for a whole variable."""
        index = self.index(variable)
        residual = self._residuals[index]
        _update(
            WholeVariable(variable),
            WholeVariable(self._accumulators[index]),
            None if residual is None else WholeVariable(residual),
            self._in_rows(gradient, variable),
            learning_rate,
            self.beta,
            self._penalties(variable),
        )

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        arguments = {"beta": self.beta, "l1": self.l1, "l2": self.l2}
        return {**super().get_config(), **arguments, "penalize": self.penalize, "row_scale": self.row_scale}
