"""What becomes of a column: the first of the RULES that applies decides.

A column is left out, or becomes a group with the extractor lookup (keys), numeric, text_cnn or vector; of a text
its comment names text_attention, too. The rules of numbers and dates are in `number_rules.py`, those of text in
`text_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose import number_rules, text_rules
from feat2vec.table.propose.choices import Choice, leave_out, make_group, most_items
from feat2vec.table.propose.defaults import ExtractorOptions

FLAG_SHARE = 0.02  # of rows that have, and that have not, the one value of a column


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
    return leave_out(column, column.refusal) if column.refusal else None


def without_values(column: ColumnProfile) -> Choice | None:
    """Columns without a value."""
    return leave_out(column, "no value in any row") if not column.present else None


def constant(column: ColumnProfile) -> Choice | None:
    """Columns with one value; where many rows have it and many have none, having it is what they tell."""
    if column.is_list:
        differs = column.lists_differ
    else:
        differs = column.distinct > 1 and (column.kind == "text" or column.low != column.high)
    if differs:
        return None
    if min(column.missing, column.present) < max(2, FLAG_SHARE * column.rows) or not _can_be_flag(column):
        return leave_out(column, "one value, or none" if column.missing else "one value in every row")
    return make_group(column, {"type": "lookup"}, "one value or none: whether it is there")


def _can_be_flag(column: ColumnProfile) -> bool:
    return not column.is_list and column.kind != "date" and not number_rules.has_nan(column)


# --- lists -----------------------------------------------------------------------------------------------------------


def vectors_in_lists(column: ColumnProfile) -> Choice | None:
    """Lists of fractions, all of one size."""
    if not column.is_list or column.vector_size is None:
        return None
    return make_group(column, {"type": "vector"}, f"vectors of {column.vector_size}")


def keys_in_lists(column: ColumnProfile) -> Choice | None:
    """Other lists."""
    if not column.is_list or column.list_lengths is None:
        return None
    max_items = most_items(column.list_lengths)
    extractor: ExtractorOptions = {"type": "lookup", "multi": True, "max_items": max_items}
    return make_group(column, extractor, f"{column.distinct:,} keys, nearly all lists have {max_items} or fewer")


# --- all kinds -------------------------------------------------------------------------------------------------------

RULES: Sequence[Callable[[ColumnProfile], Choice | None]] = (
    unreadable,
    without_values,
    constant,
    vectors_in_lists,
    keys_in_lists,
    *number_rules.RULES,
    *text_rules.RULES,  # of text, and of booleans
)
