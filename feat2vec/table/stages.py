"""Rows in stages of bounded size; what is wrong in a column is named with its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.table.kinds import is_list, is_text
from feat2vec.table.table import Batch, Table

STAGE_BYTES = 128 << 20
STAGE_ROWS = 1 << 22


@dataclass(frozen=True)
class Stage:
    """Consecutive batches of a table that are worked on at once."""

    table: Table
    batches: Sequence[Batch]

    @property
    def rows(self) -> int:
        return sum(batch.data.num_rows for batch in self.batches)

    def column(self, name: str) -> pa.ChunkedArray:
        if name not in self.table.columns:  # rows to be encoded may lack a column: all of its values are missing
            return pa.chunked_array([pa.nulls(self.rows)])
        chunks = [batch.data.column(name) for batch in self.batches]
        if len({chunk.type for chunk in chunks}) > 1:  # with a dictionary in some files, without one in others
            chunks = [chunk.cast(self.table.columns[name]) for chunk in chunks]
        return pa.chunked_array(chunks)

    def row(self, i: int) -> str:
        """Where row i of the stage stands: `films.csv: row 17`."""
        for batch in self.batches:
            if i < batch.data.num_rows:
                return batch.row(i)
            i -= batch.data.num_rows
        raise IndexError(i)

    def refuse(self, i: int, column: str, value: object, message: str) -> NoReturn:
        """Raise a UserError that names row i of the stage, the column and the value."""
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        raise UserError(f"{self.row(i)}: column {column!r}: received {shown}; {message}")


def stages(
    table: Table, columns: Sequence[str], max_bytes: int = STAGE_BYTES, max_rows: int | None = None
) -> Iterator[Stage]:
    """Read a table in stages of bounded size.

    Args:
        table: to be read.
        columns: of the table.
        max_bytes: of a stage, unless a single batch is larger.
        max_rows: of a stage, in the same way; `STAGE_ROWS` by default.

    """
    most_rows = STAGE_ROWS if max_rows is None else max_rows
    held: list[Batch] = []
    held_bytes = held_rows = 0
    for batch in table.batches(columns):
        data = batch.data
        if held and (held_bytes + data.nbytes > max_bytes or held_rows + data.num_rows > most_rows):
            yield Stage(table, held)
            held, held_bytes, held_rows = [], 0, 0
        held.append(batch)
        held_bytes += data.nbytes
        held_rows += data.num_rows
    if held:
        yield Stage(table, held)


def refuse_unless_text(stage: Stage, column: str, values: pa.ChunkedArray, message: str) -> None:
    """Raise a UserError for a column that does not hold text."""
    if not is_text(values.type) and not pa.types.is_null(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; {message}")


def refuse_first(stage: Stage, column: str, is_bad: Callable[[float | None], bool], message: str) -> None:
    """Raise a UserError for the first row with a bad number, if there is one; items of lists are tested too."""
    values = stage.column(column)
    flat = values.combine_chunks().flatten() if is_list(values.type) else values
    if not pc.any(pc.invert(pc.is_finite(flat))).as_py():
        return
    for row, value in enumerate(values.to_pylist()):
        for item in value if isinstance(value, list) else (value,):
            if is_bad(item):
                stage.refuse(row, column, item, message)
