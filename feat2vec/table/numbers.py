"""A column's values as numbers; what is none is named with its row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Floats
from feat2vec.errors import UserError
from feat2vec.table.columns import concat, floats_of
from feat2vec.table.dates import dates_from_text, days_of
from feat2vec.table.kinds import Kind, is_list, is_text, kind_of_type
from feat2vec.table.parsing import parse_text, trimmed
from feat2vec.table.stages import Stage, refuse_first

NOT_A_NUMBER = "write null for a missing number, or set `nan: missing`"
NEEDED = "a number is needed; text is for `extractor: lookup`, or for the objective softmax"


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
        stage.refuse(row, column, text[row].as_py(), "a number is needed, and the column holds text; cast it")
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
