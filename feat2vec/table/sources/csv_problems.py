"""Find the row of a CSV file that cannot be read, and say why; the file is read slowly, by Python."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from feat2vec.table.sources.csv_file import BLOCK_BYTES, LAST_FIELD, CsvFile

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
