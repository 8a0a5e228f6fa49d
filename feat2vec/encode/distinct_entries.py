"""The distinct entries of a group: they are sorted, so that equal ones stand together, and numbered.

DuckDB sorts, and spills to disk. `Values` are the distinct entries of the training rows with their counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.encode.array_files import ROWS_PER_PIECE, Array, ArrayFile, file_name, open_array
from feat2vec.encode.parquet_files import read_parquet
from feat2vec.encode.vocabulary import Counts

MOST_WORD_COLUMNS = 8  # 64-bit words of an entry that DuckDB sorts as columns; wider entries are sorted as one blob
LARGEST_READ = 1 << 14  # bytes of a group's array that is read: a mapped file is open for as long as its array is there

Words = npt.NDArray[np.uint64]
EntryFeed = Iterable[tuple[npt.NDArray[np.intp], Array]]  # row numbers [rows], their entries [rows, width]


@dataclass(frozen=True)
class Values:
    """The distinct entries of a group, [values, width], and how many training rows have each, [values]."""

    entries: Array
    counts: Counts


class Packing:
    """Entries as 64-bit words, so that DuckDB sorts few columns.

    Args:
        dtype: The type of an entry's numbers, of 32 bits.
        width: Numbers in an entry.
        bits: Enough bits for each number.

    """

    def __init__(self, dtype: npt.DTypeLike, width: int, bits: int) -> None:
        self.dtype, self.width, self.bits = np.dtype(dtype), width, bits
        self.numbers_per_word = 64 // bits
        self.words = -(-width // self.numbers_per_word)

    def pack(self, entries: Array) -> Words:
        """[rows, width] to [words, rows]."""
        words = np.zeros((self.words, len(entries)), np.uint64)
        for word, shift, numbers in self._places(entries.view(np.uint32)):
            words[word] |= numbers.astype(np.uint64) << shift
        return words

    def unpack(self, words: Words) -> Array:
        """[words, rows] to [rows, width]."""
        entries = np.empty((words.shape[1], self.width), np.uint32)
        mask = np.uint64((1 << self.bits) - 1)
        for word, shift, numbers in self._places(entries):
            numbers[:] = (words[word] >> shift) & mask
        return entries.view(self.dtype)

    def _places(self, entries: Array) -> Iterator[tuple[int, np.uint64, Array]]:
        """For each number of an entry: its word, its first bit in it, and the column of `entries`."""
        for i in range(self.width):
            word, place = divmod(i, self.numbers_per_word)
            yield word, np.uint64(self.bits * place), entries[:, i]


class EntryNumbering:
    """Numbers the distinct entries of sorted pieces; a run of equal entries may go on in the next piece.

    Entries of rows below `known` are distinct and keep their row as their number; every other distinct entry is new.

    Args:
        packing: How the entries are packed.
        new_entries: Receives the new entries, in the order of their numbers.
        counts: Receives how many rows have each entry; None if some entries are known.
        known: How many entries are known.

    """

    def __init__(self, packing: Packing, new_entries: ArrayFile, counts: ArrayFile | None, known: int) -> None:
        self.packing, self.new_entries, self.counts, self.known = packing, new_entries, counts, known
        self.total = known  # numbers given so far
        # the run of equal entries at the end of the last piece:
        self.run_words: Words = np.zeros((packing.words, 0), np.uint64)
        self.run_number = -1
        self.run_length = 0

    def add(self, rows: Array, words: Words) -> Array:
        """The number of each row of a piece, whose entries are sorted: [rows]."""
        starts_run = np.ones(len(rows), np.bool_)
        starts_run[1:] = _columns_differ(words[:, 1:], words[:, :-1])
        if self.run_words.size:
            starts_run[:1] = _columns_differ(words[:, :1], self.run_words)
        first_of_run = np.flatnonzero(starts_run)
        is_new = rows[first_of_run] >= self.known
        number_of_run = np.where(is_new, self.total + np.cumsum(is_new) - 1, rows[first_of_run])
        numbers: Array = np.append(self.run_number, number_of_run)[np.cumsum(starts_run)]
        self.new_entries.append(self.packing.unpack(words[:, first_of_run[is_new]]))
        self._count(first_of_run, len(rows))
        self.total += int(is_new.sum())
        self.run_words, self.run_number = words[:, -1:].copy(), int(numbers[-1])
        return numbers

    def _count(self, first_of_run: Array, rows: int) -> None:
        """Append the lengths of the runs that have ended: the last of a piece may go on."""
        if self.counts is None:
            return
        lengths = np.diff(np.append(first_of_run, rows), prepend=0)  # the first is what the open run gains
        lengths[0] += self.run_length
        has_open_run = self.total > 0
        ended = lengths[: len(first_of_run)]
        self.counts.append(ended if has_open_run else ended[1:])
        self.run_length = int(lengths[-1])

    def finish(self) -> None:
        """Append the length of the last run."""
        if self.counts is not None and self.total:
            self.counts.append(np.array([self.run_length]))


def number_entries(
    connection: duckdb.DuckDBPyConnection,
    feed: EntryFeed,
    packing: Packing,
    new_entries: ArrayFile,
    ids: Array,
    counts: ArrayFile | None = None,
    known: int = 0,
) -> None:
    """Number the distinct entries of a feed.

    Args:
        connection: DuckDB.
        feed: Row numbers and entries. Rows below `known` are distinct and keep their numbers.
        packing: How the entries are packed.
        new_entries: Receives the distinct entries that are not known.
        ids: Receives the number of the entry of row `known + i` at place i.
        counts: Receives how many rows have each entry; only for feeds of which nothing is known.
        known: How many entries are known.

    """
    numbering = EntryNumbering(packing, new_entries, counts, known)
    sorted_pieces = _sorted_by_entry(connection, feed, packing, len(ids) + known, then_by_row=known > 0)
    for rows, words in sorted_pieces:
        numbers = numbering.add(rows, words)
        is_unknown_row = rows >= known
        ids[rows[is_unknown_row] - known] = numbers[is_unknown_row]
    numbering.finish()


def _columns_differ(words: Words, other_words: Words) -> npt.NDArray[np.bool_]:
    """Which columns of two arrays [words, rows] differ: [rows]."""
    differ: npt.NDArray[np.bool_] = np.logical_or.reduce([a != b for a, b in zip(words, other_words, strict=True)])
    return differ


def _sorted_by_entry(
    connection: duckdb.DuckDBPyConnection, feed: EntryFeed, packing: Packing, total_rows: int, *, then_by_row: bool
) -> Iterator[tuple[Array, Words]]:
    """Row numbers [rows] and packed entries [words, rows], in the order of the entries."""
    word_names = [f"w{i}" for i in range(packing.words)] if packing.words <= MOST_WORD_COLUMNS else ["entry"]
    row_type = pa.int32() if total_rows < 2**31 else pa.int64()

    def record_batch(rows: Array, entries: Array) -> pa.RecordBatch:
        words = packing.pack(entries)
        if packing.words <= MOST_WORD_COLUMNS:
            columns = [pa.array(column) for column in words]
        else:
            buffers = [None, pa.py_buffer(np.ascontiguousarray(words.T))]
            columns = [pa.FixedSizeBinaryArray.from_buffers(pa.binary(packing.words * 8), len(rows), buffers)]
        return pa.record_batch([*columns, pa.array(rows).cast(row_type)], names=[*word_names, "row"])

    empty = record_batch(np.zeros(0, np.int64), np.zeros((0, packing.width), packing.dtype))
    record_batches = _prefetched(record_batch(rows, entries) for rows, entries in feed)
    cursor = connection.cursor()
    cursor.register("feed", pa.RecordBatchReader.from_batches(empty.schema, record_batches))
    order = [*word_names, "row"] if then_by_row else word_names
    result = cursor.sql(f"select {', '.join(word_names)}, row from feed order by {', '.join(order)}")
    for piece in pa.RecordBatchReader.from_stream(result):
        if piece.num_rows:
            yield piece.column("row").to_numpy(), _words_of(piece, word_names)
    cursor.unregister("feed")


def _prefetched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches; the next one is made while DuckDB works on the last one."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, batches, None)
        while (batch := future.result()) is not None:
            future = pool.submit(next, batches, None)
            yield batch


def _words_of(piece: pa.RecordBatch, word_names: list[str]) -> Words:
    """The packed entries of a sorted piece, [words, rows]."""
    if word_names != ["entry"]:
        return np.stack([piece.column(name).to_numpy() for name in word_names])
    blobs = piece.column("entry").cast(pa.large_binary())
    offsets = np.frombuffer(blobs.buffers()[1], np.int64)[blobs.offset : blobs.offset + len(blobs) + 1]
    flat = np.frombuffer(blobs.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return flat.reshape(len(blobs), -1).view(np.uint64).T


# --- files ----------------------------------------------------------------------------------------------------------


def open_values(folder: Path, group: str) -> Values:
    """A group's values in the folder of encoded rows."""
    name = f"{file_name(group)}.npy"
    entries = open_array(folder / "values" / name, LARGEST_READ)
    counts = open_array(folder / "counts" / name, LARGEST_READ)
    return Values(entries, counts)


def write_values(values: Values, path: Path) -> None:
    """Write values as Parquet, a piece at a time."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    width = values.entries.shape[1]
    number_type = pa.from_numpy_dtype(values.entries.dtype)
    schema = pa.schema({"entry": pa.list_(number_type, width), "count": pa.int64()})
    with pq.ParquetWriter(path.absolute(), schema) as writer:
        for start in range(0, max(len(values.entries), 1), ROWS_PER_PIECE):
            piece = np.asarray(values.entries[start : start + ROWS_PER_PIECE])
            entries = pa.FixedSizeListArray.from_arrays(pa.array(piece.reshape(-1), number_type), width)
            counts = pa.array(values.counts[start : start + ROWS_PER_PIECE])
            writer.write_table(pa.table([entries, counts], schema=schema))


def read_values(path: Path, dtype: npt.DTypeLike, width: int) -> Values:
    """Read what `write_values` wrote.

    Raises:
        ValueError: If the file has other columns, null or negative counts.

    """
    entry_type = pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), width)
    table = read_parquet(path, pa.schema({"entry": entry_type, "count": pa.int64()}))
    if table["entry"].null_count or table["count"].null_count:
        raise ValueError(f"{path.name} lacks entries or counts")
    pieces = [chunk.flatten().to_numpy() for chunk in table["entry"].chunks]
    entries = np.concatenate(pieces or [np.zeros(0, dtype)]).reshape(-1, width)
    counts = table["count"].to_numpy()
    if counts.size and counts.min() < 0:
        raise ValueError(f"{path.name} has counts below 0")
    return Values(entries, counts)
