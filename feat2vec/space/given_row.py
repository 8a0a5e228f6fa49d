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
        row: The values that are known; None and NaN are missing. Columns that the run does not know are left out, as
            the table may have them, unless they are named nearly as a column that the row lacks.
        row_option: What messages call the row.

    Raises:
        UserError: A column is named nearly as one of the run, a value is of no type that a table has, or no group has a
            value.

    """
    known = encoder.schema.columns()
    lacking = [column for column in known if column not in row]
    for column in row:
        suggestion = None if column in known else suggest(str(column), lacking)
        if suggestion:
            raise UserError(f"{row_option}: the run knows no column {column!r}{suggestion}")
    values = {column: value for column, value in row.items() if column in known and not is_missing(value)}
    try:
        table = pa.table({column: pa.array([_long(value)]) for column, value in values.items()})
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:  # as `pa.array` may raise
        reason = f"{str(error).splitlines()[0]:.100}"
        raise UserError(f"{row_option}: a value is of no type that a table has ({reason})") from None
    if not any(column in group.columns for group in encoder.schema.groups.values() for column in values):
        wanted_columns = listed(column for group in encoder.schema.groups.values() for column in group.columns)
        raise UserError(f"{row_option}: holds no value of the groups' columns: {wanted_columns}")
    return table


def plain_rows(rows: object) -> object:
    """A row of pandas as a mapping, and a list of mappings as a table; other rows stay as they are.

    Raises:
        UserError: A value of the list is of no type that a table has.

    """
    if type(rows).__name__ == "Series" and hasattr(rows, "to_dict"):
        return dict(rows.to_dict())
    if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
        columns = list(dict.fromkeys(column for row in rows for column in row))
        values = {column: [_known_value(row.get(column)) for row in rows] for column in columns}
        try:
            return pa.table({str(column): pa.array(of_column) for column, of_column in values.items()})
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
            raise UserError(
                f"rows: a column has values of no common type ({str(error).splitlines()[0]:.100})"
            ) from None
    return rows


def _known_value(value: object) -> object:
    """A value as a table has it, None for a missing one."""
    return None if is_missing(value) else _long(value)


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or what pandas has for a missing one.

    >>> [is_missing(value) for value in (None, float("nan"), 0, "", [])]
    [True, True, False, False, False]

    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _long(value: object) -> object:
    """An integer beyond 64 bits as the decimal that keeps all of its digits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return Decimal(value)
    return value
