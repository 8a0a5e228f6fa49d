"""Frames of polars, lazy or not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.sources.registry import ObjectKind, register
from feat2vec.table.types import BATCH_ROWS, TablePart, column_types, unsupported

if TYPE_CHECKING:
    import polars


def open_if_polars(source: object) -> TablePart | None:
    """Return the part of a frame, or None for an object that is no frame of polars."""
    polars = sys.modules.get("polars")  # while polars is not imported, nothing is a frame of it
    if polars is None or not isinstance(source, (polars.DataFrame, polars.LazyFrame)):
        return None
    return open_polars(source)


def open_polars(frame: polars.DataFrame | polars.LazyFrame) -> TablePart:
    """Return the part of a frame; a lazy one is collected batch by batch."""
    import polars

    source = f"the polars {type(frame).__name__}"
    lazy = frame.lazy()
    try:
        schema = lazy.collect_schema()
    except polars.exceptions.PolarsError as error:
        raise UserError(f"{source}: {str(error).splitlines()[0]}") from error
    types = column_types(source, [(name, _polars_type(name, type_)) for name, type_ in schema.items()])

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            for chunk in lazy.select(columns).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True):
                yield from chunk.to_arrow().to_batches(BATCH_ROWS)
        except polars.exceptions.PolarsError as error:
            raise UserError(f"{source}: {str(error).splitlines()[0]}") from error

    return TablePart(source, types, read)


def _polars_type(name: str, type_: polars.DataType) -> pa.DataType:
    import polars

    if type_ == polars.Object:  # its Arrow form is the addresses of Python objects
        return unsupported("Python objects")
    try:
        return polars.DataFrame(schema=polars.Schema({name: type_})).to_arrow().schema.field(0).type
    except pa.ArrowException:
        return unsupported(f"polars {type_}")


register(ObjectKind("a polars frame", open_if_polars))
