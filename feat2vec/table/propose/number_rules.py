"""What becomes of columns of dates and of numbers.

Names such as id, film_id and zip_code say that numbers are keys (NAMED_AS_KEY). Else the numbers themselves say it: few
of them, years, or ids that are counted from 1 and used evenly. What decides is where most rows are, not the extremes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from feat2vec.arrays import Floats
from feat2vec.table.date_forms import COMPACT
from feat2vec.table.profile import QUANTILES, ColumnProfile
from feat2vec.table.propose.choices import Choice, leave_out, make_group
from feat2vec.table.propose.defaults import ExtractorOptions
from feat2vec.table.types import MISSING_NUMBERS

NAMED_AS_KEY = re.compile(
    r"(?:^|[^A-Za-z])(?i:ids?|keys?|codes?|zip|zipcode|postcode|plz|uuid|guid|(?:isbn|ean)(?:_?1[03])?|upc|sku|fips|rownames|nr|no|num"
    r"|number)$|[a-z](?:Id|ID|Key|Code|Nr|No|Num|Number)$|(?i:^(?:row_?)?index$)|^Unnamed: \d+$"
)
ENDS_IN_ID = re.compile(r"(?i)id$")
OTHER_WORDS = re.compile(r"(?i)(?:paid|aid|bid|mid|raid|void|solid|fluid|liquid|humid|acid|valid|grid|hybrid|covid)$")
COUNTS_ROWS = re.compile(r"(?i)^(?:unnamed: \d+|(?:row_?)?(?:index|names?|nr|no|num|number)|row|rows?_?id|x\.?1?)$")
FEW_NUMBERS = 20
FEW_IN_ORDER, MOST_IN_ORDER = 32, 100  # integers from the first to the last, where 98 % of the rows are, and in all
VERY_FEW, ROWS_PER_VERY_FEW, ROWS_PER_FEW = 5, 2, 10
MANY_YEARS = 150
FEWEST_IDS = 200
FEWEST_DATES = 5
IDENTIFIER_SHARE = 0.95
HEAVY_TAIL = 3.0  # quartiles from the median to the 99th percentile: 1.7 of normal numbers, 3.6 of exponential ones
LARGEST_SCALED = 1e150  # the square of a larger number is not a float64

# --- dates -----------------------------------------------------------------------------------------------------------


def parts_of_dates(column: ColumnProfile) -> Choice | None:
    """Dates of which the year, the month, the weekday or the hour differs."""
    if column.kind != "date":
        return None
    parts = _useful_parts(column.date_parts or {}, column.high - column.low)
    return make_group(column, {"type": "lookup", "parts": parts}, _date_span(column)) if parts else None


def written_dates(column: ColumnProfile) -> Choice | None:
    """The same of dates that are written in another way than 2024-01-31, and of times of day."""
    dates = column.written_dates.best
    if dates is None or column.present < FEWEST_DATES:
        return None
    if is_named_as_key(column) and not (dates.form == COMPACT and _several(dates.parts, "month")):
        return None  # but 20190301 in `date_key` is a date, as no counter leaps from one month to the next
    parts = _useful_parts(dates.parts, dates.high - dates.low)
    if not parts:
        return None
    extractor: ExtractorOptions = {"type": "lookup", "parts": parts, "dates": dates.form}
    return make_group(column, extractor, _span_of_days(dates.low, dates.high) if dates.has_days else "times of day")


def _several(parts: Iterable[str], part: str) -> bool:
    return sum(key.startswith(f"{part}=") for key in parts) > 1


def _useful_parts(parts: Iterable[str], days: float) -> list[str]:
    values = Counter(part.split("=")[0] for part in parts)  # distinct values of each part
    is_useful = {
        "year": days > 2 * 365,
        "month": values["month"] > 1,
        "weekday": values["day"] > 1 and values["weekday"] > 1,
        "hour": values["hour"] > 1,
    }
    return [part for part, useful in is_useful.items() if useful and values[part] > 1]


def dates_as_numbers(column: ColumnProfile) -> Choice | None:
    """Dates of which none of them differs."""
    if column.kind != "date":
        return None
    return make_group(column, {"type": "numeric", "hidden": [32]}, _date_span(column))


def _date_span(column: ColumnProfile) -> str:
    return _span_of_days(column.low, column.high)


def _span_of_days(low: float, high: float) -> str:
    first, last = (str(np.datetime64(int(days * 86_400e6), "us"))[:10] for days in (low, high))
    return f"{first} to {last}" if first != last else f"times on {first}"


# --- numbers ---------------------------------------------------------------------------------------------------------


def numbers_too_far_apart(column: ColumnProfile) -> Choice | None:
    """Numbers whose squares are not finite."""
    if column.kind != "number" or max(-column.low, column.high) <= LARGEST_SCALED:
        return None
    return leave_out(column, f"numbers from {column.low:g} to {column.high:g}, too far apart to be scaled")


def numbers_that_identify(column: ColumnProfile) -> Choice | None:
    """Integers that are all distinct, and counted or no quantity; named as keys, if 95 % is distinct."""
    if column.kind != "number" or not column.are_integers:
        return None
    is_named = is_named_as_key(column)
    is_dense = column.high - column.low < 2 * column.distinct and not are_years(column)
    is_counted = is_dense and (column.low in (0, 1) or is_named)
    ends_in_id = ENDS_IN_ID.search(column.name) is not None and OTHER_WORDS.search(column.name) is None
    is_no_quantity = ends_in_id or (column.present >= 1000 and not _has_heavy_tail(column))
    is_unique = column.distinct == column.present and (is_counted or is_no_quantity)
    if not is_unique and not (is_named and column.distinct_share >= IDENTIFIER_SHARE):
        return None
    return leave_out(column, f"an identifier: {column.distinct:,} numbers in {column.present:,} rows")


def numbers_as_keys(column: ColumnProfile) -> Choice | None:
    """Integers named as keys; few integers, years, or ids, which come again."""
    if column.kind != "number" or not column.are_integers or has_nan(column):  # a lookup takes no NaN
        return None
    is_year = are_years(column) and column.distinct <= MANY_YEARS and 2 * column.distinct <= column.present
    if not (is_named_as_key(column) or is_year or _are_few(column) or _are_ids(column)):
        return None
    return make_group(
        column, {"type": "lookup"}, f"{column.distinct:,} numbers, {number_span(column)}{missing_word(column)}"
    )


def numbers(column: ColumnProfile) -> Choice | None:
    """All other numbers."""
    if column.kind != "number":
        return None
    extractor: ExtractorOptions = {"type": "numeric", "hidden": [32]}
    if _has_heavy_tail(column):
        extractor["scale"] = "quantile"
    if not has_nan(column):
        return make_group(column, extractor, number_span(column))
    extractor["nan"] = "missing"
    return make_group(column, extractor, f"{number_span(column)}, NaN counts as missing")


def numbers_in_text(column: ColumnProfile) -> Choice | None:
    """Text such as 97 min, 12.3% or $1,234.50; few of them are keys, as are those of a column that is called so."""
    best = column.written_numbers.best
    if best is None or column.distinct <= FEW_NUMBERS or is_named_as_key(column) or best.low == best.high:
        return None
    extractor: ExtractorOptions = {"type": "numeric", "hidden": [32], "written": best.form}
    return make_group(column, extractor, f"{best.low:.4g} to {best.high:.4g}, in text")


def as_quantity(column: ColumnProfile) -> Choice | None:
    """Return what a column is that is larger or smaller in other rows; None for keys and for what is no number.

    A prediction sees more in the order of few numbers, years and dates than in each of them.
    """
    dates = column.written_dates.best
    if dates is not None and dates.has_days and written_dates(column) is not None:
        extractor: ExtractorOptions = {"type": "numeric", "hidden": [32], "dates": dates.form}
        span = _span_of_days(dates.low, dates.high)
        return make_group(column, extractor, f"{span}, as time goes on") if dates.high - dates.low > 1 else None
    if column.kind == "date":
        days = make_group(column, {"type": "numeric", "hidden": [32]}, f"{_date_span(column)}, as time goes on")
        return days if column.high - column.low > 1 else None
    if column.kind != "number" or column.distinct <= 2:
        return None
    if column.are_integers and (is_named_as_key(column) or _are_ids(column)):
        return None
    return numbers(column)


def is_named_as_key(column: ColumnProfile) -> bool:
    """Whether the column's name says that its numbers are keys."""
    return NAMED_AS_KEY.search(column.name) is not None


def counts_rows(column: ColumnProfile) -> bool:
    """Whether the column is an index, which a program wrote beside the rows."""
    is_dense = column.kind == "number" and column.high - column.low < 2 * column.distinct
    return is_dense and COUNTS_ROWS.search(column.name) is not None


def are_years(column: ColumnProfile) -> bool:
    """Whether nearly all numbers are years, whatever the others are."""
    if column.kind != "number" or not column.are_integers or column.quantiles is None:
        return False
    return bool(column.quantiles[1] >= 1800 and column.quantiles[-2] <= 2100)


def has_nan(column: ColumnProfile) -> bool:
    """Whether a typed column holds NaN, which keys cannot be."""
    return column.typed and column.absent > 0


def _are_few(column: ColumnProfile) -> bool:
    """Whether 98 % of the rows have one of few integers, each of which comes often enough to be learnt."""
    low, high = _quantiles(column)[[0, -1]]
    in_order = int(high - low) + 1
    few = min(column.distinct, in_order)
    rows_of_each = ROWS_PER_VERY_FEW if few <= VERY_FEW else ROWS_PER_FEW
    are_few = column.distinct <= FEW_NUMBERS or (in_order <= FEW_IN_ORDER and column.distinct <= MOST_IN_ORDER)
    return are_few and rows_of_each * few <= column.present


def _are_ids(column: ColumnProfile) -> bool:
    """Whether integers are counted from 0 or 1, with few gaps, and used evenly, each again and again."""
    is_counted = 0 <= column.low <= max(1.0, column.high / 100) and 2 * column.distinct >= column.high - column.low
    return is_counted and FEWEST_IDS <= column.distinct <= column.present / 2 and _are_even(column)


def _are_even(column: ColumnProfile) -> bool:
    """Whether rows are spread evenly over the range of the numbers, as no quantity is."""
    places = (_quantiles(column) - column.low) / max(column.high - column.low, 1.0)  # [quantiles], 0 to 1
    return bool(np.abs(places - np.array(QUANTILES)).max() <= 0.08)


def _has_heavy_tail(column: ColumnProfile) -> bool:
    quantiles = _quantiles(column)
    median, middle = quantiles[3], quantiles[4] - quantiles[2]
    return bool(max(quantiles[-1] - median, median - quantiles[0]) > HEAVY_TAIL * middle)


def _quantiles(column: ColumnProfile) -> Floats:
    assert column.quantiles is not None
    return column.quantiles


def number_span(column: ColumnProfile) -> str:
    """The lowest and the highest number."""
    if column.are_integers:
        return f"{column.low:.15g} to {column.high:.15g}"
    return f"{column.low:.4g} to {column.high:.4g}"


def missing_word(column: ColumnProfile) -> str:
    """A note where the encoder takes for a key what may be meant as missing."""
    words = [value for value in column.sample if value in MISSING_NUMBERS] if not column.typed else []
    present = {str(value).lower() for value in column.sample if value not in MISSING_NUMBERS}
    if present <= {"true", "false"}:
        return ""  # beside truth values it is missing
    return f", {words[0]} counts as a key" if words else ""


RULES: Sequence[Callable[[ColumnProfile], Choice | None]] = (
    parts_of_dates,
    dates_as_numbers,
    written_dates,
    numbers_too_far_apart,
    numbers_that_identify,
    numbers_as_keys,
    numbers,
    numbers_in_text,
)
