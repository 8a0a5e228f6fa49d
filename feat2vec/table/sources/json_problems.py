"""Find the row of a JSON file that cannot be read, and say why; the file is read slowly, by Python."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

import pyarrow as pa

LONGEST_OBJECT_BYTES = 2**24  # DuckDB's own limit
LONGEST_ARRAY_BYTES = 2**24  # of an array that is held to find what is wrong in it
MOST_DIGITS = 1000  # of an integer: far more than any type holds, and fewer than Python reads
DEEPEST_NESTING = 120  # DuckDB fails at 128
_TOO_DEEP = "is nested too deeply: a value is text, a number, true, false or a list"
_INEXACT = "has more digits than a column with fractions keeps: write ids as strings"


def lines_problem(stream: pa.NativeFile) -> str | None:
    """Find the first line that cannot be a row, in a file with one object a line."""
    for number, line in enumerate(_lines(stream), 1):
        if len(line) > LONGEST_OBJECT_BYTES:
            return f"line {number}: is longer than {LONGEST_OBJECT_BYTES:,} bytes: one object a line is expected"
        problem = line_problem(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)
        if problem:
            return f"line {number}: {problem}"
    return None


def array_problem(stream: pa.NativeFile) -> str | None:
    """Find the first object that cannot be a row, in a file with one array that is small enough to be held."""
    text = stream.read(LONGEST_ARRAY_BYTES + 1).removeprefix(codecs.BOM_UTF8)
    if len(text) > LONGEST_ARRAY_BYTES:
        return None
    try:
        rows = _parse(text)
    except ValueError as error:
        return f"cannot be read as JSON, one object a line or one array of objects: {error!s:.80}"
    except RecursionError:
        return _TOO_DEEP
    for number, row in enumerate(rows if isinstance(rows, list) else [], 1):
        problem = _object_problem(row[1]) if isinstance(row, tuple) else None
        if problem:
            return f"row {number}: {problem}"
    return None


def _lines(stream: pa.NativeFile) -> Iterator[bytes]:
    """The lines of a file; of one that is longer than `LONGEST_OBJECT_BYTES` the first bytes, and nothing after it."""
    reader = io.BufferedReader(stream, 2**20)
    while line := reader.readline(LONGEST_OBJECT_BYTES + 1):
        yield line.removesuffix(b"\n")
        if len(line) > LONGEST_OBJECT_BYTES:
            return


def _parse(text: bytes) -> object:
    """Parse JSON; an object is ("object", its pairs), and a number of too many digits is cut, as none fits 64 bits."""
    return json.loads(
        text.decode(),
        object_pairs_hook=lambda pairs: ("object", pairs),
        parse_int=lambda digits: int(digits[:MOST_DIGITS]),
    )


def line_problem(line: bytes) -> str | None:
    """Say why a line cannot be a row."""
    if not line.strip():
        return None
    try:
        pairs = _parse(line)
    except UnicodeDecodeError:
        return f"is not UTF-8: {line[:60]!r}: save the file as UTF-8"
    except ValueError as error:
        return f'is not JSON: {error}: expected one object a line, like {{"title": "Eve"}}'
    except RecursionError:
        return _TOO_DEEP
    if not isinstance(pairs, tuple):
        return f"expected an object, received {line[:60].decode(errors='replace')}"
    return _object_problem(pairs[1])


def _object_problem(pairs: list[tuple[str, object]]) -> str | None:
    """Say why an object, as pairs of a key and a value, cannot be a row."""
    names = [name for name, _ in pairs]
    for name, value in pairs:
        shown = _quoted(name)
        if names.count(name) > 1:
            return f"the key {shown} comes twice: keep one"
        if _depth(value) >= DEEPEST_NESTING:
            return f"column {shown}: {_TOO_DEEP}"
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return f"column {shown}: holds half of a surrogate pair, which is no text: write the character whole"
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and not -(2**63) <= number < 2**63 and not _is_large_amount(number):
                digits = str(number)
                digits = digits if len(digits) <= 60 else f"{digits[:40]}..."
                return f"column {shown}: {digits} does not fit 64 bits: write it as a string"
    return None


def _depth(value: object) -> int:
    """How many lists and objects are around the innermost value."""
    depth, values = 0, [value]
    while values := [inner for outer in values for inner in _values_inside(outer)]:
        depth += 1
    return depth


def _values_inside(value: object) -> list[object]:
    """What a list or an object, as `_parse` gives it, holds."""
    if isinstance(value, tuple):
        return [inner for _, inner in value[1]]
    return value if isinstance(value, list) else []


def _is_large_amount(number: int) -> bool:
    """Whether an integer is one that float64 holds exactly, and too large for an id: 1e20, as JavaScript writes it."""
    return 2**64 < abs(number) < 2**1023 and int(float(number)) == number


def inexact_problem(text: str, floats: set[str]) -> str | None:
    """Name the first number of a row, among columns of floats, that a float64 would change."""
    row = json.loads(text, parse_float=_decimal, parse_int=lambda digits: int(digits[:MOST_DIGITS]))
    for name in row.keys() & floats:
        values = row[name] if isinstance(row[name], list) else [row[name]]
        for value in values:
            if isinstance(value, int | Decimal) and not _is_float(value):
                shown = _quoted(name)
                return f"column {shown}: {value!s:.40} {_INEXACT}"
    return None


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:  # an exponent of 19 digits or more
        return Decimal("nan")


def _is_float(number: int | Decimal) -> bool:
    """Whether an integer is a float64, and whether a fraction is one as it is written with so many digits."""
    if isinstance(number, int):
        return abs(number) < 2**1023 and int(float(number)) == number
    digits = len(number.as_tuple().digits)
    return digits <= 17 or Decimal(f"{float(number):.{digits - 1}e}") == number


def _quoted(name: str) -> str:
    return repr(name) if len(name) <= 60 else f"{name[:57]!r}..."
