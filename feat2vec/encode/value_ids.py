"""Entries to value ids: each group's values are numbered, and the groups' ids put side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np

from feat2vec.encode.codecs import Codec, Entries, Tally
from feat2vec.encode.entry_tables import (
    BLOCK,
    CHUNK,
    Array,
    ArrayFile,
    Packing,
    Spilled,
    Values,
    file_name,
    number_entries,
)
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Vocabulary
from feat2vec.schema.extractor_options import ExtractorSpec, ItemsSpec
from feat2vec.schema.options import Group
from feat2vec.table.stages import Stage


class EntryFiles:
    """A group's entries between their encoding and their numbering."""

    def __init__(self, folder: Path, name: str, codec: Codec, group: Group) -> None:
        self.folder, self.name, self.tally = folder, name, Tally()
        self.codec, self.group = codec, group
        self.staged: list[tuple[Spilled, Spilled]] = []
        self.width = codec.stored

    def stage(self, stage: Stage) -> None:
        entries = self.codec.encode(stage, self.group)
        path = self.folder / f"{self.name}_{len(self.staged)}"
        self.staged.append((Spilled(entries.present, path), Spilled(entries.rows, path.with_suffix(".rows"))))
        self.width = max(self.width, entries.rows.shape[1])
        self.tally.add(entries.tally)

    def read(self) -> Iterator[Entries]:
        for present, rows in self.staged:
            yield Entries(present.take(), widened(rows.take(), self.width), Tally())


def widened(entries: Array, width: int) -> Array:
    """Bags with padding behind them, [rows, width]."""
    more = width - entries.shape[1]
    return np.pad(entries, ((0, 0), (0, more))) if more else entries


def number_group(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    name: str,
    codec: Codec,
    spec: ExtractorSpec,
    width: int,
    read: Callable[[], Iterator[Entries]],
    rows: int,
    before: Values | None,
) -> Iterator[Array]:
    """A group's value id of each row, in pieces; its values and their counts are on disk when the last one is taken.

    `before` are values that keep their ids. `width` is that of the entries which `read` gives; those of `before` may
    be narrower.
    """
    known = 0 if before is None else len(before.entries)
    new = ArrayFile(folder / "values" / f"{file_name(name)}.npy", codec.dtype, width)
    for start in range(0, known, CHUNK):
        assert before is not None
        new.append(widened(np.asarray(before.entries[start : start + CHUNK]), width))
    counts = ArrayFile(folder / "counts" / f"{file_name(name)}.npy", np.int64)
    cut = isinstance(spec, ItemsSpec) and spec.bag and spec.max_share < 1  # after the keys were counted
    if width == 1 and codec.vocabulary is not None and not cut:
        pieces = _number_single(new, counts, read(), codec.vocabulary, before)
    else:
        ids = np.lib.format.open_memmap(folder / ".staging" / f"{file_name(name)}_ids.npy", "w+", np.int32, (rows,))
        ids[:] = -1

        def feed() -> Iterator[tuple[Array, Array]]:
            start = 0
            for start_known in range(0, known, CHUNK):
                assert before is not None
                piece = widened(np.asarray(before.entries[start_known : start_known + CHUNK]), width)
                yield np.arange(start_known, start_known + len(piece)), piece
            for entries in read():
                yield np.flatnonzero(entries.present) + (start + known), entries.rows
                start += len(entries.present)

        packing = Packing(codec.dtype, width, codec.bits)
        number_entries(connection, feed(), packing, new, ids, counts if before is None else None, known)
        pieces = (ids[start : start + CHUNK] for start in range(0, rows, CHUNK))

    def whole() -> Iterator[Array]:
        yield from pieces
        new.close()
        if before is not None:
            counts.append(before.counts)
            counts.append(np.zeros(new.rows - known, np.int64))
        counts.close()

    return whole()


def _number_single(
    new: ArrayFile, counts: ArrayFile, read: Iterator[Entries], vocabulary: Vocabulary, before: Values | None
) -> Iterator[Array]:
    """Number entries that are one id each, in the order of the ids: no sorting needed."""
    unseen = [vocabulary.unseen] if vocabulary.unseen else []
    if before is None:
        known = np.arange(FIRST - len(unseen), len(vocabulary), dtype=np.int32)
        new.append(known[:, None])
        counts.append(np.concatenate([np.array(unseen, np.int64), vocabulary.counts]))
    else:
        known = np.asarray(before.entries)[:, 0]
    value_of = np.full(len(vocabulary), len(known), np.int32)  # what is new can only be an unseen key
    value_of[known] = np.arange(len(known), dtype=np.int32)
    is_new = False
    for entries in read:
        if before is None:
            found = entries.rows[:, 0] - np.int32(FIRST - len(unseen))
        else:
            found = value_of[entries.rows[:, 0]]
            is_new |= bool((found == len(known)).any())
        if len(found) < len(entries.present):
            ids = np.full(len(entries.present), -1, np.int32)
            ids[entries.present] = found
            found = ids
        yield found
    if is_new:
        new.append(np.array([[UNSEEN]]))


def interleave(folder: Path, groups: Sequence[Iterator[Array]], rows: int) -> None:
    """The groups' ids side by side, row by row; a group whose pieces end early is missing in the other rows."""
    out = ArrayFile(folder / "rows.npy", np.int32, len(groups))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        columns = [_Column(pool, pieces) for pieces in groups]
        for start in range(0, rows, BLOCK):
            size = min(BLOCK, rows - start)
            out.append(np.stack([column.take(size) for column in columns], axis=1))
        for column in columns:
            column.end()
    out.close()


class _Column:
    """Takes as many ids as are asked for from pieces of any size; the next piece is made meanwhile."""

    def __init__(self, pool: ThreadPoolExecutor, pieces: Iterator[Array]) -> None:
        self.pool, self.pieces = pool, pieces
        self.next = pool.submit(next, pieces, None)
        self.piece, self.at = np.zeros(0, np.int32), 0

    def take(self, size: int) -> Array:
        ids = self.piece[self.at : self.at + size]
        self.at += len(ids)
        if len(ids) == size:
            return ids
        piece = self.next.result()
        if piece is None:
            return np.concatenate([ids, np.full(size - len(ids), -1, np.int32)])
        self.piece, self.at = piece, 0
        self.next = self.pool.submit(next, self.pieces, None)
        more = self.take(size - len(ids))
        return np.concatenate([ids, more]) if len(ids) else more

    def end(self) -> None:
        """Take what is left, so that the group's files are written."""
        while self.next.result() is not None:
            self.next = self.pool.submit(next, self.pieces, None)
