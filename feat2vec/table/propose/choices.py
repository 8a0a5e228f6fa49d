"""What becomes of a column: a group with an extractor, or nothing, and the facts that say why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feat2vec.arrays import Ints
from feat2vec.table.profile import ColumnProfile
from feat2vec.table.propose.defaults import ExtractorOptions


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


def leave_out(column: ColumnProfile, reason: str) -> Choice:
    """A column that is no group, and why."""
    return Choice((column.name,), None, reason)


def make_group(column: ColumnProfile, extractor: ExtractorOptions, facts: str) -> Choice:
    """A group of one column, with the share of rows without a value."""
    missing = column.missing
    if extractor["type"] == "lookup" and column.kind == "number" and not column.typed:
        missing -= column.absent  # NA is a key
    percent = 100 * missing / column.rows
    if percent:
        facts += f", {'under 1' if percent < 1 else f'{percent:.0f}'} % missing"
    return Choice((column.name,), extractor, facts)


MOST_OF_LONGEST = 64  # items up to which no list loses any


def most_items(lengths: Ints | list[int]) -> int:
    """How many items of a list are kept: all, but of lists so long that few of them would make all rows wide.

    >>> most_items([1, 2, 20]), most_items([3] * 500 + [900])
    (20, 64)

    """
    longest = int(np.max(lengths))
    return longest if longest <= MOST_OF_LONGEST else max(percentile(lengths, 99), MOST_OF_LONGEST)


def percentile(counts: Ints | list[int], percent: float) -> int:
    """The smallest whole number that so many percent of the counts do not exceed."""
    return int(np.ceil(np.percentile(counts, percent)))
