"""Large variables, read and written a few rows at a time, so that no second copy of a table is made.

TensorFlow copies a variable whole to read it once it has had sparse updates, and again to give it to NumPy.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.custom_gradients import Tensor
from feat2vec.encode.arrays_on_disk import release_pages
from feat2vec.model.optimizers import is_by_row, resource_of
from feat2vec.model.optimizers.tables import Variable

BYTES_PER_PIECE = 4 << 20  # that are moved at a time
NUMBERS_PER_COUNT = 4  # normal numbers that Philox draws for each count
ALIGNMENT = 64  # of an array in a file, in bytes
MOST_BYTES_IN_MEMORY = 64 << 20  # of copies; those of more are in a file
_ASIDE: ContextVar[bool] = ContextVar("feat2vec_tables_aside", default=False)
_UNDRAWN: ContextVar[bool] = ContextVar("feat2vec_tables_undrawn", default=False)


# --- rows of variables ----------------------------------------------------------------------------------------------


def pieces(variable: Variable, piece: int = BYTES_PER_PIECE) -> Iterator[tuple[slice, Array]]:
    """Yield the rows of a variable in pieces of so many bytes, each to be read before the next; a small one is one."""
    resource = resource_of(variable)
    if resource.shape.rank == 0 or _bytes(resource) <= piece:
        yield slice(None), resource.numpy()
        return
    for rows in row_slices(resource.shape, resource.dtype.as_numpy_dtype, piece):
        values = resource.sparse_read(tf.range(rows.start, rows.stop))
        yield rows, np.asarray(memoryview(values))


def assign_rows(variable: Variable, rows: slice, values: Array) -> None:
    """Write some rows of a variable in place."""
    resource = resource_of(variable)
    tensor = tf.convert_to_tensor(np.asarray(values, resource.dtype.as_numpy_dtype))
    if rows == slice(None):
        resource.assign(tensor)
    else:
        resource.scatter_update(tf.IndexedSlices(tensor, tf.range(rows.start, rows.stop)))


def assign(variable: Variable, values: Array, piece: int = BYTES_PER_PIECE) -> None:
    """Write a whole variable; a table in place."""
    resource = resource_of(variable)
    if not is_by_row(variable) or _bytes(resource) <= piece:
        assign_rows(variable, slice(None), values)
        return
    for rows in row_slices(values.shape, values.dtype, piece):
        assign_rows(variable, rows, values[rows])
        release_pages(values)


def copy_to(variable: Variable, source: Variable, piece: int = BYTES_PER_PIECE) -> None:
    """Write another variable's numbers into one of its shape."""
    for rows, values in _whole_or_by_row(source, piece):
        assign_rows(variable, rows, values)


def copies(
    variables: Sequence[Variable],
    path: Path,
    piece: int = BYTES_PER_PIECE,
    most_in_memory: int = MOST_BYTES_IN_MEMORY,
) -> list[Array]:
    """An array of each variable's numbers; those of many are in a new file, where they take no memory.

    Args:
        variables: The variables.
        path: The file.
        piece: How many bytes are moved at a time.
        most_in_memory: How many bytes are not worth a file.

    """
    sizes = [-(-_bytes(resource_of(variable)) // ALIGNMENT) * ALIGNMENT for variable in variables]
    size = max(sum(sizes), 1)
    is_small = size <= most_in_memory
    memory = np.empty(size, np.uint8) if is_small else np.memmap(path, np.uint8, "w+", shape=(size,))
    arrays: list[Array] = []
    start = 0
    for variable, size in zip(variables, sizes, strict=True):
        shape, dtype = _kind(variable)
        numbers = memory[start : start + _bytes(resource_of(variable))].view(dtype)
        arrays.append(numbers.reshape(shape))
        start += size
    keep(variables, arrays, piece)
    return arrays


def keep(variables: Sequence[Variable], arrays: Sequence[Array], piece: int = BYTES_PER_PIECE) -> None:
    """Write each variable's numbers into its array."""
    for variable, array in zip(variables, arrays, strict=True):
        for rows, values in pieces(variable, piece):
            array[rows if array.ndim else ()] = values
            release_pages(array)


def pieces_of_array(array: Array, piece: int = BYTES_PER_PIECE) -> Iterator[Array]:
    """The rows of an array in pieces of so many bytes, each to be used before the next."""
    for rows in row_slices(array.shape, array.dtype, piece) if array.ndim else [()]:
        yield array[rows]
        release_pages(array)


class Kept:
    """The numbers of variables in a file, where they take no memory: written again whenever they are kept."""

    def __init__(self, path: Path, variables: Sequence[Variable], piece: int = BYTES_PER_PIECE) -> None:
        self.path, self.variables, self.piece = path, list(variables), piece
        self.full = False  # whether the file holds the numbers

    def keep(self) -> None:
        """Write what the variables hold now."""
        self.write(values for variable in self.variables for _, values in pieces(variable, self.piece))

    def write(self, numbers: Iterable[Array]) -> None:
        """Write all of the variables' numbers, in their order."""
        with self.path.open("wb") as file:
            for values in numbers:
                file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        self.full = True

    def put_back(self) -> None:
        """Write what was kept into the variables."""
        for variable, numbers in zip(self.variables, self.arrays(), strict=True):
            if not _bytes(resource_of(variable)):
                continue  # a level that no key reaches
            if is_by_row(variable) and _bytes(resource_of(variable)) > self.piece:
                for rows, values in zip(row_slices(*_kind(variable), self.piece), numbers, strict=True):
                    assign_rows(variable, rows, values)
            else:
                assign_rows(variable, slice(None), np.concatenate(list(numbers)).reshape(variable.shape))

    def arrays(self) -> Iterator[Iterator[Array]]:
        """For each variable its rows in pieces, to be read in this order; a small one is flat."""
        start = 0
        for variable in self.variables:
            yield self._rows(start, *_kind(variable))
            start += _bytes(resource_of(variable))

    def _rows(self, start: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Iterator[Array]:
        row = int(np.prod(shape[1:], dtype=np.int64))
        for rows in row_slices(shape, dtype, self.piece) if shape else [slice(0, 1)]:
            offset = start + rows.start * row * dtype.itemsize
            values = np.fromfile(self.path, dtype, (rows.stop - rows.start) * row, offset=offset)
            yield values.reshape(rows.stop - rows.start, *shape[1:])


def _kind(variable: Variable) -> tuple[tuple[int, ...], np.dtype[Any]]:
    resource = resource_of(variable)
    return tuple(resource.shape), np.dtype(resource.dtype.as_numpy_dtype)


def swap(variables: Sequence[Variable], arrays: Sequence[Array], piece: int = BYTES_PER_PIECE) -> None:
    """Exchange the numbers of variables and arrays."""
    for variable, array in zip(variables, arrays, strict=True):
        for rows, values in _whole_or_by_row(variable, piece):
            place = rows if array.ndim else ()
            assign_rows(variable, rows, np.array(array[place]))
            array[place] = values
            release_pages(array)


def swap_average(
    variables: Sequence[Variable], averages: Sequence[Array], share: float, piece: int = BYTES_PER_PIECE
) -> None:
    """Put averages + share * (variables - averages) into the variables, and what they held into the arrays."""
    for variable, average in zip(variables, averages, strict=True):
        for rows, values in _whole_or_by_row(variable, piece):
            place = rows if average.ndim else ()
            mean = share * (values - average[place])
            mean += average[place]
            assign_rows(variable, rows, mean)
            average[place] = values
            release_pages(average)


def _whole_or_by_row(variable: Variable, piece: int) -> Iterator[tuple[slice, Array]]:
    """A table in pieces, another variable whole: rows that are written one by one make each later read a copy."""
    if is_by_row(variable):
        yield from pieces(variable, piece)
    else:
        yield slice(None), resource_of(variable).numpy()


def discard(variable: Variable) -> None:
    """Give the memory of a variable back to the system, before it is deleted: its numbers are lost.

    TensorFlow keeps memory that is freed for tensors of its own, which nothing else can use.
    """
    resource = resource_of(variable)
    libc = ctypes.CDLL(None)
    if _bytes(resource) < BYTES_PER_PIECE or not hasattr(libc, "madvise"):
        return
    tf.raw_ops.DisableCopyOnRead(resource=resource.handle)
    tensor = resource.read_value()  # the variable's own memory, no copy
    numbers = np.asarray(memoryview(tensor))
    start = -(-numbers.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (numbers.ctypes.data + numbers.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
    libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def row_slices(shape: Sequence[int], dtype: npt.DTypeLike, piece: int = BYTES_PER_PIECE) -> Iterator[slice]:
    """Return slices of rows that hold at most `piece` bytes, or one row."""
    total = int(shape[0])
    row = int(np.prod(shape[1:], dtype=np.int64)) * np.dtype(dtype).itemsize
    step = max(piece // max(row, 1), 1)
    return (slice(at, min(at + step, total)) for at in range(0, total, step))


def _bytes(resource: tf.Variable) -> int:
    return int(np.prod(resource.shape, dtype=np.int64)) * int(resource.dtype.size)


# --- tensors that are made in pieces --------------------------------------------------------------------------------


def empty(shape: Sequence[int], dtype: tf.DType) -> tuple[Tensor, Array]:
    """A tensor that is not filled, and its memory as an array to fill it by, before anything else has the tensor.

    TensorFlow copies a variable at its first sparse read unless the memory is its own and nobody else's.
    """
    with tf.device("CPU:0"):
        tensor = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
    view = np.asarray(memoryview(tensor))  # may not be written to
    if not view.size:
        return tensor, np.empty(view.shape, view.dtype)
    memory = memoryview((ctypes.c_char * view.nbytes).from_address(view.ctypes.data)).cast("B")
    return tensor, np.ndarray(view.shape, view.dtype, buffer=memory)


class Undrawn(NamedTuple):
    """What a table begins with, in place of its numbers: any rows of it can be drawn alone, where they will be."""

    start: RowStart
    shape: tuple[int, ...]


class RowStart(keras.initializers.Initializer):
    """An initializer of tables, any rows of which can be drawn alone."""

    def __call__(self, shape: Sequence[int], dtype: tf.DType | str | None = None) -> Tensor:
        dtype = tf.as_dtype(dtype or keras.config.floatx())
        if _UNDRAWN.get() and dtype == tf.float32:
            return Undrawn(self, tuple(shape))
        return self.table(shape, dtype)

    def table(self, shape: Sequence[int], dtype: tf.DType) -> Tensor:
        """The numbers of a whole table."""
        raise NotImplementedError

    def rows(self, rows: slice, dim: int) -> Tensor:
        """Some rows of a float32 table, [rows, dim], on the device that operations are placed on."""
        raise NotImplementedError


class ZeroStart(RowStart):
    """Zeros."""

    def table(self, shape: Sequence[int], dtype: tf.DType) -> Tensor:
        return tf.zeros(shape, dtype)

    def rows(self, rows: slice, dim: int) -> Tensor:
        return tf.zeros([rows.stop - rows.start, dim])


@contextmanager
def undrawn_tables() -> Iterator[None]:
    """Within it the initializers of tables return `Undrawn`, which a variable creator makes a table of."""
    token = _UNDRAWN.set(True)
    try:
        yield
    finally:
        _UNDRAWN.reset(token)


class TableStart(RowStart):
    """`keras.initializers.RandomNormal`, number for number, drawn in pieces; with `unseen` the first row is zero.

    Philox draws by a counter, four normal numbers for each count, so that any piece can be drawn alone.
    """

    def __init__(self, stddev: float, unseen: bool, piece: int = BYTES_PER_PIECE) -> None:
        self.stddev, self.unseen, self.piece = stddev, unseen, piece
        self.seed = keras.initializers.RandomNormal().seed  # the next of Keras' own

    def table(self, shape: Sequence[int], dtype: tf.DType) -> Tensor:
        if _ASIDE.get():  # another's numbers will be written
            return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
        if dtype != tf.float32:  # whose draws come in other numbers for each count
            table = keras.initializers.RandomNormal(stddev=self.stddev, seed=self.seed)(shape, dtype)
            return table * tf.cast(tf.range(shape[0]) > 0, dtype)[:, None] if self.unseen else table
        tensor, table = empty(shape, dtype)
        flat = table.reshape(-1)
        for numbers in row_slices([len(flat)], flat.dtype, self.piece):
            flat[numbers] = self._numbers(numbers)
        if self.unseen:
            table[:1] *= 0
        return tensor

    def rows(self, rows: slice, dim: int) -> Tensor:
        first = rows.start * dim
        begin = first // NUMBERS_PER_COUNT * NUMBERS_PER_COUNT  # of a count
        drawn = self._numbers(slice(begin, rows.stop * dim))[first - begin :]
        drawn = tf.reshape(drawn, [rows.stop - rows.start, dim])
        if self.unseen and rows.start == 0:
            drawn *= tf.concat([[[0.0]], tf.ones([rows.stop - 1, 1])], axis=0)
        return drawn

    def _numbers(self, numbers: slice) -> Tensor:
        """Some of the table's numbers in a row; the first one begins a count."""
        with tf.device(None):  # rows may be drawn on another machine, but not this
            key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(
                seed=tf.cast(tf.constant([self.seed, 0], tf.uint32), tf.int32)
            )
        low, high = (int(word) for word in counter.numpy())
        at = (low + (high << 64) + numbers.start // NUMBERS_PER_COUNT) % (1 << 128)
        words = tf.constant(np.array([at % (1 << 64), at >> 64], np.uint64))
        drawn = tf.raw_ops.StatelessRandomNormalV2(
            shape=[numbers.stop - numbers.start], key=key, counter=words, alg=1, dtype=tf.float32
        )
        return drawn * self.stddev + 0.0


@contextmanager
def tables_aside() -> Iterator[None]:
    """Within it tables are made without numbers; Keras saves and loads models without them and without encoders."""
    token = _ASIDE.set(True)
    try:
        yield
    finally:
        _ASIDE.reset(token)


def are_aside() -> bool:
    """Whether tables, and the encoder, are kept out of what Keras does."""
    return _ASIDE.get()


def is_table(variable: Variable) -> bool:
    """Whether a variable is a table that is saved and loaded in pieces."""
    return is_by_row(variable) and variable.dtype == "float32"
