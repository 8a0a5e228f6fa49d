"""Files of vectors and scores: Parquet, written in pieces, there only when they are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from feat2vec.errors import UserError, refuse_stray_bytes
from feat2vec.table.sources.registry import formats_by_suffix
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


def _refuse_other_format(out: str | Path) -> None:
    format_ = formats_by_suffix().get(Path(out).suffix.lower())
    if format_ is not None and format_.name != "Parquet":
        raise UserError(f"{out}: is called {format_.name}, and Parquet is written: call it {Path(out).stem}.parquet")
