"""Several tables updated at once: as many operations as for one table, and a few more for each.

Each operation of a graph costs half a millisecond before the first step. A model of 200 groups has 200 tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from feat2vec.model.optimizers.rows import Rows, RowsOfTable, Variable, is_by_row

MIN_TABLES = 32  # of the same kind, that are updated at once


class RowsOfTables:
    """The rows that a step updates of several tables, or of their slots, as the rows of one table below the other."""

    def __init__(self, tables: Sequence[RowsOfTable]) -> None:
        self.tables = tables
        self.dtype = tables[0].dtype

    def update(self, new_rows: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Replace the rows [n, ...] by a function of them, and return what they are now."""
        rows_of_each = [tf.gather(table.resource, table.ids) for table in self.tables]
        rows = new_rows(tf.concat(rows_of_each, axis=0))
        sizes = tf.stack([tf.size(table.ids) for table in self.tables])
        for table, updated in zip(self.tables, tf.split(rows, sizes, num=len(self.tables)), strict=True):
            table.resource.scatter_update(tf.IndexedSlices(updated, table.ids))
        return rows


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
    tables_by_kind: dict[Any, list[tuple[Rows, Variable]]] = {}
    for rows, variable in gradients:
        kind = (tuple(variable.shape[1:]), str(variable.dtype), rows.ids.dtype, is_by_row(variable))
        tables_by_kind.setdefault(kind, []).append((rows, variable))
    updates = []
    for tables in tables_by_kind.values():
        if len(tables) < min_tables:
            updates += [RowUpdate([variable], [rows.ids], rows.values) for rows, variable in tables]
            continue
        gradient = tf.concat([rows.values for rows, _ in tables], axis=0)
        updates.append(RowUpdate([variable for _, variable in tables], [rows.ids for rows, _ in tables], gradient))
    return updates
