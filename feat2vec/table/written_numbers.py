"""Numbers that are written in another way than 1234.5: with a unit, a sign of a currency, or the marks of a country."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Floats
from feat2vec.schema.extractor_options import NUMBER_FORM
from feat2vec.table.numbers import numbers_of, parse_text, trimmed
from feat2vec.table.table import Stage
from feat2vec.table.types import is_text

MINUS = "[-\u2212]"
WIDE_SPACES = "\u00a0\u202f"  # at which no line is broken
SPACES = rf"[\s{WIDE_SPACES}]"
TWO_SIGNS = rf"{MINUS}\D*{MINUS}"
PARTS = ("sign", "inner", "integer", "fraction", "bare", "exponent")


@dataclass(frozen=True)
class NumberForm:
    """How numbers are written.

    Attributes:
        prefix: Before each number, such as a currency.
        thousands: Between groups of three digits; empty for nothing.
        decimal: Before the fraction.
        suffix: Behind each number, such as a unit.

    """

    prefix: str
    thousands: str
    decimal: str
    suffix: str

    @property
    def example(self) -> str:
        """The option `written`, such as `$1,000.5`."""
        number = f"1{self.thousands}000" if self.thousands else "1"
        return f"{self.prefix}{number}{self.decimal}5{self.suffix}"

    @property
    def pattern(self) -> str:
        """A regular expression for RE2, with the parts sign, inner, integer, fraction, bare and exponent.

        The prefix and the suffix may be missing. The part bare is the fraction of a number such as .5.
        """
        separator = SPACES if self.thousands == " " else re.escape(self.thousands)
        integer = rf"\d{{1,3}}(?:{separator}\d{{3}})+|\d+" if self.thousands else r"\d+"
        decimal = re.escape(self.decimal)
        fraction = r"\d*" if self.decimal == "." else r"\d+"  # 5. is a number, and 5, is none
        signs = [rf"(?:\+|(?P<{name}>{MINUS}))?" for name in ("sign", "inner")]
        number = (
            rf"(?:(?P<integer>{integer})(?:{decimal}(?P<fraction>{fraction}))?|{decimal}(?P<bare>\d+))"
            r"(?P<exponent>[eE][-+]?\d+)?"
        )
        prefix, suffix = (f"(?:{re.escape(unit.strip())})?" for unit in (self.prefix, self.suffix))
        return f"^{f'{SPACES}*'.join([signs[0], prefix, signs[1], number, suffix])}$"


def form_of_example(example: str) -> NumberForm:
    """Return how numbers are written, by an example.

    Args:
        example: The option `written`.

    Returns:
        The form.

    Example:
        >>> form_of_example("1.000,5 km").thousands, form_of_example("$1.5").prefix
        ('.', '$')

    """
    match = NUMBER_FORM.fullmatch(example)
    assert match is not None  # as options are validated
    prefix, thousands, decimal, suffix = (group or "" for group in match.groups())
    return NumberForm(prefix, thousands, decimal, suffix)


def written_numbers(stage: Stage, column: str, example: str, nan: str = "error") -> Floats:
    """Return a column as numbers, NaN where missing.

    Args:
        stage: Of the table.
        column: Of the stage; one of numbers is taken as it is.
        example: How they are written, such as `$1,000.5`.
        nan: Whether NaN in a typed column is an "error" or "missing"; if "lenient", text that is no such number is
            missing, too.

    Raises:
        UserError: A value is no number that is written so.

    """
    values = stage.column(column).combine_chunks()
    if not is_text(values.type):
        return numbers_of(stage, column, nan=nan)[0]
    form = form_of_example(example)
    text = trimmed(stage, values)
    if nan == "lenient":
        text = pc.if_else(are_numbers(text, form), text, pa.scalar(None, pa.string()))
    message = f"a number that is written as {example} is needed"
    numbers = parse_text(stage, column, text, lambda texts: parse_numbers(texts, form), message)
    floats: Floats = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    return floats


def are_numbers(texts: pa.Array, form: NumberForm) -> pa.BooleanArray:
    """Whether texts are finite numbers of a form, null for null.

    Args:
        texts: Without spaces around them.
        form: How numbers are written.

    Example:
        >>> are_numbers(pa.array(["$5", "7.5", "unknown", "--5", "1e-5"]), form_of_example("$1.5")).to_pylist()
        [True, True, False, False, True]

    """
    matches = pc.and_(
        pc.match_substring_regex(texts, form.pattern), pc.invert(pc.match_substring_regex(texts, TWO_SIGNS))
    )
    numbers = parse_numbers(pc.if_else(matches, texts, pa.scalar(None, pa.string())), form)
    return pc.if_else(matches, pc.is_finite(numbers), matches)


def parse_numbers(texts: pa.Array, form: NumberForm) -> pa.Array:
    """Parse text as numbers of a form.

    Args:
        texts: To be parsed, without spaces around them.
        form: How they are written.

    Raises:
        pa.ArrowInvalid: A text is no such number.

    """
    parts = pc.extract_regex(texts, form.pattern)
    if parts.null_count > texts.null_count:
        raise pa.ArrowInvalid(f"a text is not written as {form.example}")
    sign, inner, integer, fraction, bare, exponent = (pc.struct_field(parts, name) for name in PARTS)
    digits = pc.replace_substring_regex(integer, r"\D", "")
    signs = pc.replace_substring(pc.binary_join_element_wise(sign, inner, ""), "\u2212", "-")
    # An integer and a bare fraction are never both there; the zeros are for the one that is not.
    return pc.binary_join_element_wise(signs, "0", digits, ".", fraction, bare, "0", exponent, "").cast(pa.float64())
