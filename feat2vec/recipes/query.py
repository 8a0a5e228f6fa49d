"""A recipe's query: one SELECT of the recipe's tables, and nothing else.

A recipe may be somebody else's. DuckDB itself parses the query; what it says of it is looked through before anything
is run, and DuckDB may then open the tables' files alone.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from feat2vec.errors import UserError
from feat2vec.table.database import connect
from feat2vec.writing import hidden_name, replacing_file, scratch_folder
from feat2vec.writing.files import JsonObject

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

Json = Any  # whatever JSON can hold

QUERIES = ("SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE")  # no INSERT, no COPY
SOURCES = ("BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SUBQUERY", "TABLE_FUNCTION")  # no SHOW
FUNCTIONS = ("generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest")  # that give rows
DECIMAL_DIGITS = 38  # of a decimal; what has more is float64 to DuckDB
MESSAGE_LENGTH = 150  # characters of DuckDB's own messages


def write_query(query: str, tables: Mapping[str, Path], path: Path, where: str) -> None:
    """Write the rows that a query makes of tables as a Parquet file.

    Args:
        query: SQL, one SELECT statement.
        tables: Parquet files, by the names that the query has for them.
        path: the file that is written, or replaced.
        where: begins every message: the recipe and its key.

    Raises:
        UserError: if the query is anything else than a SELECT of these tables, or fails.

    """
    with (
        replacing_file(path) as new,  # a table may be in a file of the name of `path`
        scratch_folder(path.parent, hidden_name("query")) as private,
        connect(Path(private, "spill"), threads=1) as database,
    ):
        # One thread: a join keeps the order of its rows, and a split its parts.
        opened = [str(new.absolute())]
        for name, file in tables.items():
            pattern = glob.escape(str(file.absolute()))
            # A path is a pattern to DuckDB.
            database.execute(
                f"CREATE VIEW {_sql_name(name)} AS FROM read_parquet({_sql_text(pattern)}, hive_partitioning = false)"
            )
            opened += [str(file.absolute()), pattern]
        database.execute(f"SET allowed_paths = [{', '.join(map(_sql_text, opened))}]")
        database.execute("SET enable_external_access = false")
        database.execute("SET lock_configuration = true")
        try:
            _refuse_other_than_select(database, query, list(tables), where)
            _without_hugeints(database.table_function("query", [query])).write_parquet(str(new.absolute()))
        except duckdb.Error as error:
            reason = " ".join(str(error).split())[:MESSAGE_LENGTH]
            raise UserError(f"{where}: the query fails: {reason}") from None


def _without_hugeints(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Integers of 128 bits as decimals, also within lists and structs.

    A Parquet file would hold them as float64, in which long ids become one.
    """
    columns = []
    for i, (name, kind) in enumerate(zip(rows.columns, rows.types, strict=True), start=1):
        new_type = _type_without_hugeints(kind)
        value = f"#{i}" if new_type == str(kind) else f"#{i}::{new_type}"
        columns.append(f"{value} AS {_sql_name(name)}")
    return rows.project(", ".join(columns))


def _type_without_hugeints(kind: DuckDBPyType) -> str:
    """A type in words of SQL, with decimals in place of integers of 128 bits."""
    if kind.id in ("hugeint", "uhugeint"):
        return f"DECIMAL({DECIMAL_DIGITS}, 0)"
    if kind.id not in ("list", "array", "struct", "tuple", "map"):
        return str(kind)
    children: list[tuple[str, Any]] = kind.children  # names and types; the last of an array is its size
    if kind.id in ("list", "array"):
        size = children[1][1] if kind.id == "array" else ""
        return f"{_type_without_hugeints(children[0][1])}[{size}]"
    types = [_type_without_hugeints(child) for _, child in children]
    if kind.id == "struct":
        types = [f"{_sql_name(name)} {child}" for (name, _), child in zip(children, types, strict=True)]
    return f"{kind.id.upper()}({', '.join(types)})"


def _refuse_other_than_select(
    database: duckdb.DuckDBPyConnection, query: str, tables: Sequence[str], where: str
) -> None:
    kinds = [statement.type.name for statement in database.extract_statements(query)]
    if kinds != ["SELECT"]:
        received = f"{len(kinds)} statements ({', '.join(kinds)})" if len(kinds) != 1 else kinds[0]
        raise UserError(
            f"{where}: expected one SELECT statement, received {received[:MESSAGE_LENGTH] if kinds else 'none'}"
        )
    [(text,)] = database.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise UserError(f"{where}: the query is nested too deeply; write it as a WITH of simpler ones") from None
    if parsed["error"]:
        raise UserError(
            f"{where}: expected one SELECT statement; DuckDB says: {parsed['error_message'][:MESSAGE_LENGTH]}"
        )
    refused = next(_refused_parts(parsed, {name.casefold() for name in tables}), None)
    if refused is not None:
        known = ", ".join(tables)[:60]
        remedy = "name the file there"
        raise UserError(f"{where}: the query may read the tables of `data` alone, {known}, not {refused}; {remedy}")


def _refused_parts(parsed: Json, tables: set[str]) -> Iterator[str]:
    """What a parsed query may not have: all but SELECTs of the tables, of its own WITHs and of FUNCTIONS."""
    # A name with a dot may be a file's; as that of a WITH it is not looked up where the WITH is out of sight.
    known = tables | {name.casefold() for node in _nodes(parsed) for name in _names_of_withs(node) if "." not in name}
    for node in _nodes(parsed):
        if "cte_map" in node and node["type"] not in QUERIES:
            yield node["type"].split("_")[0]
        if "sample" not in node or "alias" not in node:  # only what is read from has both
            continue
        if node["type"] not in SOURCES:
            yield node["type"].split("_")[0]
        elif node["type"] == "TABLE_FUNCTION" and (name := node["function"]["function_name"]) not in FUNCTIONS:
            yield f"{name[:40]}()"
        elif node["type"] == "BASE_TABLE" and (
            node["table_name"].casefold() not in known
            or (node["schema_name"] or "main", node["catalog_name"] or "memory") != ("main", "memory")
        ):
            yield repr(node["table_name"][:40])


def _names_of_withs(node: JsonObject) -> list[str]:
    return [with_entry["key"] for with_entry in node.get("cte_map", {}).get("map", ())]


def _nodes(parsed: Json) -> Iterator[JsonObject]:
    """Every object of a JSON document."""
    todo = [parsed]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def _sql_name(name: str) -> str:
    """A name in quotes of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _sql_text(value: str) -> str:
    """A text as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"
