"""`TrainedRows`: by hashes, which rows a run was trained on, so that measuring it on them is noticed.

A row's hash is made of its groups' entries, as the run's encoder gives them; the target is no part of it. A table has
rows that are equal without being the same, such as two flights of one day. How many of them a new table will have
follows from the training rows alone: as many as of these occur more than once (Good and Turing).
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from feat2vec.arrays import Int64s
from feat2vec.encode.arrays_on_disk import ROWS_PER_PIECE, read_parquet
from feat2vec.encode.codecs import Entries
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.hashing import Words, entry_hashes, group_hashes
from feat2vec.errors import RESTORE, UserError, in_a_line
from feat2vec.table.table import open_table
from feat2vec.training.run_folder import TrainedRun

TRAINED_ROWS = "trained_rows.parquet"
FILE_COLUMNS = pa.schema({"hash": pa.uint64(), "rows": pa.int64()})
MOST_HASHES = 100_000  # the smallest ones are kept
MOST_CHECKED = 200_000  # rows of a table that are compared
LEAST_SHARE = 0.01  # of rows above those that are equal by chance, to be told
DEVIATIONS = 3.0  # of the number of rows that are equal by chance
VALUELESS = b"groups without values"  # a key in the metadata of the file
NO_BOUND = np.uint64(2**64 - 1)


class Overlap(NamedTuple):
    """How many rows of a table are among those that a run was trained on.

    Args:
        rows: The rows of the table that were compared.
        trained: How many of them a run was trained on; an estimate for runs of many rows.
        by_chance: How many would be equal to training rows in a table of new rows.
        compared: The rows that the estimate is made of.

    """

    rows: int
    trained: int
    by_chance: float
    compared: int

    @property
    def is_suspicious(self) -> bool:
        """Whether there are more of them than new rows would have."""
        if not self.compared:
            return False
        share, expected = self.trained / self.rows, self.by_chance / self.rows
        deviation = math.sqrt(expected * (1 - expected) / self.compared)
        return share > 0 and share >= expected + LEAST_SHARE + DEVIATIONS * deviation


@dataclass(frozen=True)
class TrainedRows:
    """The hashes of training rows.

    Args:
        hashes: The smallest distinct hashes, ascending.
        counts: How many rows have each.
        most: How many distinct hashes there may be; with as many, larger ones may have been left out.
        valueless: Groups without a value in any of the rows, as their columns were not there: they are no part of a
            hash, whatever other rows hold of them.

    """

    hashes: Words
    counts: Int64s
    most: int = MOST_HASHES
    valueless: tuple[str, ...] = ()

    @property
    def bound(self) -> np.uint64:
        """The hash up to which all of them are here."""
        return NO_BOUND if len(self.hashes) < self.most else np.uint64(self.hashes[-1])

    def overlap(self, hashes: Iterable[Words]) -> Overlap:
        """How many rows of a table are among these.

        Args:
            hashes: The hashes of the table's rows, in pieces.

        """
        rows = compared = trained = 0
        for piece in hashes:
            below = piece[piece <= self.bound]
            rows, compared = rows + len(piece), compared + len(below)
            trained += int(np.isin(below, self.hashes).sum())
        share = trained / max(compared, 1)
        total = int(self.counts.sum())
        repeated = 1 - int((self.counts == 1).sum()) / max(total, 1)
        return Overlap(rows, round(share * rows), repeated * rows, compared)

    def as_file(self) -> bytes:
        """The content of a file of the run's folder."""
        sink = pa.BufferOutputStream()
        schema = FILE_COLUMNS.with_metadata({VALUELESS: json.dumps(self.valueless)} if self.valueless else None)
        pq.write_table(pa.table([pa.array(self.hashes), pa.array(self.counts)], schema=schema), sink)
        content: bytes = sink.getvalue().to_pybytes()
        return content


def trained_rows(hashes: Iterable[Words], most: int = MOST_HASHES, *, valueless: Sequence[str] = ()) -> TrainedRows:
    """The smallest distinct hashes of rows, and how many rows have each.

    Args:
        hashes: The hashes of all rows, in pieces.
        most: How many are kept.
        valueless: Groups that none of the rows has a value of.

    """
    kept, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for piece in hashes:
        new, new_counts = np.unique(piece, return_counts=True)
        together, places = np.unique(np.concatenate([kept, new]), return_inverse=True)
        sums = np.bincount(places, np.concatenate([counts, new_counts]), len(together)).astype(np.int64)
        kept, counts = together[:most], sums[:most]
    return TrainedRows(kept, counts, most, tuple(valueless))


def hashes_of_encoded(rows: Encoded, rows_per_piece: int = ROWS_PER_PIECE) -> Iterator[Words]:
    """The hashes of the rows that are learnt from, in pieces."""
    of_values = []  # of each group's values, and at the end 0 for a missing one
    for name, values in rows.values.items():
        of_entries = group_hashes(name, entry_hashes(np.asarray(values.entries)))
        of_values.append(np.append(of_entries, np.uint64(0)))
    for value_ids in rows.left_out.pieces(rows.rows, rows_per_piece):
        hashes = np.zeros(len(value_ids), np.uint64)
        for g, of_group in enumerate(of_values):
            hashes += of_group[value_ids[:, g]]
        yield hashes


def groups_without_values(rows: Encoded, rows_per_piece: int = ROWS_PER_PIECE) -> list[str]:
    """The groups that are missing in all rows that are learnt from."""
    has_values = np.zeros(len(rows.values), np.bool_)  # [groups]
    for value_ids in rows.left_out.pieces(rows.rows, rows_per_piece):
        has_values |= (value_ids >= 0).any(axis=0)
    return [name for name, is_there in zip(rows.values, has_values, strict=True) if not is_there]


def hashes_of_table(
    run: TrainedRun, data: object, most: int = MOST_CHECKED, *, valueless: Collection[str] = ()
) -> Iterator[Words]:
    """The hashes of a table's first rows, in pieces.

    Args:
        run: The run whose encoder encodes them.
        data: The table.
        most: How many rows.
        valueless: Groups that are no part of a hash.

    """
    for entries in run.fitted.entries(data):
        of_groups = [_hashes_of_group(name, of_group) for name, of_group in entries.items() if name not in valueless]
        hashes: Words = np.sum(of_groups, axis=0, dtype=np.uint64)
        yield hashes[:most]
        most -= len(hashes)
        if most <= 0:
            return


def _hashes_of_group(name: str, entries: Entries) -> Words:
    """What a group adds to the hashes of rows, [rows]; 0 where it is missing."""
    hashes = np.zeros(len(entries.present), np.uint64)
    hashes[entries.present] = group_hashes(name, entry_hashes(entries.rows))
    return hashes


def read_trained_rows(run: TrainedRun) -> TrainedRows | None:
    """The hashes of the rows that a run was trained on; None for a run that was written before there were any."""
    path = run.folder / TRAINED_ROWS
    if run.in_training is not None or not path.exists():
        return None
    try:
        table = read_parquet(path, FILE_COLUMNS)
        valueless = tuple(map(str, json.loads((table.schema.metadata or {}).get(VALUELESS, b"[]"))))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{path}: holds no hashes that can be read ({in_a_line(error)}); {RESTORE}") from None
    return TrainedRows(table["hash"].to_numpy(), table["rows"].to_numpy(), valueless=valueless)


def warning_of_trained_rows(run: TrainedRun, data: object) -> str | None:
    """What to tell who measures a run on rows that it was trained on.

    Args:
        run: The run.
        data: The rows that it is measured on.

    Returns:
        A line, or None if there are no more such rows than a table of new ones would have.

    """
    known = read_trained_rows(run)
    if known is None:
        return None
    table = open_table(data)
    overlap = known.overlap(hashes_of_table(run, table, valueless=known.valueless))
    if not overlap.is_suspicious:
        return None
    first = "the first " if overlap.rows >= MOST_CHECKED else ""
    about = "about " if overlap.compared < overlap.rows else ""
    verb = "is" if overlap.rows == 1 else "are"
    counted = f"{about}{overlap.trained:,} of {first}{overlap.rows:,} {'row' if overlap.rows == 1 else 'rows'}"
    return (
        f"{table.name}: {counted} {verb} among those the run was trained on: the result is too good; "
        "`feat2vec split` makes a test part"
    )


def warn_of_trained_rows(run: TrainedRun, argument: str, data: object) -> None:
    """Warn the caller of a function that measures a run if it was trained on the rows; see `warning_of_trained_rows`.

    Args:
        run: The run.
        argument: The name of the function's argument, with which the warning begins.
        data: The rows that it is measured on. Those that can be read only once are left.

    """
    try:
        warning = warning_of_trained_rows(run, data)
    except UserError:
        return
    if warning is not None:
        warnings.warn(f"{argument}: {warning}", UserWarning, stacklevel=3)


def has_learnt_column(run: TrainedRun, data: object, column: str) -> bool:
    """Whether a run was trained on rows with a column, as one of its groups, so that its vectors know it of these rows.

    Args:
        run: The run.
        data: The rows.
        column: The column.

    Returns:
        True if more of the rows are among those of the training than a table of new ones would have.

    """
    is_group = any(column in group.columns for group in run.schema.groups.values())
    return is_group and warning_of_trained_rows(run, data) is not None
