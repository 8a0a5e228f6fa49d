"""In which way the texts of a column, or most of them, are numbers, as far as it has been read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Bools, Int64s
from feat2vec.schema.extractor_options import PLAIN_NUMBER
from feat2vec.table.numbers import trimmed
from feat2vec.table.table import Stage
from feat2vec.table.written_numbers import MINUS, WIDE_SPACES, NumberForm, are_numbers, form_of_example, parse_numbers

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
EXPONENT = r"(?:[eE][-+]?\d+)?"
WRITTEN = re.compile(
    rf"(?P<sign>[-+\u2212]?)(?P<prefix>{PREFIX})[-+\u2212]?\s*[.,]?\d[\d.,' ]*?{EXPONENT}(?P<suffix>{SUFFIX})"
)
FIRST_CODE = 1e8  # of those that may be numbers of telephones
MOST_JUNK_TEXTS = 3  # texts that are told
TRIED = 200  # texts that are tried before all
LEAST_SHARE = 0.5  # of them that are numbers
WITHOUT_UNIT = rf"^(?:\+|{MINUS})?[\d.,' {WIDE_SPACES}]+{EXPONENT}$"
PLAIN = r"^\s*[-+]?\d*\.?\d*\s*$"
LEADING_ZERO = f"(?:^|[^0-9.,' {WIDE_SPACES}])0[0-9]"


@dataclass
class NumbersOfForm:
    """A way in which texts of a column so far are numbers, and what numbers they are.

    Attributes:
        form: The option `written` of the group that reads them.
        low: The lowest number.
        high: The highest one.
        are_integers: Whether all numbers are.
        rows: How many rows have a number.
        junk_rows: How many rows have another text.
        junk_texts: Some of these texts.

    """

    form: str
    low: float = np.inf
    high: float = -np.inf
    are_integers: bool = True
    rows: int = 0
    junk_rows: int = 0
    junk_texts: list[str] = field(default_factory=list)

    @property
    def are_codes(self) -> bool:
        """Whether they are such as 612 345 678: of one length and long, without a unit; or too long for a float64."""
        form = form_of_example(self.form)
        has_unit = bool(form.prefix or form.suffix)
        if has_unit:
            return False
        are_as_long = self.low >= FIRST_CODE and len(f"{self.low:.0f}") == len(f"{self.high:.0f}")
        return are_as_long or (self.are_integers and self.high > 2**53)

    @property
    def share(self) -> float:
        """The share of the rows with a text that have a number."""
        return self.rows / max(self.rows + self.junk_rows, 1)

    def add(self, texts: pa.Array, counts: Int64s) -> Bools:
        """Take distinct texts into account.

        Args:
            texts: Without missing ones, and without spaces around them.
            counts: How many rows have each.

        Returns:
            Which of the texts are numbers.

        """
        form = form_of_example(self.form)
        is_number: Bools = are_numbers(texts, form).to_numpy(zero_copy_only=False).astype(np.bool_)
        self.rows += int(counts[is_number].sum())
        self.add_junk(texts.filter(pa.array(~is_number)), int(counts[~is_number].sum()))
        if is_number.any():
            numbers = parse_numbers(texts.filter(pa.array(is_number)), form).to_numpy()
            self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
            self.are_integers = self.are_integers and bool((numbers == np.floor(numbers)).all())
        return is_number

    def add_junk(self, texts: pa.Array, rows: int) -> None:
        """Take distinct texts that are no numbers into account, and how many rows have them."""
        self.junk_rows += rows
        self.junk_texts += texts[: MOST_JUNK_TEXTS - len(self.junk_texts)].to_pylist()


class NumberForms:
    """The ways in which texts of a column so far are numbers.

    Args:
        column: The column's name.

    """

    def __init__(self, column: str) -> None:
        self.column = column
        self._ways: list[NumbersOfForm] | None = None  # None until there is a number
        self._before = NumbersOfForm(PLAIN_NUMBER)  # the texts until then
        self._unit = ("", "")  # before and behind the numbers
        self._has_marks = False  # whether some text is more than digits and a point
        self._ended = False

    def add_texts(self, stage: Stage, texts: pa.Array, counts: Int64s) -> None:
        """Take a stage of distinct texts into account, and how many rows have each."""
        texts = trimmed(stage, texts)
        is_present = pc.is_valid(texts)
        texts, counts = texts.filter(is_present), counts[is_present.to_numpy(zero_copy_only=False)]
        if self._ended or not len(texts):
            return
        self._has_marks = self._has_marks or not pc.all(pc.match_substring_regex(texts, PLAIN)).as_py()
        self._find_unit(texts)
        if self._ways is None:
            if len(texts) >= TRIED:  # none of so many is a number
                self._ended = True
            self._before.add_junk(texts, int(counts.sum()))
            return
        self._drop_wrong_ways(texts)
        for way in list(self._ways):
            read = texts.filter(pa.array(way.add(texts, counts)))
            without_exponent = pc.replace_substring_regex(read, rf"(\d){EXPONENT}", r"\1")  # 1e05 is no code
            if pc.any(pc.match_substring_regex(without_exponent, LEADING_ZERO)).as_py():
                self.give_up()  # codes
                return
            thousands = form_of_example(way.form).thousands
            if thousands and pc.any(pc.match_substring_regex(read, _zero_before(thousands))).as_py():
                self._ways.remove(way)

    def add_plain(self, counts: Int64s, low: float, high: float, *, are_integers: bool) -> None:
        """Take texts into account that are plain numbers, how often each of them comes, and from where to where."""
        if self._ended:
            return
        if self._ways is None:
            self._begin(NumberForm("", "", ".", ""))
        assert self._ways is not None
        rows = int(counts.sum())
        for way in self._ways:
            if form_of_example(way.form).decimal == "." or are_integers:
                way.rows, way.low, way.high = way.rows + rows, min(way.low, low), max(way.high, high)
                way.are_integers = way.are_integers and are_integers
            else:
                way.junk_rows += rows

    def give_up(self) -> None:
        """Note that the values are no numbers."""
        self._ways, self._ended = [], True

    @property
    def best(self) -> NumbersOfForm | None:
        """The way that fits all: of several the first, in which a point is before a fraction."""
        ways = self._ways if self._ways is not None and self._has_marks else ()
        return next((way for way in ways if way.rows and not way.junk_rows and not way.are_codes), None)

    @property
    def best_of_most(self) -> NumbersOfForm | None:
        """The way that fits the most rows, where other texts stand beside numbers; None if some way fits all."""
        ways = [way for way in self._ways or () if way.rows and not way.are_codes]
        if not all(way.junk_rows for way in ways):
            return None
        return max(ways, key=lambda way: way.rows, default=None)

    def _find_unit(self, texts: pa.Array) -> None:
        """Find the first text that is a number, or the first one with a unit if there has been none before."""
        if self._unit != ("", ""):
            return
        is_plain = pc.match_substring_regex(texts, WITHOUT_UNIT)
        with_unit = next(filter(None, map(_form_of_text, texts.filter(pc.invert(is_plain))[:TRIED].to_pylist())), None)
        plain = next(filter(None, map(_form_of_text, texts.filter(is_plain)[:TRIED].to_pylist())), None)
        first_form = with_unit or plain
        if first_form is None:
            return
        if self._ways is None:
            self._begin(first_form)
        elif (first_form.prefix, first_form.suffix) != ("", ""):  # what has been read has none, and is read as before
            ways = []
            for way in self._ways:
                form = replace(form_of_example(way.form), prefix=first_form.prefix, suffix=first_form.suffix)
                if form_of_example(form.example) == form:
                    ways.append(replace(way, form=form.example))
            self._ways = ways
        self._unit = first_form.prefix, first_form.suffix

    def _begin(self, first_form: NumberForm) -> None:
        before = self._before
        self._ways = [
            NumbersOfForm(form.example, junk_rows=before.junk_rows, junk_texts=list(before.junk_texts))
            for form in forms_with_unit(first_form.prefix, first_form.suffix)
        ]

    def _drop_wrong_ways(self, texts: pa.Array) -> None:
        """Leave out ways in which hardly one of many texts is a number."""
        if len(texts) < TRIED:
            return
        assert self._ways is not None
        head = texts[:TRIED]
        self._ways = [
            way
            for way in self._ways
            if pc.mean(are_numbers(head, form_of_example(way.form)).cast(pa.int8())).as_py() >= LEAST_SHARE
        ]


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
    first_form = _form_of_text(text)
    if first_form is not None:
        yield from forms_with_unit(first_form.prefix, first_form.suffix)


def forms_with_unit(prefix: str, suffix: str) -> Iterator[NumberForm]:
    """Yield the ways in which numbers could be written with a unit."""
    for thousands, decimal in MARKS:
        form = NumberForm(prefix, thousands, decimal, suffix)
        if form_of_example(form.example) == form:
            yield form


def _form_of_text(text: str) -> NumberForm | None:
    """A way in which a text is a number, whatever the marks between its digits are; None if there is none."""
    match = WRITTEN.fullmatch(re.sub(f"[{WIDE_SPACES}]", " ", text.strip()))
    return None if match is None else NumberForm(match["prefix"], "", ".", match["suffix"])
