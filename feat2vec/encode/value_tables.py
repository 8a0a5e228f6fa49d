"""The distinct entries of a group: they are sorted, so that equal ones stand together, and numbered.

DuckDB sorts, and spills to disk. `Values` are the distinct entries of the training rows with their counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Ints
from feat2vec.encode.arrays_on_disk import (
    ROWS_PER_PIECE,
    ArrayFile,
    SpilledArray,
    file_name,
    open_array,
    read_parquet,
)
from feat2vec.encode.codecs import Codec, Entries, Tally
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Counts, Vocabulary
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Group
from feat2vec.table.table import Stage

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


def _columns_differ(words: Words, other_words: Words) -> Bools:
    """Which columns of two arrays [words, rows] differ: [rows]."""
    differ: Bools = np.logical_or.reduce([a != b for a, b in zip(words, other_words, strict=True)])
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


MISSING = -1  # the value id of a row without an entry


class StagedEntries:
    """A group's entries on disk, between the codec that encodes them and their numbering."""

    def __init__(self, workspace: Workspace, name: str, codec: Codec, group: Group) -> None:
        self.folder, self.name = workspace.staging, name
        self.codec, self.group = codec, group
        self.tally = Tally()
        self.staged: list[tuple[SpilledArray, SpilledArray]] = []  # of each stage: present, rows
        self.width = codec.training_width  # of the widest entries so far

    def stage(self, stage: Stage) -> None:
        """Encode a stage's rows."""
        entries = self.codec.encode(stage, self.group)
        path = self.folder / f"{self.name}_{len(self.staged)}"
        self.staged.append((SpilledArray(entries.present, path), SpilledArray(entries.rows, path.with_suffix(".rows"))))
        self.width = max(self.width, entries.rows.shape[1])
        self.tally.add(entries.tally)

    def take(self) -> Iterator[Entries]:
        """Read the entries, all of them as wide as the widest."""
        for present, rows in self.staged:
            yield Entries(present.take(), padded(rows.take(), self.width), Tally())


@dataclass(frozen=True)
class GroupEntries:
    """A group's entries, whose distinct ones are to be numbered."""

    name: str  # of the group
    group: Group
    codec: Codec
    entries: Iterator[Entries]  # of all rows, in their order
    width: int  # of these entries
    training_values: Values | None = None  # which keep their ids, and may be narrower; None for the training rows
    is_shared: bool = False  # whether another group has the codec, too: then its counts are not those of this group

    @property
    def known(self) -> int:
        """How many values keep their ids."""
        return 0 if self.training_values is None else len(self.training_values.entries)

    @property
    def is_single_id(self) -> bool:
        """Whether an entry is one id, and every id of the vocabulary an entry.

        Not so if items were cut after the keys were counted, as frequent keys that are left out make room for others.
        """
        spec = self.group.extractor
        is_cut = isinstance(spec, ItemsSpec) and spec.bag and spec.max_share < 1
        return self.width == 1 and self.codec.vocabulary is not None and not is_cut

    def training_pieces(self, rows_per_piece: int) -> Iterator[Array]:
        """The training values in pieces, as wide as `width`."""
        if self.training_values is None:
            return
        for start in range(0, self.known, rows_per_piece):
            piece = np.asarray(self.training_values.entries[start : start + rows_per_piece])
            yield padded(piece, self.width)


def padded(entries: Array, width: int) -> Array:
    """Entries with padding behind them, [rows, width]."""
    missing_columns = width - entries.shape[1]
    return np.pad(entries, ((0, 0), (0, missing_columns))) if missing_columns else entries


def number_group(workspace: Workspace, group: GroupEntries, rows: int) -> Iterator[Ints]:
    """A group's value id of each row, in pieces; its values and their counts are on disk when all are taken.

    Args:
        workspace: The folder of the encoded rows, and DuckDB.
        group: The group's entries.
        rows: How many rows the table has.

    """
    rows_per_piece = workspace.sizes.rows_per_piece
    npy_name = f"{file_name(group.name)}.npy"
    values_file = ArrayFile(workspace.folder / "values" / npy_name, group.codec.dtype, group.width)
    for piece in group.training_pieces(rows_per_piece):
        values_file.append(piece)
    counts_file = ArrayFile(workspace.folder / "counts" / npy_name, np.int64)
    if group.is_single_id and group.codec.vocabulary is not None:
        pieces = _ids_of_single_entries(group, group.codec.vocabulary, values_file, counts_file)
    else:
        path = workspace.staging / f"{file_name(group.name)}_ids.npy"
        ids = ids_of_sorted_entries(workspace, group, rows, values_file, counts_file, path)
        pieces = (ids[start : start + rows_per_piece] for start in range(0, rows, rows_per_piece))
    return _then_close(pieces, group, values_file, counts_file)


def _then_close(
    pieces: Iterator[Ints], group: GroupEntries, values_file: ArrayFile, counts_file: ArrayFile
) -> Iterator[Ints]:
    """The pieces; the files are complete after the last one. New values count nothing."""
    yield from pieces
    values_file.close()
    if group.training_values is not None:
        counts_file.append(group.training_values.counts)
        counts_file.append(np.zeros(values_file.rows - group.known, np.int64))
    counts_file.close()


def ids_of_sorted_entries(
    workspace: Workspace, group: GroupEntries, rows: int, values_file: ArrayFile, counts_file: ArrayFile, path: Path
) -> np.memmap[tuple[int], np.dtype[np.int32]]:
    """The value id of each row, [rows], on disk: DuckDB sorts the entries, so that equal ones stand together."""
    ids = np.lib.format.open_memmap(path, "w+", np.int32, (rows,))
    ids[:] = MISSING
    packing = Packing(group.codec.dtype, group.width, group.codec.bits)
    counts = counts_file if group.training_values is None else None
    feed = _numbered_rows(group, workspace.sizes.rows_per_piece)
    number_entries(workspace.connection, feed, packing, values_file, ids, counts, group.known)
    return ids


def _numbered_rows(group: GroupEntries, rows_per_piece: int) -> Iterator[tuple[Array, Array]]:
    """Row numbers and entries: first the training values, then the rows that have an entry."""
    first_row = 0
    for piece in group.training_pieces(rows_per_piece):
        yield np.arange(first_row, first_row + len(piece)), piece
        first_row += len(piece)
    for entries in group.entries:
        yield np.flatnonzero(entries.present) + first_row, entries.rows
        first_row += len(entries.present)


def _ids_of_single_entries(
    group: GroupEntries, vocabulary: Vocabulary, values_file: ArrayFile, counts_file: ArrayFile
) -> Iterator[Ints]:
    """The value ids of entries that are one id each, in pieces; values have the order of the ids: nothing is sorted.

    The training values are all ids from UNSEEN, or from FIRST if no key is unseen, so a value id is an id less the
    first of them. In other rows the only new entry can be UNSEEN. Groups that share a vocabulary have the same values,
    each with its own counts.
    """
    if group.training_values is None:
        has_unseen = vocabulary.unseen > 0
        first_id = UNSEEN if has_unseen else FIRST
        values_file.append(np.arange(first_id, len(vocabulary), dtype=np.int32)[:, None])
        unseen_count = np.array([vocabulary.unseen] if has_unseen else [], np.int64)
        counts = np.concatenate([unseen_count, vocabulary.counts])
        if group.is_shared:  # keys of the other groups are values of this one that are not in these rows
            counts[:] = 0
        for entries in group.entries:
            value_ids = entries.rows[:, 0] - np.int32(first_id)
            if group.is_shared:
                np.add.at(counts, value_ids, 1)
            yield _with_missing(entries, value_ids)
        counts_file.append(counts)
        return
    training_ids = np.asarray(group.training_values.entries)[:, 0]
    new_value = len(training_ids)
    value_of_id = np.full(len(vocabulary), new_value, np.int32)
    value_of_id[training_ids] = np.arange(len(training_ids), dtype=np.int32)
    has_new_value = False
    for entries in group.entries:
        value_ids = value_of_id[entries.rows[:, 0]]
        has_new_value |= bool((value_ids == new_value).any())
        yield _with_missing(entries, value_ids)
    if has_new_value:
        values_file.append(np.array([[UNSEEN]]))


def _with_missing(entries: Entries, value_ids: Ints) -> Ints:
    """The value ids of all rows, from those of the rows that have an entry: [rows]."""
    if len(value_ids) == len(entries.present):
        return value_ids
    ids = np.full(len(entries.present), MISSING, np.int32)
    ids[entries.present] = value_ids
    return ids


def write_rows(workspace: Workspace, groups: Sequence[Iterator[Ints]], rows: int) -> None:
    """Write rows.npy, [rows, groups]: the groups' value ids side by side.

    A group whose pieces end early is missing in the other rows.
    """
    rows_per_block = workspace.sizes.rows_per_block
    rows_file = ArrayFile(workspace.folder / "rows.npy", np.int32, len(groups))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        columns = [_ColumnReader(pool, pieces) for pieces in groups]
        for first_row in range(0, rows, rows_per_block):
            count = min(rows_per_block, rows - first_row)
            rows_file.append(np.stack([column.take(count) for column in columns], axis=1))
        for column in columns:
            column.exhaust()
    rows_file.close()


class _ColumnReader:
    """Takes any number of ids from pieces of any size; the next piece is made meanwhile."""

    def __init__(self, pool: ThreadPoolExecutor, pieces: Iterator[Ints]) -> None:
        self.pool, self.pieces = pool, pieces
        self.next_piece = self._start_next()
        self.piece: Ints = np.zeros(0, np.int32)
        self.taken = 0  # of `piece`

    def take(self, count: int) -> Ints:
        """The next `count` ids; MISSING after the last piece."""
        ids = self.piece[self.taken : self.taken + count]
        self.taken += len(ids)
        if len(ids) == count:
            return ids
        piece = self.next_piece.result()
        if piece is None:
            return np.concatenate([ids, np.full(count - len(ids), MISSING, np.int32)])
        self.piece, self.taken = piece, 0
        self.next_piece = self._start_next()
        more_ids = self.take(count - len(ids))
        return np.concatenate([ids, more_ids]) if len(ids) else more_ids

    def exhaust(self) -> None:
        """Take what is left, so that the group's files are completed."""
        while self.next_piece.result() is not None:
            self.next_piece = self._start_next()

    def _start_next(self) -> Future[Ints | None]:
        return self.pool.submit(next, self.pieces, None)
