"""Frames of pandas and polars, and whatever speaks Arrow, to the one part of a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.types import BATCH_ROWS, Part, column_types, unsupported

if TYPE_CHECKING:
    import polars
    import pyarrow.dataset as arrow_dataset


def open_frame(source: object) -> Part | None:
    """Return the part that a frame, an Arrow object or a stream is, or None when it is none of them."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas and isinstance(source, pandas.DataFrame):
        from feat2vec.table.sources.pandas import pandas_part

        return pandas_part(source)
    if polars and isinstance(source, (polars.DataFrame, polars.LazyFrame)):
        return _polars_part(source)
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return _table_part(source)
    if isinstance(source, pa.RecordBatchReader):
        return _reader_part(source)
    if type(source).__module__ == "pyarrow._dataset" and hasattr(source, "scanner"):
        return _dataset_part(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _stream_part(source)
    return None


def _polars_part(frame: polars.DataFrame | polars.LazyFrame) -> Part:
    import polars

    source = f"the polars {type(frame).__name__}"
    lazy = frame.lazy()
    try:
        schema = lazy.collect_schema()
    except polars.exceptions.PolarsError as error:
        raise UserError(f"{source}: {str(error).splitlines()[0]}") from error
    types = column_types(source, [(name, _polars_type(name, kind)) for name, kind in schema.items()])

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            for chunk in lazy.select(columns).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True):
                yield from chunk.to_arrow().to_batches(BATCH_ROWS)
        except polars.exceptions.PolarsError as error:
            raise UserError(f"{source}: {str(error).splitlines()[0]}") from error

    return Part(source, types, read)


def _polars_type(name: str, kind: polars.DataType) -> pa.DataType:
    import polars

    if kind == polars.Object:  # its Arrow form is the addresses of Python objects
        return unsupported("Python objects")
    try:
        return polars.DataFrame(schema=polars.Schema({name: kind})).to_arrow().schema.field(0).type
    except pa.ArrowException:
        return unsupported(f"polars {kind}")


def _table_part(table: pa.Table | pa.RecordBatch) -> Part:
    source = "the table"

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = table.select(columns)
        yield from wanted.to_batches(max_chunksize=BATCH_ROWS) if isinstance(wanted, pa.Table) else [wanted]

    return Part(source, column_types(source, _fields(table.schema)), read)


def _dataset_part(dataset: arrow_dataset.Dataset) -> Part:
    source = "the dataset"

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from dataset.to_batches(columns=columns, batch_size=BATCH_ROWS, batch_readahead=2)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{source}: cannot be read: {error}: are its files whole?") from error

    return Part(source, column_types(source, _fields(dataset.schema)), read)


def _fields(schema: pa.Schema) -> list[tuple[object, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _reader_part(reader: pa.RecordBatchReader) -> Part:
    source = "the RecordBatchReader"
    used = False

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        nonlocal used
        if used:
            raise _used_up(source)
        used = True
        yield from _batches(source, reader, columns)

    return Part(source, column_types(source, _fields(reader.schema)), read)


def _stream_part(stream: object) -> Part:
    """Something that gives a stream each time it is asked, or once: that shows only when it is asked again."""
    source = f"the {type(stream).__name__}"
    try:
        first: list[pa.RecordBatchReader] = [pa.RecordBatchReader.from_stream(stream)]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError(f"{source}: is not a stream of a table's rows: {error}") from error
    most = 0

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        nonlocal most
        reader = first.pop() if first else None
        try:
            again = reader or pa.RecordBatchReader.from_stream(stream)
        except Exception as error:  # what a foreign object raises when it is used up is its own choice
            raise _used_up(source) from error
        rows = 0
        for batch in _batches(source, again, columns):
            rows += batch.num_rows
            most = max(most, rows)
            yield batch
        if rows < most:
            raise _used_up(source)

    return Part(source, column_types(source, _fields(first[0].schema)), read)


def _batches(source: str, reader: pa.RecordBatchReader, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader:
            yield batch.select(columns)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{source}: its stream broke off: {error}") from error


def _used_up(source: str) -> UserError:
    return UserError(f"{source}: can be read only once, and has been: pass a table, a frame or a file instead")
