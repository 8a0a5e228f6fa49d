"""Files of vectors and scores: Parquet, written in pieces, there only when they are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from feat2vec.errors import UserError, refuse_stray_bytes
from feat2vec.space.groups_and_levels import ID
from feat2vec.table.sources.registry import formats_by_suffix
from feat2vec.table.table import Stage, Table
from feat2vec.writing import new_file, signed_parquet

BYTES_PER_ROW_GROUP = 32 << 20  # at least


@contextmanager
def parquet_writer(
    out: str | Path,
    schema: pa.Schema,
    compared_columns: Sequence[str] = (),
    *,
    force: bool = False,
    bytes_per_row_group: int = BYTES_PER_ROW_GROUP,
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """A function that writes batches to a Parquet file, which appears when all are written.

    Args:
        out: The file.
        schema: Its columns.
        compared_columns: Columns whose values repeat or are looked for; they get dictionaries and statistics. Vectors
            and scores get none, and nothing is compressed, as nothing compresses them.
        force: Whether an earlier file is replaced.
        bytes_per_row_group: Batches are collected until they have this size.

    Raises:
        UserError: The name ends as that of a file of another format does.

    """
    refuse_stray_bytes(out)
    _refuse_other_format(out)
    columns = list(compared_columns) or False
    options = {"use_dictionary": columns, "write_statistics": columns, "compression": "none"}
    collected: list[pa.RecordBatch] = []

    def write(batch: pa.RecordBatch) -> None:
        collected.append(batch)
        if sum(batch.nbytes for batch in collected) > bytes_per_row_group:
            flush()

    def flush() -> None:
        if collected:
            file.write_table(pa.Table.from_batches(collected, schema))
            collected.clear()

    with new_file(out, force=force) as partial, signed_parquet(partial, schema, **options) as file:
        yield write
        flush()


class RowIds(NamedTuple):
    """The schema's `id` column of a table whose rows are written; nothing if the table does not have it."""

    columns: tuple[str, ...]  # of the table
    fields: tuple[pa.Field, ...]  # of the file

    @classmethod
    def from_table(cls, table: Table, id_column: str | None) -> RowIds:
        """The ids of a table, for a schema with this `id`."""
        if id_column is None or id_column not in table.columns:
            return cls((), ())
        return cls((id_column,), (pa.field(ID, table.columns[id_column]),))

    def arrays(self, stage: Stage, rows: slice) -> list[pa.Array]:
        """The ids of some rows of a stage, as a column of the file."""
        arrays = []
        for name, field in zip(self.columns, self.fields, strict=True):
            ids = stage.column(name).slice(rows.start, rows.stop - rows.start).combine_chunks()
            arrays.append(ids.cast(field.type))
        return arrays


def write_record_batches(
    out: str | Path,
    schema: pa.Schema,
    ids: RowIds,
    batches: Iterable[pa.RecordBatch],
    *,
    force: bool = False,
    bytes_per_row_group: int = BYTES_PER_ROW_GROUP,
) -> int:
    """Write rows with what a model says of them, and their `id` if they have one; returns the number of rows."""
    compared_columns = [field.name for field in ids.fields]
    total = 0
    with parquet_writer(out, schema, compared_columns, force=force, bytes_per_row_group=bytes_per_row_group) as write:
        for batch in batches:
            write(batch)
            total += batch.num_rows
    return total


def _refuse_other_format(out: str | Path) -> None:
    format_ = formats_by_suffix().get(Path(out).suffix.lower())
    if format_ is not None and format_.name != "Parquet":
        raise UserError(f"{out}: is called {format_.name}, and Parquet is written: call it {Path(out).stem}.parquet")
