"""Folders named `year=2020`, as Hive and Spark write them: each is a column of text of the files below it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.types import TablePart

_MISSING = "__HIVE_DEFAULT_PARTITION__"


def partitioned(part: TablePart, source: str, path: str) -> TablePart:
    """Return the part of a file, with a column for each folder `name=value` between the source and the file."""
    folder_values: dict[str, str | None] = {}
    for folder in _folders(source, path):
        name, equals, value = folder.partition("=")
        if name and equals:
            folder_values[unquote(name)] = None if value == _MISSING else unquote(value)
    if not folder_values:
        return part
    for name in folder_values:
        if name in part.types:
            raise UserError(f"{path}: column {name!r} is in the file and in its folder's name: rename one of them")

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        file_columns = [name for name in columns if name in part.types]
        if not file_columns:
            file_columns = list(part.types)[:1]  # which tells how many rows there are
        for batch in part.read(file_columns):
            arrays = []
            for name in columns:
                if name in folder_values:
                    value = pa.scalar(folder_values[name], pa.string())
                    arrays.append(pa.repeat(value, batch.num_rows))
                else:
                    arrays.append(batch.column(name))
            yield pa.RecordBatch.from_arrays(arrays, names=columns)

    return TablePart(part.source, {**part.types, **dict.fromkeys(folder_values, pa.string())}, read, part.typed)


def _folders(source: str, path: str) -> list[str]:
    """The names of the folders below a folder or a glob's fixed part."""
    if source == path:
        return []
    root = source
    while glob.has_magic(root) and not os.path.isdir(root):
        root = os.path.dirname(root)
    return os.path.relpath(os.path.dirname(path) or ".", root or ".").split(os.sep)
