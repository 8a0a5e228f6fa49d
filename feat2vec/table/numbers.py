"""Columns of Arrow as NumPy arrays: numbers, dates and vectors, also from text; what is none is named with its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Bools, Float32s, Floats, Ints
from feat2vec.errors import UserError
from feat2vec.table.table import Stage, refuse_first
from feat2vec.table.types import DATES, FIRST_DAY, LAST_DAY, MISSING_NUMBERS, Kind, is_list, is_text, kind_of_type

Element = TypeVar("Element", bound=np.generic)


def floats_of(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return numbers as the nearest floats of a type, with NaN for null."""
    return pc.fill_null(numbers.cast(type_, safe=False), float("nan"))


@overload
def concat(arrays: Sequence[pa.Array]) -> Ints: ...
@overload
def concat(arrays: Sequence[pa.Array], dtype: type[Element]) -> npt.NDArray[Element]: ...
def concat(arrays: Sequence[pa.Array], dtype: type[np.generic] = np.int32) -> npt.NDArray[np.generic]:
    """Return chunks as one array."""
    if not arrays:
        return np.zeros(0, dtype)
    return np.concatenate([array.to_numpy(zero_copy_only=False) for array in arrays]).astype(dtype, copy=False)


def flatten(values: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    """Return the number of items of each list (0 for null), and the items of all lists, one list after the other."""
    lengths = concat([pc.fill_null(pc.list_value_length(chunk), 0).cast(pa.int32()) for chunk in values.chunks])
    return lengths, pa.chunked_array([chunk.flatten() for chunk in values.chunks], values.type.value_type)


def trimmed(stage: Stage, values: pa.Array) -> pa.Array:
    """Return text of numbers or dates without spaces around it; null where it says that a value is missing."""
    text = pc.utf8_trim_whitespace(values.cast(pa.string()))
    absent = [""] if stage.table.typed else ["", *MISSING_NUMBERS]
    return pc.if_else(pc.is_in(text, pa.array(absent)), pa.scalar(None, pa.string()), text)


def parse_text(
    stage: Stage, column: str, text: pa.Array, parse: Callable[[pa.Array], pa.Array], message: str
) -> pa.Array:
    """Parse text, or raise a UserError that names the first row that cannot be parsed."""
    try:
        return parse(text)
    except pa.ArrowInvalid:
        low, high = 0, len(text)  # text[:low] parses, text[:high] does not
        while high - low > 1:
            middle = (low + high) // 2
            try:
                parse(text[low:middle])
                low = middle
            except pa.ArrowInvalid:
                high = middle
        stage.refuse(low, column, text[low].as_py(), message)


NOT_A_NUMBER = "write null for a missing number, or set `nan: missing`"
NEEDED = "a number is needed; text is for `extractor: lookup`, or for the objective softmax"
NEEDED_OF_TYPED = "a number is needed, and the column holds text; cast it"


def numbers_of(stage: Stage, column: str, kind: Kind | None = None, nan: str = "error") -> tuple[Floats, Kind]:
    """Return a column as numbers, NaN where missing, and what they are: numbers, booleans or dates.

    Dates are days since 1970, booleans are 0 and 1.

    Args:
        stage: of the table.
        column: of the stage.
        kind: as what the column was read before; None for the first time, when the first text decides.
        nan: whether NaN in a typed column is an "error" or "missing".

    Raises:
        UserError: when a value is no finite number.

    """
    values = stage.column(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    if is_text(values.type):
        return _numbers_from_text(stage, column, values, kind)
    if pa.types.is_null(values.type):
        return np.full(len(values), np.nan), kind or "number"
    if kind is not None and (kind == "date") != bool(pa.types.is_temporal(values.type)):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; the training rows had {kind}s")
    if pa.types.is_temporal(values.type):
        return days_of(values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False)), "date"
    if not (pa.types.is_boolean(values.type) or kind_of_type(values.type) == "number") or is_list(values.type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a number is needed")
    if pa.types.is_floating(values.type) and nan == "error":
        refuse_first(stage, column, lambda number: number is not None and number != number, NOT_A_NUMBER)
    numbers = concat([floats_of(chunk, pa.float64()) for chunk in values.chunks], np.float64)
    _refuse_infinite(stage, column, numbers)
    return numbers, "boolean" if pa.types.is_boolean(values.type) else "number"


def _numbers_from_text(stage: Stage, column: str, values: pa.ChunkedArray, kind: Kind | None) -> tuple[Floats, Kind]:
    text = trimmed(stage, values.combine_chunks())
    present = text.drop_null()
    if not len(present):
        return np.full(len(text), np.nan), kind or "number"
    if kind is None:
        kind = _kind_of_text(present[0].as_py())
    if kind == "date":
        return days_of(dates_from_text(stage, column, text)), kind
    if stage.table.typed:
        row = int(np.flatnonzero(pc.is_valid(text).to_numpy(zero_copy_only=False))[0])
        stage.refuse(row, column, text[row].as_py(), NEEDED_OF_TYPED)
    if kind == "boolean":
        text = pc.replace_substring_regex(pc.replace_substring_regex(text, "^(?i:true)$", "1"), "^(?i:false)$", "0")
    numbers = parse_text(stage, column, text, lambda texts: texts.cast(pa.float64()), NEEDED)
    flat = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    _refuse_infinite(stage, column, np.where(pc.is_valid(text).to_numpy(zero_copy_only=False), flat, 0.0))
    return flat, kind


def _kind_of_text(text: str) -> Kind:
    """Return what a column of text is read as, which its first text decides."""
    if text.casefold() in ("true", "false"):
        return "boolean"
    for type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # without a zone, and with one
        try:
            pa.array([text]).cast(type_)
        except pa.ArrowInvalid:
            continue
        return "date"
    return "number"


def _refuse_infinite(stage: Stage, column: str, numbers: Floats) -> None:
    bad = np.flatnonzero(np.isinf(numbers))
    if len(bad):
        stage.refuse(int(bad[0]), column, float(numbers[bad[0]]), "numbers must be finite")


MICROSECONDS_PER_DAY = 86_400_000_000


def dates_of(stage: Stage, column: str) -> pa.Array:
    """Return a column as timestamps."""
    values = stage.column(column).combine_chunks()
    if pa.types.is_dictionary(values.type) or is_text(values.type):
        return dates_from_text(stage, column, trimmed(stage, values))
    if pa.types.is_temporal(values.type):  # a time zone's hours are those of UTC, as text can tell no more
        return values.cast(pa.timestamp("us", "UTC" if getattr(values.type, "tz", None) else None), safe=False)
    if pa.types.is_null(values.type):
        return values.cast(pa.timestamp("us"))
    raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a date is needed")


def dates_from_text(stage: Stage, column: str, text: pa.Array) -> pa.Array:
    """Parse text as timestamps, all with a time zone or all without one, as the first."""
    zoned = pc.match_substring_regex(text, r":\d\d(\.\d+)?(Z|[-+]\d\d(:?\d\d)?)$")
    first_is_zoned = zoned.drop_null()[:1].to_pylist() == [True]  # parsing names the first row that is unlike it
    type_ = pa.timestamp("us", "UTC" if first_is_zoned else None)
    dates = parse_text(stage, column, text, lambda texts: texts.cast(type_), "a date such as 2024-01-31 is needed")
    refuse_far_dates(stage, column, dates, text)
    return dates


def refuse_far_dates(stage: Stage, column: str, dates: pa.Array, values: pa.Array) -> None:
    """Raise a UserError that names the first value whose date is in no year from 1 to 9999."""
    days = pc.fill_null(pc.cast(dates, pa.int64()), 0).to_numpy(zero_copy_only=False) // MICROSECONDS_PER_DAY
    far = np.flatnonzero((days < FIRST_DAY) | (days > LAST_DAY))
    if len(far):
        stage.refuse(int(far[0]), column, values[int(far[0])].as_py(), DATES)


def days_of(dates: pa.Array | pa.ChunkedArray) -> Floats:
    """Return timestamps as days since 1970, NaN for null."""
    micros = pc.cast(dates, pa.int64()).cast(pa.float64(), safe=False)
    days: Floats = pc.fill_null(pc.divide(micros, float(MICROSECONDS_PER_DAY)), float("nan")).to_numpy(
        zero_copy_only=False
    )
    return days


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
