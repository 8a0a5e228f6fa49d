"""Objects of PyArrow, and any object with the Arrow stream interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.number_texts import with_texts
from feat2vec.table.sources.registry import ObjectKind, register
from feat2vec.table.types import BATCH_ROWS, UNTYPED, TablePart, column_types

if TYPE_CHECKING:
    import pyarrow.dataset as arrow_dataset


def open_if_arrow(source: object) -> TablePart | None:
    """Return the part of an object of PyArrow, or None for another object."""
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return _open_table(source)
    if isinstance(source, pa.RecordBatchReader):
        return _open_reader(source)
    if type(source).__module__ == "pyarrow._dataset" and hasattr(source, "scanner"):
        return _open_dataset(source)
    return None


def open_if_stream(source: object) -> TablePart | None:
    """Return the part of an object with the Arrow stream interface, or None for an object without it."""
    return _open_stream(source) if hasattr(source, "__arrow_c_stream__") else None


def _open_table(table: pa.Table | pa.RecordBatch) -> TablePart:
    source = "the table"

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        selected = table.select(columns)
        yield from selected.to_batches(max_chunksize=BATCH_ROWS) if isinstance(selected, pa.Table) else [selected]

    typed = UNTYPED not in (table.schema.metadata or {})
    return with_texts(TablePart(source, column_types(source, _fields(table.schema)), read, typed), table.schema)


def _open_dataset(dataset: arrow_dataset.Dataset) -> TablePart:
    source = "the dataset"

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from dataset.to_batches(columns=columns, batch_size=BATCH_ROWS, batch_readahead=2)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{source}: cannot be read: {error}: are its files whole?") from error

    return TablePart(source, column_types(source, _fields(dataset.schema)), read)


def _fields(schema: pa.Schema) -> list[tuple[object, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _open_reader(reader: pa.RecordBatchReader) -> TablePart:
    source = "the RecordBatchReader"
    used = False

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        nonlocal used
        if used:
            raise _used_up(source)
        used = True
        yield from _batches(source, reader, columns)

    return TablePart(source, column_types(source, _fields(reader.schema)), read)


def _open_stream(stream: object) -> TablePart:
    """Return the part of an object that gives a stream at each request, or only once.

    That an object gives only one stream shows when it is asked again: it raises, or gives fewer rows.
    """
    source = f"the {type(stream).__name__}"
    try:
        first_reader = pa.RecordBatchReader.from_stream(stream)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError(f"{source}: is not a stream of a table's rows: {error}") from error
    types = column_types(source, _fields(first_reader.schema))
    unread: list[pa.RecordBatchReader] = [first_reader]
    most_rows = 0

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        nonlocal most_rows
        try:
            reader = unread.pop() if unread else pa.RecordBatchReader.from_stream(stream)
        except Exception as error:  # a foreign object may raise anything when it is used up
            raise _used_up(source) from error
        rows = 0
        for batch in _batches(source, reader, columns):
            rows += batch.num_rows
            most_rows = max(most_rows, rows)
            yield batch
        if rows < most_rows:
            raise _used_up(source)

    return TablePart(source, types, read)


def _batches(source: str, reader: pa.RecordBatchReader, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader:
            yield batch.select(columns)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{source}: its stream broke off: {error}") from error


def _used_up(source: str) -> UserError:
    return UserError(f"{source}: can be read only once, and has been: pass a table, a frame or a file instead")


register(
    ObjectKind("a table, record batch, reader or dataset of PyArrow", open_if_arrow),
    # frames of pandas and polars have the interface too
    ObjectKind("an object with the Arrow stream interface", open_if_stream, fallback=True),
)
