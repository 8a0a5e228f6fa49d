"""Columns that say the same thing in other words, such as a code and a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, islice

import numpy as np

from feat2vec.arrays import Int64s
from feat2vec.table.numbers import MICROSECONDS_PER_DAY
from feat2vec.table.profile import NO_DATE, ColumnProfile
from feat2vec.table.propose.choices import Choice
from feat2vec.table.propose.quoting import quote_short

FEWEST_ROWS = 20
FIRST_ROWS = 500  # that most pairs of columns differ in
SAME = 0.95  # of the pairs of values are one to one
FEWEST_REPEATS = 20  # rows whose pair has come before
MOST_COMPARISONS = 20_000  # of pairs of columns: a table of 200 columns of keys has as many
LONGEST_NAME = 80
HARDLY_MISSING = 0.01
ROUNDING = 1e-9  # of numbers between 0 and 1


def find_copies(columns: Mapping[str, ColumnProfile], groups: Mapping[str, Choice]) -> dict[str, str]:
    """Return the groups that say what another group says, and for each the reason, which names that one's column.

    Of columns that say the same thing, the one that reads best is kept: text rather than numbers, a name rather than
    its code, dates as 2024-01-31 rather than in other forms, times rather than their days. Exact recodings are compared
    over all rows. Keys may also say nearly the same, as films of one title. Of dates the first rows are compared, as
    the dates that they are read as.

    Args:
        columns: The profiles of the table's columns, by name.
        groups: What becomes of them, by the name of the group.

    """
    comparable: dict[str, ColumnProfile] = {}
    for group, choice in groups.items():
        column = columns[choice.columns[0]]
        comes_again = column.distinct > 2 and column.distinct_share <= 0.9 and column.rows >= FEWEST_ROWS
        if len(choice.columns) == 1 and comes_again and _has_single_values(choice):
            comparable[group] = column
    originals = _originals(comparable, [group for group in comparable if _are_keys(groups[group])])
    copies: dict[str, str] = {}
    for first in dict.fromkeys(originals.values()):
        members = [group for group in comparable if originals[group] == first]
        kept = max(members, key=lambda group: _readability(comparable[group]))  # of equals the first
        reason = f"tells what {quote_short(comparable[kept].name)} tells, one to one"
        copies |= {group: reason for group in members if group != kept}
    copies |= _copies_of_dates(
        {group: columns[choice.columns[0]] for group, choice in groups.items() if _are_dates(columns, choice)}
    )
    numbers = {name: columns[choice.columns[0]] for name, choice in groups.items() if len(choice.columns) == 1}
    copies |= _copies_of_numbers({group: column for group, column in numbers.items() if group not in copies})
    return copies if len(groups) - len(copies) > 1 else {}


def _copies_of_numbers(columns: Mapping[str, ColumnProfile]) -> dict[str, str]:
    """The groups of numbers that an earlier group has in the same or in another unit, and the reason."""
    first_of_rows: dict[tuple[bytes, int], list[ColumnProfile]] = {}
    copies: dict[str, str] = {}
    for group, column in columns.items():
        if column.kind != "number" or column.first_numbers is None:
            continue
        earlier = first_of_rows.setdefault(_rows_told(column), [])
        original = next((kept for kept in earlier if _are_the_same_numbers(kept, column)), None)
        if original is None:
            earlier.append(column)
        else:
            copies[group] = f"the numbers of {quote_short(original.name)}, maybe in another unit"
    return copies


def _are_the_same_numbers(left: ColumnProfile, right: ColumnProfile) -> bool:
    """Whether a line leads from the numbers of the first rows of a column to those of another one."""
    if left.first_numbers is None or right.first_numbers is None or left.distinct < 3:
        return False
    has_both = ~np.isnan(left.first_numbers) & ~np.isnan(right.first_numbers)  # [rows]
    if np.count_nonzero(has_both) < FEWEST_ROWS:
        return False
    ours, theirs = left.first_numbers[has_both], right.first_numbers[has_both]
    with np.errstate(over="ignore"):  # of numbers such as 1e308, which are then none in another unit
        if not all(0 < np.ptp(numbers) < np.inf for numbers in (ours, theirs)):
            return False
    ours, theirs = ((numbers - numbers.min()) / np.ptp(numbers) for numbers in (ours, theirs))
    return bool(np.abs(ours - theirs).max() < ROUNDING or np.abs(ours + theirs - 1).max() < ROUNDING)


def _originals(columns: Mapping[str, ColumnProfile], keys: Sequence[str]) -> dict[str, str]:
    """For each group the first one that says the same, exactly or, of keys, nearly."""
    first_of_rows: dict[tuple[bytes, int], str] = {}
    originals = {group: first_of_rows.setdefault(_rows_told(column), group) for group, column in columns.items()}
    several = [group for group in keys if originals[group] == group]
    for first, second in islice(combinations(several, 2), MOST_COMPARISONS):
        if originals[second] == second and _name_the_same(columns[first], columns[second]):
            originals[second] = originals[first]
    return {group: originals[original] for group, original in originals.items()}


def _are_dates(columns: Mapping[str, ColumnProfile], choice: Choice) -> bool:
    return len(choice.columns) == 1 and columns[choice.columns[0]].instants is not None


def _copies_of_dates(columns: Mapping[str, ColumnProfile]) -> dict[str, str]:
    """The groups of dates that another group tells, and why; that one is kept which reads best."""
    by_readability = sorted(columns, key=lambda group: _readability_of_dates(columns[group]), reverse=True)
    kept: list[str] = []
    copies: dict[str, str] = {}
    for group in by_readability:
        original = next((name for name in kept if _are_the_same_days(columns[name], columns[group])), None)
        if original is None:
            kept.append(group)
        else:
            name = quote_short(columns[original].name)
            has_less = _tells_hours(columns[original]) and not _tells_hours(columns[group])
            what = _dates_or_times(columns[group])
            copies[group] = f"the days of {name}, which has the hours too" if has_less else f"the same {what} as {name}"
    return {group: copies[group] for group in columns if group in copies}


def _dates_or_times(column: ColumnProfile) -> str:
    best = column.written_dates.best
    return "dates" if best is None or best.has_days else "times"


def _readability_of_dates(column: ColumnProfile) -> tuple[bool, bool, bool, bool]:
    """What is better to keep is larger: hardly missing, with hours, as 2024-01-31, and text rather than numbers."""
    is_there = column.missing <= HARDLY_MISSING * column.rows
    return is_there, _tells_hours(column), column.kind == "date", column.is_string and column.kind != "number"


def _present_instants(column: ColumnProfile) -> Int64s:
    assert column.instants is not None
    present: Int64s = column.instants[column.instants != NO_DATE]
    return present


def _tells_hours(column: ColumnProfile) -> bool:
    return bool((_present_instants(column) % MICROSECONDS_PER_DAY != 0).any())


def _are_the_same_days(left: ColumnProfile, right: ColumnProfile) -> bool:
    """Whether the dates of two columns are equal in all rows that have both, or the one has the days of the other."""
    if left.instants is None or right.instants is None:
        return False
    has_both = (left.instants != NO_DATE) & (right.instants != NO_DATE)  # [rows]
    are_often_there = 2 * has_both.sum() >= max(len(_present_instants(left)), len(_present_instants(right)))
    ours, theirs = left.instants[has_both], right.instants[has_both]
    if len(ours) < FEWEST_ROWS or not are_often_there or len(np.unique(ours)) < 3:
        return False
    if _tells_hours(left) and _tells_hours(right):
        return bool((ours == theirs).all())
    return bool((ours // MICROSECONDS_PER_DAY == theirs // MICROSECONDS_PER_DAY).all())


def find_copies_of(target: ColumnProfile, columns: Sequence[ColumnProfile]) -> list[str]:
    """Return the columns that tell a target, one to one, or that nearly do if all their values are keys.

    Args:
        target: The profile of the target's column.
        columns: Those of the others.

    """
    candidates = [column for column in columns if not column.is_list and not column.refusal]
    if target.rows < FEWEST_ROWS or target.distinct_share > 0.9:
        return [
            column.name
            for column in candidates
            if _are_the_same_days(target, column)
            or (_rows_told(column) == _rows_told(target) and _are_the_same_numbers(target, column))
        ]
    rows_of_target = _rows_told(target)
    return [
        column.name
        for column in candidates
        if _rows_told(column) == rows_of_target or _name_the_same(target, column) or _are_the_same_days(target, column)
    ]


def _rows_told(column: ColumnProfile) -> tuple[bytes, int]:
    """What is equal for columns that differ in the same rows, all over the table."""
    return column.fingerprint.digest(), column.distinct


def _name_the_same(left: ColumnProfile, right: ColumnProfile) -> bool:
    """Whether the values of two columns of keys are nearly one to one, in the first rows."""
    fewer, more = sorted((left.distinct, right.distinct))
    if left.codes is None or right.codes is None or fewer < 3 or fewer < SAME * more:
        return False
    if not all(column.kind == "text" or column.are_integers for column in (left, right)):
        return False
    return all(_are_one_to_one(left.codes[:rows], right.codes[:rows]) for rows in (FIRST_ROWS, len(left.codes)))


def _has_single_values(choice: Choice) -> bool:
    """Whether a group is one of keys or numbers; the items of lists and the words of texts say more than names do."""
    extractor = choice.extractor or {}
    return extractor["type"] in ("lookup", "numeric") and not {"split", "multi", "parts"} & set(extractor)


def _are_keys(choice: Choice) -> bool:
    return _has_single_values(choice) and (choice.extractor or {})["type"] == "lookup"


def _are_one_to_one(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether nearly every value of each of two columns comes with one value of the other, in rows that have both."""
    has_pair = (left >= 0) & (right >= 0)  # [rows]
    pairs = np.unique(left[has_pair].astype(np.int64) << 32 | right[has_pair])  # [pairs]
    fewer = min(len(np.unique(pairs >> 32)), len(np.unique(pairs & 0xFFFFFFFF)))
    has_evidence = len(left) <= FIRST_ROWS or np.count_nonzero(has_pair) - len(pairs) >= FEWEST_REPEATS
    are_often_there = 2 * np.count_nonzero(has_pair) >= max(np.count_nonzero(left >= 0), np.count_nonzero(right >= 0))
    return bool(has_evidence and are_often_there and fewer >= SAME * len(pairs))


def _readability(column: ColumnProfile) -> tuple[bool, bool, float]:
    """What is better to keep is larger: hardly missing, text with letters, and then longer text."""
    is_there = column.missing <= HARDLY_MISSING * column.rows
    if column.written_numbers.best is not None:
        return is_there, False, -1.0
    if column.kind != "text" or not column.is_string:
        return is_there, False, 0.0
    lengths = [len(str(value)) for value in column.sample]
    has_letters = any(any(map(str.isalpha, str(value))) for value in column.sample[:100])
    return is_there, has_letters and max(lengths) <= LONGEST_NAME, float(np.mean(lengths))
