"""Files of plain text: a row for each line, in the column `text`."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.sources.registry import FileFormat, register
from feat2vec.table.types import BATCH_BYTES, BATCH_ROWS, TablePart

LONGEST_LINE = 2**24  # bytes of a line


def open_lines(path: str, compression: str | None) -> TablePart:
    """Return the part of one file in UTF-8; an empty line is a missing text."""

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        row = size = 0
        try:
            with pa.input_stream(path, compression=compression) as stream:
                lines: list[str | None] = []
                reader = io.BufferedReader(stream, 1 << 20)
                while line := reader.readline(LONGEST_LINE + 1):
                    row += 1
                    if len(line) > LONGEST_LINE:
                        raise UserError(
                            f"{path}: row {row}: is longer than {LONGEST_LINE:,} bytes: break it into lines"
                        )
                    text = line.decode("utf-8-sig" if row == 1 else "utf-8").rstrip("\r\n")
                    lines.append(text or None)
                    size += len(line)
                    if len(lines) == BATCH_ROWS or size > BATCH_BYTES:
                        yield _batch(lines, columns)
                        lines, size = [], 0
                yield _batch(lines, columns)
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} is 0x{error.object[error.start]:02x}"
            raise UserError(f"{path}: row {row}: is not UTF-8 ({byte}): save it as UTF-8") from error
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: cannot be read: {error}: is the file whole?") from error

    return TablePart(path, {"text": pa.string()}, read)


def _batch(lines: list[str | None], columns: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())] * len(columns), names=columns)


register(FileFormat("lines of text", (".txt",), open_lines, compressible=True))
