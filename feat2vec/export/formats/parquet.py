"""Parquet: a file for each group, which DuckDB, pandas and polars open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from feat2vec.export.format_base import GroupFiles, export_format

if TYPE_CHECKING:
    from pathlib import Path

    from feat2vec.export.exported_group import ExportedGroup


@export_format
@dataclass(frozen=True)
class Parquet(GroupFiles):
    """The columns key, vector, count and level."""

    name = "parquet"
    summary = "key, vector, count and level: DuckDB, pandas, polars"

    def write_group(self, folder: Path, group: ExportedGroup) -> list[str]:
        import pyarrow as pa

        from feat2vec.space.parquet_writer import parquet_writer

        path = folder / f"{group.file_stem}.parquet"
        schema = pa.schema(
            {"key": pa.string(), "vector": pa.list_(pa.float32(), group.dim), "count": pa.int64(), "level": pa.int8()}
        )
        with parquet_writer(path, schema, compared_columns=["key", "count", "level"]) as write:
            for block in group.blocks(self.bytes_per_block):
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.vectors.reshape(-1)), group.dim)
                counts, levels = pa.array(block.counts, pa.int64()), pa.array(block.levels, pa.int8())
                write(pa.record_batch([block.keys, vectors, counts, levels], schema=schema))
        return [path.name]
