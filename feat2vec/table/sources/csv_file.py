"""One CSV file: how it is opened, and the row that is added at its end."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

BLOCK_BYTES = 2**23  # that are parsed at once; a row cannot be longer
LAST_FIELD = "\x1eend of the file\x1e"  # in the row that is added: when it does not come back, a quote is open


@dataclass(frozen=True)
class CsvFile:
    """A file, the names of its columns and its delimiter."""

    path: str
    compression: str | None
    names: tuple[str, ...] = ()
    delimiter: str = ","

    def open(self) -> pa.NativeFile:
        return pa.input_stream(self.path, compression=self.compression)

    def last_row(self) -> str:
        return self.delimiter.join([LAST_FIELD] * len(self.names)) + "\n"
