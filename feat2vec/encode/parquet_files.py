"""Parquet files of an encoder: written whole, and checked when they are read, as their bytes may be anybody's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# A file may claim far more rows than it holds. Up to this many bytes that is harmless; beyond, a table may be this many
# times larger than its file.
HARMLESS_BYTES = 1 << 28
MOST_EXPANSION = 10_000


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table; its folder is created."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path.absolute())  # in any other path PyArrow takes a `~` for the home folder


def read_parquet(path: Path, expected: pa.Schema | None = None) -> pa.Table:
    """Read a table that `write_parquet` wrote; with `expected`, a table of exactly these columns.

    Raises:
        ValueError: If it has other columns, or claims far more rows than a file of its size can hold.
        pa.ArrowException: If the file's offsets or lengths are not valid.

    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path.absolute()) as file:
        if expected is not None:
            _check_columns_and_size(path, file, expected)
        table = file.read()
    table.validate(full=True)
    return table


def _check_columns_and_size(path: Path, file: pq.ParquetFile, expected: pa.Schema) -> None:
    columns = file.schema_arrow
    if columns.names != expected.names or columns.types != expected.types:
        raise ValueError(f"{path.name} has other columns than {', '.join(expected.names)}, or of other types")
    rows = file.metadata.num_rows
    size = rows * sum(_least_bytes(column_type) for column_type in expected.types)
    if size > HARMLESS_BYTES and size > MOST_EXPANSION * path.stat().st_size:
        raise ValueError(f"{path.name} says that it has {rows:,} rows, more than fit in it")


def _least_bytes(column_type: pa.DataType) -> int:
    """The least number of bytes that a value of this type takes."""
    if pa.types.is_fixed_size_list(column_type):
        return int(column_type.list_size) * _least_bytes(column_type.value_type)
    return 4 if pa.types.is_string(column_type) else int(column_type.bit_width) // 8
