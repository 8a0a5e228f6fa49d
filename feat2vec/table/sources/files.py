"""Files, globs and folders to the parts of a table."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from feat2vec.errors import UserError, suggest
from feat2vec.table.database import connect
from feat2vec.table.sources.csv import csv_part
from feat2vec.table.sources.json import json_part
from feat2vec.table.sources.lines import lines_part
from feat2vec.table.sources.partitions import partitioned
from feat2vec.table.types import Part, batch_rows, column_types

_FORMATS = {
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".csv": "CSV",
    ".tsv": "TSV",
    ".tab": "TSV",
    ".jsonl": "JSON",
    ".ndjson": "JSON",
    ".json": "JSON",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".txt": "lines",
}
_TEXT = ("CSV", "TSV", "JSON", "lines")
SMALL = 2**16  # bytes of a file whose columns are read as they come
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}


def open_files(source: str) -> tuple[list[Part], bool]:
    """Return the files that a path, a glob or a folder stands for, and whether their columns have types."""
    paths = find_files(source)
    formats = {path: _format(path) for path in paths}
    first = next(iter(formats.items()))
    for path, (form, _) in formats.items():
        if form != first[1][0]:
            raise UserError(
                f"{source}: holds files of more than one format: {first[0]} is {first[1][0]} and {path} is {form}: "
                "use a glob, such as '*.parquet', that matches files of one"
            )
    parts = [partitioned(_part(path, form, compression), source, path) for path, (form, compression) in formats.items()]
    return parts, first[1][0] not in ("CSV", "TSV")


def find_files(source: str) -> list[str]:
    """Return the files of a path, a glob or a folder, sorted; hidden ones and those that start with `_` are no data."""
    if os.path.isfile(source):
        return [source]
    if os.path.isdir(source):
        found = sorted(_below(source))
        if not found:
            raise UserError(f"{source}: the folder has no data files: received nothing but hidden files, or none")
        return found
    if glob.has_magic(source):
        found = sorted(path for path in glob.glob(source, recursive=True) if os.path.isfile(path))
        if not found:
            raise UserError(f"{source}: no file matches: check the pattern and the folder")
        return found
    raise UserError(_missing(source))


def _below(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(where, name) for name in files if not name.startswith((".", "_")))


def _missing(source: str) -> str:
    path = Path(source)
    if path.is_symlink():
        return f"{source}: is a link to {os.readlink(path)}, which is no file or folder: check the path"
    if path.exists():
        return f"{source}: is neither a file nor a folder, but a device, a pipe or a socket: write its rows to a file"
    if not path.parent.is_dir():
        return f"{source}: no such file: the folder {path.parent} does not exist either"
    near = suggest(path.name, sorted(entry.name for entry in path.parent.iterdir()))
    return f"{source}: no such file or folder{near or ': check the path'}"


def _format(path: str) -> tuple[str, str | None]:
    """Return the format and the compression that the name of a file tells."""
    if any("\udc80" <= letter <= "\udcff" for letter in path):  # what Arrow and DuckDB cannot open
        raise UserError(f"{path}: its name is not UTF-8: rename the file")
    stem, ending = os.path.splitext(path.lower())
    compression = _COMPRESSIONS.get(ending)
    if compression:
        stem, ending = os.path.splitext(stem)
    form = _FORMATS.get(ending)
    if form is None:
        raise UserError(
            f"{path}: unknown format {ending!r}{suggest(ending, _FORMATS)}",
            f"known: {' '.join(_FORMATS)}; CSV, TSV, JSON and lines also with {' '.join(_COMPRESSIONS)}",
            "rename it, or write a glob such as '*.parquet' to leave it out",
        )
    if compression and form not in _TEXT:
        raise UserError(f"{path}: {form} cannot be read compressed as a whole: decompress it; it compresses inside")
    return form, compression


def _part(path: str, form: str, compression: str | None) -> Part:
    if form == "Parquet":
        return parquet_part(path)
    if form == "Arrow":
        return arrow_part(path)
    if form == "JSON":
        return json_part(path, compression)
    if form == "lines":
        return lines_part(path, compression)
    return csv_part(path, compression, "\t" if form == "TSV" else None)


@contextmanager
def _whole(path: str, form: str) -> Iterator[None]:
    """Says of a file that cannot be read which one it is."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: the name of a column is not UTF-8: rename it, or write the file again") from error
    except (pa.ArrowException, OSError) as error:
        reason = f"{str(error).splitlines()[0]:.100}"
        raise UserError(
            f"{path}: cannot be read as {form}: {reason}",
            f"is it whole, and is it really {form}? write it again",
        ) from error


def parquet_part(path: str) -> Part:
    """One Parquet file; strings that repeat come as dictionary<int32, string>."""
    import pyarrow.parquet as pq

    with _whole(path, "Parquet"), pq.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        types = column_types(path, zip(schema.names, schema.types, strict=True))
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    rows = batch_rows(size / max(metadata.num_rows, 1))
    repeated = _repeated(path, schema) if size > SMALL else set()

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        dictionaries = [name for name in columns if name in repeated]
        with _whole(path, "Parquet"), pq.ParquetFile(path, read_dictionary=dictionaries, buffer_size=2**20) as file:
            # one call for all the row groups would keep something of each in memory until the last
            for group in range(metadata.num_row_groups):
                for batch in file.iter_batches(rows, row_groups=[group], columns=columns):
                    # `columns` are paths there: `a.b` also brings the field b of a struct a
                    yield batch.select(columns)

    return Part(path, types, read)


def _repeated(path: str, schema: pa.Schema) -> set[str]:
    """Return the string columns whose values take less than four bytes each, as only a dictionary lets them.

    On two million rows reading such a column as a dictionary is 5 times as fast, and any other 6 times as slow. DuckDB
    reads the sizes: PyArrow (26.0.1) ends the process on columns' metadata that contradict themselves.
    """
    strings = {field.name for field in schema if field.type in (pa.string(), pa.large_string())}
    if not strings:
        return set()
    import duckdb

    sizes = "select path_in_schema, sum(total_uncompressed_size) < 4 * sum(num_values) from parquet_metadata($path)"
    try:
        with connect(threads=1) as connection:
            given = {"path": glob.escape(os.path.abspath(path))}  # DuckDB takes a path for a pattern
            found = connection.execute(f"{sizes} group by path_in_schema", given).fetchall()
    except duckdb.Error:  # whether the file can be read is told by PyArrow, which reads it
        return set()
    return {name for name, is_repeated in found if is_repeated and name in strings}


def arrow_part(path: str) -> Part:
    """One Arrow IPC file, of the file format (Feather) or the stream format."""
    with _whole(path, "Arrow"), pa.OSFile(path) as file:
        schema = _open_ipc(path, file, None).schema
        types = column_types(path, zip(schema.names, schema.types, strict=True))

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        wanted = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
        with _whole(path, "Arrow"), pa.OSFile(path) as file:
            reader = _open_ipc(path, file, wanted)
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                yield batch.select(columns)

    return Part(path, types, read)


def _open_ipc(path: str, file: pa.NativeFile, options: object) -> pa.RecordBatchReader:
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"FEA1"):
        raise UserError(f"{path}: is Feather version 1, which is no longer read: write it again as version 2")
    return (pa.ipc.open_file if magic == b"ARROW1" else pa.ipc.open_stream)(file, options=options)
