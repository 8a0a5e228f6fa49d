"""A group's distinct entries, and which of them each row has; arrays that are larger than memory stay on disk."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.encode.vocabulary import Counts, read_parquet

Array = npt.NDArray[Any]
CHUNK = 1 << 20
EMPTY = 128  # bytes of a .npy file without numbers
READ = 1 << 14  # bytes of a group's file that is read: one that is mapped is open for as long as its array is there
BLOCK = 1 << 17  # numbers that stay in a cache
WIDEST = 8  # 64-bit words of an entry that DuckDB sorts as columns; wider entries are sorted as one blob


class ArrayFile:
    """A .npy file that grows by rows."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, width: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.dtype, self.width, self.rows = path, np.dtype(dtype), width, 0
        self._header("wb")

    def close(self) -> None:
        """Write the final shape."""
        self._header("r+b")

    def append(self, rows: Array) -> None:
        """Add rows at the end; the file is open no longer than that, so that an error leaves none open."""
        with self.path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def pieces(self, rows: int | None = None) -> Iterator[Array]:
        """The rows in pieces: read, not mapped, so that they leave memory again."""
        start = self.path.stat().st_size - self.rows * self.dtype.itemsize * (self.width or 1)
        step = rows or CHUNK
        for at in range(0, self.rows, step):
            count, offset = min(step, self.rows - at) * (self.width or 1), at * self.dtype.itemsize * (self.width or 1)
            piece = np.fromfile(self.path, self.dtype, count, offset=start + offset)
            yield piece if self.width is None else piece.reshape(-1, self.width)

    def _header(self, mode: Literal["wb", "r+b"]) -> None:
        # numpy leaves room for the first axis to grow, so that the header keeps its length
        shape = (self.rows,) if self.width is None else (self.rows, self.width)
        facts = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        with self.path.open(mode) as file:
            np.lib.format.write_array_header_1_0(file, facts)


def open_array(path: Path, most_read: int = EMPTY) -> Array:
    """A .npy file, memory-mapped unless it has at most `most_read` bytes: by default, unless it is empty."""
    mode: Literal["r"] | None = "r" if path.stat().st_size > most_read else None
    array: Array = np.load(path, mmap_mode=mode, allow_pickle=False)
    return array


def forget(array: Array) -> None:
    """Let what was read of a memory-mapped array leave memory; other arrays stay."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base._mmap is not None:  # type: ignore[attr-defined]
            base._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
            return
        base = base.base


class Spilled:
    """An array on disk until it is read, once: what is read soon the system never has to write.

    Its type and shape stay in memory, as parsing .npy headers in several threads fails now and then in CPython 3.11.
    """

    def __init__(self, array: Array, path: Path) -> None:
        self.path, self.dtype, self.shape = path, array.dtype, array.shape
        array.tofile(path)

    def take(self) -> Array:
        """Read the array and remove the file."""
        array: Array = np.fromfile(self.path, self.dtype).reshape(self.shape)
        self.path.unlink()
        return array

    def blocks(self, rows: int) -> Iterator[Array]:
        """`take` in blocks of rows."""
        row = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        for at in range(0, self.shape[0], rows):
            count = min(rows, self.shape[0] - at) * row // self.dtype.itemsize
            yield np.fromfile(self.path, self.dtype, count, offset=at * row).reshape(-1, *self.shape[1:])
        self.path.unlink()


@dataclass(frozen=True)
class Values:
    """The distinct entries of a group, [values, width], and how many training rows have each."""

    entries: Array
    counts: Counts


class Packing:
    """Entries as 64-bit words, so that DuckDB sorts few columns: `bits` are enough for each number of an entry."""

    def __init__(self, dtype: npt.DTypeLike, width: int, bits: int) -> None:
        self.dtype, self.width, self.bits = np.dtype(dtype), width, bits
        self.in_a_word = 64 // bits
        self.words = -(-width // self.in_a_word)

    def pack(self, entries: Array) -> Array:
        """[rows, width] to [words, rows]."""
        words = np.zeros((self.words, len(entries)), np.uint64)
        for word, shift, column in self._places(entries.view(np.uint32)):
            words[word] |= column.astype(np.uint64) << shift
        return words

    def unpack(self, words: Array) -> Array:
        """[words, rows] to [rows, width]."""
        entries = np.empty((words.shape[1], self.width), np.uint32)
        mask = np.uint64((1 << self.bits) - 1)
        for word, shift, column in self._places(entries):
            column[:] = (words[word] >> shift) & mask
        return entries.view(self.dtype)

    def _places(self, entries: Array) -> Iterator[tuple[int, np.uint64, Array]]:
        for i in range(self.width):
            yield i // self.in_a_word, np.uint64(self.bits * (i % self.in_a_word)), entries[:, i]


Feed = Iterable[tuple[Array, Array]]  # row numbers [some], entries [some, width]


def number_entries(
    connection: duckdb.DuckDBPyConnection,
    feed: Feed,
    packing: Packing,
    new: ArrayFile,
    ids: Array,
    counts: ArrayFile | None = None,
    known: int = 0,
) -> None:
    """Number the distinct entries of a feed: its rows below `known` are distinct values and keep their numbers.

    `ids[row - known]` receives the number of each other row, `new` the entries that are not known, in their order.
    `counts` receives how many rows have each entry; it is for feeds of which nothing is known.
    """
    total, run = known, 0  # of the run of equal entries that is open: its length so far,
    last, number_of_last = np.zeros((packing.words, 0), np.uint64), -1  # its words and its number
    for rows, words in _sorted(connection, feed, packing, len(ids) + known, by_row=known > 0):
        starts = np.ones(len(rows), np.bool_)
        starts[1:] = _differ(words[:, 1:], words[:, :-1])
        starts[:1] = _differ(words[:, :1], last) if last.size else True
        first = np.flatnonzero(starts)
        fresh = rows[first] >= known
        number = np.where(fresh, total + np.cumsum(fresh) - 1, rows[first])
        numbers = np.append(number_of_last, number)[np.cumsum(starts)]
        other = rows >= known
        ids[rows[other] - known] = numbers[other]
        new.append(packing.unpack(words[:, first[fresh]]))
        if counts is not None:
            ends = np.append(first, len(rows))
            lengths = np.diff(ends, prepend=0)
            lengths[0] += run
            counts.append(lengths[: len(first)][int(total == 0) :])
            run = int(lengths[-1])
        total += int(fresh.sum())
        last, number_of_last = words[:, -1:].copy(), int(numbers[-1])
    if counts is not None and total:
        counts.append(np.array([run]))


def _differ(some: Array, others: Array) -> Array:
    """Which columns of [words, rows] differ."""
    differ: Array = np.logical_or.reduce([a != b for a, b in zip(some, others, strict=True)])
    return differ


def _sorted(
    connection: duckdb.DuckDBPyConnection, feed: Feed, packing: Packing, total: int, *, by_row: bool
) -> Iterator[tuple[Array, Array]]:
    """Row numbers and packed entries in the order of the words; DuckDB sorts, and spills to disk."""
    names = [f"w{i}" for i in range(packing.words)] if packing.words <= WIDEST else ["entry"]
    row_type = pa.int32() if total < 2**31 else pa.int64()

    def batch(rows: Array, entries: Array) -> pa.RecordBatch:
        words = packing.pack(entries)
        if packing.words <= WIDEST:
            columns = [pa.array(column) for column in words]
        else:
            blobs = [None, pa.py_buffer(np.ascontiguousarray(words.T))]
            columns = [pa.FixedSizeBinaryArray.from_buffers(pa.binary(packing.words * 8), len(rows), blobs)]
        return pa.record_batch([*columns, pa.array(rows).cast(row_type)], names=[*names, "row"])

    empty = batch(np.zeros(0, np.int64), np.zeros((0, packing.width), packing.dtype))
    reader = pa.RecordBatchReader.from_batches(empty.schema, _ahead(batch(*piece) for piece in feed))
    cursor = connection.cursor()
    cursor.register("feed", reader)
    order = [*names, "row"] if by_row else names
    for piece in pa.RecordBatchReader.from_stream(
        cursor.sql(f"select {', '.join(names)}, row from feed order by {', '.join(order)}")
    ):
        if piece.num_rows:
            yield piece.column("row").to_numpy(), _words(piece, names)
    cursor.unregister("feed")


def _ahead(items: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The items, the next one made while DuckDB works on the last one."""
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(next, items, None)
        while (item := made.result()) is not None:
            made = pool.submit(next, items, None)
            yield item


def _words(piece: pa.RecordBatch, names: list[str]) -> Array:
    """A sorted batch's entries, [words, rows]."""
    if names != ["entry"]:
        return np.stack([piece.column(name).to_numpy() for name in names])
    column = piece.column("entry").cast(pa.large_binary())
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    flat = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return flat.reshape(len(column), -1).view(np.uint64).T


# --- files ----------------------------------------------------------------------------------------------------------


def file_name(group: str) -> str:
    """A group's name as a file's name; a long one ends with its hash, as file systems take 255 bytes."""
    name = quote(group, safe=" ")
    return name if len(name) <= 200 else f"{name[:160]}-{hashlib.sha256(group.encode()).hexdigest()[:32]}"


def open_values(folder: Path, group: str) -> Values:
    """A group's values in the folder of encoded rows."""
    entries, counts = (open_array(folder / part / f"{file_name(group)}.npy", READ) for part in ("values", "counts"))
    return Values(entries, counts)


def write_values(values: Values, path: Path) -> None:
    """Write values as Parquet."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    width = values.entries.shape[1]
    item = pa.from_numpy_dtype(values.entries.dtype)
    schema = pa.schema({"entry": pa.list_(item, width), "count": pa.int64()})
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, max(len(values.entries), 1), CHUNK):
            entries = np.asarray(values.entries[start : start + CHUNK])
            flat = pa.FixedSizeListArray.from_arrays(pa.array(entries.reshape(-1), item), width)
            counts = pa.array(values.counts[start : start + CHUNK])
            writer.write_table(pa.table([flat, counts], schema=schema))


def read_values(path: Path, dtype: npt.DTypeLike, width: int) -> Values:
    """Read values from Parquet."""
    kind = pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), width)
    table = read_parquet(path, pa.schema({"entry": kind, "count": pa.int64()}))
    if table["entry"].null_count or table["count"].null_count:
        raise ValueError(f"{path.name} lacks entries or counts")
    flat = [chunk.flatten().to_numpy() for chunk in table["entry"].chunks]
    entries = np.concatenate(flat or [np.zeros(0, dtype)]).reshape(-1, width)
    counts = table["count"].to_numpy()
    if counts.size and counts.min() < 0:
        raise ValueError(f"{path.name} has counts below 0")
    return Values(entries, counts)


def is_finite(array: Array) -> bool:
    """Whether all of an array's numbers are finite; looked at in blocks, without a copy of it."""
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[at : at + CHUNK]).all()) for at in range(0, len(flat), CHUNK))
