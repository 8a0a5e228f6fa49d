"""JSON files: one object a line, or one array of objects; types are inferred from all the rows."""

from __future__ import annotations

import codecs
import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.database import connect
from feat2vec.table.sources.json_problems import array_problem, inexact_problem, lines_problem
from feat2vec.table.sources.registry import FileFormat, register
from feat2vec.table.types import BATCH_ROWS, TablePart, column_types, common_type, unsupported

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
# numbers of 16 digits or more, and those that may be too small or too large for a float64
_LONG_NUMBERS = r"[0-9](?:\.?[0-9]){{15,}}(?:[eE][-+]?[0-9]+)?|[0-9.]+[eE][-+]?[0-9]{{3,}}"
# of such a number in the variable `text`: its significant digits, and the float64 that it becomes
_DIGITS = "ltrim(replace(regexp_extract(text, '^[0-9.]*'), '.', ''), '0')"
_FLOAT = "try_cast(text as double)"
# whether the float64 has these digits; few of the numbers that programs write are not found to be so
_IS_EXACT = f"""
    {_DIGITS} = '' or abs({_FLOAT}) between 1e-300 and 1e300 and (
        length({_DIGITS}) < 16
        or {_DIGITS} = replace(left(format('{{{{:.15e}}}}', {_FLOAT}), 17), '.', '')
        or {_DIGITS} = replace(left(format('{{{{:.16e}}}}', {_FLOAT}), 18), '.', '')
    )
"""
# rows with a number that float64 may not hold, which DuckDB would read as another where a column has fractions
_INEXACT_ROWS = f"""
    select number, json
    from (select json, row_number() over () as number from read_json_objects($path, {{options}}))
    where len(list_filter(
        regexp_extract_all(json, '{_LONG_NUMBERS}'),
        lambda text: %s and not coalesce({_IS_EXACT}, false)
    )) > 0
"""
_BECOMES_FLOAT = "regexp_matches(text, '[.eE]|[0-9]{{20}}')"  # by itself; an integer becomes one beside fractions
_DUCKDB = {pa.bool_(): "BOOLEAN", pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR"}


@dataclass(frozen=True)
class _JsonFile:
    path: str
    compression: str | None
    shape: str = "newline_delimited"

    def open(self) -> pa.NativeFile:
        return pa.input_stream(self.path, compression=self.compression)


def open_json(path: str, compression: str | None) -> TablePart:
    """Return the part of one file; DuckDB reads it for the types first, and fractions once more for their digits."""
    file = _JsonFile(path, compression)
    try:
        with file.open() as stream:
            is_array = stream.read(2**16).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")
        file = _JsonFile(path, compression, "array" if is_array else "newline_delimited")
        with _query(_STRUCTURES, file) as reader:
            structures = [json.loads(text) for batch in reader for text in batch.column(0).to_pylist()]
        types = _merge_types(file, structures) if structures else {}
    except (OSError, pa.ArrowException, _duckdb_error()) as error:
        raise _unreadable(file, error) from error
    if not structures:
        raise UserError(f"{path}: has no rows: a table needs at least one")
    types = column_types(path, types.items())
    unchecked = {name for name, type_ in types.items() if _duckdb_type(type_).startswith("DOUBLE")}

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        floats = unchecked.intersection(columns)
        if floats:
            _refuse_inexact(file, structures, floats)
            unchecked.difference_update(floats)  # once is enough
        return _read(file, types, columns)

    return TablePart(path, types, read)


def _refuse_inexact(file: _JsonFile, structures: list[object], floats: set[str]) -> None:
    """Name the first row with a number that its column, one of floats, would change."""
    is_looked_at = "true" if _may_hold_integers(structures, floats) else _BECOMES_FLOAT
    try:
        _refuse_inexact_rows(file, _INEXACT_ROWS % is_looked_at, floats)
    except (OSError, pa.ArrowException, _duckdb_error()) as error:
        raise _unreadable(file, error) from error


def _refuse_inexact_rows(file: _JsonFile, sql: str, floats: set[str]) -> None:
    with _query(sql, file) as reader:
        for batch in reader:
            numbers, texts = (column.to_pylist() for column in batch.columns)
            for number, text in zip(numbers, texts, strict=True):
                problem = inexact_problem(text, floats)
                if problem:
                    raise UserError(f"{file.path}: row {number}: {problem}")


def _may_hold_integers(structures: list[object], floats: set[str]) -> bool:
    """Whether some row may have an integer in one of these columns; of lists it is not known."""
    for structure in structures:
        for name, value in structure.items() if isinstance(structure, dict) else ():
            text = json.dumps(value)
            if name in floats and ("BIGINT" in text or "[" in text):
                return True
    return False


def _merge_types(file: _JsonFile, structures: list[object]) -> dict[str, pa.DataType]:
    """Return the columns of rows with these structures, in the order in which they first come."""
    types: dict[str, pa.DataType] = {}
    for structure in structures:
        if structure == "JSON":  # the structure of {}
            continue
        if not isinstance(structure, dict):
            raise _unreadable(file, ValueError("not every row is an object"))
        for name, value_structure in structure.items():
            types[name] = common_type(types.get(name, pa.null()), _type(value_structure)) or _TYPES["JSON"]
    return types


def _duckdb_error() -> type[Exception]:
    import duckdb

    return duckdb.Error


@contextmanager
def _query(sql: str, file: _JsonFile, columns: dict[str, str] | None = None) -> Iterator[pa.RecordBatchReader]:
    """Run a query over the file, and give its result as a stream of batches."""
    # DuckDB takes a path for a pattern.
    parameters: dict[str, object] = {"path": glob.escape(os.path.abspath(file.path))}
    if columns is not None:
        parameters["columns"] = columns
    # A folder called `key=value` on the way to the file says nothing of its rows.
    options = f"format='{file.shape}', compression='{file.compression or 'none'}', hive_partitioning=false"
    with connect(threads=1) as connection:
        yield connection.sql(sql.format(options=options), params=parameters).to_arrow_reader(BATCH_ROWS)


def _type(structure: object) -> pa.DataType:
    if isinstance(structure, list):
        value = _type(structure[0]) if structure else pa.null()
        return unsupported(f"list of {value.type_name}") if isinstance(value, pa.OpaqueType) else pa.list_(value)
    return _TYPES.get(structure, unsupported(structure)) if isinstance(structure, str) else unsupported("objects")


def _duckdb_type(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"{_duckdb_type(type_.value_type)}[]"
    return _DUCKDB.get(type_, "VARCHAR")


def _read(file: _JsonFile, types: dict[str, pa.DataType], columns: list[str]) -> Iterator[pa.RecordBatch]:
    names_by_casefold: dict[str, str] = {}
    for name in columns:
        first_name = names_by_casefold.setdefault(name.casefold(), name)
        if first_name != name:
            raise UserError(f"{file.path}: columns {first_name!r} and {name!r} differ only in case: rename one of them")
    duckdb_types = {name: _duckdb_type(types[name]) for name in columns}
    try:
        with _query("from read_json($path, columns=$columns, {options})", file, duckdb_types) as reader:
            for batch in reader:
                arrays = [_without_values(batch.column(i), types[name]) for i, name in enumerate(columns)]
                yield pa.RecordBatch.from_arrays(arrays, names=columns)
    except (OSError, pa.ArrowException, _duckdb_error()) as error:
        raise _unreadable(file, error) from error


def _without_values(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the array, as nulls where the file has nothing but nulls, which DuckDB had to read as some type."""
    if pa.types.is_null(type_):
        return pa.nulls(len(array))
    if pa.types.is_list(type_) and pa.types.is_null(type_.value_type):
        children = [pa.nulls(len(array.values))]
        return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], -1, array.offset, children)
    return array


def _unreadable(file: _JsonFile, error: Exception) -> UserError:
    """Say what is wrong with the file, which is read again, slowly, to find the line."""
    try:
        with file.open() as stream:
            problem = array_problem(stream) if file.shape == "array" else lines_problem(stream)
    except (OSError, pa.ArrowException) as unreadable:
        return UserError(f"{file.path}: cannot be read: {unreadable!s:.100}: is the file whole?")
    if problem:
        return UserError(f"{file.path}: {problem}")
    reason = str(error).splitlines()[0].partition(", at byte")[0]
    return UserError(f"{file.path}: cannot be read as JSON, one object a line or one array of objects: {reason:.100}")


register(FileFormat("JSON", (".json", ".jsonl", ".ndjson"), open_json, compressible=True))
