"""Find the row of a JSON file that cannot be read, and say why; the file is read slowly, by Python."""

from __future__ import annotations

import codecs
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa

LONGEST_OBJECT_BYTES = 2**24  # DuckDB's own limit
LONGEST_ARRAY_BYTES = 2**24  # of an array that is held to find what is wrong in it
MOST_DIGITS = 1000  # of an integer: far more than any type holds, and fewer than Python reads
DEEPEST_NESTING = 120  # DuckDB fails at 128
_TOO_DEEP = "is nested too deeply: a value is text, a number, true, false or a list"
_INEXACT = "has more digits than a column with fractions keeps: write ids as strings"
_TOO_LARGE = "is too large for a float of 64 bits, which is infinite: write a smaller number, or ids as strings"
_TOO_SMALL = "is too small for a float of 64 bits, which is 0: write 0"


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
            problem = _size_problem(number)
            if problem:
                return f"column {shown}: {problem}"
    return None


def _size_problem(number: object) -> str | None:
    """Say that an integer has more than 64 bits, unless it is an amount that float64 holds."""
    if not isinstance(number, int) or -(2**63) <= number < 2**63 or _is_large_amount(number):
        return None
    digits = str(number)
    digits = digits if len(digits) <= 60 else f"{digits[:40]}..."
    return f"{digits} does not fit 64 bits: write it as a string"


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


class _Fraction(str):
    """A number with a point or an exponent, as it is written."""

    __slots__ = ()


def inexact_problem(text: str, floats: set[str]) -> str | None:
    """Name the first number of a row, among columns of floats, that a float64 would change."""
    row = json.loads(text, parse_float=_Fraction, parse_int=lambda digits: int(digits[:MOST_DIGITS]))
    for name in row.keys() & floats:
        for number in row[name] if isinstance(row[name], list) else [row[name]]:
            problem = _size_problem(number) or _digits_problem(number)
            if problem:
                return f"column {_quoted(name)}: {problem}"
    return None


def _digits_problem(number: object) -> str | None:
    """Say why a float64 is not the number that is written."""
    if isinstance(number, int) and not isinstance(number, bool):
        is_exact = abs(number) < 2**1023 and int(float(number)) == number
        return None if is_exact else f"{number!s:.40} {_INEXACT}"
    return fraction_problem(number) if isinstance(number, _Fraction) else None


def fraction_problem(text: str) -> str | None:
    """Say why a float64 is not the number that is written with a point or an exponent."""
    if not text.lower().partition("e")[0].strip("-0."):
        return None  # 0
    if float(text) == 0:
        return f"{text:.40} {_TOO_SMALL}"
    if not math.isfinite(float(text)):
        return f"{text:.40} {_TOO_LARGE}"
    return None if _is_float(text) else f"{text:.40} {_INEXACT}"


def _is_float(text: str) -> bool:
    """Whether a number is the shortest text of its float64, or that float64 rounded to as many digits."""
    number, nearest_float = Decimal(text), float(text)
    most_digits = len(number.as_tuple().digits)
    return number in (Decimal(repr(nearest_float)), Decimal(f"{nearest_float:.{most_digits - 1}e}"))


def _quoted(name: str) -> str:
    return repr(name) if len(name) <= 60 else f"{name[:57]!r}..."
