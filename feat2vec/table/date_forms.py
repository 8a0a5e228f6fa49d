"""In which way the values of a column are dates, as far as it has been read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import EPOCHS, Lookup
from feat2vec.table.keys import items_of
from feat2vec.table.numbers import MICROSECONDS_PER_DAY
from feat2vec.table.table import Stage
from feat2vec.table.written_dates import parse_dates, written_dates

DatePart = Literal["year", "month", "day", "weekday", "hour"]
DATE_PARTS: tuple[DatePart, ...] = ("year", "month", "day", "weekday", "hour")
DAYS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%b %d, %Y", "%d %b %Y",
        "%d-%b-%Y", "%d/%b/%Y", "%b %d %Y", "%a, %d %b %Y", "%A, %B %d, %Y")  # fmt: skip
SHORT_DAYS = ("%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%b-%y")  # which other numbers are written as, too
TIMES = ("%H:%M:%S", "%H:%M", "%I:%M %p", "%I:%M:%S %p")
ALONE = ("%a %b %d %H:%M:%S %z %Y", "%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z", "%m/%Y", "%b %Y")
COMPACT = "%Y%m%d"
NAMED_AS_TIME = re.compile(
    r"(?i:(?:^|[\W_])(?:time|stamp|ts|epoch|unix|date|datetime|day|created|updated|modified|published|posted|utc|at|since"
    r"|start|end|joined|seen)(?:$|[\W_\d])|timestamp|datetime)|[a-z](?:Time|Date|At|Utc|Ms)$"
)
NAMED_AS_DURATION = re.compile(r"(?i)duration|length|elapsed|runtime|interval|delay|took|lap|split|pace")
FIRST_SECOND, LAST_SECOND = 3e8, 2.6e9  # 1979 to 2052
FIRST_MILLISECOND, LAST_MILLISECOND = 8e11, 2.2e12  # 1995 to 2039, which need no name
FIRST_COMPACT, LAST_COMPACT = 1800_01_01, 2100_12_31  # of which 1 in 27 numbers is a date, so they need no name
COMPACT_TEXT = re.compile(r"(?:1[89]|20)\d{6}")
EARLIEST = -365.25 * 970  # days before 1970: a pattern of four digits takes two of them for the first century
LONGEST_DATE = 40
TRIED = 100  # values that are tried before all


@dataclass
class DatesOfForm:
    """A way in which all values of a column so far are dates, and what dates they are.

    Attributes:
        form: The option `dates` of the group that reads them.
        parts: Such as `month=5`, of all dates.
        low: The first date, in days since 1970.
        high: The last one.

    """

    form: str
    parts: dict[str, None] = field(default_factory=dict)
    low: float = np.inf
    high: float = -np.inf

    @property
    def has_days(self) -> bool:
        """Whether they are dates, rather than times of any day."""
        return self.form in EPOCHS or "%Y" in self.form or "%y" in self.form

    def takes(self, stage: Stage, column: str) -> bool:
        """Take the values of a stage into account, and return whether they are such dates."""
        try:
            items = items_of(stage, column, Lookup(parts=DATE_PARTS, dates=self.form))
            limits = pc.min_max(written_dates(stage, column, self.form).cast(pa.int64())).as_py()
        except UserError:
            return False
        if limits["min"] is not None:
            self.low = min(self.low, limits["min"] / MICROSECONDS_PER_DAY)
            self.high = max(self.high, limits["max"] / MICROSECONDS_PER_DAY)
            self.parts |= dict.fromkeys(items.keys.to_pylist())
        return self.low >= EARLIEST


class DateForms:
    """The ways in which all values of a column so far are dates.

    Args:
        column: The column's name, which says whether numbers may be dates.

    """

    def __init__(self, column: str) -> None:
        self.column = column
        self._left: list[DatesOfForm] | None = None  # None until there are values

    def add_numbers(self, stage: Stage, low: float, high: float) -> None:
        """Take a stage of distinct integers into account, which are from `low` to `high` so far."""
        if self._left is None:
            self._left = [DatesOfForm(form) for form in forms_of_numbers(self.column, low, high)]
        possible = forms_of_numbers(self.column, low, high)
        self._left = [dates for dates in self._left if dates.form in possible and dates.takes(stage, self.column)]

    def add_texts(self, stage: Stage, texts: pa.Array) -> None:
        """Take a stage of distinct texts into account."""
        if self._left is None:
            first = texts[:TRIED].to_pylist()
            self._left = [DatesOfForm(form) for form in forms_of_texts(self.column, first)]
        self._left = [dates for dates in self._left if dates.takes(stage, self.column)]

    def give_up(self) -> None:
        """Note that some values are no dates."""
        self._left = []

    @property
    def best(self) -> DatesOfForm | None:
        """The way that fits; where days and months are told apart by nothing else, the one with more months."""

        def months(dates: DatesOfForm) -> int:
            return sum(part.startswith("month=") for part in dates.parts)

        with_values = [dates for dates in self._left or () if dates.parts]
        return max(with_values, key=months, default=None)


def forms_of_numbers(column: str, low: float, high: float) -> list[str]:
    """Return the ways in which integers from `low` to `high` could be dates.

    >>> forms_of_numbers("created_at", 1.5e9, 1.6e9), forms_of_numbers("views", 1.5e9, 1.6e9)
    (['seconds'], [])

    """
    if low >= FIRST_COMPACT and high <= LAST_COMPACT:
        return [COMPACT]
    if NAMED_AS_TIME.search(column) is None:
        return ["milliseconds"] if low >= FIRST_MILLISECOND and high <= LAST_MILLISECOND else []
    return [
        form
        for form, factor in EPOCHS.items()
        if low * factor / 1e6 >= FIRST_SECOND and high * factor / 1e6 <= LAST_SECOND
    ]


def forms_of_texts(column: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield the patterns that fit all of some texts.

    >>> list(forms_of_texts("sold", ["31/12/2024", "1/5/2024"]))
    ['%d/%m/%Y']

    """
    texts = [text.strip() for text in texts]
    if not texts or not all(len(text) <= LONGEST_DATE and any(map(str.isdigit, text)) for text in texts):
        return
    values = pa.array(texts)
    compact = (COMPACT,) if all(map(COMPACT_TEXT.fullmatch, texts)) else ()
    days = (*DAYS, *SHORT_DAYS) if NAMED_AS_TIME.search(column) else DAYS
    times = () if NAMED_AS_DURATION.search(column) else TIMES
    with_times = tuple(
        f"{day}{between}{time}" for day in (*DAYS, *SHORT_DAYS) for between in (" ", ", ", "T") for time in TIMES
    )
    for form in (*days, *times, *with_times, *ALONE, *compact):
        try:
            parse_dates(values, form)
        except pa.ArrowInvalid:
            continue
        yield form
