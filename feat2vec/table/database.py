"""Connections to DuckDB, which spill only where they are told to, and load no extensions."""

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
    """Connect to a database in memory, or in a file.

    Values of a table must be passed to DuckDB as registered Arrow data or as parameters, never in the text of a
    statement.

    Args:
        spill: the folder for data that do not fit into memory. By default nothing is spilled; DuckDB's own default is
            `.tmp` in the current folder.
        file: of the database.
        threads: the number of threads that DuckDB uses; all by default.
        memory: the most memory that DuckDB uses, such as "1GB"; by default 80 % of the machine's.

    Returns:
        The connection, to be closed by the caller.

    Raises:
        duckdb.Error: when `memory` is not a size.

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
