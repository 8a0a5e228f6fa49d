"""Variables in pieces: the same numbers as whole, and no second copy of a table."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from feat2vec.model.large_variables import (
    Kept,
    TableStart,
    assign,
    assign_rows,
    copies,
    copy_to,
    discard,
    empty,
    keep,
    pieces,
    swap,
    swap_average,
    tables_aside,
)
from feat2vec.model.optimizers import by_row, resource_of
from feat2vec.training.memory_estimate import resident_memory
from tests.child_memory import peak_growth_mb

SHAPES: list[tuple[int, ...]] = [(), (5,), (100, 7), (3, 4, 5), (0, 7), (1000, 3)]


def variables(seed: int) -> list[Any]:
    """A number, a table that has had sparse updates, and others."""
    rng = np.random.default_rng(seed)
    made = [keras.Variable(rng.normal(size=shape).astype(np.float32)) for shape in SHAPES]
    by_row(made[-1])
    made[-1].value.scatter_update(tf.IndexedSlices(tf.ones([1, 3]), [2]))
    return made


PIECE = 256  # bytes: small, so that tables are in several


def test_pieces_put_together_are_the_variable() -> None:
    for variable in variables(0):
        array = np.full(variable.shape, np.nan, np.float32)
        count = 0
        for rows, values in pieces(variable, PIECE):
            array[rows if array.ndim else ()] = values
            count += 1
        np.testing.assert_array_equal(array, variable.numpy())
        assert count == 1 or array.nbytes > 256


@pytest.mark.parametrize("most_in_memory", [0, 1 << 20])
def test_variables_are_kept_written_and_exchanged(most_in_memory: int, tmp_path: Path) -> None:
    some, others = variables(0), variables(1)
    first, second = ([variable.numpy() for variable in each] for each in (some, others))
    kept = copies(some, tmp_path / "kept", PIECE, most_in_memory)
    assert (tmp_path / "kept").exists() == (most_in_memory == 0)
    swap(others, kept, PIECE)
    for variable, array, a, b in zip(others, kept, first, second, strict=True):
        np.testing.assert_array_equal(variable.numpy(), a)
        np.testing.assert_array_equal(array, b)
    memory = [array.ctypes.data for array in kept]
    keep(some, kept, PIECE)
    for variable, array, a, b in zip(some, kept, first, second, strict=True):
        np.testing.assert_array_equal(array, a)
        assign(variable, b, PIECE)
        np.testing.assert_array_equal(variable.numpy(), b)
    for target, source in zip(some, others, strict=True):
        copy_to(target, source, PIECE)
        np.testing.assert_array_equal(target.numpy(), source.numpy())
    assert memory == [array.ctypes.data for array in kept]  # in place


def test_an_average_goes_into_the_variables_and_they_go_aside() -> None:
    some = variables(0)
    now, average = [variable.numpy() for variable in some], [variable.numpy() for variable in variables(1)]
    expected = [a + 0.3 * (w - a) for w, a in zip(now, average, strict=True)]
    aside = [np.array(array) for array in average]
    swap_average(some, aside, 0.3, PIECE)
    for variable, array, mean, before in zip(some, aside, expected, now, strict=True):
        assert variable.numpy().tobytes() == np.float32(mean).tobytes()
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("unseen", [True, False])
def test_a_table_begins_as_keras_would_draw_it(unseen: bool, dtype: str) -> None:
    for seed, shape in ((0, (1001, 7)), (1, (1, 5)), (2, (0, 5)), (3, (64, 4))):
        keras.utils.set_random_seed(seed)
        expected = keras.initializers.RandomNormal(stddev=0.1)(shape, dtype).numpy()
        expected[:1] *= 0 if unseen else 1
        keras.utils.set_random_seed(seed)
        assert TableStart(0.1, unseen, PIECE)(shape, dtype).numpy().tobytes() == expected.tobytes()


def test_counters_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    key = tf.constant([3], tf.uint64)
    counter = tf.constant([2**64 - 20, 2**64 - 1], tf.uint64)
    monkeypatch.setattr(tf.raw_ops, "StatelessRandomGetKeyCounter", lambda **_: (key, counter))
    whole = tf.raw_ops.StatelessRandomNormalV2(shape=[500, 4], key=key, counter=counter, alg=1, dtype=tf.float32)
    np.testing.assert_array_equal(TableStart(1.0, False, PIECE)((500, 4), "float32"), whole)


def test_a_tensor_is_filled_where_it_is() -> None:
    for shape in SHAPES:
        tensor, array = empty(shape, "float32")
        array[...] = 2.5
        np.testing.assert_array_equal(tensor, np.full(shape, 2.5, np.float32))


def test_tables_aside_hold_no_numbers() -> None:
    with tables_aside():
        assert TableStart(0.1, True)((10, 3), "float32").shape == (10, 3)
    assert np.count_nonzero(TableStart(0.1, True)((10, 3), "float32")[1:]) == 27


def test_what_is_kept_is_never_copied_whole(tmp_path: Path) -> None:
    piece = 1 << 18
    table = by_row(keras.Variable(np.zeros((100_000, 16), np.float32)))  # 6.4 MB
    assign_rows(table, slice(0, 1), np.ones((1, 16), np.float32))
    kept = copies([table], tmp_path / "kept", piece, most_in_memory=0)
    tracemalloc.start()
    keep([table], kept, piece)
    swap([table], kept, piece)
    swap_average([table], kept, 0.5, piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 << 20


@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_what_is_kept_in_a_file_is_put_back(piece: int, tmp_path: Path) -> None:
    before = [np.arange(70, dtype=np.float32).reshape(10, 7), np.zeros((0, 3), np.float32), np.float32(5), np.ones(9)]
    variables = [by_row(keras.Variable(array)) for array in before[:2]] + [
        keras.Variable(array) for array in before[2:]
    ]
    kept = Kept(tmp_path / "best", variables, piece)
    kept.keep()
    for variable in variables:
        variable.assign(np.full(variable.shape, -1.0))
    kept.put_back()
    for variable, array in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), array)


EXCHANGE_A_TABLE = """
from pathlib import Path
import keras, numpy as np, tensorflow as tf
from feat2vec.model import large_variables as pieces
from feat2vec.model.optimizers import by_row, SparseAdagrad

def work(size):
    table = by_row(keras.Variable(initializer=pieces.TableStart(0.1, True), shape=(size, 64), dtype="float32"))
    optimizer = SparseAdagrad(0.1)
    optimizer.build([table])
    for variable in (table, optimizer._accumulators[0]):
        pieces.assign_rows(variable, slice(0, 1), np.ones((1, 64), np.float32))
    kept = pieces.copies([table], Path("kept"))
    pieces.swap_average([table], kept, 0.5)
    pieces.swap([table], kept)
    pieces.assign(table, kept[0])
    tf.gather(table.value, [0])
    for _, values in pieces.pieces(table):
        values.sum()
"""


@pytest.mark.slow
def test_a_table_and_its_slot_take_twice_its_memory_and_its_copy_none(tmp_path: Path) -> None:
    assert 2 * 244 - 40 < peak_growth_mb(EXCHANGE_A_TABLE, 1000, 1_000_000, tmp_path) < 2 * 244 + 120  # MB


def test_resources() -> None:
    variable = keras.Variable(np.ones(3, np.float32))
    assert resource_of(variable) is variable.value
    assert resource_of(variable.value) is variable.value


def test_memory_of_a_variable_goes_back_to_the_system() -> None:
    variable = keras.Variable(np.ones((20, 1 << 20), np.float32))
    small = keras.Variable(np.ones((2, 3), np.float32))
    assign_rows(variable, slice(3, 5), np.full((2, 1 << 20), 7, np.float32))  # it reads by copies now
    before = resident_memory()
    for discarded in (variable, small):
        discard(discarded)
    assert resident_memory() < before - (60 << 20)  # of 80
    np.testing.assert_array_equal(small.numpy(), 1)
    assign_rows(variable, slice(0, 1), np.full((1, 1 << 20), 5, np.float32))
    assert float(variable.value[0, 0]) == 5
