"""One CSV file: how it is opened, and the row that is added at its end."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.sources.registry import FileFormat, register
from feat2vec.table.types import TablePart, column_types

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


LONGEST_LINE = 2 * BLOCK_BYTES  # characters that are held to find what is wrong with a row


def find_problem(file: CsvFile, stream: pa.NativeFile) -> str | None:
    """Return a message on the first row that is wrong; None if no row is."""
    number = 0
    row: list[str] = []
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    rows = csv.reader(chain(_lines(text), [file.last_row()]), delimiter=file.delimiter)
    try:
        next(filter(None, rows))  # the header is the first line that is not blank
        for row in rows:
            number += bool(row) or len(file.names) == 1
            problem = _row_problem(file, row) if row else None
            if problem and LAST_FIELD not in row[-1]:
                return f"{file.path}: row {number}: {problem}"
    except csv.Error:  # a value as long as several blocks
        return (
            f"{file.path}: row {number + 1}: a value or a line is longer than {LONGEST_LINE:,} characters: "
            f"a quote may be opened and never closed; {BLOCK_BYTES:,} bytes of a row can be read"
        )
    if row == [LAST_FIELD] * len(file.names):
        return None
    return f"{file.path}: row {number}: a quote is opened and never closed: close it, or double the quotes in a value"


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines of a file, none of which is held when it is too long."""
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise csv.Error("line is too long")
        yield line


def _row_problem(file: CsvFile, row: list[str]) -> str | None:
    """Say why a row cannot be read."""
    if len(row) != len(file.names):
        return (
            f"expected {len(file.names)} fields, received {len(row)}: "
            f"put values that hold {file.delimiter!r} in double quotes, or fix the row"
        )
    sizes = [len(value.encode(errors="surrogateescape")) for value in row]
    if sum(sizes) > BLOCK_BYTES:  # between one and two blocks it depends on where the row begins
        longest, name = max(zip(sizes, file.names, strict=True))
        return (
            f"has {sum(sizes):,} bytes, {longest:,} of them in column {name!r}, and {BLOCK_BYTES:,} can be read: "
            "shorten the value, or write the table as Parquet"
        )
    for name, value in zip(file.names, row, strict=True):
        if not value.isascii() and any("\udc80" <= letter <= "\udcff" for letter in value):
            return f"column {name!r} is not UTF-8: {value.encode(errors='surrogateescape')[:60]!r}: save it as UTF-8"
        if "\0" in value:
            return f"column {name!r} holds a NUL byte: {value[:60]!r}: remove it"
    return None


LONGEST_HEADER_BYTES = BLOCK_BYTES // 2
# What is said of a file that seems to have one column.
DELIMITERS = "if it should have more, put commas, semicolons, tabs or | between them, in every row"
_QUOTE_OR_LINE_END = re.compile(rb'["\r\n]')
_QUOTED = re.compile(rb'"[^"]*"')


class _RowBytes(io.RawIOBase):
    """The bytes after the header, then a last row that is added; a NUL byte is refused."""

    def __init__(self, rest: bytes, file: pa.NativeFile, last_row: str) -> None:
        super().__init__()
        self._rest = rest
        self._file = file
        self._last_row = last_row.encode()
        self._newline = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        block: bytes = self._rest[:size] or self._file.read(size)
        self._rest = self._rest[size:]
        if b"\0" in block:
            raise pa.ArrowInvalid("NUL byte")
        if block:
            self._newline = block.endswith((b"\n", b"\r"))
            return block
        end, self._last_row = self._last_row, b""
        return end if self._newline or not end else b"\n" + end


def open_csv(path: str, compression: str | None, delimiter: str | None) -> TablePart:
    """Return the part of one file.

    Args:
        path: of the file.
        compression: `gzip`, `zstd` or None.
        delimiter: if None, a comma, or the most frequent of `;`, tab and `|` in a header without a comma.

    Raises:
        UserError: when the header cannot be read.

    """
    file = CsvFile(path, compression)
    try:
        with file.open() as stream:
            header, _ = _split_header(path, stream.read(BLOCK_BYTES))
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read: {error}: is the file whole?") from error
    delimiter = delimiter or _delimiter(header)
    try:
        names = next(csv.reader(io.StringIO(_decode(path, header), newline=""), delimiter=delimiter), [])
    except csv.Error as error:
        raise UserError(
            f"{path}: header: {error}: the first line must hold the names of the columns; is it there?"
        ) from error
    types = column_types(path, [(name, pa.string()) for name in names])
    file = CsvFile(path, compression, tuple(types), delimiter)
    return TablePart(path, types, lambda columns: _read(file, columns))


def _split_header(path: str, head: bytes) -> tuple[bytes, bytes]:
    """Return the first line that is not blank, and the bytes after it."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path}: is UTF-16, expected UTF-8: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    head = head.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    if not head:
        raise UserError(f"{path}: is empty: expected a header line with the names of the columns")
    end = _line_end(head)
    if end is None:
        raise UserError(f"{path}: header: a quote is opened and never closed: close it")
    header, rest = head[:end], head[end:]
    if end > LONGEST_HEADER_BYTES:
        raise UserError(
            f"{path}: header: is longer than {LONGEST_HEADER_BYTES:,} bytes: "
            "the first line must hold the columns' names"
        )
    if b"\0" in header:
        raise UserError(f"{path}: header: holds a NUL byte: is it a text file?")
    return header, rest[2 if rest.startswith(b"\r\n") else 1 :]


def _line_end(text: bytes) -> int | None:
    """Where the first line ends that is not within quotes; None where a quote stays open."""
    at = 0
    while match := _QUOTE_OR_LINE_END.search(text, at):
        if match[0] != b'"':
            return match.start()
        at = text.find(b'"', match.end()) + 1
        if not at:
            return None
    return len(text)


def _decode(path: str, header: bytes) -> str:
    try:
        return header.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: header: is not UTF-8 (byte {error.start + 1} is 0x{header[error.start]:02x}): save it as UTF-8"
        ) from error


def _delimiter(header: bytes) -> str:
    bare = _QUOTED.sub(b"", header)
    most_frequent = max((b";", b"\t", b"|"), key=bare.count)
    return "," if b"," in bare or most_frequent not in bare else most_frequent.decode()


def _read(file: CsvFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        with file.open() as stream:
            _, rest = _split_header(file.path, stream.read(BLOCK_BYTES))
            yield from _without_last_row(_reader(file, _RowBytes(rest, stream, file.last_row()), columns))
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error


def _reader(file: CsvFile, rows: _RowBytes, columns: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as arrow_csv

    reader: Iterator[pa.RecordBatch] = arrow_csv.open_csv(
        rows,
        arrow_csv.ReadOptions(column_names=file.names, block_size=BLOCK_BYTES, use_threads=False),
        # in a file of one column a blank line is a missing value, in others it is no row
        arrow_csv.ParseOptions(
            delimiter=file.delimiter, newlines_in_values=True, ignore_empty_lines=len(file.names) > 1
        ),
        arrow_csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(file.names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    return reader


def _without_last_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    previous_batch = None
    for batch in batches:
        if batch.num_rows:
            if previous_batch is not None:
                yield previous_batch
            previous_batch = batch
    if previous_batch is None or previous_batch.column(0)[-1].as_py() != LAST_FIELD:
        raise pa.ArrowInvalid("a quote is opened and never closed")
    yield previous_batch.slice(0, previous_batch.num_rows - 1)


def _unreadable(file: CsvFile, error: Exception) -> UserError:
    """Say what is wrong with the file, which is read a second time, slowly, to find the row."""
    limit = csv.field_size_limit(LONGEST_LINE)  # so that what is too long can be told from a quote that is open
    try:
        with file.open() as stream:
            return UserError(find_problem(file, stream) or f"{file.path}: cannot be read as CSV: {error}")
    except (OSError, pa.ArrowException) as reason:
        return UserError(f"{file.path}: cannot be read: {reason}: is the file whole?")
    finally:
        csv.field_size_limit(limit)


register(
    FileFormat(
        "CSV", (".csv",), lambda path, compression: open_csv(path, compression, None), typed=False, compressible=True
    ),
    FileFormat(
        "TSV",
        (".tsv", ".tab"),
        lambda path, compression: open_csv(path, compression, "\t"),
        typed=False,
        compressible=True,
    ),
)
