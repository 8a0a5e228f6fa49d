"""Arrays and Parquet files on disk: files that grow by rows, arrays read back once or memory-mapped, checked tables."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.arrays import Array
from feat2vec.writing.files import JsonObject

if TYPE_CHECKING:
    import pyarrow.parquet as pq


ROWS_PER_PIECE = 1 << 20  # rows of an array on disk that are read or written at once
ROWS_PER_BLOCK = 1 << 17  # rows of ids that are worked on at once, few enough to stay in the processor's cache
NPY_HEADER_BYTES = 128  # of a .npy file, all of which an empty array needs
LONGEST_FILE_NAME = 200  # characters; file systems take 255 bytes, suffixes included


class ArrayFile:
    """A .npy file that grows by rows.

    Args:
        path: The file. Its folder is created.
        dtype: The type of the numbers.
        width: The size of the second axis; None for an array of one axis.
        rows_per_piece: How many rows `pieces` reads at once.
        kept_rows: How many rows it begins with, of a file that a process has left that was killed.

    """

    def __init__(
        self,
        path: Path,
        dtype: npt.DTypeLike,
        width: int | None = None,
        rows_per_piece: int = ROWS_PER_PIECE,
        kept_rows: int = 0,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.dtype, self.width, self.rows = path, np.dtype(dtype), width, 0
        self.rows_per_piece = rows_per_piece
        if not kept_rows:
            self._write_header("wb")
            return
        self._write_header("r+b")
        with path.open("r+b") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            file.truncate(file.tell() + kept_rows * (width or 1) * self.dtype.itemsize)
        self.rows = kept_rows

    def append(self, rows: Array) -> None:
        """Add rows at the end. The file is closed again, so that an error leaves none open."""
        with self.path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def close(self) -> None:
        """Write the final shape."""
        self._write_header("r+b")

    def pieces(self, rows_per_piece: int | None = None) -> Iterator[Array]:
        """Read the rows in pieces. They are not memory-mapped, so that they leave memory again."""
        numbers_per_row = self.width or 1
        row_bytes = numbers_per_row * self.dtype.itemsize
        header_bytes = self.path.stat().st_size - self.rows * row_bytes
        step = rows_per_piece or self.rows_per_piece
        for first_row in range(0, self.rows, step):
            numbers = min(step, self.rows - first_row) * numbers_per_row
            piece = np.fromfile(self.path, self.dtype, numbers, offset=header_bytes + first_row * row_bytes)
            yield piece if self.width is None else piece.reshape(-1, self.width)

    def discard(self) -> None:
        """Remove the file."""
        self.path.unlink()

    def _write_header(self, mode: Literal["wb", "r+b"]) -> None:
        # NumPy leaves room for the first axis to grow, so the header keeps its length.
        shape = (self.rows,) if self.width is None else (self.rows, self.width)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        with self.path.open(mode) as file:
            np.lib.format.write_array_header_1_0(file, header)


class SpilledArray:
    """An array on disk until it is read, once. The file is removed then, so that the system may never write it.

    Its type and shape stay in memory: NumPy's parser of .npy headers is not safe in several threads of CPython 3.11.

    Args:
        array: The array.
        path: The file.
        stays: Whether the file stays, for a process that goes on if this one is killed.

    """

    def __init__(self, array: Array, path: Path, *, stays: bool = False) -> None:
        self.path, self.dtype, self.shape, self.stays = path, array.dtype, array.shape, stays
        array.tofile(path)

    def facts(self) -> JsonObject:
        """What `from_facts` needs to open the file of a process that was killed."""
        return {"file": self.path.name, "dtype": self.dtype.str, "shape": list(self.shape)}

    @classmethod
    def from_facts(cls, facts: JsonObject, folder: Path) -> SpilledArray:
        """The array that a process has left in a file."""
        spilled = cls.__new__(cls)
        spilled.path, spilled.dtype, spilled.stays = folder / facts["file"], np.dtype(facts["dtype"]), True
        spilled.shape = tuple(facts["shape"])
        return spilled

    def take(self) -> Array:
        """Read the array and remove the file."""
        array: Array = np.fromfile(self.path, self.dtype).reshape(self.shape)
        self._discard()
        return array

    def _discard(self) -> None:
        if not self.stays:
            self.path.unlink()

    def take_blocks(self, rows_per_block: int) -> Iterator[Array]:
        """Read the array in blocks of rows, then remove the file."""
        numbers_per_row = int(np.prod(self.shape[1:]))
        row_bytes = numbers_per_row * self.dtype.itemsize
        for first_row in range(0, self.shape[0], rows_per_block):
            numbers = min(rows_per_block, self.shape[0] - first_row) * numbers_per_row
            block = np.fromfile(self.path, self.dtype, numbers, offset=first_row * row_bytes)
            yield block.reshape(-1, *self.shape[1:])
        self._discard()


def open_array(path: Path, largest_read: int = NPY_HEADER_BYTES) -> Array:
    """Open a .npy file: a file of at most `largest_read` bytes is read, a larger one is memory-mapped.

    By default only empty arrays, which cannot be mapped, are read.
    """
    mode: Literal["r"] | None = "r" if path.stat().st_size > largest_read else None
    array: Array = np.load(path, mmap_mode=mode, allow_pickle=False)
    return array


def release_pages(array: Array) -> None:
    """Let the pages of a memory-mapped array that were read leave memory; other arrays are left as they are."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base._mmap is not None:  # type: ignore[attr-defined]
            base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            return
        base = base.base


def is_finite(array: Array, numbers_per_piece: int = ROWS_PER_PIECE) -> bool:
    """Whether all numbers of an array are finite; it is read in pieces, so that no copy of it is made."""
    flat = array.reshape(-1)
    starts = range(0, len(flat), numbers_per_piece)
    return all(bool(np.isfinite(flat[start : start + numbers_per_piece]).all()) for start in starts)


def file_name(group: str) -> str:
    """A group's name as the name of a file; a long name is cut and ends with its hash."""
    name = quote(group, safe=" ")
    if len(name) <= LONGEST_FILE_NAME:
        return name
    return f"{name[:160]}-{hashlib.sha256(group.encode()).hexdigest()[:32]}"


# A file may claim far more rows than it holds. Up to this many bytes that is harmless; beyond, a table may be this many
# times larger than its file.
HARMLESS_BYTES = 1 << 28
MOST_EXPANSION = 10_000


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table; its folder is created."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path.absolute())  # in any other path PyArrow takes a `~` for the home folder


def read_parquet(path: Path, expected: pa.Schema | None = None) -> pa.Table:
    """Read a table that `write_parquet` wrote; with `expected`, a table of exactly these columns.

    Raises:
        ValueError: If it has other columns, or claims far more rows than a file of its size can hold.
        pa.ArrowException: If the file's offsets or lengths are not valid.

    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path.absolute()) as file:
        if expected is not None:
            _check_columns_and_size(path, file, expected)
        table = file.read()
    table.validate(full=True)
    return table


def _check_columns_and_size(path: Path, file: pq.ParquetFile, expected: pa.Schema) -> None:
    columns = file.schema_arrow
    if columns.names != expected.names or columns.types != expected.types:
        raise ValueError(f"{path.name} has other columns than {', '.join(expected.names)}, or of other types")
    rows = file.metadata.num_rows
    size = rows * sum(_least_bytes(column_type) for column_type in expected.types)
    if size > HARMLESS_BYTES and size > MOST_EXPANSION * path.stat().st_size:
        raise ValueError(f"{path.name} says that it has {rows:,} rows, more than fit in it")


def _least_bytes(column_type: pa.DataType) -> int:
    """The least number of bytes that a value of this type takes."""
    if pa.types.is_fixed_size_list(column_type):
        return int(column_type.list_size) * _least_bytes(column_type.value_type)
    return 4 if pa.types.is_string(column_type) else int(column_type.bit_width) // 8
