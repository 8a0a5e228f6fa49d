"""`RowSparse`: what the row-sparse optimizers share. An optimizer is its slots and its two steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from feat2vec.model.optimizers.divided_rows import DividedRows
from feat2vec.model.optimizers.row_gradients import Rows, sum_duplicates
from feat2vec.model.optimizers.row_updates import MIN_TABLES, RowUpdate, Updated, row_updates
from feat2vec.model.optimizers.tables import Variable, is_by_row, parts_of, resource_of

RowsOfVariable: TypeAlias = tuple[Variable, slice]  # with a start and a stop; slice(None) is all of them
Gradient: TypeAlias = Any  # a tensor of the variable's shape, a tf.IndexedSlices, or None
LearningRate: TypeAlias = "float | keras.optimizers.schedules.LearningRateSchedule"
REFUSED = {
    "weight_decay": "it would touch every row in every step; put L2 into the loss (training.l2)",
    "use_ema": "its average would touch every row in every step; give a schema training.averaging",
    "gradient_accumulation_steps": "its accumulators are dense; use a larger batch",
    "loss_scale_factor": "it is for float16; train in float32 (the `float32` dtype policy)",
}


class RowSparse(keras.optimizers.Optimizer):
    """What the row-sparse optimizers share: duplicate ids, tables in shards, clipping by the dense gradient's norm.

    `build`, `apply` and `apply_gradients` take a list of shards wherever they take a variable, for gradients too
    (`tf.nn.embedding_lookup`'s "div" rule or any other: a shard's gradient has the shard's own row numbers). Where
    the first of these calls has lists, `clipnorm` bounds the norm of the whole table. `build` takes a table of
    `DividedRows` as the list of its parts.

    A subclass makes its slots in `build_slots` and its steps in `update_rows` and `update_step`.
    """

    saves_slots = True  # whether they are in the file of a model that Keras saves
    min_tables = MIN_TABLES  # of the same kind, that are updated at once
    later_ids: frozenset[int] = frozenset()  # of variables; see `learn_later`
    later_step, later_share = 0, 1.0
    rows_of_other_rate: Mapping[int, slice] = MappingProxyType({})  # by the variable's id; see `learn_at_share`
    share_of_other_rate = 1.0
    updates_beside_variables = False  # whether an update is computed on the device of its variable
    # Given variables, and what their update uses, a context in which no other step updates these; None without others.
    locks: Callable[[Sequence[Variable], Sequence[tf.Tensor]], AbstractContextManager[object]] | None = None

    def __init__(self, learning_rate: LearningRate, **kwargs: Any) -> None:
        for argument, reason in REFUSED.items():
            value = kwargs.get(argument)
            require(not value, f"{type(self).__name__} takes no `{argument}`: {reason}", f"{argument}={value!r}")
        kwargs.setdefault("name", type(self).__name__)  # not counted up by Keras: a saved model holds it
        super().__init__(learning_rate=learning_rate, **kwargs)

    def build(self, variables: Sequence[Variable | Sequence[Variable]]) -> None:
        """Create the slots of variables, or of lists of shards."""
        if self.built:
            return
        numbered_shards = _flatten(variables)
        shards = [shard for _, shard in numbered_shards]
        self._table_numbers = tuple(number for number, _ in numbered_shards)
        super().build(shards)
        self.build_slots(shards)

    def build_slots(self, variables: list[Variable]) -> None:
        """Create the slots of a flat list of variables."""
        raise NotImplementedError

    def update_rows(self, update: RowUpdate, learning_rate: tf.Tensor) -> None:
        """Make a step for rows of tables of one kind."""
        raise NotImplementedError

    def save_own_variables(self, store: Any) -> None:
        """Save as Keras does, unless `saves_slots` is false."""
        if self.saves_slots:
            super().save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        """Load as Keras does; a file without slots, such as a run's, leaves them as new."""
        if len(store.keys()):
            super().load_own_variables(store)

    def apply(
        self,
        grads: Sequence[Gradient | Sequence[Gradient]],
        trainable_variables: Sequence[Variable | Sequence[Variable]] | None = None,
    ) -> None:
        """Update the variables; one that has no gradient stays as it is, with a warning.

        Args:
            grads: a gradient for each variable, or a list of them for a list of shards.
            trainable_variables: the variables; those of `build` by default.

        Raises:
            ValueError: if gradients and variables do not match, or a variable cannot be updated by rows.

        """
        if len(grads) == 0:
            return
        variables = self._variables_to_update(trainable_variables)
        pairs = self._pair_up(grads, variables)
        gradients = [sum_duplicates(g) if isinstance(g, tf.IndexedSlices) else g for g, _ in pairs]
        values = [g.values if isinstance(g, Rows) else g for g in gradients]
        values = self._clip(values, [self._table_numbers[self.index(variable)] for _, variable in pairs])
        rates = (self.learning_rate, self._later_rate())
        by_rows: tuple[list[tuple[Rows, Variable]], ...] = ([], [])  # of variables that learn now, and later
        for (_, variable), gradient, value in zip(pairs, gradients, values, strict=True):
            is_later = id(variable) in self.later_ids
            if isinstance(gradient, Rows):
                by_rows[is_later].append((Rows(gradient.ids, value), variable))
            else:
                with self._place_of_update(variable):
                    rate_of_variable = self._rate_of_variable(variable, rates[is_later])
                    with self._lock_of_table(variable, [value, rate_of_variable]):
                        self.update_step(value, variable, rate_of_variable)
        for rows_and_variables, rate in zip(by_rows, rates, strict=True):
            for update in row_updates(rows_and_variables, self.min_tables):
                with self._place_of_update(update.variables[0]):
                    rate_of_rows = self._rate_of_rows(update, rate)
                    used = [update.gradient, rate_of_rows, *update.ids]
                    with nullcontext() if self.locks is None else self.locks(update.variables, used):
                        self.update_rows(update, rate_of_rows)
        for _, variable in pairs:
            if getattr(variable, "constraint", None) is not None:
                variable.assign(variable.constraint(variable))
        self.iterations.assign_add(1)

    def _place_of_update(self, variable: Variable) -> AbstractContextManager[object]:
        """A context in which the update of a variable is computed: by default where the step is."""
        return tf.device(resource_of(variable).device) if self.updates_beside_variables else nullcontext()

    def _lock_of_table(self, variable: Variable, used: Sequence[tf.Tensor]) -> AbstractContextManager[object]:
        """A context in which no other step updates a variable, if it is a table: small ones have no locks."""
        return nullcontext() if self.locks is None or not is_by_row(variable) else self.locks([variable], used)

    def learn_later(self, variables: Sequence[Variable], first_step: int, share: float) -> None:
        """Let variables stay as they are until a step, and learn at a share of the learning rate from then on.

        Args:
            variables: some of those that are updated.
            first_step: the first step in which they learn, counted from 0.
            share: of the learning rate.

        Example:
            >>> start, head = keras.Variable([1.0]), keras.Variable([1.0])
            >>> optimizer = feat2vec.optimizers.SparseAdagrad(0.5)
            >>> optimizer.learn_later([start], first_step=1, share=0.1)
            >>> optimizer.apply([tf.constant([4.0]), tf.constant([4.0])], [start, head])
            >>> bool(start.numpy()[0] == 1), bool(head.numpy()[0] < 1)
            (True, True)

        """
        self.later_ids = frozenset(id(part) for variable in variables for part in parts_of(variable))
        self.later_step, self.later_share = first_step, share

    def learn_at_share(self, rows: Sequence[RowsOfVariable], share: float) -> None:
        """Let some rows of variables learn at a share of the learning rate, which may be above 1.

        Args:
            rows: pairs of a variable and the slice of its rows, at most one for each; slice(None) is all of them.
            share: of the learning rate.

        Example:
            >>> table = keras.Variable([[1.0], [1.0]])
            >>> optimizer = feat2vec.optimizers.SparseAdagrad(0.5, initial_accumulator_value=0.0)
            >>> optimizer.learn_at_share([(table, slice(0, 1))], share=0.1)
            >>> optimizer.apply([tf.constant([[4.0], [4.0]])], [table])
            >>> table.numpy().ravel()
            array([0.95, 0.5 ], dtype=float32)

        """
        parts = [part for variable, of_variable in rows for part in _in_parts(variable, of_variable)]
        self.rows_of_other_rate = {id(part): rows_of_part for part, rows_of_part in parts}
        self.share_of_other_rate = share

    def _rate_of_rows(self, update: RowUpdate, rate: tf.Tensor) -> tf.Tensor:
        """The learning rate of an update: a scalar, or [n, 1] where some of its rows may have another one."""
        if not any(id(variable) in self.rows_of_other_rate for variable in update.variables):
            return rate
        shares = []
        for variable, ids in zip(update.variables, update.ids, strict=True):
            shares.append(self._shares(self.rows_of_other_rate.get(id(variable), slice(0, 0)), ids))
        return tf.cast(rate, tf.float32) * _beside(tf.concat(shares, axis=0), update.gradient)

    def _rate_of_variable(self, variable: Variable, rate: tf.Tensor) -> tf.Tensor:
        """The learning rate of a whole variable: a scalar, or [rows, 1]."""
        rows = self.rows_of_other_rate.get(id(variable))
        if rows is None:
            return rate
        if rows == slice(None):
            return tf.cast(rate, tf.float32) * self.share_of_other_rate
        shares = self._shares(rows, tf.range(variable.shape[0]))
        return tf.cast(rate, tf.float32) * _beside(shares, resource_of(variable))

    def _shares(self, rows: slice, ids: tf.Tensor) -> tf.Tensor:
        """The share of the learning rate that each of the rows `ids` [n] learns at, [n]."""
        if rows == slice(None):
            return tf.fill(tf.shape(ids), self.share_of_other_rate)
        is_other = (ids >= rows.start) & (ids < rows.stop)
        return tf.where(is_other, self.share_of_other_rate, 1.0)

    def _later_rate(self) -> tf.Tensor:
        """The learning rate of the variables that learn later."""
        learns = tf.cast(self.iterations.value >= self.later_step, tf.float32)
        return tf.cast(self.learning_rate, tf.float32) * self.later_share * learns

    def _variables_to_update(
        self, trainable_variables: Sequence[Variable | Sequence[Variable]] | None
    ) -> Sequence[Variable | Sequence[Variable]]:
        """Return the variables of a call of `apply`, and build on them if that has not happened."""
        where = f"{type(self).__name__}.apply"
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        rule = f"{where} sums no gradients across replicas; use one device or ParameterServerStrategy"
        require(replicas == 1, rule, f"{replicas} replicas")
        variables = trainable_variables or self._trainable_variables
        require(len(variables) > 0, f"{where}: pass the variables, or call build(variables) before", "gradients alone")
        if not self.built:
            with tf.init_scope():
                self.build(variables)
        return variables

    def _pair_up(
        self, grads: Sequence[Gradient | Sequence[Gradient]], variables: Sequence[Variable | Sequence[Variable]]
    ) -> list[tuple[Gradient, Variable]]:
        """Return (gradient, variable) for each variable, or shard, that has a gradient."""
        where = f"{type(self).__name__}.apply"
        gradients, shards = ([leaf for _, leaf in _flatten(nested)] for nested in (grads, variables))
        lengths = f"{len(gradients)} gradients, {len(shards)} variables"
        require(len(gradients) == len(shards), f"{where}: give a gradient for each variable and shard", lengths)
        pairs, missing = [], []
        for gradient, variable in zip(gradients, shards, strict=True):
            if gradient is None:
                missing.append(variable.name)
            else:
                pairs.append((gradient, variable))
        require(len(pairs) > 0, f"{where}: no variable has a gradient; is the loss connected to any?", "only None")
        if missing:
            warnings.warn(f"{where}: no gradient for {missing}, which stay as they are", stacklevel=3)
        for gradient, variable in pairs:
            name = f"{where}: '{variable.name}'"
            is_float8 = getattr(variable, "overwrite_with_gradient", False)
            require(not is_float8, f"{name} is for float8; train in float32", "overwrite_with_gradient")
            is_bounded = getattr(variable, "constraint", None) is not None
            by_rows = isinstance(gradient, tf.IndexedSlices)
            rule = f"{name} has a constraint, which would touch all rows"
            require(not (is_bounded and by_rows), rule, "a row-sparse gradient")
        return pairs

    def index(self, variable: Variable) -> int:
        """Return the place of a variable in the flat list that the optimizer was built on.

        Args:
            variable: a variable, or a shard of one.

        Returns:
            Its place, from 0.

        Raises:
            ValueError: if the optimizer was not built on the variable.

        """
        try:
            return int(self._get_variable_index(variable))
        except KeyError:
            rule = f"{type(self).__name__} was not built on this variable; make a new optimizer for new variables"
            raise ValueError(f"{rule}. Received: '{variable.name}' {tuple(variable.shape)}") from None

    def rows_of_slots(self, slots: Sequence[Variable], update: RowUpdate) -> Updated:
        """Return the rows of an update in one kind of slots.

        Args:
            slots: those of all variables, by their indices.
            update: the rows that are touched.

        Returns:
            The same rows of the slots of the update's variables.

        """
        return update.rows_of([slots[self.index(table)] for table in update.variables])

    def _clip(self, values: list[tf.Tensor], table_numbers: list[int]) -> list[tf.Tensor]:
        """Clip gradients by Keras' formulas in Keras' order, so that a clipped step is Keras' step.

        Values with the same table number are shards of one table.
        """
        if self.clipnorm and self.clipnorm > 0:
            bounds = {}
            for number in dict.fromkeys(table_numbers):
                shards = [values[i] for i, table_number in enumerate(table_numbers) if table_number == number]
                bounds[number] = tf.maximum(_norm(shards), self.clipnorm)
            bound_of_value = [bounds[number] for number in table_numbers]
            return [value * self.clipnorm / bound for value, bound in zip(values, bound_of_value, strict=True)]
        if self.global_clipnorm and self.global_clipnorm > 0:
            norm = _norm(values)
            # norm - norm: a norm that is not finite makes NaN, not zero
            scale = self.global_clipnorm * tf.minimum(1.0 / norm, 1.0 / self.global_clipnorm) + (norm - norm)
            return [value * tf.cast(scale, value.dtype) for value in values]
        if self.clipvalue and self.clipvalue > 0:
            return [tf.clip_by_value(value, -self.clipvalue, self.clipvalue) for value in values]
        return values


@contextmanager
def exclusive(
    optimizer: keras.optimizers.Optimizer, variable: Variable, used: Sequence[tf.Tensor], *, is_beside: bool = False
) -> Iterator[None]:
    """Update a variable beside the optimizer's own, while no other step does.

    Args:
        optimizer: The optimizer, any of Keras.
        variable: The variable.
        used: What its update uses that comes from elsewhere.
        is_beside: Whether the update is computed on the variable's device, if the optimizer's updates are.

    """
    device: AbstractContextManager[object] = nullcontext()
    lock: AbstractContextManager[object] = nullcontext()
    if isinstance(optimizer, RowSparse):
        device = optimizer._place_of_update(variable) if is_beside else device
        lock = lock if optimizer.locks is None else optimizer.locks([variable], used)
    with device, lock:
        yield


def _beside(numbers: tf.Tensor, rows: tf.Tensor | tf.Variable) -> tf.Tensor:
    """Numbers [n] in a shape that multiplies rows [n, ...]."""
    return tf.reshape(numbers, [-1] + [1] * (len(rows.shape) - 1))


def _in_parts(variable: Variable, rows: slice) -> Iterator[RowsOfVariable]:
    """Some rows of a variable, as rows of its parts if it is a divided table."""
    resource = resource_of(variable)
    if not isinstance(resource, DividedRows):
        yield variable, rows
        return
    for number, part in enumerate(resource.parts):
        yield part, resource.rows_of_part(number, rows)


def _norm(values: list[tf.Tensor]) -> tf.Tensor:
    """The norm of all values together."""
    widest = max((value.dtype for value in values), key=lambda dtype: dtype.size)
    squares = [tf.cast(tf.reduce_sum(tf.square(value)), widest) for value in values]
    return tf.sqrt(tf.reduce_sum(tf.stack(squares)))


def _flatten(tables: Iterable[Variable | Sequence[Variable]]) -> list[tuple[int, Variable]]:
    """Return (the table's number, shard) for each shard of each table."""
    numbered_shards = []
    for number, table in enumerate(tables):
        shards = table if isinstance(table, list | tuple) else parts_of(table)
        numbered_shards += [(number, shard) for shard in shards]
    return numbered_shards


def require(holds: bool, rule: str, received: str) -> None:
    """Raise a ValueError with the rule and what was received, unless the rule holds."""
    if not holds:
        raise ValueError(f"{rule}. Received: {received}")
