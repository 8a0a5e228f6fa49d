"""Rows in stages, and what a column's type tells; what is wrong in a column is named with its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Floats as Floats
from feat2vec.arrays import Ints as Ints
from feat2vec.errors import UserError
from feat2vec.table.table import Batch, Table

# a numeral is a key from text that reads as a number: it keeps its spelling, as no type says that it is a number
# a float is a number of which text may have more digits than tell it from every other float64
Kind = Literal["text", "number", "float", "numeral", "boolean", "date"]

STAGE_BYTES = 128 << 20
STAGE_ROWS = 1 << 22
MISSING_NUMBERS = ("NA", "NaN", "nan", "NULL", "null", "N/A", "None", "<NA>")


@dataclass(frozen=True)
class Stage:
    """Consecutive batches of a table that are worked on at once."""

    table: Table
    batches: Sequence[Batch]

    @property
    def rows(self) -> int:
        return sum(batch.data.num_rows for batch in self.batches)

    def column(self, name: str) -> pa.ChunkedArray:
        if name not in self.table.columns:  # rows to be encoded may lack columns: all of them are missing
            return pa.chunked_array([pa.nulls(self.rows)])
        chunks = [batch.data.column(name) for batch in self.batches]
        if len({chunk.type for chunk in chunks}) > 1:  # some files have a dictionary, some have none
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
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        raise UserError(f"{self.row(i)}: column {column!r}: received {shown}; {message}")


def stages(table: Table, columns: Sequence[str], max_bytes: int = STAGE_BYTES) -> Iterator[Stage]:
    """The table in stages of bounded size."""
    held: list[Batch] = []
    size = rows = 0
    for batch in table.batches(columns):
        if held and (size + batch.data.nbytes > max_bytes or rows + batch.data.num_rows > STAGE_ROWS):
            yield Stage(table, held)
            held, size, rows = [], 0, 0
        held.append(batch)
        size, rows = size + batch.data.nbytes, rows + batch.data.num_rows
    if held:
        yield Stage(table, held)


def kind_of_type(type_: pa.DataType) -> Kind:
    """What kind of keys a typed column has."""
    while is_list(type_):
        type_ = type_.value_type
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    return "date" if pa.types.is_temporal(type_) else "text"


def kind_of_keys(type_: pa.DataType) -> Kind:
    """`kind_of_type`, which tells float64 from other numbers."""
    while is_list(type_):
        type_ = type_.value_type
    return "float" if pa.types.is_float64(type_) else kind_of_type(type_)


def is_list(type_: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_))


def is_text(type_: pa.DataType) -> bool:
    """Whether a column of this type holds text, plain or as a dictionary."""
    return bool(pa.types.is_string(type_) or (pa.types.is_dictionary(type_) and pa.types.is_string(type_.value_type)))


def refuse_unless_text(stage: Stage, column: str, values: pa.ChunkedArray, message: str) -> None:
    """Say what is needed of a column that holds no text."""
    if not is_text(values.type) and not pa.types.is_null(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; {message}")


def refuse_first(stage: Stage, column: str, bad: Callable[[float | None], bool], message: str) -> None:
    """Name the first row with a bad number, if there is one; lists are looked into."""
    values = stage.column(column)
    flat = values.combine_chunks().flatten() if is_list(values.type) else values
    if not pc.any(pc.invert(pc.is_finite(flat))).as_py():
        return
    for row, value in enumerate(values.to_pylist()):
        for item in value if isinstance(value, list) else (value,):
            if bad(item):
                stage.refuse(row, column, item, message)


def floats_of(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Numbers as floats, the nearest ones, NaN for null."""
    return pc.fill_null(numbers.cast(type_, safe=False), float("nan"))


def concat(arrays: Sequence[pa.Array], dtype: npt.DTypeLike = np.int32) -> npt.NDArray[Any]:
    """Chunks as one array."""
    if not arrays:
        return np.zeros(0, dtype)
    return np.concatenate([array.to_numpy(zero_copy_only=False) for array in arrays]).astype(dtype, copy=False)


def flatten(values: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    """How many items each list has, none where it is null, and the items."""
    lengths = concat([pc.fill_null(pc.list_value_length(chunk), 0).cast(pa.int32()) for chunk in values.chunks])
    return lengths, pa.chunked_array([chunk.flatten() for chunk in values.chunks], values.type.value_type)
