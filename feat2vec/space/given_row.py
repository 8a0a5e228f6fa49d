"""A row that a user gives as columns and values, as a table of one row."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa

from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest


def table_of_row(encoder: Encoder, row: Mapping[str, object], row_option: str) -> pa.Table:
    """A table of one row, given as a mapping of columns to values.

    Args:
        encoder: That of the run.
        row: The values that are known; None is missing.
        row_option: What messages call the row.

    Raises:
        UserError: A column is unknown, a value is of no type that a table has, or no group has a value.

    """
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
        wanted_columns = listed(column for group in encoder.schema.groups.values() for column in group.columns)
        raise UserError(f"{row_option}: holds no value of the groups' columns: {wanted_columns}")
    return table


def _long(value: object) -> object:
    """An integer beyond 64 bits as the decimal that keeps all of its digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Decimal(value)
    return value
