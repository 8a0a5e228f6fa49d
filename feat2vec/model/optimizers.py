"""Row-sparse Adagrad and Adam: a step gathers, updates and scatters only the rows that it touches.

Keras' own Adagrad and Adam touch every row of every table in every step. Here a gradient that arrives as
`tf.IndexedSlices` (what a `tf.gather` on a variable gives) has its duplicate ids summed first, and costs what its
distinct ids cost. A dense gradient takes Keras' dense update, number for number.

A row is *touched* when its id is in the gradient, even with a gradient of zeros. An untouched row keeps its bytes,
and so do its slots. A row of zeros that only ever gets gradients of zeros stays zero, so padding needs no care.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

REFUSED = {
    "weight_decay": "it would touch every row in every step; put L2 into the loss (training.l2)",
    "use_ema": "its average would touch every row in every step; give a schema training.averaging",
    "gradient_accumulation_steps": "its accumulators are dense; use a larger batch",
    "loss_scale_factor": "it is for float16; train in float32 (the `float32` dtype policy)",
}


MANY = 32  # tables of the same kind that are updated as one
BY_ROW = "feat2vec_by_row"  # the attribute that marks tables
DISTINCT = "feat2vec_distinct_ids"  # the name of the op that marks them


@dataclass(frozen=True)
class Rows:
    """A gradient with distinct ids: `ids` [n] and `values` [n, ...]."""

    ids: tf.Tensor
    values: tf.Tensor


def by_row(table: Any) -> Any:
    """Say of a variable that it is a table: a row of it belongs to a few rows of data, not to all."""
    setattr(table, BY_ROW, True)
    return table


def _like(slot: Any, variable: Any) -> Any:
    """A slot, marked as its variable is."""
    return by_row(slot) if is_by_row(variable) else slot


class Filled(keras.initializers.Initializer):
    """`keras.initializers.Constant` without a second tensor of that size."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        return tf.fill(shape, tf.cast(self.value, dtype or keras.config.floatx()))


def is_by_row(variable: Any) -> bool:
    """Whether rows of a variable are read and written alone: a table, or a slot of one."""
    return bool(getattr(variable, BY_ROW, False))


def distinct(ids: tf.Tensor) -> tf.Tensor:
    """Says that no id repeats, for `tf.gather` on a variable: in a graph, its gradient is then not summed again."""
    return tf.identity(ids, name=DISTINCT)


def _are_distinct(ids: tf.Tensor) -> bool:
    # The gradient of one gather has the gather's ids, reshaped; that of two has both, concatenated.
    while tf.is_symbolic_tensor(ids) and ids.op.type == "Reshape":
        ids = ids.op.inputs[0]
    return bool(tf.is_symbolic_tensor(ids)) and ids.op.name.split("/")[-1].rstrip("_0123456789") == DISTINCT


def sum_duplicates(gradient: tf.IndexedSlices | Rows) -> Rows:
    """Sums the values that share an id, in their order, so that an optimizer sees each id once."""
    if isinstance(gradient, Rows):
        return gradient
    if _are_distinct(gradient.indices):
        return Rows(gradient.indices, gradient.values)
    ids, position = tf.unique(gradient.indices)
    # scatter_nd: the bits of unsorted_segment_sum in two thirds of its time
    shape = tf.concat([tf.shape(ids), tf.shape(gradient.values)[1:]], axis=0)
    return Rows(ids, tf.scatter_nd(position[:, None], gradient.values, shape))


def adagrad_rows(
    table: Any, accumulator: Any, gradient: tf.IndexedSlices | Rows, learning_rate: Any, epsilon: float = 1e-7
) -> None:
    """One step of Adagrad for the rows of the gradient: A += g^2, x -= lr g / sqrt(A + epsilon).

    Needs no optimizer object, only a table, or one shard of it, and an accumulator of its shape and type.
    """
    rows = sum_duplicates(gradient)
    g = tf.cast(rows.values, table.dtype)
    total = _replace(accumulator, rows.ids, lambda old: old + tf.square(g))
    # Not `/`: graphs rewrite that to rsqrt, whose last bit depends on a row's place in the batch.
    step = tf.math.divide_no_nan(tf.cast(learning_rate, g.dtype) * g, tf.sqrt(total + epsilon))
    _replace(table, rows.ids, lambda old: old - step)


def adam_rows(
    table: Any,
    momentum: Any,
    velocity: Any,
    steps: Any,
    gradient: tf.IndexedSlices | Rows,
    learning_rate: Any,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
) -> None:
    """One step of lazy Adam for the rows of the gradient.

    `steps` [rows] counts each row's own updates. For a touched row, with t its count after this step:
    m += (1 - beta_1) (g - m), v += (1 - beta_2) (g^2 - v), alpha = lr sqrt(1 - beta_2^t) / (1 - beta_1^t),
    x -= alpha m / (sqrt(v) + epsilon). A skipped step decays nothing and counts nothing: a row is where Adam would
    bring it on the subsequence of steps that touch it, each with its own gradient and learning rate. m and v are the
    unbiased estimates *given that the row is touched*. With the skipped steps counted but not decayed, a rare row's
    first update would be (1 - beta_1) / sqrt(1 - beta_2) = 3.2 times too large.
    """
    rows = sum_duplicates(gradient)
    g = tf.cast(rows.values, table.dtype)
    count = _replace(steps, rows.ids, lambda old: old + 1)
    m = _replace(momentum, rows.ids, lambda old: old + (g - old) * (1 - beta_1))
    v = _replace(velocity, rows.ids, lambda old: old + (tf.square(g) - old) * (1 - beta_2))
    t = tf.reshape(count, [-1] + [1] * (g.shape.rank - 1))  # [n] -> [n, 1, ...]
    lr = tf.cast(learning_rate, g.dtype)
    alpha = lr * tf.sqrt(1 - _power(beta_2, t, g.dtype)) / (1 - _power(beta_1, t, g.dtype))
    _replace(table, rows.ids, lambda old: old - m * alpha / (tf.sqrt(v) + epsilon))


@dataclass(frozen=True)
class Together:
    """Tables, or slots, whose rows are computed together: as many operations as for one, and a few for each.

    The rows are `ids[i]` of variable i, one variable after the other.
    """

    variables: Sequence[Any]
    ids: Sequence[tf.Tensor]
    dtype: Any

    def replace(self, update: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Put `update` of the rows in their place."""
        resources = [resource_of(variable) for variable in self.variables]
        new = update(tf.concat([tf.gather(one, ids) for one, ids in zip(resources, self.ids, strict=True)], axis=0))
        sizes = tf.stack([tf.size(ids) for ids in self.ids])
        for resource, ids, rows in zip(resources, self.ids, tf.split(new, sizes, num=len(resources)), strict=True):
            resource.scatter_update(tf.IndexedSlices(rows, ids))
        return new


def _replace(variable: Any, ids: tf.Tensor, update: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    if isinstance(variable, Together):
        return variable.replace(update)
    # The update kernel copies rows, in a fifth of the add kernel's time; of two concurrent steps the last write wins.
    resource = resource_of(variable)
    new = update(tf.gather(resource, ids))
    resource.scatter_update(tf.IndexedSlices(new, ids))
    return new


def resource_of(variable: Any) -> tf.Variable:
    """TensorFlow's variable behind Keras'."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def _power(base: float, exponent: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    # float64: the float32 kernel's last bit depends on a row's place in the batch. The base is rounded as in Keras.
    rounded = tf.cast(tf.cast(base, dtype), tf.float64)
    return tf.cast(tf.pow(rounded, tf.cast(exponent, tf.float64)), dtype)


def _norm(values: list[tf.Tensor]) -> tf.Tensor:
    widest = max((value.dtype for value in values), key=lambda dtype: dtype.size)
    return tf.sqrt(tf.reduce_sum(tf.stack([tf.cast(tf.reduce_sum(tf.square(value)), widest) for value in values])))


def _flatten(tables: Iterable[Any]) -> list[tuple[int, Any]]:
    lists = [table if isinstance(table, list | tuple) else [table] for table in tables]
    return [(number, shard) for number, shards in enumerate(lists) for shard in shards]


def _require(holds: bool, rule: str, received: str) -> None:
    if not holds:
        raise ValueError(f"{rule}. Received: {received}")


class RowSparse(keras.optimizers.Optimizer):
    """What the row-sparse optimizers share: duplicate ids, tables in shards, clipping by the dense gradient's norm.

    `build`, `apply` and `apply_gradients` take a list of shards wherever they take a variable, for gradients too
    (`tf.nn.embedding_lookup`'s "div" rule or any other: a shard's gradient has the shard's own row numbers). Told so
    at the first of these calls, `clipnorm` bounds the norm of the whole table.
    """

    saves_slots = True  # whether they are in the file of a model that Keras saves

    def __init__(self, learning_rate: Any, **kwargs: Any) -> None:
        for argument, reason in REFUSED.items():
            value = kwargs.get(argument)
            _require(not value, f"{type(self).__name__} takes no `{argument}`: {reason}", f"{argument}={value!r}")
        kwargs.setdefault("name", type(self).__name__)  # not counted up by Keras: a saved model holds it
        super().__init__(learning_rate=learning_rate, **kwargs)

    def build(self, variables: Sequence[Any]) -> None:
        if self.built:
            return
        pairs = _flatten(variables)
        self._table_numbers = tuple(number for number, _ in pairs)
        super().build([shard for _, shard in pairs])
        self.build_slots([shard for _, shard in pairs])

    def build_slots(self, variables: list[Any]) -> None:
        """Creates the slots of a flat list of variables."""
        raise NotImplementedError

    def save_own_variables(self, store: Any) -> None:
        """As Keras', unless `saves_slots` is false."""
        if self.saves_slots:
            super().save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        """As Keras'; a file without slots, such as a run's, leaves them as new."""
        if len(store.keys()):
            super().load_own_variables(store)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        if len(grads) == 0:
            return
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        where = f"{type(self).__name__}.apply"
        rule = f"{where} sums no gradients across replicas; use one device or ParameterServerStrategy"
        _require(replicas == 1, rule, f"{replicas} replicas")
        variables = trainable_variables or self._trainable_variables
        _require(len(variables) > 0, f"{where}: pass the variables, or call build(variables) before", "gradients alone")
        if not self.built:
            with tf.init_scope():
                self.build(variables)
        pairs = self._pair_up(grads, variables)
        summed = [sum_duplicates(g) if isinstance(g, tf.IndexedSlices) else g for g, _ in pairs]
        values = [g.values if isinstance(g, Rows) else g for g in summed]
        values = self._clip(values, [self._table_numbers[self.index(v)] for _, v in pairs])
        learning_rate = self.learning_rate
        updates = [
            (Rows(g.ids, value) if isinstance(g, Rows) else value, variable)
            for (_, variable), g, value in zip(pairs, summed, values, strict=True)
        ]
        for gradient, variable in self._put_together(updates):
            self.update_step(gradient, variable, learning_rate)
        for _, variable in pairs:
            if getattr(variable, "constraint", None) is not None:
                variable.assign(variable.constraint(variable))
        self.iterations.assign_add(1)

    def _put_together(self, updates: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Many tables whose rows are alike as one."""
        alike: dict[Any, list[tuple[Any, Any]]] = {}
        left: list[tuple[Any, Any]] = []
        for gradient, variable in updates:
            if isinstance(gradient, Rows):
                kind = (tuple(variable.shape[1:]), str(variable.dtype), gradient.ids.dtype, is_by_row(variable))
                alike.setdefault(kind, []).append((gradient, variable))
            else:
                left.append((gradient, variable))
        for several in alike.values():
            if len(several) < MANY:
                left += several
                continue
            ids, values = [one.ids for one, _ in several], tf.concat([one.values for one, _ in several], axis=0)
            tables = Together([variable for _, variable in several], ids, several[0][1].dtype)
            left.append((Rows(None, values), tables))
        return left

    def slots_of(self, variable: Any, slots: Sequence[Any]) -> Any:
        """The slot of a variable, or the slots of several that are together."""
        if not isinstance(variable, Together):
            return slots[self.index(variable)]
        found = [slots[self.index(one)] for one in variable.variables]
        return Together(found, variable.ids, found[0].dtype)

    def _pair_up(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[tuple[Any, Any]]:
        """(gradient, variable) for each variable, or shard, that has a gradient."""
        where = f"{type(self).__name__}.apply"
        gradients, shards = ([leaf for _, leaf in _flatten(nested)] for nested in (grads, variables))
        lengths = f"{len(gradients)} gradients, {len(shards)} variables"
        _require(len(gradients) == len(shards), f"{where}: give a gradient for each variable and shard", lengths)
        pairs = [(g, v) for g, v in zip(gradients, shards, strict=True) if g is not None]
        _require(len(pairs) > 0, f"{where}: no variable has a gradient; is the loss connected to any?", "only None")
        missing = [v.name for g, v in zip(gradients, shards, strict=True) if g is None]
        if missing:
            warnings.warn(f"{where}: no gradient for {missing}, which stay as they are", stacklevel=3)
        for g, v in pairs:
            overwrite = getattr(v, "overwrite_with_gradient", False)
            _require(not overwrite, f"{where}: '{v.name}' is for float8; train in float32", "overwrite_with_gradient")
            fits = getattr(v, "constraint", None) is None or not isinstance(g, tf.IndexedSlices)
            _require(fits, f"{where}: '{v.name}' has a constraint, which would touch all rows", "a row-sparse gradient")
        return pairs

    def index(self, variable: Any) -> int:
        """The place of a variable in the flat list that the optimizer was built on."""
        try:
            return int(self._get_variable_index(variable))
        except KeyError:
            rule = f"{type(self).__name__} was not built on this variable; make a new optimizer for new variables"
            raise ValueError(f"{rule}. Received: '{variable.name}' {tuple(variable.shape)}") from None

    def _clip(self, values: list[tf.Tensor], numbers: list[int]) -> list[tf.Tensor]:
        # Keras' formulas and order, so that a clipped step is Keras' step
        if self.clipnorm and self.clipnorm > 0:
            norms = {n: _norm([v for v, k in zip(values, numbers, strict=True) if k == n]) for n in numbers}
            bounds = {n: tf.maximum(norm, self.clipnorm) for n, norm in norms.items()}
            return [value * self.clipnorm / bounds[n] for value, n in zip(values, numbers, strict=True)]
        if self.global_clipnorm and self.global_clipnorm > 0:
            norm = _norm(values)
            # norm - norm: a norm that is not finite makes NaN, not zero
            scale = self.global_clipnorm * tf.minimum(1.0 / norm, 1.0 / self.global_clipnorm) + (norm - norm)
            return [value * tf.cast(scale, value.dtype) for value in values]
        if self.clipvalue and self.clipvalue > 0:
            return [tf.clip_by_value(value, -self.clipvalue, self.clipvalue) for value in values]
        return values


@keras.saving.register_keras_serializable(package="feat2vec")
class SparseAdagrad(RowSparse):
    """Adagrad (Duchi et al., 2011) with Keras' formula and defaults; rows as in `adagrad_rows`.

    A batch's loss is a mean, in which a table's row has the weight of a few rows of data: with `row_scale` = 1 / batch
    size, accumulators and epsilon of tables (see `by_row`) are measured in the gradient of one row of data. With Keras'
    0.1 for a mean over thousands, a vector would hardly move.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        row_scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        start = initial_accumulator_value
        _require(start >= 0, "SparseAdagrad: `initial_accumulator_value` must be at least 0", repr(start))
        _require(epsilon >= 0, "SparseAdagrad: `epsilon` must be at least 0", repr(epsilon))
        _require(row_scale > 0, "SparseAdagrad: `row_scale` must be above 0", repr(row_scale))
        super().__init__(learning_rate, **kwargs)
        self.initial_accumulator_value, self.epsilon = initial_accumulator_value, epsilon
        self.row_scale = row_scale

    def build_slots(self, variables: list[Any]) -> None:
        self._accumulators = []
        for variable in variables:
            start = Filled(self.initial_accumulator_value * self._square(variable))
            (accumulator,) = self.add_optimizer_variables([variable], "accumulator", initializer=start)
            self._accumulators.append(_like(accumulator, variable))

    def _square(self, variable: Any) -> float:
        """The square of the unit that a variable's gradient is measured in."""
        return self.row_scale**2 if is_by_row(variable) else 1.0

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        first = variable.variables[0] if isinstance(variable, Together) else variable
        accumulator, epsilon = self.slots_of(variable, self._accumulators), self.epsilon * self._square(first)
        if isinstance(gradient, tf.IndexedSlices | Rows):
            adagrad_rows(variable, accumulator, gradient, learning_rate, epsilon)
            return
        g = tf.cast(gradient, variable.dtype)
        accumulator.assign_add(tf.square(g))
        variable.assign_sub(tf.cast(learning_rate, g.dtype) * g / tf.sqrt(accumulator + epsilon))

    def get_config(self) -> dict[str, Any]:
        own = {"initial_accumulator_value": self.initial_accumulator_value, "epsilon": self.epsilon}
        own["row_scale"] = self.row_scale
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="feat2vec")
class SparseAdam(RowSparse):
    """Adam (Kingma and Ba, 2015) with Keras' formula and defaults; lazy for rows, see `adam_rows`."""

    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-7, **kw: Any
    ) -> None:
        for name, beta in (("beta_1", beta_1), ("beta_2", beta_2)):
            _require(0 <= beta < 1, f"SparseAdam: `{name}` must be at least 0 and below 1", repr(beta))
        _require(epsilon >= 0, "SparseAdam: `epsilon` must be at least 0", repr(epsilon))
        super().__init__(learning_rate, **kw)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self._kinds: frozenset[tuple[int, bool]] = frozenset()

    def build_slots(self, variables: list[Any]) -> None:
        self._momentums, self._velocities = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        for slots in (self._momentums, self._velocities):
            for slot, variable in zip(slots, variables, strict=True):
                _like(slot, variable)
        self._steps = []
        for variable in variables:
            # a row's count lives where the row lives
            with tf.distribute.get_strategy().extended.colocate_vars_with(resource_of(variable)):
                steps = self.add_variable(variable.shape[:1], dtype="int64", name="steps")
            self._steps.append(_like(steps, variable))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        m, v = self.slots_of(variable, self._momentums), self.slots_of(variable, self._velocities)
        sparse = isinstance(gradient, tf.IndexedSlices | Rows)
        for one in variable.variables if isinstance(variable, Together) else [variable]:
            index = self.index(one)
            rule = f"SparseAdam: '{one.name}' needs one kind of gradient; read it with tf.gather always or never"
            _require((index, not sparse) not in self._kinds, rule, "row-sparse and dense gradients")
            self._kinds |= {(index, sparse)}
        if sparse:
            steps = self.slots_of(variable, self._steps)
            adam_rows(variable, m, v, steps, gradient, learning_rate, self.beta_1, self.beta_2, self.epsilon)
            return
        g = tf.cast(gradient, variable.dtype)
        t = tf.cast(self.iterations + 1, g.dtype)
        power_1, power_2 = (tf.pow(tf.cast(beta, g.dtype), t) for beta in (self.beta_1, self.beta_2))
        alpha = tf.cast(learning_rate, g.dtype) * tf.sqrt(1 - power_2) / (1 - power_1)
        m.assign_add((g - m) * (1 - self.beta_1))
        v.assign_add((tf.square(g) - v) * (1 - self.beta_2))
        variable.assign_sub(m * alpha / (tf.sqrt(v) + self.epsilon))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}


OPTIMIZERS: dict[str, type[RowSparse]] = {"adagrad": SparseAdagrad, "adam": SparseAdam}


def named(name: str, learning_rate: Any, batch_size: int = 1, **arguments: Any) -> RowSparse:
    """The optimizer that a schema calls `name`, for batches of a size; a learning rate may be a schedule."""
    _require(name in OPTIMIZERS, f"optimizer.type: use one of {', '.join(OPTIMIZERS)}", repr(name))
    rate = learning_rate if callable(learning_rate) else float(learning_rate)  # Keras takes no int
    if name == "adagrad":
        arguments = {"row_scale": 1 / batch_size, **arguments}
    return OPTIMIZERS[name](rate, **arguments)
