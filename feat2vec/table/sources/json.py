"""JSON files: one object a line, or one array of objects; types are inferred from all the rows."""

from __future__ import annotations

import codecs
import glob
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.database import connect
from feat2vec.table.types import BATCH_ROWS, Part, column_types, common_type, unsupported

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "UBIGINT": pa.int64(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "NULL": pa.null(),
    "JSON": unsupported("mixed kinds of value"),
}
# the distinct structures of the rows; json_group_structure would keep something of every row in memory
_STRUCTURES = """
    select structure
    from (
        select json_structure(json) as structure, row_number() over () as number
        from read_json_objects($path, {options})
    )
    group by structure
    order by min(number)
"""
# rows with a number that float64 may not hold, as DuckDB reads it where a column has fractions
_LARGE = """
    select number, json
    from (select json, row_number() over () as number from read_json_objects($path, {options}))
    where regexp_matches(json, '%s')
"""
_MANY_DIGITS = r"[1-9](\.?[0-9]){{17}}"
_MANY_DIGITS_BEFORE = r"[:,\[]\s*-?[0-9]{{16,}}\s*[,\]}}]"
_LONGEST = 2**24  # bytes of an object: DuckDB's own limit
_HELD = 2**24  # bytes of an array that are held to find what is wrong in it
_DIGITS = 1000  # of an integer: far more than any type holds, and fewer than Python reads
_DEEPEST = 120  # DuckDB ends at 128
_TOO_DEEP = "is nested too deeply: a value is text, a number, true, false or a list"
_INEXACT = "has more digits than a column with fractions keeps: write ids as strings"
_DUCKDB = {pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR"}


@dataclass(frozen=True)
class _File:
    path: str
    compression: str | None
    shape: str = "newline_delimited"

    def open(self) -> pa.NativeFile:
        return pa.input_stream(self.path, compression=self.compression)


def json_part(path: str, compression: str | None) -> Part:
    """One file; DuckDB reads it twice, once for the types."""
    file = _File(path, compression)
    try:
        with file.open() as stream:
            array = stream.read(2**16).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        file = _File(path, compression, "array" if array else "newline_delimited")
        with _query(_STRUCTURES, file) as reader:
            found = [json.loads(text) for batch in reader for text in batch.column(0).to_pylist()]
        kinds = _merged(file, found) if found else {}
        _refuse_inexact(file, found, {name for name, kind in kinds.items() if _duckdb_type(kind).startswith("DOUBLE")})
    except (OSError, pa.ArrowException, _duckdb_error()) as error:
        raise _unreadable(file, error) from error
    if not found:
        raise UserError(f"{path}: has no rows: a table needs at least one")
    types = column_types(path, kinds.items())
    return Part(path, types, lambda columns: _read(file, types, columns))


def _refuse_inexact(file: _File, structures: list[Any], floats: set[str]) -> None:
    """Name the first row with a number that its column, one of floats, would make another number of."""
    if not floats:
        return
    kinds = [
        (name, json.dumps(kind)) for structure in structures if structure != "JSON" for name, kind in structure.items()
    ]
    # lists do not say whether some of their numbers are integers
    integers = any(name in floats and ("BIGINT" in kind or "[" in kind) for name, kind in kinds)
    pattern = f"{_MANY_DIGITS}|{_MANY_DIGITS_BEFORE}" if integers else _MANY_DIGITS
    with _query(_LARGE % pattern, file) as reader:
        for batch in reader:
            for number, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                problem = _line_problem(text.encode()) or _inexact_problem(text, floats)
                if problem:
                    raise UserError(f"{file.path}: row {number}: {problem}")


def _inexact_problem(text: str, floats: set[str]) -> str | None:
    row = json.loads(text, parse_float=_decimal, parse_int=lambda digits: int(digits[:_DIGITS]))
    for name in row.keys() & floats:
        values = row[name] if isinstance(row[name], list) else [row[name]]
        for value in values:
            if isinstance(value, int | Decimal) and not _is_float(value):
                shown = repr(name) if len(name) <= 60 else f"{name[:57]!r}..."
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


def _merged(file: _File, structures: list[object]) -> dict[str, pa.DataType]:
    """Return the columns of rows with these structures, in the order in which they first come."""
    types: dict[str, pa.DataType] = {}
    for structure in structures:
        if structure == "JSON":  # the structure of {}
            continue
        if not isinstance(structure, dict):
            raise _unreadable(file, ValueError("not every row is an object"))
        for name, kind in structure.items():
            types[name] = common_type(types.get(name, pa.null()), _type(kind)) or _TYPES["JSON"]
    return types


def _duckdb_error() -> type[Exception]:
    import duckdb

    return duckdb.Error


@contextmanager
def _query(sql: str, file: _File, columns: dict[str, str] | None = None) -> Iterator[pa.RecordBatchReader]:
    """Answer a query over the file with a stream of batches."""
    # DuckDB takes a path for a pattern
    values: dict[str, object] = {"path": glob.escape(os.path.abspath(file.path))}
    if columns is not None:
        values["columns"] = columns
    # A folder called `key=value` on the way to the file says nothing of its rows.
    options = f"format='{file.shape}', compression='{file.compression or 'none'}', hive_partitioning=false"
    with connect(threads=1) as connection:
        yield connection.sql(sql.format(options=options), params=values).to_arrow_reader(BATCH_ROWS)


def _type(structure: object) -> pa.DataType:
    if isinstance(structure, list):
        value = _type(structure[0]) if structure else pa.null()
        return unsupported(f"list of {value.type_name}") if isinstance(value, pa.OpaqueType) else pa.list_(value)
    return _TYPES.get(structure, unsupported(structure)) if isinstance(structure, str) else unsupported("objects")


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    return _DUCKDB.get(kind, "VARCHAR")


def _read(file: _File, types: dict[str, pa.DataType], columns: list[str]) -> Iterator[pa.RecordBatch]:
    folded: dict[str, str] = {}
    for name in columns:
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            raise UserError(f"{file.path}: columns {other!r} and {name!r} differ only in case: rename one of them")
    kinds = {name: _duckdb_type(types[name]) for name in columns}
    try:
        with _query("from read_json($path, columns=$columns, {options})", file, kinds) as reader:
            for batch in reader:
                arrays = [_without_values(batch.column(i), types[name]) for i, name in enumerate(columns)]
                yield pa.RecordBatch.from_arrays(arrays, names=columns)
    except (OSError, pa.ArrowException, _duckdb_error()) as error:
        raise _unreadable(file, error) from error


def _without_values(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the array, as nulls where the file has nothing but nulls, which DuckDB had to read as some type."""
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    if pa.types.is_list(kind) and pa.types.is_null(kind.value_type):
        children = [pa.nulls(len(array.values))]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], -1, array.offset, children)
    return array


def _unreadable(file: _File, error: Exception) -> UserError:
    """Say what is wrong with the file, which is read again, slowly, to find the line."""
    try:
        with file.open() as stream:
            problem = _array_problem(stream) if file.shape == "array" else _lines_problem(stream)
    except (OSError, pa.ArrowException) as unreadable:
        return UserError(f"{file.path}: cannot be read: {unreadable!s:.100}: is the file whole?")
    if problem:
        return UserError(f"{file.path}: {problem}")
    reason = str(error).splitlines()[0].partition(", at byte")[0]
    return UserError(f"{file.path}: cannot be read as JSON, one object a line or one array of objects: {reason:.100}")


def _lines_problem(stream: pa.NativeFile) -> str | None:
    """The first line of a file with one object a line that cannot be a row."""
    for number, line in enumerate(_lines(stream), 1):
        if len(line) > _LONGEST:
            return f"line {number}: is longer than {_LONGEST:,} bytes: one object a line is expected"
        problem = _line_problem(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)
        if problem:
            return f"line {number}: {problem}"
    return None


def _array_problem(stream: pa.NativeFile) -> str | None:
    """The first object of an array that cannot be a row, in a file that is small enough to be held."""
    text = stream.read(_HELD + 1).removeprefix(codecs.BOM_UTF8)
    if len(text) > _HELD:
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
    """The lines of a file; of one that is longer than `_LONGEST` the first bytes, and nothing after it."""
    reader = io.BufferedReader(stream, 2**20)
    while line := reader.readline(_LONGEST + 1):
        yield line.removesuffix(b"\n")
        if len(line) > _LONGEST:
            return


def _parse(text: bytes) -> object:
    """Parse JSON; an object is ("object", its pairs), and a number of too many digits is cut, as none fits 64 bits."""
    return json.loads(
        text.decode(),
        object_pairs_hook=lambda pairs: ("object", pairs),
        parse_int=lambda digits: int(digits[:_DIGITS]),
    )


def _line_problem(line: bytes) -> str | None:
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
    names = [name for name, _ in pairs]
    for name, value in pairs:
        shown = repr(name) if len(name) <= 60 else f"{name[:57]!r}..."
        if names.count(name) > 1:
            return f"the key {shown} comes twice: keep one"
        if _depth(value) >= _DEEPEST:
            return f"column {shown}: {_TOO_DEEP}"
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return f"column {shown}: holds half of a surrogate pair, which is no text: write the character whole"
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and not -(2**63) <= number < 2**63 and not _is_amount(number):
                digits = str(number)
                digits = digits if len(digits) <= 60 else f"{digits[:40]}..."
                return f"column {shown}: {digits} does not fit 64 bits: write it as a string"
    return None


def _depth(value: object) -> int:
    """How many lists and objects are around the innermost value."""
    depth, level = 0, [value]
    while level := [inner for outer in level for inner in _inside(outer)]:
        depth += 1
    return depth


def _inside(value: object) -> list[object]:
    """What a list or an object, as `_parse` gives it, holds."""
    if isinstance(value, tuple):
        return [inner for _, inner in value[1]]
    return value if isinstance(value, list) else []


def _is_amount(number: int) -> bool:
    """Whether an integer is one that float64 holds exactly, and too large for an id: 1e20, as JavaScript writes it."""
    return 2**64 < abs(number) < 2**1023 and int(float(number)) == number
