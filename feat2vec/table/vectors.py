"""A column's values as vectors, from lists of numbers or from text; what is none is named with its row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Bools, Float32s, Ints
from feat2vec.errors import UserError
from feat2vec.table.columns import concat, flatten, floats_of
from feat2vec.table.kinds import is_list, is_text, kind_of_type
from feat2vec.table.stages import Stage


def vectors_of(stage: Stage, column: str, size: int | None) -> tuple[Bools, Float32s]:
    """Return which rows have a vector, [rows], and the vectors, [rows with a vector, size].

    Args:
        stage: of the table.
        column: of the stage.
        size: of a vector; None for that of the first.

    Raises:
        UserError: when a value is no vector of that size, or not finite.

    """
    values = stage.column(column)
    if is_text(values.type):
        unbracketed = pc.utf8_trim(values.cast(pa.string()), "[]() \t")
        text = pc.if_else(pc.equal(unbracketed, ""), pa.scalar(None, pa.string()), unbracketed)
        lengths, items = _split_numbers(text)
        numbers = _parse_items(stage, column, items, lengths)
    elif is_list(values.type) and (kind_of_type(values.type) == "number" or pa.types.is_null(values.type.value_type)):
        lengths, items = flatten(values)
        numbers = concat([floats_of(chunk, pa.float32()) for chunk in items.chunks], np.float32)
    elif pa.types.is_null(values.type):
        return np.zeros(len(values), np.bool_), np.zeros((0, size or 0), np.float32)
    else:
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a list of numbers is needed")
    present = lengths > 0
    if size is None and present.any():
        size = int(lengths[present][0])
    wrong = np.flatnonzero(present & (lengths != size))
    if len(wrong):
        row = int(wrong[0])
        stage.refuse(row, column, values[row].as_py(), f"a vector of {size} numbers is needed, this has {lengths[row]}")
    vectors = numbers.reshape(-1, size or 1)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        row = int(np.flatnonzero(present)[bad[0]])
        stage.refuse(row, column, values[row].as_py(), "a vector's numbers must be finite")
    return present, vectors


def _split_numbers(text: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    parts = [pc.split_pattern_regex(chunk, r"[,;\s]+") for chunk in text.chunks]
    return flatten(pa.chunked_array(parts, pa.list_(pa.string())))


def _parse_items(stage: Stage, column: str, items: pa.ChunkedArray, lengths: Ints) -> Float32s:
    try:
        return concat([chunk.cast(pa.float64()).cast(pa.float32()) for chunk in items.chunks], np.float32)
    except pa.ArrowInvalid:
        good = np.array([_is_number(item) for item in items.to_pylist()])
        row = int(np.repeat(np.arange(len(lengths)), lengths)[np.flatnonzero(~good)[0]])
        stage.refuse(row, column, stage.column(column)[row].as_py(), "a list of numbers is needed")


def _is_number(text: str) -> bool:
    try:
        pa.array([text]).cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True
