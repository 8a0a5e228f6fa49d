"""A column's values as dates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Floats
from feat2vec.errors import UserError
from feat2vec.table.kinds import is_text
from feat2vec.table.parsing import parse_text, trimmed
from feat2vec.table.stages import Stage
from feat2vec.table.types import DATES, FIRST_DAY, LAST_DAY

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
    days = pc.fill_null(pc.cast(dates, pa.int64()), 0).to_numpy(zero_copy_only=False) // MICROSECONDS_PER_DAY
    far = np.flatnonzero((days < FIRST_DAY) | (days > LAST_DAY))
    if len(far):
        stage.refuse(int(far[0]), column, text[int(far[0])].as_py(), DATES)
    return dates


def days_of(dates: pa.Array | pa.ChunkedArray) -> Floats:
    """Return timestamps as days since 1970, NaN for null."""
    micros = pc.cast(dates, pa.int64()).cast(pa.float64(), safe=False)
    days: Floats = pc.fill_null(pc.divide(micros, float(MICROSECONDS_PER_DAY)), float("nan")).to_numpy(
        zero_copy_only=False
    )
    return days
