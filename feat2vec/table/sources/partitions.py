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
    """The part of a file with the columns that the folders between the source and the file tell."""
    told = {
        unquote(name): None if value == _MISSING else unquote(value)
        for name, equals, value in (folder.partition("=") for folder in _folders(source, path))
        if name and equals
    }
    if not told:
        return part
    both = [name for name in told if name in part.types]
    if both:
        raise UserError(f"{path}: column {both[0]!r} is in the file and in its folder's name: rename one of them")

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        own = [name for name in columns if name in part.types]
        for batch in part.read(own or list(part.types)[:1]):  # something has to tell how many rows there are
            arrays = [
                pa.repeat(pa.scalar(told[name], pa.string()), batch.num_rows) if name in told else batch.column(name)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=columns)

    return TablePart(part.source, {**part.types, **dict.fromkeys(told, pa.string())}, read)


def _folders(source: str, path: str) -> list[str]:
    """The names of the folders below a folder or a glob's fixed part."""
    if source == path:
        return []
    fixed = source
    while glob.has_magic(fixed) and not os.path.isdir(fixed):
        fixed = os.path.dirname(fixed)
    return os.path.relpath(os.path.dirname(path), fixed or ".").split(os.sep)
