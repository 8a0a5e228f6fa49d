"""A table in parts is read, learnt and written as a whole one."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from feat2vec import optimizers
from feat2vec.cluster.servers import Servers, whole_variables
from feat2vec.cluster.spread_rows import SpreadRows
from feat2vec.model.gaussian_posterior import CurvatureStart
from feat2vec.model.large_variables import TableStart, ZeroStart, assign_rows, pieces, undrawn_tables
from feat2vec.model.optimizers import Rows, by_row, linear_terms, read_rows
from feat2vec.model.optimizers.base import RowSparse
from feat2vec.model.optimizers.row_updates import RowsOfTable, rows_by_part
from feat2vec.model.optimizers.tables import parts_of, resource_of
from feat2vec.model.table_decay import penalty_of_tables, with_decay

SIZE, DIM = 23, 5
DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def tables(start: Any, size: int = SIZE, dim: int = DIM) -> tuple[keras.Variable, keras.Variable]:
    """A table in this process as it begins, whole and in three parts."""
    whole = keras.Variable(start, (size, dim), "float32", autocast=False)
    servers = Servers([DEVICE] * 3, least_bytes=1)
    with servers.holding():
        divided = keras.Variable(start, (size, dim), "float32", autocast=False)
    return by_row(whole), by_row(divided)


def all_rows(variable: keras.Variable) -> Any:
    numbers = [np.array(values) for _, values in pieces(variable, piece=4 * DIM * 4)]
    return np.concatenate(numbers)


@pytest.mark.parametrize(("size", "dim"), [(SIZE, DIM), (40, 8), (3, 1), (1000, 3)])
def test_each_part_draws_its_own_rows_of_the_table(size: int, dim: int) -> None:
    whole, divided = tables(TableStart(0.1, unseen=True, piece=64), size, dim)
    resource = resource_of(divided)
    assert isinstance(resource, SpreadRows)
    assert len(resource.parts) == 3
    assert max(int(part.shape[0]) for part in resource.parts) <= -(-size // 3)
    np.testing.assert_array_equal(np.concatenate([np.array(v) for _, v in pieces(divided)]), whole.numpy())
    assert not whole.numpy()[0].any()


def test_rows_of_a_start_do_not_depend_on_where_they_begin() -> None:
    start = TableStart(0.5, unseen=False)
    whole = np.asarray(start((11, 3)))
    for first in range(11):
        np.testing.assert_array_equal(start.rows(slice(first, 11), 3), whole[first:])
    assert not np.asarray(ZeroStart().rows(slice(2, 4), 3)).any()


def test_within_undrawn_tables_nothing_is_drawn() -> None:
    with undrawn_tables():
        undrawn = TableStart(0.1, unseen=True)((1 << 40, 1 << 10))
    assert undrawn.shape == (1 << 40, 1 << 10)


@pytest.mark.parametrize("indices", [[[3, 0], [3, 22]], [7], np.zeros((0,), np.int32)])
def test_it_is_read_as_one(indices: Any) -> None:
    whole, divided = tables(TableStart(0.1, unseen=True))
    indices = tf.constant(indices, tf.int32)
    np.testing.assert_array_equal(tf.gather(divided.value, indices), tf.gather(whole.value, indices))


def test_gradients_are_rows_of_the_parts() -> None:
    whole, divided = tables(TableStart(0.1, unseen=True))
    parts = parts_of(divided)

    @tf.function
    def gradients(ids: tf.Tensor) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_sum(read_rows(divided, ids) ** 3)
            loss_of_whole = tf.reduce_sum(read_rows(whole, ids) ** 3)
        of_parts = tape.gradient(loss, [part.value for part in parts])
        assert all(isinstance(gradient, Rows) for gradient in of_parts)
        return [(gradient.ids, gradient.values) for gradient in of_parts], tape.gradient(loss_of_whole, whole.value)

    of_parts, of_whole = gradients(tf.constant([5, 2, 21, 0]))
    expected = tf.convert_to_tensor(of_whole).numpy()
    for number, (ids, values) in enumerate(of_parts):
        places = resource_of(divided).spread.ids_of_part(number)[ids.numpy()]
        np.testing.assert_allclose(values, expected[places], rtol=1e-6)


OPTIMIZERS: dict[str, Any] = {
    "adagrad": lambda: optimizers.SparseAdagrad(0.1, row_scale=0.01),
    "clipped": lambda: optimizers.SparseAdagrad(0.1, clipnorm=0.01),
    "adam": lambda: optimizers.SparseAdam(0.1, global_clipnorm=0.1),
    "sgd": lambda: optimizers.SparseSgd(0.1, momentum=0.9, nesterov=True),
    "ftrl": lambda: optimizers.SparseFtrl(0.5, l1=0.01, l2=0.1, penalize="linear", row_scale=0.5),
}


@pytest.mark.parametrize(
    "new_optimizer",
    [
        pytest.param(new_optimizer, id=name, marks=[] if name == "adagrad" else pytest.mark.slow)
        for name, new_optimizer in OPTIMIZERS.items()
    ],
)
def test_a_step_is_that_of_a_whole_table(new_optimizer: Any) -> None:
    pairs = [tables(TableStart(0.1, unseen=True)), tables(ZeroStart(), SIZE, 1)]
    for terms in pairs[1]:
        linear_terms(terms)
    states = []
    for place in range(2):
        table, terms = (pair[place] for pair in pairs)
        dense = keras.Variable([1.0, 2.0])
        optimizer: RowSparse = new_optimizer()
        if place:
            Servers([DEVICE] * 3, least_bytes=1).build(optimizer, [table, terms, dense])
        else:
            optimizer.build([table, terms, dense])
        optimizer.learn_at_share([(table, slice(1, 9)), (dense, slice(None))], 0.25)
        variables = [part for variable in (table, terms, dense) for part in parts_of(variable)]

        @tf.function
        def step(ids: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                vectors = read_rows(table, ids)  # noqa: B023
                loss = tf.reduce_sum((vectors - 1.0) ** 2) * tf.reduce_sum(dense.value)  # noqa: B023
                loss += tf.reduce_sum(read_rows(terms, ids) - vectors[:, :1] ** 2)  # noqa: B023
            gradients = tape.gradient(loss, [part.value for part in variables])  # noqa: B023
            optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))  # noqa: B023

        for ids in ([0, 1, 8, 9, 22], [1, 2, 20], [8, 3, 4, 5, 6, 7, 0]):
            step(tf.constant(ids))
        kept = whole_variables(optimizer, [table, terms, dense])
        states.append([*map(all_rows, (table, terms)), *(np.asarray(resource_of(slot).numpy()) for slot in kept)])
    assert len(states[0]) == len(states[1])
    for of_whole, of_parts in zip(*states, strict=True):
        assert of_whole.shape == of_parts.shape
        np.testing.assert_allclose(of_parts, of_whole, rtol=1e-6, atol=1e-7)


def test_rows_are_written_in_place() -> None:
    _, divided = tables(TableStart(0.1, unseen=True))
    expected = all_rows(divided)
    values = np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM)
    assign_rows(divided, slice(9, 13), values)
    expected[9:13] = values
    np.testing.assert_array_equal(all_rows(divided), expected)
    assign_rows(divided, slice(None), expected[::-1])
    np.testing.assert_array_equal(all_rows(divided), expected[::-1])


def multiplied_and_added(rows: Any, numbers: Any) -> Any:
    """Rows [n, 2] times the first number of each, plus its second: [n, 2]."""
    return rows * numbers[:, :1] + numbers[:, 1:]


@pytest.mark.parametrize("is_divided", [False, True])
def test_rows_are_updated_part_by_part(is_divided: bool) -> None:
    whole, table = tables(TableStart(0.1, unseen=True))
    table = table if is_divided else whole
    expected, ids = whole.numpy(), np.array([4, 0, 17, 22])
    gradient = np.arange(8, dtype=np.float32).reshape(4, 2)
    expected[ids] = expected[ids] * gradient[:, :1] + gradient[:, 1:]
    parts = rows_by_part(table, tf.IndexedSlices(tf.constant(gradient), tf.constant(ids)))
    assert len(parts) == (3 if is_divided else 1)
    for part, rows in parts:
        RowsOfTable(part, rows.ids).update(partial(multiplied_and_added, numbers=rows.values))
    np.testing.assert_allclose(all_rows(table), expected, rtol=1e-6)


def test_the_penalty_of_tables_and_its_gradient_are_those_of_the_parts() -> None:
    whole, divided = tables(TableStart(0.1, unseen=True))
    bias, weight = keras.Variable([3.0]), 0.5
    expected = weight / 2 * np.square(whole.numpy().astype(float)).sum()
    for table in (whole, divided):
        assert float(penalty_of_tables([table, bias], weight)) == pytest.approx(expected, rel=1e-5)
    for part in parts_of(divided):
        numbers = part.numpy()
        repeated = tf.IndexedSlices(tf.ones([2, DIM]), tf.constant([1, 1]))
        of_rows, of_numbers = numbers * weight, numbers * weight + 7
        of_rows[1] += 2
        np.testing.assert_allclose(with_decay(repeated, part, weight), of_rows, rtol=1e-6)
        np.testing.assert_allclose(with_decay(tf.fill(numbers.shape, 7.0), part, weight), of_numbers, rtol=1e-6)
        np.testing.assert_allclose(with_decay(None, part, weight), numbers * weight, rtol=1e-6)
    assert with_decay(repeated, bias, weight) is repeated


def test_curvatures_begin_the_same_whole_and_in_parts() -> None:
    whole, divided = tables(CurvatureStart(0.25))
    expected = np.repeat([[0.25] * (DIM - 1) + [1.0]], SIZE, axis=0)
    for table in (whole, divided):
        np.testing.assert_array_equal(all_rows(table), expected)
