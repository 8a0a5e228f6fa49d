"""A column's values as numbers, dates or vectors; what cannot be one is named with its row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.table.stages import (
    MISSING_NUMBERS,
    Floats,
    Ints,
    Kind,
    Stage,
    concat,
    flatten,
    floats_of,
    is_list,
    is_text,
    kind_of_type,
    refuse_first,
)
from feat2vec.table.types import DATES, FIRST_DAY, LAST_DAY

NOT_A_NUMBER = "write null for a missing number, or set `nan: missing`"
NEEDED = "a number is needed; text is for `extractor: lookup`, or for the objective softmax"


def numbers_of(stage: Stage, column: str, kind: Kind | None = None, nan: str = "error") -> tuple[Floats, Kind]:
    """A column as numbers, NaN where missing. Dates are days since 1970; `kind` is what text was read as before."""
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
        return _days(values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False)), "date"
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
        return _days(_dates_from_text(stage, column, text)), kind
    if stage.table.typed:
        row = int(np.flatnonzero(pc.is_valid(text).to_numpy(zero_copy_only=False))[0])
        stage.refuse(row, column, text[row].as_py(), "a number is needed, and the column holds text; cast it")
    if kind == "boolean":
        text = pc.replace_substring_regex(pc.replace_substring_regex(text, "^(?i:true)$", "1"), "^(?i:false)$", "0")
    numbers = _parse(stage, column, text, lambda part: part.cast(pa.float64()), NEEDED)
    flat = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    _refuse_infinite(stage, column, np.where(pc.is_valid(text).to_numpy(zero_copy_only=False), flat, 0.0))
    return flat, kind


def trimmed(stage: Stage, values: pa.Array) -> pa.Array:
    """Text of numbers or dates, null where it says that one is missing."""
    text = pc.utf8_trim_whitespace(values.cast(pa.string()))
    absent = [""] if stage.table.typed else ["", *MISSING_NUMBERS]
    return pc.if_else(pc.is_in(text, pa.array(absent)), pa.scalar(None, pa.string()), text)


def _kind_of_text(text: str) -> Kind:
    if text.casefold() in ("true", "false"):
        return "boolean"
    for type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC")):  # without a zone, and with one
        try:
            pa.array([text]).cast(type_)
        except pa.ArrowInvalid:
            continue
        return "date"
    return "number"


def dates_of(stage: Stage, column: str) -> pa.Array:
    """A column as timestamps."""
    values = stage.column(column).combine_chunks()
    if pa.types.is_dictionary(values.type) or is_text(values.type):
        return _dates_from_text(stage, column, trimmed(stage, values))
    if pa.types.is_temporal(values.type):  # a time zone's hours are those of UTC, as text can tell no more
        return values.cast(pa.timestamp("us", "UTC" if getattr(values.type, "tz", None) else None), safe=False)
    if pa.types.is_null(values.type):
        return values.cast(pa.timestamp("us"))
    raise UserError(f"{stage.row(0)}: column {column!r} holds {values.type}; a date is needed")


def _dates_from_text(stage: Stage, column: str, text: pa.Array) -> pa.Array:
    zoned = pc.match_substring_regex(text, r":\d\d(\.\d+)?(Z|[-+]\d\d(:?\d\d)?)$")
    first = zoned.drop_null()[:1].to_pylist()  # the rows after it are to be like it: one of them is named if it is not
    type_ = pa.timestamp("us", "UTC" if first == [True] else None)
    dates = _parse(stage, column, text, lambda part: part.cast(type_), "a date such as 2024-01-31 is needed")
    days = pc.fill_null(pc.cast(dates, pa.int64()), 0).to_numpy(zero_copy_only=False) // 86_400_000_000
    far = np.flatnonzero((days < FIRST_DAY) | (days > LAST_DAY))
    if len(far):
        stage.refuse(int(far[0]), column, text[int(far[0])].as_py(), DATES)
    return dates


def _days(dates: pa.Array | pa.ChunkedArray) -> Floats:
    micros = pc.cast(dates, pa.int64()).cast(pa.float64(), safe=False)
    days: Floats = pc.fill_null(pc.divide(micros, 86_400e6), float("nan")).to_numpy(zero_copy_only=False)
    return days


def _parse(stage: Stage, column: str, text: pa.Array, parse: Callable[[pa.Array], pa.Array], message: str) -> pa.Array:
    """Parse all of the text, or name the first row that cannot be parsed."""
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


def _refuse_infinite(stage: Stage, column: str, numbers: Floats) -> None:
    bad = np.flatnonzero(np.isinf(numbers))
    if len(bad):
        stage.refuse(int(bad[0]), column, float(numbers[bad[0]]), "numbers must be finite")


# --- vectors --------------------------------------------------------------------------------------------------------


def vectors_of(stage: Stage, column: str, size: int | None) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]:
    """Which rows have a vector, and the vectors [present rows, size]."""
    values = stage.column(column)
    if is_text(values.type):
        plain = pc.utf8_trim(values.cast(pa.string()), "[]() \t")
        lengths, parts = _split_numbers(pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain))
        flat = _parse_items(stage, column, parts, lengths)
    elif is_list(values.type) and (kind_of_type(values.type) == "number" or pa.types.is_null(values.type.value_type)):
        lengths, parts = flatten(values)
        flat = concat([floats_of(part, pa.float32()) for part in parts.chunks], np.float32)
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
    vectors = flat.reshape(-1, size or 1)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        row = int(np.flatnonzero(present)[bad[0]])
        stage.refuse(row, column, values[row].as_py(), "a vector's numbers must be finite")
    return present, vectors


def _split_numbers(text: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    parts = [pc.split_pattern_regex(chunk, r"[,;\s]+") for chunk in text.chunks]
    return flatten(pa.chunked_array(parts, pa.list_(pa.string())))


def _parse_items(stage: Stage, column: str, parts: pa.ChunkedArray, lengths: Ints) -> npt.NDArray[np.float32]:
    try:
        return concat([part.cast(pa.float64()).cast(pa.float32()) for part in parts.chunks], np.float32)
    except pa.ArrowInvalid:
        good = np.array([_is_number(part) for part in parts.to_pylist()])
        row = int(np.repeat(np.arange(len(lengths)), lengths)[np.flatnonzero(~good)[0]])
        stage.refuse(row, column, stage.column(column)[row].as_py(), "a list of numbers is needed")


def _is_number(text: str) -> bool:
    try:
        pa.array([text]).cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True
