"""Dates that are written in another way than 2024-01-31: as numbers since 1970, or by a pattern."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Floats
from feat2vec.schema.extractor_options import EPOCHS
from feat2vec.table.numbers import numbers_of, parse_text, refuse_far_dates, trimmed
from feat2vec.table.spelling import spell_floats
from feat2vec.table.table import Stage
from feat2vec.table.types import is_text

LAST_MICROSECOND = 2.6e17  # of the year 9999, about
OF_DIGITS = re.compile(r"(?:%[YymdHMS])+")  # patterns of numbers such as 20240131, which pandas writes as 20240131.0


def written_dates(stage: Stage, column: str, form: str) -> pa.Array:
    """Return a column as timestamps, null where it is missing.

    Args:
        stage: Of the table.
        column: Of the stage; one of dates is taken as it is.
        form: `seconds` or `milliseconds` since 1970, or a pattern such as `%d.%m.%Y`.

    Raises:
        UserError: A value is no such date.

    """
    values = stage.column(column).combine_chunks()
    if pa.types.is_temporal(values.type):
        return values.cast(pa.timestamp("us", "UTC" if getattr(values.type, "tz", None) else None), safe=False)
    if form in EPOCHS:
        return _dates_since_1970(stage, column, EPOCHS[form], values)
    if pa.types.is_floating(values.type):  # integers beside gaps, as pandas has them
        values = spell_floats(pc.if_else(pc.is_nan(values), None, values))
    elif not pa.types.is_dictionary(values.type) and not is_text(values.type):
        values = values.cast(pa.string())  # such as 20240131
    text = trimmed(stage, values)
    if OF_DIGITS.fullmatch(form):
        text = pc.replace_substring_regex(text, r"^(\d+)\.0$", r"\1")

    dates = parse_text(
        stage, column, text, lambda texts: parse_dates(texts, form), f"a date that is written as {form} is needed"
    )
    refuse_far_dates(stage, column, dates, values)
    return dates


NAME = r"\pL+"
PATTERNS = {"%d": r"(?P<day>\d{1,2})", "%Y": r"\d{4}", **dict.fromkeys(("%b", "%B", "%p", "%a", "%A"), NAME)}


def parse_dates(texts: pa.Array, form: str) -> pa.Array:
    """Parse text by a pattern; fractions of a second, which are in no part of a date, may stand behind it.

    Args:
        texts: To be parsed.
        form: The pattern.

    Raises:
        pa.ArrowInvalid: A text is no such date.

    """
    if form.endswith(":%S"):
        texts = pc.replace_substring_regex(texts, r"(:\d\d)\.\d+$", r"\1")
    dates = pc.strptime(texts, format=form, unit="us")
    if "%d" in form and "%z" not in form:  # the parser takes February 31 for March 3
        days = pc.extract_regex(texts, pattern=_pattern_of_day(form))
        written = pc.struct_field(days, "day").cast(pa.int64())  # null where the pattern does not fit
        if pc.any(pc.not_equal(written, pc.day(dates))).as_py():
            raise pa.ArrowInvalid("a month has no such day")
    return dates


def _pattern_of_day(form: str) -> str:
    """A regular expression for dates of a form, which names the digits of the day."""
    pattern = r"^\s*"
    for part in re.split(r"(%[A-Za-z]|\s+)", form):
        if part.startswith("%"):
            pattern += PATTERNS.get(part, r"\d{1,2}")
        else:
            pattern += r"\s+" if part.isspace() else re.escape(part)
    return pattern


def _dates_since_1970(stage: Stage, column: str, factor: int, values: pa.Array) -> pa.Array:
    if is_text(values.type) and stage.table.typed:
        values = trimmed(stage, values)
        numbers = _numbers_of_text(stage, column, values)
    else:
        numbers, _ = numbers_of(stage, column, "number", "missing")
    micros = numbers * factor  # [rows], NaN where missing
    far = np.flatnonzero(np.abs(micros) > LAST_MICROSECOND)
    if len(far):
        stage.refuse(int(far[0]), column, float(numbers[far[0]]), "dates must be in the years 1 to 9999")
    is_missing = np.isnan(micros)
    dates = pa.array(np.where(is_missing, 0, np.round(micros)).astype(np.int64), pa.timestamp("us"), mask=is_missing)
    refuse_far_dates(stage, column, dates, values)
    return dates


def _numbers_of_text(stage: Stage, column: str, texts: pa.Array) -> Floats:
    def parse(texts: pa.Array) -> pa.Array:
        return texts.cast(pa.float64())

    numbers = parse_text(stage, column, texts, parse, "a number is needed")
    floats: Floats = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    return floats
