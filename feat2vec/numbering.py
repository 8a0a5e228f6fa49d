"""Entries to value ids: each group's values are numbered, and the groups' ids put side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np

from feat2vec.codecs import Codec, Entries, Tally
from feat2vec.columns import Ints, Stage
from feat2vec.schema import Group
from feat2vec.values import CHUNK, Array, ArrayFile, Packing, Values, file_name, number_entries, pieces


class EntryFiles:
    """A group's entries between their encoding and their numbering."""

    def __init__(self, folder: Path, name: str, codec: Codec, group: Group) -> None:
        self.folder, self.name, self.count, self.tally = folder, name, 0, Tally()
        self.codec, self.group = codec, group

    def stage(self, stage: Stage) -> None:
        entries = self.codec.encode(stage, self.group)
        np.save(self.folder / f"{self.name}_present_{self.count}.npy", entries.present)
        np.save(self.folder / f"{self.name}_entries_{self.count}.npy", entries.rows)
        self.count += 1
        self.tally.add(entries.tally)

    def read(self) -> Iterator[Entries]:
        for i in range(self.count):
            present, rows = (np.load(self.folder / f"{self.name}_{part}_{i}.npy") for part in ("present", "entries"))
            yield Entries(present, rows, Tally())


def number_group(
    connection: duckdb.DuckDBPyConnection, folder: Path, name: str, codec: Codec, read: Callable[[], Iterator[Entries]],
    rows: int, before: Values | None,
) -> None:  # fmt: skip
    """Write a group's value id of each row, its values and their counts. `before` are values that keep their ids."""
    known = 0 if before is None else len(before.entries)
    ids = np.lib.format.open_memmap(folder / ".staging" / f"{file_name(name)}_ids.npy", "w+", np.int32, (rows,))
    new = ArrayFile(folder / "values" / f"{file_name(name)}.npy", codec.dtype, codec.width)
    for start in range(0, known, CHUNK):
        assert before is not None
        new.append(np.asarray(before.entries[start : start + CHUNK]))
    counts = ArrayFile(folder / "counts" / f"{file_name(name)}.npy", np.int64)
    if codec.width == 1 and codec.vocabulary is not None:
        _number_single(ids, new, counts, read(), len(codec.vocabulary), before)
    else:
        ids[:] = -1

        def feed() -> Iterator[tuple[Array, Array]]:
            start = 0
            for start_known in range(0, known, CHUNK):
                assert before is not None
                piece = np.asarray(before.entries[start_known : start_known + CHUNK])
                yield np.arange(start_known, start_known + len(piece)), piece
            for entries in read():
                yield np.flatnonzero(entries.present) + (start + known), entries.rows
                start += len(entries.present)

        packing = Packing(codec.dtype, codec.width, codec.bits)
        number_entries(connection, feed(), packing, new, ids, counts if before is None else None, known)
    new.close()
    if before is not None:
        counts.append(before.counts)
        counts.append(np.zeros(new.rows - known, np.int64))
    counts.close()


def _number_single(
    ids: Ints, new: ArrayFile, counts: ArrayFile, read: Iterator[Entries], size: int, before: Values | None
) -> None:
    """Number entries that are one vocabulary id each: no sorting needed."""
    start = 0
    seen = np.zeros(size, np.int64)
    for entries in read:
        piece = ids[start : start + len(entries.present)]
        piece[:] = -1
        piece[entries.present] = entries.rows[:, 0]
        seen += np.bincount(entries.rows[:, 0], minlength=size)
        start += len(entries.present)
    known = np.zeros(0, np.int32) if before is None else np.asarray(before.entries)[:, 0]
    seen[known] = 0
    fresh = np.flatnonzero(seen).astype(np.int32)
    value_of = np.full(size + 1, -1, np.int32)  # the last one is for -1
    value_of[np.concatenate([known, fresh])] = np.arange(len(known) + len(fresh), dtype=np.int32)
    for at in range(0, len(ids), CHUNK):
        ids[at : at + CHUNK] = value_of[ids[at : at + CHUNK]]
    new.append(fresh[:, None])
    if before is None:
        counts.append(seen[fresh])


def interleave(folder: Path, names: list[str]) -> None:
    """The groups' ids side by side, row by row."""
    columns = [pieces(folder / ".staging" / f"{file_name(name)}_ids.npy") for name in names]
    out = ArrayFile(folder / "rows.npy", np.int32, len(names))
    for piece in zip(*columns, strict=True):
        out.append(np.stack(piece, axis=1))
    out.close()
