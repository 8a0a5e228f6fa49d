"""What a step updates: rows of one table, or of several at once, or a whole variable; and the same of their slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from feat2vec.model.optimizers.divided_rows import DividedRows
from feat2vec.model.optimizers.row_gradients import Rows
from feat2vec.model.optimizers.tables import Variable, is_by_row, is_linear_terms, resource_of

MIN_TABLES = 32  # of the same kind, that are updated at once


class RowsOfTable:
    """The rows of a table, or of a slot, that a step updates."""

    def __init__(self, table: Variable, ids: tf.Tensor) -> None:
        self.resource, self.ids = resource_of(table), ids
        self.dtype = self.resource.dtype

    def read(self) -> tf.Tensor:
        """Return the rows, [n, ...]."""
        return tf.gather(self.resource, self.ids)

    def write(self, rows: tf.Tensor) -> None:
        """Replace the rows [n, ...]."""
        # The update kernel copies rows, in a fifth of the add kernel's time; of two concurrent steps the last one wins.
        self.resource.scatter_update(tf.IndexedSlices(rows, self.ids))

    def update(self, new_rows: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Replace the rows [n, ...] by a function of them, and return what they are now."""
        rows = new_rows(self.read())
        self.write(rows)
        return rows


def rows_by_part(table: Variable, rows: tf.IndexedSlices) -> list[tuple[Variable, Rows]]:
    """Rows of a table as rows of the variables that hold it.

    Args:
        table: A table, which may be divided.
        rows: Distinct ids and a row for each, of any width.

    Returns:
        Each variable, and its own of these rows.

    """
    resource = resource_of(table)
    if isinstance(resource, DividedRows):
        return [(part, Rows(ids, values)) for part, ids, values in resource.by_part(rows)]
    return [(table, Rows(rows.indices, rows.values))]


class RowsOfTables:
    """The rows that a step updates of several tables, or of their slots, as the rows of one table below the other."""

    def __init__(self, tables: Sequence[RowsOfTable]) -> None:
        self.tables = tables
        self.dtype = tables[0].dtype

    def read(self) -> tf.Tensor:
        """Return the rows of all tables, [n, ...]."""
        return tf.concat([table.read() for table in self.tables], axis=0)

    def write(self, rows: tf.Tensor) -> None:
        """Replace the rows [n, ...] of all tables."""
        sizes = tf.stack([tf.size(table.ids) for table in self.tables])
        for table, rows_of_table in zip(self.tables, tf.split(rows, sizes, num=len(self.tables)), strict=True):
            table.write(rows_of_table)

    def update(self, new_rows: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Replace the rows [n, ...] by a function of them, and return what they are now."""
        rows = new_rows(self.read())
        self.write(rows)
        return rows


class WholeVariable:
    """A whole variable, or a slot of one, that a step updates at once."""

    def __init__(self, variable: Variable) -> None:
        self.variable, self.dtype = variable, resource_of(variable).dtype

    def read(self) -> tf.Tensor:
        """Return its numbers."""
        return tf.convert_to_tensor(resource_of(self.variable))

    def write(self, values: tf.Tensor) -> None:
        """Replace its numbers."""
        self.variable.assign(values)


Updated: TypeAlias = RowsOfTable | RowsOfTables


class RowUpdate(NamedTuple):
    """One update by rows: of a table, or of several at once."""

    variables: Sequence[Variable]
    ids: Sequence[tf.Tensor]  # of each variable, [n_i]
    gradient: tf.Tensor  # [sum of n_i, ...], in the variables' order

    def rows_of(self, variables: Sequence[Variable]) -> Updated:
        """Return the rows of these variables, which are the update's own or slots of them."""
        rows = [RowsOfTable(variable, ids) for variable, ids in zip(variables, self.ids, strict=True)]
        return rows[0] if len(rows) == 1 else RowsOfTables(rows)


def row_updates(gradients: Sequence[tuple[Rows, Variable]], min_tables: int = MIN_TABLES) -> list[RowUpdate]:
    """Return an update for each table, and one for all tables of a kind where there are `min_tables` or more."""
    tables_by_kind: dict[tuple[object, ...], list[tuple[Rows, Variable]]] = {}
    for rows, variable in gradients:
        marks = (is_by_row(variable), is_linear_terms(variable))
        place = resource_of(variable).device
        kind = (tuple(variable.shape[1:]), str(variable.dtype), rows.ids.dtype, place, *marks)
        tables_by_kind.setdefault(kind, []).append((rows, variable))
    updates = []
    for tables in tables_by_kind.values():
        if len(tables) < min_tables:
            updates += [RowUpdate([variable], [rows.ids], rows.values) for rows, variable in tables]
            continue
        gradient = tf.concat([rows.values for rows, _ in tables], axis=0)
        updates.append(RowUpdate([variable for _, variable in tables], [rows.ids for rows, _ in tables], gradient))
    return updates
