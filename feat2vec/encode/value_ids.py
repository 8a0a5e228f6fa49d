"""Entries to value ids: the distinct entries of each group are numbered, and the groups' ids put side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from feat2vec.arrays import Ints
from feat2vec.encode.array_files import Array, ArrayFile, SpilledArray, file_name
from feat2vec.encode.codecs import Codec, Entries, Tally
from feat2vec.encode.distinct_entries import Packing, Values, number_entries
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Vocabulary
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Group
from feat2vec.table.stages import Stage

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
        ids = _ids_of_sorted_entries(workspace, group, rows, values_file, counts_file)
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


def _ids_of_sorted_entries(
    workspace: Workspace, group: GroupEntries, rows: int, values_file: ArrayFile, counts_file: ArrayFile
) -> Ints:
    """The value id of each row, [rows], on disk: DuckDB sorts the entries, so that equal ones stand together."""
    path = workspace.staging / f"{file_name(group.name)}_ids.npy"
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
    first of them. In other rows the only new entry can be UNSEEN.
    """
    if group.training_values is None:
        has_unseen = vocabulary.unseen > 0
        first_id = UNSEEN if has_unseen else FIRST
        values_file.append(np.arange(first_id, len(vocabulary), dtype=np.int32)[:, None])
        unseen_count = np.array([vocabulary.unseen] if has_unseen else [], np.int64)
        counts_file.append(np.concatenate([unseen_count, vocabulary.counts]))
        for entries in group.entries:
            yield _with_missing(entries, entries.rows[:, 0] - np.int32(first_id))
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
        more = self.take(count - len(ids))
        return np.concatenate([ids, more]) if len(ids) else more

    def exhaust(self) -> None:
        """Take what is left, so that the group's files are completed."""
        while self.next_piece.result() is not None:
            self.next_piece = self._start_next()

    def _start_next(self) -> Future[Ints | None]:
        return self.pool.submit(next, self.pieces, None)
