"""A table's rows for a new file: columns that are only carried along keep what they hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from feat2vec.table.number_texts import NumberTexts, field_of_form, numbers_of_texts
from feat2vec.table.table import Table
from feat2vec.table.types import UNTYPED, is_any_list, is_any_text, is_supported, is_text, knows_time_zone, normal_type


@dataclass(frozen=True)
class Rewriting:
    """What a new file has of a table.

    Attributes:
        table: To be read: columns of other types are as they are found.
        columns: Those that can be written, in order.
        left_out: The others: what they hold cannot be read, or Parquet has no type for it.
        forms: Of columns whose text is written as numbers, the form of the text.

    """

    table: Table
    columns: Sequence[str]
    left_out: tuple[str, ...]
    forms: Mapping[str, str]

    def field(self, name: str) -> pa.Field:
        """A column of the file."""
        if name in self.forms:
            return field_of_form(name, self.forms[name])
        return pa.field(name, self.table.columns[name])

    def schema(self, fields: Sequence[pa.Field]) -> pa.Schema:
        """The schema of the file, which says whether feat2vec takes its columns for text without types."""
        return pa.schema(fields, None if self.table.typed else {UNTYPED: b"1"})

    def column(self, name: str, values: pa.Array) -> pa.Array:
        """Values of a column as the file has them."""
        if name in self.forms:
            return numbers_of_texts(values, self.forms[name])
        type_ = self.table.columns[name]
        return values if values.type == type_ else values.cast(type_)


def rewriting(table: Table, used: Collection[str] = ()) -> Rewriting:
    """How a table is written again.

    Args:
        table: It.
        used: Columns whose values are read, too: those must be of types that can be used.

    Returns:
        What is read, and what is written of it.

    Raises:
        UserError: The table cannot be read.

    """
    as_found, left_out = [], []
    for name in table.columns:
        if name in used:
            continue
        type_ = table.type_as_found(name)
        if type_ is not None and not _is_plain(type_) and _is_writable(name, type_):
            as_found.append(name)
        elif type_ is None or not is_supported(normal_type(type_)) or not knows_time_zone(normal_type(type_)):
            left_out.append(name)
    table = table.with_columns_as_found(as_found)
    columns = [name for name in table.columns if name not in left_out]
    return Rewriting(table, columns, tuple(left_out), {} if table.typed else _forms(table, columns))


def _is_plain(type_: pa.DataType) -> bool:
    """Whether any value of a type can be read: text, numbers, truth values, and lists of them."""
    t = pa.types
    if is_any_list(type_) or t.is_dictionary(type_):
        return _is_plain(type_.value_type)
    if is_any_text(type_):
        return not (t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_))
    return any(test(type_) for test in (t.is_boolean, t.is_integer, t.is_floating, t.is_decimal, t.is_null))


def _is_writable(name: str, type_: pa.DataType) -> bool:
    import pyarrow.parquet as pq

    if isinstance(type_, pa.OpaqueType):  # a column that nothing reads
        return False
    try:
        pq.write_table(pa.schema([(name, type_)]).empty_table(), pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


def _forms(table: Table, columns: Sequence[str]) -> dict[str, str]:
    """The forms of the columns of text that can be written as numbers; reads the table."""
    texts = {name: NumberTexts() for name in columns if is_text(table.columns[name])}
    if not texts:
        return {}
    for batch in table.batches(list(texts)):
        for name, of_column in texts.items():
            of_column.add(batch.data.column(name))
    return {name: form for name, of_column in texts.items() if (form := of_column.form) is not None}


__all__ = ["Rewriting", "rewriting"]
