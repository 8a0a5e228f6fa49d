"""The data sets that come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import pyarrow as pa

from feat2vec.errors import UserError, suggest
from feat2vec.table.sources import datasets
from feat2vec.table.sources.csv import open_csv
from feat2vec.table.sources.registry import Scheme, register
from feat2vec.table.types import TablePart, column_types


def open_bundled(source: str) -> TablePart:
    """Return the part of a data set, such as `dataset:artworks`."""
    name = source.removeprefix("dataset:")
    schema = datasets.SCHEMAS.get(name)
    if schema is None:
        near = suggest(name, datasets.SCHEMAS) or f"; there is {', '.join(datasets.SCHEMAS)}"
        raise UserError(f"{source}: no bundled dataset {name!r}{near}")
    types = column_types(source, [(column, pa.type_for_alias(alias)) for column, alias in schema.items()])

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with resources.as_file(resources.files(datasets) / f"{name}.csv") as path:
            yield from open_csv(str(path), None, ",").read(columns)

    return TablePart(source, types, read)


register(Scheme("dataset:", "dataset:NAME", "dataset:artworks", open_bundled))
