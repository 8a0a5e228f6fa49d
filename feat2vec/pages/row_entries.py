"""A row that is explained: its entries, and what it holds of each group as text."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa

from feat2vec.encode.array_files import Array
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_text import spell
from feat2vec.errors import UserError, listed, suggest
from feat2vec.space.geometry import dense
from feat2vec.table.stages import STAGE_BYTES
from feat2vec.table.table import open_table

Row = Mapping[str, Array]  # each group's entry [1, width]


def row_of(encoder: Encoder, rows: object, index: int = 1, *, to: bool = False) -> Row:
    """The entries of one row.

    Args:
        encoder: Encodes the row.
        rows: A table, or one row as a mapping of columns to values.
        index: Which row of the table, counted from 1.
        to: Whether it is the row to compare with; messages then name the options `--to` and `--to-index`.

    Raises:
        UserError: The row cannot be read, or holds none of the groups' columns.

    """
    row_option, index_option = ("--to", "--to-index") if to else ("--row", "--index")
    if isinstance(rows, Mapping):
        rows = _table_of(encoder, rows, row_option)
    if index < 1:
        raise UserError(f"{index_option}: rows are counted from 1; received {index}")
    table, rows_before = open_table(rows), 0
    for stage, entries in encoder.staged(table, max_bytes=STAGE_BYTES // 8):
        if index <= rows_before + stage.rows:
            return {
                name: dense(group_entries)[index - rows_before - 1 :][:1] for name, group_entries in entries.items()
            }
        rows_before += stage.rows
    raise UserError(f"{index_option}: {table.name} has {rows_before:,} rows; received {index}")


def _table_of(encoder: Encoder, row: Mapping[str, object], row_option: str) -> pa.Table:
    """A table of one row, given as a mapping of columns to values."""
    known = encoder.schema.columns()
    for column in row:
        if column not in known:
            suggestion = suggest(str(column), known) or f"; leave it out, the columns are {listed(known)}"
            raise UserError(f"{row_option}: the run knows no column {column!r}{suggestion}")
    values = {column: value for column, value in row.items() if value is not None}
    try:
        table = pa.table({column: pa.array([_long(value)]) for column, value in values.items()})
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:  # as `pa.array` may raise
        reason = f"{str(error).splitlines()[0]:.100}"
        raise UserError(f"{row_option}: a value is of no type that a table has ({reason})") from None
    if not any(column in group.columns for group in encoder.schema.groups.values() for column in values):
        wanted = listed(column for group in encoder.schema.groups.values() for column in group.columns)
        raise UserError(f"{row_option}: holds no value of the groups' columns: {wanted}")
    return table


def _long(value: object) -> object:
    """An integer beyond 64 bits as the decimal that keeps all of its digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Decimal(value)
    return value


def row_texts(encoder: Encoder, row: Row) -> dict[str, str | None]:
    """What a row holds of each group, None where it is missing."""
    values: dict[str, str | None] = {}
    for name, codec in encoder.codecs.items():
        entry = np.ascontiguousarray(row[name])
        missing = bool(np.isnan(entry[0, 0])) if entry.dtype == np.float32 else not entry.any()
        group = encoder.schema.groups[name]
        values[name] = None if missing else spell(codec, group, entry, np.zeros(1, np.int64))[0].as_py()
    return values


__all__ = ["Row", "row_of", "row_texts"]
