"""Files of Arrow IPC, of the file format (Feather) or the stream format."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.integrity import damage_named
from feat2vec.table.sources.registry import FileFormat, register
from feat2vec.table.types import TablePart, column_types


def open_arrow(path: str) -> TablePart:
    """Return the part of one Arrow IPC file, of the file format (Feather) or the stream format."""
    with damage_named(path, "Arrow"), pa.OSFile(path) as file:
        schema = _open_ipc(path, file, None).schema
        types = column_types(path, zip(schema.names, schema.types, strict=True))

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
        with damage_named(path, "Arrow"), pa.OSFile(path) as file:
            reader = _open_ipc(path, file, options)
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                yield batch.select(columns)

    return TablePart(path, types, read)


def _open_ipc(path: str, file: pa.NativeFile, options: object) -> pa.RecordBatchReader:
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"FEA1"):
        raise UserError(f"{path}: is Feather version 1, which is no longer read: write it again as version 2")
    return (pa.ipc.open_file if magic == b"ARROW1" else pa.ipc.open_stream)(file, options=options)


register(FileFormat("Arrow", (".arrow", ".feather", ".ipc"), lambda path, _: open_arrow(path)))
