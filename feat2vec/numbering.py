"""Entries to value ids: each group's values are numbered, and the groups' ids put side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np

from feat2vec.codecs import Codec, Entries, Tally
from feat2vec.columns import Stage
from feat2vec.schema import Group
from feat2vec.specs import ExtractorSpec, ItemsSpec
from feat2vec.values import CHUNK, Array, ArrayFile, Packing, Spilled, Values, file_name, number_entries, open_array
from feat2vec.vocabulary import FIRST, UNSEEN, Vocabulary


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
    connection: duckdb.DuckDBPyConnection, folder: Path, name: str, codec: Codec, spec: ExtractorSpec, width: int,
    read: Callable[[], Iterator[Entries]], rows: int, before: Values | None,
) -> None:  # fmt: skip
    """Write a group's value id of each row, its values and their counts. `before` are values that keep their ids.

    `width` is that of the entries which `read` gives; those of `before` may be narrower.
    """
    known = 0 if before is None else len(before.entries)
    path = folder / ".staging" / f"{file_name(name)}_ids.npy"
    new = ArrayFile(folder / "values" / f"{file_name(name)}.npy", codec.dtype, width)
    for start in range(0, known, CHUNK):
        assert before is not None
        new.append(widened(np.asarray(before.entries[start : start + CHUNK]), width))
    counts = ArrayFile(folder / "counts" / f"{file_name(name)}.npy", np.int64)
    cut = isinstance(spec, ItemsSpec) and spec.bag and spec.max_share < 1  # after the keys were counted
    if width == 1 and codec.vocabulary is not None and not cut:
        _number_single(path, new, counts, read(), rows, codec.vocabulary, before)
    else:
        ids = np.lib.format.open_memmap(path, "w+", np.int32, (rows,))
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
    new.close()
    if before is not None:
        counts.append(before.counts)
        counts.append(np.zeros(new.rows - known, np.int64))
    counts.close()


def _number_single(
    path: Path, new: ArrayFile, counts: ArrayFile, read: Iterator[Entries], rows: int,
    vocabulary: Vocabulary, before: Values | None,
) -> None:  # fmt: skip
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
    out, is_new = ArrayFile(path, np.int32), False
    for entries in read:
        if before is None:
            found = entries.rows[:, 0] - (FIRST - len(unseen))
        else:
            found = value_of[entries.rows[:, 0]]
            is_new |= bool((found == len(known)).any())
        if len(found) < len(entries.present):
            ids = np.full(len(entries.present), -1, np.int32)
            ids[entries.present] = found
            found = ids
        out.append(found)
    out.append(np.full(rows - out.rows, -1, np.int32))  # all of them, where the group's columns are absent
    out.close()
    if is_new:
        new.append(np.array([[UNSEEN]]))


def interleave(folder: Path, names: list[str]) -> None:
    """The groups' ids side by side, row by row."""
    columns = [open_array(folder / ".staging" / f"{file_name(name)}_ids.npy") for name in names]
    out = ArrayFile(folder / "rows.npy", np.int32, len(names))
    for start in range(0, len(columns[0]), CHUNK):
        out.append(np.stack([column[start : start + CHUNK] for column in columns], axis=1))
    out.close()
