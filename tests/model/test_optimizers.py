"""The row-sparse optimizers against float64 NumPy loops and against Keras' dense optimizers."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from feat2vec.model import optimizers
from feat2vec.model.optimizers import (
    OPTIMIZERS,
    SparseAdagrad,
    SparseAdam,
    SparseFtrl,
    SparseSgd,
    adagrad_rows,
    adam_rows,
    by_row,
    ftrl_rows,
    linear_terms,
    sgd_rows,
    sum_duplicates,
)
from tests import reference

ROWS, DIM = 13, 5
# The dense formulas: Keras', and that of the paper, which `ftrl` has for dense gradients.
DENSE: dict[str, Any] = {
    "adagrad": keras.optimizers.Adagrad,
    "adam": keras.optimizers.Adam,
    "ftrl": SparseFtrl,
    "sgd": keras.optimizers.SGD,
}
# With these each optimizer has all of its slots.
WHOLE: dict[str, dict[str, Any]] = {
    "adagrad": {},
    "adam": {},
    "ftrl": {"l1": 0.5, "l2": 0.25},
    "sgd": {"momentum": 0.75, "nesterov": True},
}
BOTH = pytest.mark.parametrize("name", sorted(OPTIMIZERS))
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def batches(steps: int, everywhere: bool, dtype: str = "float32", seed: int = 0) -> list[Batch]:
    """(ids with duplicates, their gradients, a kernel's gradient) for each step."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(steps):
        ids = rng.integers(1, ROWS - 2, 9)
        if everywhere:
            ids = np.concatenate([rng.permutation(ROWS), ids])
        values, kernel = rng.normal(size=(len(ids), DIM)), rng.normal(size=(DIM, 3))
        out.append((ids, values.astype(dtype), kernel.astype(dtype)))
    return out


def tables(dtype: str = "float32") -> list[keras.Variable]:
    rng = np.random.default_rng(7)
    return [keras.Variable(rng.normal(size=shape), dtype=dtype) for shape in ((ROWS, DIM), (DIM, 3))]


def slices(ids: Any, values: Any, rows: int = ROWS) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant(values), tf.constant(ids), tf.constant([rows, DIM]))


def run(optimizer: Any, variables: list[Any], data: list[Batch], dense: bool = False) -> list[np.ndarray]:
    for ids, values, kernel in data:
        gradient = slices(ids, values)
        optimizer.apply([tf.convert_to_tensor(gradient) if dense else gradient, tf.constant(kernel)], variables)
    return [variable.numpy() for variable in variables]


def run_in_a_graph(optimizer: Any, data: list[Batch], dense: bool) -> list[np.ndarray]:
    variables = tables()
    optimizer.build(variables)

    @tf.function
    def step(ids: Any, values: Any, kernel: Any) -> None:
        gradient = tf.IndexedSlices(values, ids, tf.constant([ROWS, DIM]))
        optimizer.apply([tf.convert_to_tensor(gradient) if dense else gradient, kernel], variables)

    for batch in data:
        step(*map(tf.constant, batch))
    return [variable.numpy() for variable in variables]


def distinct(ids: np.ndarray, values: np.ndarray) -> dict[int, np.ndarray]:
    summed: dict[int, np.ndarray] = {}
    for i, value in zip(ids, values.astype(np.float64), strict=True):
        summed[int(i)] = summed.get(int(i), 0.0) + value
    return summed


def reference_adagrad(x: np.ndarray, data: list[Batch], lr: float, start: float, epsilon: float) -> np.ndarray:
    x, total = x.astype(np.float64), np.full(x.shape, start)
    for ids, values, _ in data:
        for i, g in distinct(ids, values).items():
            total[i] += g**2
            x[i] -= lr * g / np.sqrt(total[i] + epsilon)
    return x


def reference_adam(
    x: np.ndarray, data: list[Batch], lr: float, beta_1: float, beta_2: float, epsilon: float
) -> np.ndarray:
    x = x.astype(np.float64)
    m, v, t = np.zeros_like(x), np.zeros_like(x), np.zeros(len(x))
    for ids, values, _ in data:
        for i, g in distinct(ids, values).items():
            t[i] += 1
            m[i] = beta_1 * m[i] + (1 - beta_1) * g
            v[i] = beta_2 * v[i] + (1 - beta_2) * g**2
            alpha = lr * np.sqrt(1 - beta_2 ** t[i]) / (1 - beta_1 ** t[i])
            x[i] -= alpha * m[i] / (np.sqrt(v[i]) + epsilon)
    return x


def reference_ftrl(x: np.ndarray, data: list[Batch], lr: float, beta: float, l1: float, l2: float) -> np.ndarray:
    x = x.astype(np.float64)
    gradients: dict[tuple[int, int], list[float]] = {}
    for ids, values, _ in data:
        for i, g in distinct(ids, values).items():
            for k in range(DIM):
                gradients.setdefault((i, k), []).append(float(g[k]))
    for (i, k), of_coordinate in gradients.items():
        x[i, k] = reference.ftrl_proximal(of_coordinate, lr, beta, l1, l2, start=float(x[i, k]))[-1]
    return x


def reference_sgd(x: np.ndarray, data: list[Batch], lr: float, momentum: float, nesterov: bool) -> np.ndarray:
    x = x.astype(np.float64)
    v = np.zeros_like(x)
    for ids, values, _ in data:
        for i, g in distinct(ids, values).items():
            v[i] = momentum * v[i] - lr * g
            x[i] += momentum * v[i] - lr * g if nesterov else v[i]
    return x


# Keras rounds these to float32 for float64 tables too, so they are exact in float32
REFERENCE = {
    "adagrad": (reference_adagrad, {"initial_accumulator_value": 0.25, "epsilon": 1e-3}),
    "adam": (reference_adam, {"beta_1": 0.75, "beta_2": 0.96875, "epsilon": 1e-3}),
    "ftrl": (reference_ftrl, {"beta": 0.5, "l1": 0.75, "l2": 0.25}),
    "sgd": (reference_sgd, {"momentum": 0.75, "nesterov": True}),
}


@BOTH
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-13)])
def test_rows_follow_the_formula_and_the_rest_keeps_its_bytes(name: str, dtype: str, tolerance: float) -> None:
    formula: Any
    formula, arguments = REFERENCE[name]
    data, variables = batches(25, everywhere=False, dtype=dtype), tables(dtype)
    before = variables[0].numpy()
    optimizer = OPTIMIZERS[name](0.125, **arguments)
    optimizer.build(variables)
    slots = [s for s in optimizer.variables if s.shape[:1] == (ROWS,)]
    slots_before = [s.numpy() for s in slots]
    after = run(optimizer, variables, data)[0]
    np.testing.assert_allclose(after, formula(before, data, 0.125, *arguments.values()), rtol=0, atol=tolerance * 10)
    untouched = sorted(set(range(ROWS)) - {int(i) for ids, _, _ in data for i in ids})
    assert untouched
    for new, old in zip([after, *(s.numpy() for s in slots)], [before, *slots_before], strict=True):
        assert new[untouched].tobytes() == old[untouched].tobytes()
        assert not np.array_equal(new, old)


@pytest.mark.parametrize("batch_size", [1, 64, 2048])
def test_named_adagrad_on_a_mean_is_adagrad_on_the_sum(batch_size: int) -> None:
    data = batches(6, everywhere=False)
    means = [(ids, values / np.float32(batch_size), kernel / np.float32(batch_size)) for ids, values, kernel in data]
    one, other = optimizers.named("adagrad", 0.25, batch_size), SparseAdagrad(0.25, 0.1, 1e-7)
    marked = [by_row(table) for table in tables()]
    for got, expected in zip(run(one, marked, means), run(other, tables(), data), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    unmarked = optimizers.named("adagrad", 0.25, batch_size)
    for got, expected in zip(run(unmarked, tables(), data), run(SparseAdagrad(0.25), tables(), data), strict=True):
        np.testing.assert_array_equal(got, expected)
    given = optimizers.named("adagrad", 0.25, batch_size, initial_accumulator_value=0.5, epsilon=0.01)
    assert isinstance(given, SparseAdagrad)
    assert (given.initial_accumulator_value, given.epsilon) == (0.5, 0.01)


def test_named_adam_does_not_see_the_batch() -> None:
    one, other = optimizers.named("adam", 0.25, 64).get_config(), SparseAdam(0.25).get_config()
    assert {**one, "name": ""} == {**other, "name": ""}


def test_duplicates_are_summed_before_they_are_squared() -> None:
    table, total = tf.Variable(tf.zeros([3, 1])), tf.Variable(tf.fill([3, 1], 0.1))
    adagrad_rows(table, total, tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 1])), 0.5)
    np.testing.assert_array_equal(total.numpy()[:, 0], np.array([0.1, 4.1, 0.1], np.float32))
    rows = sum_duplicates(tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([9, 2, 9])))
    assert dict(zip(rows.ids.numpy().tolist(), rows.values.numpy()[:, 0].tolist(), strict=True)) == {9: 5.0, 2: 2.0}
    assert sum_duplicates(rows) is rows
    assert sum_duplicates(tf.IndexedSlices(tf.zeros([0, 4]), tf.zeros([0], tf.int64))).values.shape == (0, 4)


def test_ids_that_are_read_as_distinct_are_not_summed_again_unless_two_reads_meet() -> None:
    table = tf.Variable(tf.ones([5, 2]))

    @tf.function
    def ids_of(reads: int) -> Any:
        with tf.GradientTape() as tape:
            vectors = [optimizers.read_rows(table, tf.constant([3, 1])) for _ in range(reads)]
            loss = tf.add_n([tf.reduce_sum(part) for part in vectors])
        summed = sum_duplicates(tape.gradient(loss, table))
        kinds = {op.type for op in tf.compat.v1.get_default_graph().get_operations()}
        return summed.ids, summed.values, tf.constant("Unique" in kinds)

    for reads in (1, 2):
        ids, values, unique = ids_of(reads)
        assert ids.numpy().tolist() == [3, 1]
        np.testing.assert_array_equal(values, np.full((2, 2), reads))
        assert bool(unique) == (reads == 2)


def test_distinct_rows_have_the_gradient_of_a_gather() -> None:
    table = keras.Variable(np.arange(10, dtype=np.float32).reshape(5, 2))
    ids = tf.constant([3, 1])

    def gradient(read: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(read()))
        return tf.convert_to_tensor(tape.gradient(loss, table.value))

    expected = gradient(lambda: tf.gather(table.value, ids))
    inside = tf.function(lambda: gradient(lambda: optimizers.read_rows(table, ids)))
    of_a_function = tf.function(lambda: optimizers.read_rows(table, ids))
    marked = gradient(lambda: tf.gather(table.value, optimizers.distinct(ids)))
    for got in (inside(), gradient(of_a_function), gradient(lambda: optimizers.read_rows(table, ids)), marked):
        np.testing.assert_array_equal(got, expected)


@BOTH
def test_every_row_touched_is_keras_bit_for_bit(name: str) -> None:
    data = batches(60, everywhere=True)
    sparse = run(OPTIMIZERS[name](0.1, **WHOLE[name]), tables(), data)
    dense = run(DENSE[name](0.1, **WHOLE[name]), tables(), data, dense=True)
    for ours, theirs in zip(sparse, dense, strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.thinned(2)
@BOTH
def test_float64_is_keras(name: str) -> None:
    # The bits differ where Keras' pow of a scalar and ours of a vector do: 2 ulp of beta_2^t, over 1 - beta_2^t
    data = batches(60, everywhere=True, dtype="float64")
    sparse = run(OPTIMIZERS[name](0.1, **WHOLE[name]), tables("float64"), data)
    dense = run(DENSE[name](0.1, **WHOLE[name]), tables("float64"), data, dense=True)
    for ours, theirs in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.thinned(2)
@BOTH
def test_a_graph_gives_the_bits_of_eager_rows_and_of_keras_dense_graph(name: str) -> None:
    data = batches(20, everywhere=True)
    eager = run(OPTIMIZERS[name](0.1, **WHOLE[name]), tables(), data)
    ours, theirs = (run_in_a_graph(kind[name](0.1, **WHOLE[name]), data, kind is DENSE) for kind in (OPTIMIZERS, DENSE))
    assert ours[0].tobytes() == eager[0].tobytes()
    assert ours[1].tobytes() == theirs[1].tobytes()
    # graphs rewrite Keras' x / sqrt(y) to x * rsqrt(y): 1 ulp of each step
    np.testing.assert_allclose(ours[0], theirs[0], rtol=0, atol=1e-6)


def test_lazy_adam_is_adam_on_the_steps_that_touch_a_row() -> None:
    data = batches(30, everywhere=False)
    schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 30, 0.01)
    variables = tables()
    start = variables[0].numpy()
    after = run(SparseAdam(schedule), variables, data)[0]
    for row in range(ROWS):
        alone = keras.Variable(start[row])
        adam = keras.optimizers.Adam(0.1)
        for number, (ids, values, _) in enumerate(data):
            if row in ids:
                adam.learning_rate = schedule(number)
                adam.apply([tf.convert_to_tensor(slices(ids, values))[row]], [alone])
        assert after[row].tobytes() == alone.numpy().tobytes()


@pytest.mark.thinned(3)
@BOTH
@pytest.mark.parametrize("clip", [{"clipnorm": 1.5}, {"global_clipnorm": 1.5}, {"clipvalue": 0.2}, {"clipnorm": 1e6}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping_is_that_of_the_dense_gradient(name: str, clip: dict[str, float], dtype: str) -> None:
    data = batches(20, everywhere=True, dtype=dtype)
    sparse = run(OPTIMIZERS[name](0.1, **clip), tables(dtype), data)
    dense = run(DENSE[name](0.1, **clip), tables(dtype), data, dense=True)
    # a norm is summed in another order
    for ours, theirs in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6 if dtype == "float32" else 1e-12)
    unclipped = run(OPTIMIZERS[name](0.1), tables(dtype), data)
    if max(clip.values()) < 10:
        assert np.abs(sparse[0] - unclipped[0]).max() > 1e-3


def test_a_norm_sees_summed_duplicates_and_only_the_touched_rows() -> None:
    table = tf.Variable(tf.zeros([4, 1], tf.float64))
    optimizer = SparseAdagrad(1.0, clipnorm=1.0, initial_accumulator_value=0.0, epsilon=0.0)
    values, ids = tf.constant([[3.0], [-3.0], [1.0]], tf.float64), tf.constant([2, 2, 0])
    optimizer.apply([tf.IndexedSlices(values, ids)], [table])  # summed: row 0 has 1, row 2 has 0; the norm is 1
    total = next(v for v in optimizer.variables if v.shape == (4, 1))
    np.testing.assert_array_equal(total.numpy()[:, 0], [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(table.numpy()[:, 0], [-1.0, 0.0, 0.0, 0.0])


@BOTH
def test_learning_rate_schedules(name: str) -> None:
    data = batches(12, everywhere=True)
    make = keras.optimizers.schedules.PolynomialDecay
    sparse = run(OPTIMIZERS[name](make(0.2, 10, 0.0)), tables(), data)
    dense = run(DENSE[name](make(0.2, 10, 0.0)), tables(), data, dense=True)
    assert sparse[0].tobytes() == dense[0].tobytes()
    stopped = run(OPTIMIZERS[name](make(0.2, 10, 0.0)), tables(), data[:10])
    assert stopped[0].tobytes() == sparse[0].tobytes()
    optimizer = OPTIMIZERS[name](0.2)
    optimizer.learning_rate = 0.0
    assert run(optimizer, tables(), data)[0].tobytes() == tables()[0].numpy().tobytes()


ARGUMENTS = {
    "adagrad": [{"initial_accumulator_value": 2.0}, {"epsilon": 0.5}],
    "adam": [{"beta_1": 0.5}, {"beta_2": 0.7}, {"epsilon": 0.5}],
    "ftrl": [{"beta": 2.0}, {"l1": 0.5}, {"l2": 0.5}],
    "sgd": [{"momentum": 0.5}],
}
SHARED = [
    {"learning_rate": 0.7},
    {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.3, 2, 0.5)},
    {"clipnorm": 0.5},
    {"global_clipnorm": 0.5},
    {"clipvalue": 0.05},
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("name", "changed"), [(name, arguments) for name in sorted(OPTIMIZERS) for arguments in SHARED + ARGUMENTS[name]]
)
def test_each_argument_survives_serialization_and_matters(name: str, changed: dict[str, Any]) -> None:
    data = batches(4, everywhere=False)
    original = OPTIMIZERS[name](**{"learning_rate": 0.1, **changed})
    reloaded = keras.optimizers.deserialize(keras.optimizers.serialize(original))
    assert type(reloaded) is type(original)
    after = run(original, tables(), data)[0]
    assert run(reloaded, tables(), data)[0].tobytes() == after.tobytes()
    assert run(OPTIMIZERS[name](0.1), tables(), data)[0].tobytes() != after.tobytes()


@BOTH
def test_admission(name: str) -> None:
    """What every optimizer of the registry must do, whatever its formula."""
    kind = OPTIMIZERS[name]
    optimizer = optimizers.named(name, 1, clipvalue=0.5)
    assert isinstance(optimizer, kind)
    assert isinstance(optimizer, keras.optimizers.Optimizer)
    assert isinstance(keras.optimizers.get(f"feat2vec>{kind.__name__}"), kind)
    assert keras.saving.get_registered_name(kind) == f"feat2vec>{kind.__name__}"
    assert (float(optimizer.learning_rate), optimizer.clipvalue) == (1.0, 0.5)
    traces = []
    variables = [tf.Variable(tf.ones([6, 2])), tf.Variable(tf.ones([6])), tf.Variable(tf.ones([6, 2, 2]))]

    optimizer.build(variables)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def step(ids: Any) -> Any:
        traces.append(1)
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(tf.square(tf.gather(v, ids))) for v in variables])
        return optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for ids in ([1, 1, 4], [2], [], [4, 2, 1, 1]):
        count = step(tf.constant(ids, tf.int32))
    assert int(count) == 4
    assert len(traces) == 1
    for variable in variables:
        rows = variable.numpy().reshape(6, -1)
        assert np.isfinite(rows).all()
        assert (rows[[0, 3, 5]] == 1.0).all()
        assert (rows[[1, 2, 4]] < 1.0).all()
    optimizer.apply([None, tf.IndexedSlices(tf.ones([1]), tf.constant([0])), None][1:2], variables[1:2])
    assert variables[1].numpy()[0] < 1.0


@BOTH
def test_a_row_of_zeros_with_gradients_of_zeros_stays_zero(name: str) -> None:
    start = {"initial_accumulator_value": 0.0, "epsilon": 0.0} if name == "adagrad" else WHOLE[name]
    table = tf.Variable(tf.zeros([3, 2]))
    optimizer = OPTIMIZERS[name](0.1, **start)
    for _ in range(3):
        optimizer.apply([tf.IndexedSlices(tf.constant([[0.0, 0.0], [1.0, 2.0]]), tf.constant([0, 1]))], [table])
    assert table.numpy()[[0, 2]].tobytes() == bytes(2 * 2 * 4)
    assert (table.numpy()[1] < 0).all()


@pytest.mark.thinned(3)
@BOTH
@pytest.mark.parametrize("clip", [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}])
def test_shards_give_the_numbers_of_one_table(name: str, clip: dict[str, float]) -> None:
    whole, kernel = tables()
    cuts = [0, 5, 9, ROWS]  # "div": the first ROWS % 3 shards have one row more
    shards = [tf.Variable(whole.numpy()[a:b]) for a, b in itertools.pairwise(cuts)]
    kernels = [kernel, keras.Variable(kernel.numpy())]
    one, many = OPTIMIZERS[name](0.1, **clip), OPTIMIZERS[name](0.1, **clip)

    def step(optimizer: Any, table: Any, kernel: Any, ids: np.ndarray) -> None:
        variables = [table, kernel.value]
        with tf.GradientTape() as tape:
            vectors = tf.nn.embedding_lookup(table, ids) if isinstance(table, list) else tf.gather(table.value, ids)
            loss = tf.reduce_sum(tf.square(vectors @ kernel.value - 1.0))
        sources = [table if isinstance(table, list) else table.value, kernel.value]
        optimizer.apply_gradients(zip(tape.gradient(loss, sources), variables, strict=True))

    many.build([shards, kernels[1].value])
    one.build([whole, kernels[0].value])
    for ids, _, _ in batches(8, everywhere=False):
        step(one, whole, kernels[0], ids)
        step(many, shards, kernels[1], ids)
    joined = np.concatenate([shard.numpy() for shard in shards])
    if clip.keys() <= {"clipvalue"}:
        assert joined.tobytes() == whole.numpy().tobytes()
    np.testing.assert_allclose(joined, whole.numpy(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(kernels[1].numpy(), kernels[0].numpy(), rtol=0, atol=1e-6)


@BOTH
def test_the_pure_functions_are_the_optimizers_step(name: str) -> None:
    data = batches(6, everywhere=False)
    expected = run(OPTIMIZERS[name](0.1, **WHOLE[name]), tables(), data)[0]
    table = tf.Variable(tables()[0].numpy())
    zeros = [tf.Variable(tf.zeros([ROWS, DIM])) for _ in range(2)]
    updates: dict[str, tuple[Any, list[tf.Variable]]] = {
        "adagrad": (adagrad_rows, [tf.Variable(tf.fill([ROWS, DIM], 0.1))]),
        "adam": (adam_rows, [*zeros, tf.Variable(tf.zeros([ROWS], tf.int64))]),
        "ftrl": (ftrl_rows, zeros),
        "sgd": (sgd_rows, zeros[:1]),
    }
    update, slots = updates[name]
    for ids, values, _ in data:
        update(table, *slots, slices(ids, values), 0.1, **WHOLE[name])
    assert table.numpy().tobytes() == expected.tobytes()


@BOTH
@pytest.mark.parametrize("clip", [{}, {"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.1}])
def test_no_operation_reads_a_table_or_a_slot_whole(name: str, clip: dict[str, float]) -> None:
    vocabulary = 100_003
    table = keras.Variable(tf.zeros([vocabulary, 2]))
    optimizer = OPTIMIZERS[name](0.1, **clip, **WHOLE[name])
    optimizer.build([table])

    @tf.function(input_signature=[tf.TensorSpec([40], tf.int32)])
    def step(ids: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.gather(table.value, ids) - 1.0))
        optimizer.apply([tape.gradient(loss, table.value)], [table])

    graph = step.get_concrete_function().graph
    handles = {id(inner) for outer, inner in graph.captures if outer.dtype == tf.resource}
    large = [v for v in (table, *optimizer.variables) if v.shape[:1] == (vocabulary,)]
    large_handles = {
        id(inner) for outer, inner in graph.captures for v in large if outer is v.value.handle or outer is v.handle
    }
    assert len(large_handles) == len(large) == {"adagrad": 2, "adam": 4, "ftrl": 3, "sgd": 2}[name]
    assert large_handles <= handles
    used = {op.type for op in graph.get_operations() for x in op.inputs if id(x) in large_handles}
    assert used <= {"ResourceGather", "ResourceScatterUpdate", "VariableShape"}
    for op in graph.get_operations():
        for output in op.outputs:
            # 40 ids bound every tensor
            assert vocabulary not in (output.shape.as_list() if output.shape.rank is not None else [])
    step(tf.range(40))


class Model(keras.Model):
    """A table that is gathered as a resource, and a dense layer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = self.add_weight(shape=(50, 4), name="table", initializer=keras.initializers.RandomNormal(seed=1))
        self.out = keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomNormal(seed=2))
        self.calls = 0

    def build(self, shape: Any) -> None:
        assert shape is not None
        self.out.build((None, 4))

    def call(self, ids: Any) -> Any:
        return self.out(tf.reduce_sum(tf.gather(self.table.value, ids), axis=1))

    def train_step(self, data: Any) -> Any:
        self.calls += 1
        return super().train_step(data)


def fit(model: Model, epochs: int, first: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    ids, target = rng.integers(0, 20, (64, 3)).astype("int32"), rng.normal(size=(64, 1)).astype("float32")
    model.fit(ids, target, batch_size=8, epochs=epochs, initial_epoch=first, shuffle=False, verbose=0)
    return model.get_weights()


def compiled(name: str) -> Model:
    model = Model()
    optimizer = OPTIMIZERS[name](keras.optimizers.schedules.PolynomialDecay(0.1, 30), clipnorm=0.5)
    model.compile(optimizer, loss="mse", jit_compile=False, steps_per_execution=4)
    return model


# Keras' own save, under NumPy 2
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
@BOTH
def test_fit_traces_once_repeats_its_bytes_and_resumes_from_a_keras_file(name: str, tmp_path: Path) -> None:
    model = compiled(name)
    untouched = model.table.numpy()[20:]
    fit(model, 2)
    traces = model.calls
    path = tmp_path / "model.keras"
    model.save(path)
    uninterrupted = fit(model, 4, first=2)
    assert model.calls == traces
    assert uninterrupted[0][20:].tobytes() == untouched.tobytes()

    again = fit(compiled(name), 4)
    loaded = keras.saving.load_model(path, custom_objects={"Model": Model})
    assert int(loaded.optimizer.iterations) == 16
    for fresh, mine in zip(loaded.optimizer.variables, compiled_after(name), strict=True):
        assert fresh.numpy().tobytes() == mine.tobytes()
    resumed = fit(loaded, 4, first=2)
    for a, b, c in zip(uninterrupted, again, resumed, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def compiled_after(name: str) -> list[np.ndarray]:
    model = compiled(name)
    fit(model, 2)
    return [slot.numpy() for slot in model.optimizer.variables]


def test_steps_do_not_trace_again() -> None:
    model = compiled("adam")
    fit(model, 1)
    traces = model.calls
    ids, target = np.zeros((64, 3), "int32"), np.zeros((64, 1), "float32")
    model.fit(ids, target, batch_size=8, epochs=5, verbose=0)
    assert model.calls == traces


def test_a_constraint_holds_for_a_dense_gradient() -> None:
    kernel = tf.Variable(tf.constant([[0.01], [5.0]]), constraint=keras.constraints.NonNeg())
    SparseAdam(0.1).apply([tf.ones([2, 1])], [kernel])
    np.testing.assert_allclose(kernel.numpy(), [[0.0], [4.9]], atol=1e-6)


@BOTH
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weight_decay": 0.1}, "takes no `weight_decay`: .*put L2 into the loss.* Received: weight_decay=0.1"),
        ({"use_ema": True}, "takes no `use_ema`: .*give a schema training.averaging. Received: use_ema=True"),
        ({"gradient_accumulation_steps": 2}, "takes no `gradient_accumulation_steps`: .*use a larger batch. Received"),
        ({"loss_scale_factor": 2.0}, "takes no `loss_scale_factor`: .*train in float32.* Received"),
        ({"clipnorm": 1.0, "clipvalue": 1.0}, "Only one of `clipnorm`, `clipvalue` and `global_clipnorm`"),
        ({"rho": 0.9}, "not recognized: {'rho': 0.9}"),
    ],
)
def test_refused_arguments(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OPTIMIZERS[name](0.1, **arguments)


def test_other_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"`initial_accumulator_value` must be at least 0. Received: -0.1"):
        SparseAdagrad(initial_accumulator_value=-0.1)
    for beta in ("beta_1", "beta_2"):
        with pytest.raises(ValueError, match=f"`{beta}` must be at least 0 and below 1. Received: 1.0"):
            SparseAdam(**{beta: 1.0})
    for kind in (SparseAdagrad, SparseAdam):
        with pytest.raises(ValueError, match=r"`epsilon` must be at least 0. Received: -1.0"):
            kind(epsilon=-1.0)
    with pytest.raises(ValueError, match=r"SparseSgd: `momentum` must be at least 0 and below 1. Received: 1.0"):
        SparseSgd(momentum=1.0)
    with pytest.raises(ValueError, match=r"SparseSgd: `nesterov` needs a `momentum` above 0. Received: 0.0"):
        SparseSgd(nesterov=True)
    for argument, bound in (("beta", "above 0"), ("l1", "at least 0"), ("l2", "at least 0"), ("row_scale", "above 0")):
        wrong: dict[str, Any] = {argument: -1.0}
        with pytest.raises(ValueError, match=f"SparseFtrl: `{argument}` must be {bound}. Received: -1.0"):
            SparseFtrl(**wrong)
    with pytest.raises(ValueError, match=r"`penalize` is one of all, tables, linear. Received: 'none'"):
        SparseFtrl(penalize="none")
    known = "optimizer.type: use one of adagrad, adam, ftrl, sgd. Received: 'rmsprop'"
    with pytest.raises(ValueError, match=re.escape(known)):
        optimizers.named("rmsprop", 0.1)


def test_bad_calls() -> None:
    table, other = tf.Variable(tf.zeros([3, 2]), name="table"), tf.Variable(tf.zeros([3, 2]), name="other")
    gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]))
    optimizer = SparseAdam(0.1)
    with pytest.raises(ValueError, match=r"pass the variables, or call build"):
        optimizer.apply([gradient])
    optimizer.apply([], [])
    optimizer.build([table])
    optimizer.apply([gradient])
    with pytest.raises(ValueError, match=r"not built on this variable.*Received: 'other:0' \(3, 2\)"):
        optimizer.apply([gradient], [other])
    with pytest.raises(ValueError, match=r"a gradient for each variable and shard. Received: 2 gradients, 1 variables"):
        optimizer.apply([gradient, gradient], [table])
    with pytest.raises(ValueError, match=r"no variable has a gradient.*Received: only None"):
        optimizer.apply([None], [table])
    with pytest.raises(ValueError, match=r"'table:0' needs one kind of gradient.*Received: row-sparse and dense"):
        optimizer.apply([tf.ones([3, 2])], [table])
    assert int(optimizer.iterations) == 1
    pair = SparseAdagrad(0.1)
    with pytest.warns(UserWarning, match=r"no gradient for \['other:0'\], which stay as they are"):
        pair.apply([gradient, None], [table, other])
    bounded = tf.Variable(tf.zeros([3, 2]), name="bounded", constraint=keras.constraints.NonNeg())
    with pytest.raises(ValueError, match=r"'bounded:0' has a constraint, which would touch all rows. Received"):
        SparseAdagrad(0.1).apply([gradient], [bounded])
    scale = keras.Variable(tf.zeros([]), name="scale")
    scale.overwrite_with_gradient = True
    with pytest.raises(ValueError, match=r"'scale' is for float8; train in float32"):
        SparseAdagrad(0.1).apply([tf.zeros([])], [scale])


def test_more_than_one_replica_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two:
        num_replicas_in_sync = 2

    monkeypatch.setattr(tf.distribute, "get_strategy", Two)
    with pytest.raises(
        ValueError, match=r"across replicas; use one device or ParameterServerStrategy. Received: 2 rep"
    ):
        SparseAdagrad(0.1).apply([tf.ones([1])], [tf.Variable([1.0])])


def test_the_package_imports_nothing_else_of_feat2vec() -> None:
    names = set()
    for path in Path(optimizers.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in names if name.startswith("feat2vec.")}
    assert all(name.startswith("feat2vec.model.optimizers.") for name in ours)
    assert {name.split(".")[0] for name in names - ours} == {
        "__future__", "collections", "contextlib", "keras", "tensorflow", "types", "typing", "warnings",
    }  # fmt: skip


@pytest.mark.parametrize("optimizer", [SparseAdagrad, SparseAdam, SparseFtrl, SparseSgd])
def test_variables_that_learn_later_stay_and_then_learn_at_their_share(optimizer: Any) -> None:
    """A table and a dense variable; others learn as without it."""
    moves = []
    for first_step, share in ((0, 1.0), (2, 1.0), (0, 0.25)):
        later_table, later, table, dense = (keras.Variable(np.ones((3, 2), np.float32)) for _ in range(4))
        made = optimizer(0.1)
        made.build([later_table, later, table, dense])
        made.learn_later([later_table, later], first_step, share)
        for step in range(3):
            rows = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]))
            made.apply([rows, tf.ones((3, 2)), rows, tf.ones((3, 2))], [later_table, later, table, dense])
            if step < first_step:
                assert (later_table.numpy() == 1).all()
                assert (later.numpy() == 1).all()
        moves.append([1 - variable.numpy() for variable in (later_table, later, table, dense)])
    plain, late, slow = moves
    for i in range(4):
        assert (plain[i][1] > 0).all()
        np.testing.assert_allclose(slow[i], plain[i] * (0.25 if i < 2 else 1), rtol=1e-4, atol=1e-7)
        assert (late[i][1] > 0).all()
        assert (late[i][1] < plain[i][1]).all() == (i < 2)


# --- ftrl and sgd ---------------------------------------------------------------------------------------------------


def path_of(optimizer: Any, gradients: list[float], start: float) -> list[float]:
    """A coordinate after each of its gradients, which touch the second row of a table of two."""
    table, path = tf.Variable([[7.0], [start]], dtype=tf.float64), []
    for g in gradients:
        optimizer.apply([tf.IndexedSlices(tf.constant([[g]], tf.float64), tf.constant([1]))], [table])
        path.append(float(table.numpy()[1, 0]))
    assert float(table.numpy()[0, 0]) == 7.0
    return path


@pytest.mark.parametrize("start", [0.0, 0.125])
@pytest.mark.parametrize("l1", [0.0, 0.5, 3.0])
def test_ftrl_follows_the_paper_and_what_it_minimizes(l1: float, start: float) -> None:
    gradients = np.random.default_rng(3).normal(0.1, 1, 40).tolist()
    expected = reference.ftrl_proximal(gradients, 0.25, 0.5, l1, 0.125, start)
    by_objective = reference.ftrl_by_its_objective(gradients, [0.25] * 40, 0.5, l1, 0.125, start)
    np.testing.assert_allclose(by_objective, expected, atol=1e-12)
    path = path_of(SparseFtrl(0.25, 0.5, l1, 0.125), gradients, start)
    np.testing.assert_allclose(path, expected, atol=1e-12)
    assert [w == 0 for w in path] == [w == 0 for w in expected]
    assert any(w == 0 for w in path) == (l1 > 0)


def test_ftrl_with_a_learning_rate_that_falls_minimizes_what_it_should() -> None:
    gradients = np.random.default_rng(4).normal(size=30).tolist()
    schedule = keras.optimizers.schedules.PolynomialDecay(0.5, 32, 0.0)
    rates = [float(schedule(step)) for step in range(30)]
    expected = reference.ftrl_by_its_objective(gradients, rates, 1.0, 0.5, 0.25, start=-0.5)
    np.testing.assert_allclose(path_of(SparseFtrl(schedule, 1.0, 0.5, 0.25), gradients, -0.5), expected, atol=1e-6)


def test_ftrl_from_zero_is_that_of_keras() -> None:
    data, (_, kernel) = batches(30, everywhere=True), tables()
    ours, theirs = ([tf.Variable(tf.zeros([ROWS, DIM])), tf.Variable(tf.zeros(kernel.shape))] for _ in range(2))
    run(SparseFtrl(0.1, beta=0.5, l1=0.5, l2=0.25), ours, data)
    keras_ftrl = keras.optimizers.Ftrl(
        0.1, -0.5, 0.0, l1_regularization_strength=0.5, l2_regularization_strength=0.125, beta=0.5
    )  # whose l2 counts w^2 fully
    run(keras_ftrl, theirs, data, dense=True)
    for variable, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(variable.numpy(), expected.numpy(), atol=2e-6)
        assert 0 < np.mean(variable.numpy() == 0) < 1


def test_a_row_that_is_not_touched_is_where_dense_ftrl_leaves_it() -> None:
    """A gradient of zero moves nothing, but for what the penalties do at the first one."""
    data = batches(20, everywhere=False, dtype="float64")
    first = [(np.arange(ROWS), np.zeros((ROWS, DIM)), data[0][2]), *data]
    sparse = run(SparseFtrl(0.1, l1=0.3, l2=0.2), tables("float64"), first)
    dense = run(SparseFtrl(0.1, l1=0.3, l2=0.2), tables("float64"), first, dense=True)
    for ours, theirs in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_ftrl_penalizes_what_it_is_asked_to() -> None:
    def moved(penalize: str) -> list[bool]:
        """Whether linear terms, vectors and a dense weight leave zero although l1 is larger than their gradients."""
        terms, vectors = linear_terms(by_row(tf.Variable([[0.0]]))), by_row(tf.Variable([[0.0]]))
        variables = [terms, vectors, tf.Variable([[0.0]])]
        rows = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]))
        SparseFtrl(0.5, l1=2.0, penalize=penalize).apply([rows, rows, tf.ones([1, 1])], variables)
        return [float(variable.numpy()[0, 0]) != 0 for variable in variables]

    assert moved("linear") == [False, True, True]
    assert moved("tables") == [False, False, True]
    assert moved("all") == [False, False, False]


def test_tables_of_one_kind_are_updated_at_once_only_with_the_same_penalties() -> None:
    variables = [by_row(tf.Variable([[0.0], [0.0]])) for _ in range(6)]
    for variable in variables[::2]:
        linear_terms(variable)
    optimizer = SparseFtrl(0.5, l1=2.0, penalize="linear")
    optimizer.min_tables = 3
    rows = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([1]))
    optimizer.apply([rows] * 6, variables)
    assert [float(variable.numpy()[1, 0]) != 0 for variable in variables] == [False, True] * 3


@pytest.mark.parametrize("batch_size", [1, 64])
def test_named_ftrl_on_a_mean_is_ftrl_on_the_sum(batch_size: int) -> None:
    data = batches(6, everywhere=False)
    means = [(ids, values / np.float32(batch_size), kernel) for ids, values, kernel in data]
    penalties: dict[str, Any] = {"l1": 0.5, "l2": 0.25}
    got = run(optimizers.named("ftrl", 0.25, batch_size, **penalties), [by_row(table) for table in tables()][:2], means)
    expected = run(SparseFtrl(0.25, **penalties), tables(), data)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("nesterov", "method"), [(False, reference.heavy_ball), (True, reference.nesterov)])
def test_momentum_is_the_heavy_ball_or_nesterovs_method(nesterov: bool, method: Any) -> None:
    """With Nesterov's, the weight is the point that is looked ahead to."""

    def slope(x: float) -> float:
        return 3.0 * x - 1.0

    table, path = tf.Variable([[2.0]], dtype=tf.float64), []
    optimizer = SparseSgd(0.125, momentum=0.75, nesterov=nesterov)
    for _ in range(30):
        gradient = slope(float(table.numpy()[0, 0]))
        optimizer.apply([tf.IndexedSlices(tf.constant([[gradient]], tf.float64), tf.constant([0]))], [table])
        path.append(float(table.numpy()[0, 0]))
    np.testing.assert_allclose(path, method(slope, 2.0, 0.125, 0.75, 30), atol=1e-12)


def test_sgd_without_momentum_has_no_slots() -> None:
    optimizer = SparseSgd(0.5)
    optimizer.build([tf.Variable([[1.0]])])
    assert [variable.name for variable in optimizer.variables] == ["iteration", "learning_rate"]
