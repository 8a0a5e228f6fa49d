"""A script for PostgreSQL with pgvector: a table for each group, with indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from feat2vec.errors import UserError
from feat2vec.export.format_base import GroupFiles, export_format

if TYPE_CHECKING:
    from pathlib import Path

    from feat2vec.export.exported_group import ExportedGroup

MAX_DIM, MAX_INDEXED_DIM = 16_000, 2_000  # of pgvector's type, and of its index
MAX_NAME_BYTES = 63  # PostgreSQL cuts longer names, so that two tables could get one name


@export_format
@dataclass(frozen=True)
class Sql(GroupFiles):
    """CREATE TABLE, COPY and CREATE INDEX, in one transaction."""

    name = "sql"
    summary = "a script for PostgreSQL with pgvector"
    notes: ClassVar[Mapping[str, str]] = {
        "keys": "the character 0 is written U+FFFD; a key that would then be another one ends in #2, #3, ..."
    }

    max_dim: int = MAX_DIM
    max_indexed_dim: int = MAX_INDEXED_DIM

    def check(self, groups: Sequence[str], dim: int) -> None:
        if dim > self.max_dim:
            most = f"pgvector's vectors have up to {self.max_dim:,} dimensions"
            raise UserError(f"sql: {most}, these have {dim:,}; use parquet")
        for group in groups:
            size, remedy = len(group.encode()), "leave the group out by --group, or use parquet"
            if size > MAX_NAME_BYTES:
                raise UserError(f"sql: a table's name has up to {MAX_NAME_BYTES} bytes, {group!r} has {size}; {remedy}")
            if "\0" in group:
                raise UserError(f"sql: no name in PostgreSQL has the character 0, as {group!r} has; {remedy}")

    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from feat2vec.export.text_lines import escaped_keys, joined_lines, replaced_distinctly, spelled_vectors

        path = folder / f"{group.file_stem}.sql"
        group = replace(group, keys=replaced_distinctly(group.keys, r"\x{00}", "\ufffd"))  # PostgreSQL refuses it
        with path.open("wb") as file:
            file.write(self._beginning(path.name, group).encode())
            last_id = 0
            for block in group.blocks(self.bytes_per_block):
                ids = pa.array(np.arange(last_id + 1, last_id + 1 + len(block)))
                vectors = pc.binary_join_element_wise("[", spelled_vectors(block.vectors, ","), "]", "")
                columns = [ids, escaped_keys(block.keys), vectors, pa.array(block.counts), pa.array(block.levels)]
                file.write(joined_lines(columns, "\t", "\n"))
                last_id += len(block)
            file.write(self._end(group).encode())
        return [path.name]

    def _beginning(self, file_name: str, group: ExportedGroup) -> str:
        table = _quoted(group.name)
        return (
            f"-- psql -d DATABASE -f {file_name}\n"
            "\\set ON_ERROR_STOP on\n"
            "SET client_encoding = 'UTF8';\n"
            "BEGIN;\n"
            "CREATE EXTENSION IF NOT EXISTS vector;\n"
            f"CREATE TABLE {table} (id integer PRIMARY KEY, key text NOT NULL, vector vector({group.dim}) NOT NULL,"
            " count bigint NOT NULL, level smallint NOT NULL);\n"
            f"COPY {table} (id, key, vector, count, level) FROM stdin;\n"
        )

    def _end(self, group: ExportedGroup) -> str:
        table = _quoted(group.name)
        index = f"CREATE INDEX ON {table} USING hnsw (vector vector_cosine_ops);"
        if group.dim > self.max_indexed_dim:
            index = f"-- no index: pgvector indexes vectors of up to {self.max_indexed_dim} dimensions"
        # keys are indexed by their hashes, as a B-tree has no room for a long text
        return f"\\.\nCREATE INDEX ON {table} USING hash (key);\n{index}\nCOMMIT;\n"


def _quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
