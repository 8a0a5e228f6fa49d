"""The number of distinct values of each column, counted in bounded memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from feat2vec.table.database import connect

if TYPE_CHECKING:
    import duckdb

MEMORY = "1GB"  # that DuckDB holds before it spills


class DistinctCounter:
    """Counts the distinct values of columns, stage by stage.

    The values of a first stage are held as they are. From the second stage on DuckDB holds hashes of them, and spills
    to disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     counter = DistinctCounter(folder)
    ...     counter.add(0, pa.array(["a", "b"]))
    ...     counter.add(0, pa.array(["b", "c"]))
    ...     counter.counts()[0]
    3

    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._first_keys: dict[int, pa.Array] = {}
        self._connection: duckdb.DuckDBPyConnection | None = None

    def add(self, column: int, keys: pa.Array) -> None:
        """Add the distinct values of a column in one stage."""
        if column not in self._first_keys:
            self._first_keys[column] = keys
            return
        if self._connection is None:
            self._connection = connect(self._folder, file=Path(self._folder) / "distinct.duckdb", memory=MEMORY)
            self._connection.execute("create table seen (c int, h ubigint)")
            for first_column, first_keys in self._first_keys.items():
                self._insert(self._connection, first_column, first_keys)
        self._insert(self._connection, column, keys)

    def counts(self) -> Mapping[int, int]:
        """Return the number of distinct values of each column; nothing can be added afterwards."""
        if self._connection is None:
            return {column: len(keys) for column, keys in self._first_keys.items()}
        query = "select c, count(*) from (select distinct c, h from seen) group by c"
        counts = dict(self._connection.sql(query).fetchall())
        self._connection.close()
        return defaultdict(int, counts)

    @staticmethod
    def _insert(connection: duckdb.DuckDBPyConnection, column: int, keys: pa.Array) -> None:
        keys = keys.cast(pa.string()) if pa.types.is_decimal(keys.type) else keys  # DuckDB has none of 76 digits
        connection.register("keys", pa.table({"key": keys}))
        connection.execute(f"insert into seen select {column}, hash(key) from keys")
        connection.unregister("keys")
