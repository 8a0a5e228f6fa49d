"""A table that stays in a model's file: rows are read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from feat2vec.arrays import Array, Float32s, Integers
from feat2vec.model.coarse_table import CoarseRows, CoarseTable
from feat2vec.model.weights_file import ModelFile, StoredArrays, damage_as_user_error

LEAST_STORED_BYTES = 64 << 20  # of a table that stays in its file; a smaller one is read at once
BYTES_PER_BLOCK = 16 << 20  # of rows that are read at a time where all of them pass


def stays_in_file(numbers: int) -> bool:
    """Whether tables of so many numbers stay in their file."""
    return np.dtype(np.float32).itemsize * numbers >= LEAST_STORED_BYTES


class StoredTable:
    """Rows of a table in a file, read by `table[rows]` as from an array; `np.asarray(table)` reads all of them.

    Args:
        file: The model's file, open.
        arrays: The arrays of the table's layer.
        name: The name of the table among them.
        shape: The shape of the whole table.
        first: The first row of the table that counts.
        gain: The factor of its numbers.
        coarse: The coarse copy of the whole table, if there is one.

    """

    def __init__(
        self,
        file: ModelFile,
        arrays: StoredArrays,
        name: str,
        shape: Sequence[int],
        first: int = 0,
        gain: float = 1.0,
        coarse: CoarseTable | None = None,
    ) -> None:
        self.gain, self.coarse = np.float32(gain), coarse
        self.file, self.arrays, self.name, self.whole_shape, self.first = file, arrays, name, tuple(shape), first
        self.shape = (self.whole_shape[0] - first, *self.whole_shape[1:])
        self.dtype, self.nbytes = np.dtype(np.float32), int(np.prod(self.shape)) * 4

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | Integers) -> Float32s:
        """Consecutive rows [rows, dim], or those of some numbers of any shape [..., dim]; -1 is the last row."""
        with damage_as_user_error(self.file.path):
            if isinstance(rows, slice):
                start, stop, step = rows.indices(len(self))
                of_file = slice(start + self.first, max(stop, start) + self.first)
                return self._with_gain(self.arrays.table_part(self.name, self.whole_shape, of_file)[::step])
            wanted = np.where(rows < 0, rows + len(self), rows) + self.first
            numbers, places = np.unique(wanted, return_inverse=True)
            rows_of_file = self.arrays.table_rows(self.name, self.whole_shape, numbers.astype(np.int32))
            distinct = self._with_gain(rows_of_file)
            return np.asarray(distinct[places.reshape(wanted.shape)])

    def _with_gain(self, rows: Float32s) -> Float32s:
        return rows if self.gain == 1 else rows * self.gain

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        del dtype, copy
        array: Array = np.empty(self.shape, np.float32)
        for rows, values in self.blocks():
            array[rows] = values
        return array

    def without_first(self, rows: int, gain: float = 1.0) -> StoredTable:
        """The table without its first rows, its numbers times a factor."""
        first = self.first + rows
        gain = float(self.gain) * gain
        return StoredTable(self.file, self.arrays, self.name, self.whole_shape, first, gain, self.coarse)

    def coarse_blocks(self) -> Iterator[CoarseRows] | None:
        """The coarse copy, a block at a time, None without one."""
        return None if self.coarse is None else self.coarse.blocks(self.first, float(self.gain))

    def blocks(self, bytes_per_block: int = BYTES_PER_BLOCK) -> Iterator[tuple[slice, Float32s]]:
        """All rows, a block at a time."""
        rows_per_block = max(bytes_per_block * len(self) // max(self.nbytes, 1), 1)
        for start in range(0, len(self), rows_per_block):
            rows = slice(start, min(start + rows_per_block, len(self)))
            yield rows, self[rows]


def rows_of_file(table: Float32s | StoredTable) -> int | None:
    """How many rows of a table that stays in its file are read at a time; None for one in memory."""
    if not isinstance(table, StoredTable):
        return None
    return max(BYTES_PER_BLOCK * len(table) // max(table.nbytes, 1), 1)


def squares_of(table: Float32s | StoredTable) -> Float32s:
    """|v|^2 of each row v of a table, [rows]."""
    if not isinstance(table, StoredTable):
        squares: Float32s = np.einsum("ij,ij->i", table, table)
        return squares
    squares = np.empty(len(table), np.float32)
    for rows, vectors in table.blocks():
        squares[rows] = np.einsum("ij,ij->i", vectors, vectors)
    return squares
