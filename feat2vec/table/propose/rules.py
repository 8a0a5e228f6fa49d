"""What becomes of a column: the first of the RULES that applies decides.

A column is left out, or becomes a group with the extractor lookup (keys), numeric, text_cnn or vector. Names such as
id, film_id and zip_code say that numbers are keys (NAMED_AS_KEY).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from feat2vec.arrays import Ints
from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.text_patterns import find_delimiter, is_prose, resemblance, split_words
from feat2vec.table.types import MISSING_NUMBERS

NAMED_AS_KEY = re.compile(
    r"(?:^|[^A-Za-z])(?i:ids?|key|code|zip|zipcode|postcode|uuid|guid|index|rownames|nr)$|[a-z](?:Id|ID|Key|Code)$"
    r"|^Unnamed: \d+$"
)
FEW_NUMBERS = 20
MANY_YEARS = 150
IDENTIFIER_SHARE = 0.95
LARGEST_SCALED = 1e150  # the square of a larger number is not a float64

ExtractorOptions = dict[str, object]


@dataclass(frozen=True)
class Choice:
    """What becomes of columns.

    Attributes:
        columns: the columns; more than one where columns of numbers are merged.
        extractor: the options of the group's extractor; None to leave the column out.
        comment: facts about the group, or why the column is left out.

    """

    columns: tuple[str, ...]
    extractor: ExtractorOptions | None
    comment: str


def choose(column: ColumnProfile) -> Choice:
    """Return what becomes of a column."""
    for rule in RULES:
        choice = rule(column)
        if choice is not None:
            return choice
    raise AssertionError(f"no rule applies to the column {column.name!r}")


# --- columns that are left out ---------------------------------------------------------------------------------------


def unreadable(column: ColumnProfile) -> Choice | None:
    """Columns whose values cannot be read."""
    return _leave_out(column, column.refusal) if column.refusal else None


def without_values(column: ColumnProfile) -> Choice | None:
    """Columns without a value."""
    return _leave_out(column, "no value in any row") if not column.present else None


def constant(column: ColumnProfile) -> Choice | None:
    """Columns with one value, or with one value and missing ones."""
    if column.is_list:
        differs = column.lists_differ
    else:
        differs = column.distinct > 1 and (column.kind == "text" or column.low != column.high)
    if differs:
        return None
    return _leave_out(column, "one value in every row" if not column.missing else "one value, or none")


# --- lists -----------------------------------------------------------------------------------------------------------


def vectors_in_lists(column: ColumnProfile) -> Choice | None:
    """Lists of fractions, all of one size."""
    if not column.is_list or column.vector_size is None:
        return None
    return _group(column, {"type": "vector"}, f"vectors of {column.vector_size}")


def keys_in_lists(column: ColumnProfile) -> Choice | None:
    """Other lists."""
    if not column.is_list or column.list_lengths is None:
        return None
    max_items = _percentile(column.list_lengths, 99)
    extractor: ExtractorOptions = {"type": "lookup", "multi": True, "max_items": max_items}
    return _group(column, extractor, f"{column.distinct:,} keys, 99 % of rows have {max_items} or fewer")


# --- dates -----------------------------------------------------------------------------------------------------------


def parts_of_dates(column: ColumnProfile) -> Choice | None:
    """Dates of which the year, the month, the weekday or the hour differs."""
    if column.kind != "date":
        return None
    values = Counter(part.split("=")[0] for part in column.date_parts or ())  # distinct values of each part
    is_useful = {
        "year": column.high - column.low > 2 * 365,
        "month": values["month"] > 1,
        "weekday": values["day"] > 1 and values["weekday"] > 1,
        "hour": values["hour"] > 1,
    }
    parts = [part for part, useful in is_useful.items() if useful and values[part] > 1]
    return _group(column, {"type": "lookup", "parts": parts}, _date_span(column)) if parts else None


def dates_as_numbers(column: ColumnProfile) -> Choice | None:
    """Dates of which none of them differs."""
    if column.kind != "date":
        return None
    return _group(column, {"type": "numeric", "hidden": [32]}, _date_span(column))


def _date_span(column: ColumnProfile) -> str:
    first, last = (str(np.datetime64(int(days * 86_400e6), "us"))[:10] for days in (column.low, column.high))
    return f"{first} to {last}" if first != last else f"times on {first}"


# --- numbers ---------------------------------------------------------------------------------------------------------


def numbers_too_far_apart(column: ColumnProfile) -> Choice | None:
    """Numbers whose squares are not finite."""
    if column.kind != "number" or max(-column.low, column.high) <= LARGEST_SCALED:
        return None
    return _leave_out(column, f"numbers from {column.low:g} to {column.high:g}, too far apart to be scaled")


def numbers_that_identify(column: ColumnProfile) -> Choice | None:
    """Integers that are all distinct and counted from 0 or 1, or 1,000 and more; named as keys, if 95 % is distinct."""
    if column.kind != "number" or not column.are_integers:
        return None
    is_dense = column.high - column.low < 2 * column.distinct and not _are_years(column)
    is_counted = is_dense and (column.low in (0, 1) or _is_named_as_key(column))
    is_unique = column.distinct == column.present and (is_counted or column.present >= 1000)
    is_named_and_distinct = _is_named_as_key(column) and column.distinct_share >= IDENTIFIER_SHARE
    if not is_unique and not is_named_and_distinct:
        return None
    return _leave_out(column, f"an identifier: {column.distinct:,} numbers in {column.present:,} rows")


def numbers_as_keys(column: ColumnProfile) -> Choice | None:
    """Integers named as keys; at most 20 distinct integers, or 150 years, that come twice on average."""
    if column.kind != "number" or not column.are_integers or _has_nan(column):  # a lookup takes no NaN
        return None
    are_few = column.distinct <= FEW_NUMBERS or (_are_years(column) and column.distinct <= MANY_YEARS)
    if not _is_named_as_key(column) and not (are_few and 2 * column.distinct <= column.present):
        return None
    return _group(
        column, {"type": "lookup"}, f"{column.distinct:,} numbers, {_number_span(column)}{_missing_word(column)}"
    )


def numbers(column: ColumnProfile) -> Choice | None:
    """All other numbers."""
    if column.kind != "number":
        return None
    extractor: ExtractorOptions = {"type": "numeric", "hidden": [32]}
    if column.low >= 0 and column.high >= max(100, 50 * column.median):
        extractor["scale"] = "log1p"
    if not _has_nan(column):
        return _group(column, extractor, _number_span(column))
    extractor["nan"] = "missing"
    return _group(column, extractor, f"{_number_span(column)}, NaN counts as missing")


def _is_named_as_key(column: ColumnProfile) -> bool:
    return NAMED_AS_KEY.search(column.name) is not None


def _are_years(column: ColumnProfile) -> bool:
    return column.low >= 1800 and column.high <= 2100


def _has_nan(column: ColumnProfile) -> bool:
    return column.typed and column.absent > 0


def _number_span(column: ColumnProfile) -> str:
    if column.are_integers:
        return f"{column.low:.15g} to {column.high:.15g}"
    return f"{column.low:.4g} to {column.high:.4g}"


# --- text and booleans -----------------------------------------------------------------------------------------------


def vectors_in_text(column: ColumnProfile) -> Choice | None:
    """Text such as `[0.5, 1]`, all of one size."""
    if not column.text_is_vectors or not column.vector_size:
        return None
    return _group(column, {"type": "vector"}, f"vectors of {column.vector_size}")


def lists_in_text(column: ColumnProfile) -> Choice | None:
    """Text such as `drama|war`."""
    texts = _texts(column)
    delimiter = find_delimiter(texts) if column.is_string else None
    if delimiter is None:
        return None
    max_items = _percentile([text.count(delimiter) + 1 for text in texts], 99)
    extractor: ExtractorOptions = {"type": "lookup", "split": delimiter, "max_items": max_items}
    return _group(column, extractor, f"lists, 99 % of them of {max_items} or fewer{_missing_word(column)}")


def prose(column: ColumnProfile) -> Choice | None:
    """Text of several words, some of which several rows have, while the texts are mostly distinct."""
    texts = _texts(column)
    if not column.is_string or not is_prose(texts, column.distinct_share):
        return None
    word_counts = [len(words) for words in map(split_words, texts)]
    max_tokens = min(max(_percentile(word_counts, 95), 4), 128)
    facts = f"{column.distinct:,} texts, {np.mean(word_counts):.1f} words on average"
    return _group(column, {"type": "text_cnn", "max_tokens": max_tokens}, facts)


def text_that_identifies(column: ColumnProfile) -> Choice | None:
    """Text of which 95 % is distinct."""
    if column.distinct_share < IDENTIFIER_SHARE:
        return None
    facts = f"{column.distinct:,} values in {column.present:,} rows{_resemblance(column)}"
    return _leave_out(column, f"an identifier: {facts}")


def text_as_keys(column: ColumnProfile) -> Choice | None:
    """All other text, and booleans."""
    facts = f"{column.distinct:,} keys in {column.rows:,} rows{_missing_word(column)}{_resemblance(column)}"
    return _group(column, {"type": "lookup"}, facts)


def _texts(column: ColumnProfile) -> list[str]:
    return [str(value) for value in column.sample]


def _resemblance(column: ColumnProfile) -> str:
    return resemblance(_texts(column), is_typed_text=column.typed and column.is_string)


def _missing_word(column: ColumnProfile) -> str:
    """A note where the encoder takes for a key what may be meant as missing."""
    words = [value for value in column.sample if value in MISSING_NUMBERS] if not column.typed else []
    if {text.lower() for text in _texts(column) if text not in MISSING_NUMBERS} <= {"true", "false"}:
        return ""  # beside truth values it is missing
    return f", {words[0]} counts as a key" if words else ""


# --- all kinds -------------------------------------------------------------------------------------------------------

RULES: Sequence[Callable[[ColumnProfile], Choice | None]] = (
    unreadable,
    without_values,
    constant,
    vectors_in_lists,
    keys_in_lists,
    parts_of_dates,
    dates_as_numbers,
    numbers_too_far_apart,
    numbers_that_identify,
    numbers_as_keys,
    numbers,
    # what comes after is text, or booleans
    vectors_in_text,
    lists_in_text,
    prose,
    text_that_identifies,
    text_as_keys,
)


def _leave_out(column: ColumnProfile, reason: str) -> Choice:
    return Choice((column.name,), None, reason)


def _group(column: ColumnProfile, extractor: ExtractorOptions, facts: str) -> Choice:
    missing = column.missing
    if extractor["type"] == "lookup" and column.kind == "number" and not column.typed:
        missing -= column.absent  # NA is a key
    percent = 100 * missing / column.rows
    if percent:
        facts += f", {'under 1' if percent < 1 else f'{percent:.0f}'} % missing"
    return Choice((column.name,), extractor, facts)


def _percentile(counts: Ints | list[int], percent: float) -> int:
    return int(np.ceil(np.percentile(counts, percent)))
