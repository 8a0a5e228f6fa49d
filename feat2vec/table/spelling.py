"""How values are spelled as keys.

A key is text, and two values have one key only if they are equal:

- Text stays as it stands, in a CSV too, where every value is text: `007`, ` 7`, `7`, `7.0`, `1e5` and `100000` are six
  keys. The empty text is missing, and NA and the like are where all other keys of a CSV's column read as numbers, or
  are truth values. `True`, `TRUE` and `true` are one key, in a column of a CSV that holds no other values. Where all
  values of such a column are whole numbers that end in .0, as pandas writes integers beside gaps, 26.0 is the key `26`;
  and where such columns share keys, some of integers alone and the others of floats alone, 26.0 is the key `26` of all.
- Integers and decimals of every size are their digits (9007199254740993), and floats their shortest text; a whole one
  below 2^53 has no point. 5, 5.0 and the decimal 5.00 are the key `5`.
- Dates are 2024-01-31, times 2024-01-31 10:30:00, with six or nine digits of a fraction; midnight is the day. Those
  with a time zone are 2024-01-31 08:30:00Z, in UTC.

The vocabulary of a typed column of dates takes text for the time that it tells: 2024-01-31T10:30:00.000 finds the key
2024-01-31 10:30:00, and 2024-01-31T10:30:00+02:00 the key 2024-01-31 08:30:00Z; a time with a zone is none without.

The vocabulary of a typed column of numbers takes text for a number: `7` and `7.0` from a CSV find the key 7
(`respell`), and no text finds the key of another number, however small the difference. Where the column holds float64,
text may have more digits than it needs: 0.10000000000000001 is how 17 digits write the number with the key 0.1. Where
it holds float32, all numbers are rounded to float32, as a cast does: 0.10000000149011612 finds the key 0.1. The
vocabulary of text, as of a CSV, takes a number for its key: the number 7 finds `7`, and neither `7.0` nor `07`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.table.types import Kind

DECIMAL = r"^(-0|[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+))$"
NUMBER = rf"{DECIMAL}|^-?(0|[1-9][0-9]*)$"  # one that may be found by another spelling
LONG = r"^\+?(-?)0*([1-9][0-9]{15,})\.0*$"  # a whole number that float64 may not hold
MANY_DIGITS = r"[0-9](\.?[0-9]){15}|[eE][-+]?[0-9]{3}"  # of a number that float64 may not hold
LARGE = r"^-?[0-9]{12}|e\+"  # of a number that floats and decimals are spelled differently from
# a date or a time as a key, or as most programs write one: 2024-01-31, 2024-01-31T10:30:00.000+02:00
DATE = (
    r"^(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])"
    r"(?:[ T](?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>Z|[-+](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?)?$"
)
MOST_DIGITS = 400  # before or after the point: more than any type of number has


def spell_floats(numbers: pa.Array) -> pa.StringArray:
    """Return the shortest text of each float; an integer below 2^53 has no point.

    >>> spell_floats(pa.array([5.0, 0.1, 1e20])).to_pylist()
    ['5', '0.1', '1e+20']

    """
    is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**53))
    as_int = pc.cast(pc.if_else(is_whole, numbers, 0.0), pa.int64())
    return pc.if_else(is_whole, as_int.cast(pa.string()), numbers.cast(pa.string()))


def spell_decimals(numbers: pa.Array) -> pa.StringArray:
    """Return all digits of each decimal, without zeros at the end of a fraction."""
    text = pc.ascii_lower(numbers.cast(pa.string()))
    text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+$", r"\1")
    text = pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+($|e)", r"\1\2")
    text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+e", r"\1e")
    return pc.replace_substring_regex(text, r"^0e.*$", "0")


def spell_times(times: pa.Array) -> pa.StringArray:
    """Return times with six or nine digits of a fraction, or none; midnight without a time zone is the day.

    Times with a time zone are those of UTC: the keys of a table do not depend on the zone in which a program wrote it,
    and a local time needs more than minutes to tell its distance from UTC, in 1900 0:09:21 in Paris.
    """
    if times.type.tz is not None:
        times = times.cast(pa.timestamp(times.type.unit, "UTC"))
    text = pc.replace_substring_regex(times.cast(pa.string()), r"(\.[0-9]{6})000(Z?)$", r"\1\2")  # of nanoseconds
    text = pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1")
    return pc.replace_substring_regex(text, r" 00:00:00$", "")  # as a day is written in a text of the table


def respell(keys: pa.StringArray, kind: Kind) -> pa.StringArray:
    """Spell keys that are text as a column of a kind does.

    >>> respell(pa.array(["5.0", "1e3", "-0", "x"]), "number").to_pylist()
    ['5', '1000', '0', 'x']
    >>> respell(pa.array(["True"]), "boolean").to_pylist()
    ['true']

    """
    if kind == "boolean":
        return pc.utf8_lower(keys)
    if kind not in ("number", "float"):
        return keys
    is_decimal = pc.match_substring_regex(keys, DECIMAL)
    has_many_digits = pc.and_(is_decimal, pc.match_substring_regex(keys, MANY_DIGITS))
    keys = _replace(keys, has_many_digits, lambda text: _all_digits(text) or text)
    is_float = pc.and_not(is_decimal, has_many_digits)
    floats = pc.cast(pc.if_else(is_float, keys, "0"), pa.float64())
    return pc.if_else(is_float, spell_floats(floats), keys)


def instants(texts: pa.StringArray) -> pa.StringArray:
    """Return seconds since 1970 for each date or time, with Z if it has a time zone; null for what is none.

    >>> instants(pa.array(["1970-01-02", "1970-01-02T00:00:00.500", "1970-01-02 01:00:00+01:00", "x"])).to_pylist()
    ['86400', '86400.5', '86400Z', None]

    """
    parts = pc.extract_regex(texts, DATE)

    def part(name: str, absent: str) -> pa.StringArray:
        text = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(text, ""), absent, text)

    day = pc.binary_join_element_wise(*(part(name, "") for name in ("year", "month", "day")), "-")
    clock = pc.binary_join_element_wise(*(part(name, "00") for name in ("hour", "minute", "second")), ":")
    zone = part("zone", "")
    seconds = _seconds(pc.binary_join_element_wise(day, "T", clock, part("zone", "Z"), ""))
    fraction = pc.replace_substring_regex(part("fraction", ""), "0*$", "")
    fraction = pc.if_else(pc.equal(fraction, ""), "", pc.binary_join_element_wise(".", fraction, ""))
    return pc.binary_join_element_wise(seconds, fraction, pc.if_else(pc.equal(zone, ""), "", "Z"), "")


def _seconds(times: pa.StringArray) -> pa.StringArray:
    """Return seconds since 1970 for times of UTC or with an offset; null for a time that does not exist."""
    try:
        return times.cast(pa.timestamp("s", "UTC")).cast(pa.int64()).cast(pa.string())
    except pa.ArrowInvalid:
        if len(times) == 1:
            return pa.nulls(1, pa.string())
        middle = len(times) // 2
        return pa.concat_arrays([_seconds(times[:middle]), _seconds(times[middle:])])


def respell_large(keys: pa.StringArray) -> pa.StringArray:
    """Spell large numbers in the other way than `respell`: as floats are spelled instead of decimals, or vice versa.

    >>> respell_large(pa.array(["1e+20", "100000000000000000000"])).to_pylist()
    ['100000000000000000000', '1e+20']

    """
    return _replace(keys, pc.match_substring_regex(keys, LARGE), _other_spelling)


def respell_rounded(keys: pa.StringArray) -> pa.StringArray:
    """Spell floats with the fewest digits, if their text has more digits than tell them apart.

    >>> respell_rounded(pa.array(["0.10000000000000001", "0.10000000000000002"])).to_pylist()
    ['0.1', '0.10000000000000002']

    """
    return _replace(keys, pc.match_substring_regex(keys, MANY_DIGITS), _shortest_spelling)


def respell_float32(keys: pa.StringArray) -> pa.StringArray:
    """Spell numbers as the nearest float32, unless it is infinite, or 0 in place of another number.

    >>> respell_float32(pa.array(["0.10000000149011612", "16777217", "1e-60", "1e60", "x"])).to_pylist()
    ['0.1', '16777216', '1e-60', '1e60', 'x']

    """
    is_number = pc.match_substring_regex(keys, NUMBER)
    numbers = pc.cast(pc.if_else(is_number, pc.utf8_ltrim(keys, "+"), "0"), pa.float64())
    rounded = numbers.cast(pa.float32(), safe=False)
    is_zero = pc.and_not(pc.equal(rounded, 0), pc.equal(numbers, 0))
    is_rounded = pc.and_(is_number, pc.and_not(pc.is_finite(rounded), is_zero))
    return pc.if_else(is_rounded, spell_floats(pc.if_else(is_rounded, rounded, np.float32(0))), keys)


def _replace(keys: pa.StringArray, mask: pa.BooleanArray, spell: Callable[[str], str]) -> pa.StringArray:
    """Return keys with those at some places spelled by a function."""
    if not pc.any(mask).as_py():
        return keys
    mask = pc.fill_null(mask, False)
    spelled = [spell(key) for key in keys.filter(mask).to_pylist()]
    return pc.replace_with_mask(keys, mask, pa.array(spelled, pa.string()))


def _all_digits(text: str) -> str | None:
    """The digits of a number, as decimals are spelled; None for what is no number, or of more digits than any has."""
    if not re.fullmatch(NUMBER, text):  # Decimal takes spaces, underscores and the digits of every script
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if not number:
        return "0"
    if not abs(number.adjusted()) < MOST_DIGITS:
        return None
    digits = f"{number:f}"
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    if number.adjusted() >= -6:
        return digits
    digits = digits.removeprefix("-").lstrip("0.")
    sign = "-" if number < 0 else ""
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}e{number.adjusted()}"


def _other_spelling(text: str) -> str:
    """A number as decimals are spelled or, if it is spelled so, as floats are; unchanged if that is another number."""
    digits = _all_digits(text)
    if digits is None or digits != text:
        return digits or text
    number = float(text)
    if not np.isfinite(number):
        return text
    as_float = _spell_float(number)
    is_same_integer = number.is_integer() and Decimal(number) == Decimal(text)
    return as_float if is_same_integer or Decimal(as_float) == Decimal(text) else text


def _shortest_spelling(text: str) -> str:
    """A float's spelling, if the text is that very float, rounded to as many digits as the text has."""
    digits = _all_digits(text)
    if digits is None:
        return text
    number = float(digits)
    if not np.isfinite(number):
        return text
    significant = len(digits.partition("e")[0].replace(".", "").strip("-0"))
    if not 16 <= significant < MOST_DIGITS or Decimal(f"{number:.{significant - 1}e}") != Decimal(digits):
        return text
    return _spell_float(number)


def _spell_float(number: float) -> str:
    return str(spell_floats(pa.array([number]))[0].as_py())
