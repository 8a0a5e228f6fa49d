"""In which way the texts of a column are numbers, as far as it has been read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.table.table import Stage
from feat2vec.table.written_numbers import WIDE_SPACES, NumberForm, form_of_example, written_numbers

MARKS = (("", "."), (",", "."), ("", ","), (".", ","), (" ", ","), (" ", "."), ("'", "."))  # thousands, decimals
SIGNS = "$€£¥₹₩₽₺₪฿₫₴%‰°"
CODES = "USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|BRL|MXN|ZAR|Rs|kr|Fr|[A-Z]{1,3}\\$"
UNITS = (
    "min|mins|s|sec|secs|ms|h|hr|hrs|km|m|cm|mm|mi|ft|in|yd|kg|g|mg|lb|lbs|oz|l|ml|cl|gal|mph|kmh|kph|km/h|m/s|mpg|"
    "kW|kWh|MW|hp|bhp|mA|mAh|Hz|kHz|MHz|GHz|kB|KB|MB|GB|TB|px|bpm|dB|°C|°F|cc|CC|yr|yrs|sqft|ha|m²|km²|m2"
)
PREFIX = rf"(?:(?:[{SIGNS}~]|{CODES})\s*)?"
# Letters that follow a figure are no unit unless they are known: 12B is a code.
SUFFIX = rf"(?:\s*(?:[{SIGNS}]|{CODES}|{UNITS})|\s+[^\W\d][^\d]{{0,20}})?"
WRITTEN = re.compile(rf"(?P<sign>[-+\u2212]?)(?P<prefix>{PREFIX})[-+\u2212]?\s*\d[\d.,' ]*?(?P<suffix>{SUFFIX})")
FIRST_CODE = 1e8  # of those that may be numbers of telephones
PLAIN = r"^\s*[-+]?\d*\.?\d*\s*$"
LEADING_ZERO = f"(?:^|[^0-9.,' {WIDE_SPACES}])0[0-9]"


@dataclass
class NumbersOfForm:
    """A way in which all texts of a column so far are numbers, and what numbers they are.

    Attributes:
        form: The option `written` of the group that reads them.
        low: The lowest number.
        high: The highest one.

    """

    form: str
    low: float = np.inf
    high: float = -np.inf

    @property
    def are_codes(self) -> bool:
        """Whether they are such as 612 345 678: of one length and long, without a unit."""
        form = form_of_example(self.form)
        has_unit = bool(form.prefix or form.suffix)
        return not has_unit and self.low >= FIRST_CODE and len(f"{self.low:.0f}") == len(f"{self.high:.0f}")

    def takes(self, stage: Stage, column: str) -> bool:
        """Take the texts of a stage into account, and return whether they are such numbers."""
        try:
            numbers = written_numbers(stage, column, self.form)
        except UserError:
            return False
        present = numbers[~np.isnan(numbers)]
        if len(present):
            self.low, self.high = min(self.low, float(present.min())), max(self.high, float(present.max()))
        return bool(np.isfinite(present).all())


class NumberForms:
    """The ways in which all texts of a column so far are numbers.

    Args:
        column: The column's name.

    """

    def __init__(self, column: str) -> None:
        self.column = column
        self._left: list[NumbersOfForm] | None = None  # None until there are texts
        self._has_marks = False  # whether some text is more than digits and a point

    def add_texts(self, stage: Stage, texts: pa.Array) -> None:
        """Take a stage of distinct texts into account."""
        if self._left is None:
            self._left = [NumbersOfForm(form.example) for form in forms_of_text(str(texts[0]))]
        if not self._has_marks:
            self._has_marks = not pc.all(pc.match_substring_regex(texts, PLAIN)).as_py()
        if self._left and pc.any(pc.match_substring_regex(texts, LEADING_ZERO)).as_py():
            self._left = []  # codes
        marks = {mark for mark in ",.' " if pc.any(pc.match_substring_regex(texts, _zero_before(mark))).as_py()}
        left = [numbers for numbers in self._left if form_of_example(numbers.form).thousands not in marks]
        self._left = [numbers for numbers in left if numbers.takes(stage, self.column)]

    def give_up(self) -> None:
        """Note that some values are no numbers."""
        self._left = []

    @property
    def best(self) -> NumbersOfForm | None:
        """The way that fits: of several the first, in which a point is before a fraction."""
        left = self._left if self._left is not None and self._has_marks else ()
        return next((numbers for numbers in left if numbers.low <= numbers.high and not numbers.are_codes), None)


def _zero_before(mark: str) -> str:
    """A pattern of numbers such as 0,123, in which the mark cannot stand between thousands."""
    return f"(?:^|[^0-9.,'])0{re.escape(mark)}[0-9]"


def forms_of_text(text: str) -> Iterator[NumberForm]:
    """Yield the ways in which a text could be a number with a unit, a currency or other marks.

    >>> [form.example for form in forms_of_text("97 min")][:2]
    ['1.5 min', '1,000.5 min']
    >>> list(forms_of_text("A12")), list(forms_of_text("12B"))
    ([], [])

    """
    match = WRITTEN.fullmatch(re.sub(f"[{WIDE_SPACES}]", " ", text.strip()))
    if match is None:
        return
    for thousands, decimal in MARKS:
        form = NumberForm(match["prefix"], thousands, decimal, match["suffix"])
        if form_of_example(form.example) == form:
            yield form
