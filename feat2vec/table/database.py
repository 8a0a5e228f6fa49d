"""Connections to DuckDB: where they spill, and that they neither look for extensions nor for Python variables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def connect(
    spill: str | Path | None = None,
    *,
    file: str | Path = ":memory:",
    threads: int | None = None,
    memory: str | None = None,
) -> duckdb.DuckDBPyConnection:
    """A connection to a database in memory, or in a file.

    What a table holds reaches DuckDB as registered Arrow data or as parameters, never as text of a statement.

    Args:
        spill: a folder of the caller's for what does not fit into memory. By default nothing is spilled: DuckDB's own
            default is `.tmp` in the current folder.
        file: where the database is.
        threads: that DuckDB uses; all by default.
        memory: such as "1GB"; 80 % of what there is by default.

    Raises:
        duckdb.Error: if `memory` is no size.

    >>> with connect() as connection:
    ...     connection.sql("select current_setting('temp_directory')").fetchall()
    [('',)]

    """
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": "" if spill is None else str(spill),
        "allow_community_extensions": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    if threads is not None:
        config["threads"] = threads
    if memory is not None:
        config["memory_limit"] = memory
    connection = duckdb.connect(str(file), config=config)
    connection.execute("set enable_progress_bar = false")  # it would go to standard output
    return connection
