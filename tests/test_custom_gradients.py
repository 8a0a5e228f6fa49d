"""Custom gradients: the same as `tf.custom_gradient`, eagerly, in graphs and through functions, and freed with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops as tensorflow_ops

from feat2vec.custom_gradients import custom_gradient

Tensor = Any


def product_and_sum(a: Tensor, b: Tensor) -> Any:
    """Two results, and a gradient that autodiff would not give."""
    return (a * b, a + b), lambda product, total: (product * 10 + total, None)


def with_tape(function: Callable[..., Tensor], a: Tensor, b: Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch([a, b])
        product, total = function(a, b)
        loss = tf.reduce_sum(2 * product + 3 * total)
    return (product, total), tape.gradient(loss, [a, b])


def in_a_graph(function: Callable[..., Tensor], a: Tensor, b: Tensor) -> Any:
    return tf.function(lambda a, b: with_tape(function, a, b))(a, b)


def through_a_function(function: Callable[..., Tensor], a: Tensor, b: Tensor) -> Any:
    return with_tape(tf.function(lambda a, b: function(a, b)), a, b)


def through_a_condition(function: Callable[..., Tensor], a: Tensor, b: Tensor) -> Any:
    @tf.function
    def step(a: Tensor, b: Tensor, chosen: Tensor) -> Any:
        return with_tape(lambda a, b: tf.cond(chosen, lambda: function(a, b), lambda: (a, b)), a, b)

    return step(a, b, tf.constant(True))


@pytest.mark.parametrize("way", [with_tape, in_a_graph, through_a_function, through_a_condition])
def test_a_gradient_is_the_one_that_was_given(way: Callable[..., Any]) -> None:
    a, b = tf.constant([1.0, 2.0]), tf.constant([5.0, 7.0])
    (product, total), (to_a, to_b) = way(custom_gradient(product_and_sum), a, b)
    np.testing.assert_array_equal(product, [5.0, 14.0])
    np.testing.assert_array_equal(total, [6.0, 9.0])
    np.testing.assert_array_equal(to_a, [23.0, 23.0])
    assert to_b is None or not np.any(to_b)


def test_a_gradient_may_hold_tensors_of_the_graph() -> None:
    @custom_gradient
    def cube(x: Tensor) -> Any:
        square = tf.square(x)
        return square * x, lambda upstream: 3 * upstream * square

    for way in (lambda f: f, tf.function):
        x = tf.constant([2.0, 3.0])

        def slope(x: Tensor) -> Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = cube(x) + cube(2 * x)
            return tape.gradient(y, x)

        np.testing.assert_array_equal(way(slope)(x), [3 * 4 + 6 * 16, 3 * 9 + 6 * 36])


def test_graphs_register_nothing() -> None:
    before = set(tensorflow_ops.gradient_registry.list())
    in_a_graph(custom_gradient(product_and_sum), tf.ones([2]), tf.ones([2]))
    assert set(tensorflow_ops.gradient_registry.list()) == before


def test_a_function_with_a_custom_gradient_can_be_saved(tmp_path: Path) -> None:
    module = tf.Module()
    module.double = tf.function(
        lambda x: custom_gradient(lambda x: (2 * x, lambda upstream: 5 * upstream))(x),
        input_signature=[tf.TensorSpec([None])],
    )
    tf.saved_model.save(module, str(tmp_path))
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).double([1.0, 2.0]), [2.0, 4.0])


TRAININGS = """
import gc, sys
import numpy as np, pyarrow as pa, tensorflow as tf
import feat2vec

keys = np.arange(60) % 20
table = pa.table({"a": keys.astype(str), "b": (keys % 7).astype(str), "hit": keys % 2})
for i, objective in enumerate(["nce", "contrastive", {"type": "logistic", "target": "hit"}]):
    schema = {
        "version": 1, "objective": objective, "model": {"ranks": [2, 4]},
        "groups": {"a": {"column": "a"}, "b": {"column": "b"}},
        "training": {"validation": 0, "epochs": 2, "batch_size": 16},
    }
    run = feat2vec.train(schema, table, f"run_{i}", quiet=True)
    vectors = run.vectors("a")
    del run, vectors
gc.collect()
print(sum(isinstance(item, tf.Variable) for item in gc.get_objects()))
print(sum(type(item).__name__ == "FuncGraph" for item in gc.get_objects()))
"""


@pytest.mark.slow
def test_trainings_leave_no_variables_and_no_graphs(tmp_path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", TRAININGS], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert child.stdout.split() == ["0", "0"]
