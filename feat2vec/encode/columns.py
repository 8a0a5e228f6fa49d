"""The columns of a table that a schema names: which are read, and which are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.options import Group, Schema
from feat2vec.table.sources.csv import DELIMITERS
from feat2vec.table.table import Table

LEARNT_FROM = ("groups", "model")  # sections whose columns an encoder that is there already can do without
MOST_SUGGESTIONS = 20  # missing columns for which similar names are searched


def check_columns(schema: Schema, table: Table, *, with_groups: bool = True) -> None:
    """Raise a UserError that lists every column which the schema names and the table lacks.

    Args:
        schema: The schema.
        table: The table.
        with_groups: Whether each group needs its columns. Where an encoder is there already, they may be missing.

    """
    if not table.typed and len(table.columns) == 1 and len(schema.columns()) > 1:
        (column,) = table.columns
        raise UserError(f"{table.name}: has one column, {column[:60]!r}; {DELIMITERS}")
    has_implicit_negatives = schema.objective.implicit_group is not None  # no target: all rows are positive
    problems: list[str] = []
    for column, path in schema.columns().items():
        is_optional = has_implicit_negatives and column == schema.target
        if column in table.columns or is_optional or (path[0] in LEARNT_FROM and not with_groups):
            continue
        near = suggest(column, table.columns) if len(problems) < MOST_SUGGESTIONS else ""
        near = near or f"; the columns are {listed(table.columns)}"
        problems.append(f"{table.name}: has no column {column!r}, which {'.'.join(map(str, path))} names{near}")
    if problems:
        raise UserError(*problems)


def present_groups(schema: Schema, table: Table) -> dict[str, Group]:
    """The groups that the table has columns of.

    Raises:
        UserError: If there are none, or if a group's weights are missing.

    """
    groups = {}
    for name, group in schema.groups.items():
        if any(column in table.columns for column in group.columns):
            groups[name] = group
    for name, group in groups.items():
        weights = weights_column(group)
        if weights is not None and weights not in table.columns:
            raise UserError(f"{table.name}: has no column {weights!r}, the weights of {name!r}")
    if not groups:
        wanted_columns = listed(columns_of(schema.groups.values()))
        raise UserError(f"{table.name}: has none of the columns {wanted_columns}; received {listed(table.columns)}")
    return groups


def missing_columns(schema: Schema, table: Table, groups: Iterable[str] | None = None) -> str | None:
    """Which columns of a schema's groups a table lacks, as a line; None for none.

    Args:
        schema: The schema.
        table: The table.
        groups: The groups that are asked for; all by default.

    """
    names = list(schema.groups if groups is None else groups)
    wanted = columns_of(schema.groups[name] for name in names if name in schema.groups)
    missing = [column for column in wanted if column not in table.columns]
    if not missing:
        return None
    columns, verb = ("column", "is") if len(missing) == 1 else ("columns", "are")
    return f"{table.name}: has no {columns} {listed(map(repr, missing))}, which {verb} treated as missing in every row"


def columns_of(groups: Iterable[Group], more_columns: Sequence[str] = (), table: Table | None = None) -> list[str]:
    """Every column of the groups and the further ones, once; with `table`, only those that it has."""
    columns: dict[str, None] = {}
    for group in groups:
        weights = weights_column(group)
        columns.update(dict.fromkeys(group.columns))
        if weights:
            columns[weights] = None
    columns.update(dict.fromkeys(more_columns))
    return [column for column in columns if table is None or column in table.columns]


def weights_column(group: Group) -> str | None:
    """The column with the weights of the group's items, if it has one."""
    weights: str | None = getattr(group.extractor, "weights", None)
    return weights
