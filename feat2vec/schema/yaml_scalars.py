"""What an unquoted scalar of YAML means, and whether other readers of YAML agree.

Scalars follow YAML 1.2 (`true`, `12`, `1e-3`), with the words `yes`, `no`, `on` and `off` of YAML 1.1. What the two
versions read differently (`010`, `1:30`, `2020-01-01`) is ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_DIGITS = 300  # of an integer; some readers do not take longer ones
WORDS: Mapping[str, bool | None] = {
    **{word: True for base in ("true", "yes", "on") for word in (base, base.title(), base.upper())},
    **{word: False for base in ("false", "no", "off") for word in (base, base.title(), base.upper())},
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
AMBIGUOUS = (
    (re.compile(rf"[-+]?[0-9]{{{MAX_DIGITS + 1},}}"), "a number too long for some readers"),
    (re.compile(r"[-+]?0[0-9]+|[-+]?0o[0-7]+"), "an octal number to some readers"),
    (re.compile(r"[-+]?0[xb][0-9a-fA-F_]+"), "a hexadecimal or binary number to some readers"),
    (re.compile(r"[-+]?\.?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?"), "a number with underscores to some readers"),
    (re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"), "a number of base 60 to some readers"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date to some readers"),
)


def scalar_value(text: str) -> bool | int | float | str | None:
    """The value of an unquoted scalar.

    >>> [scalar_value(word) for word in ("12", "1e-3", "no", "north")]
    [12, 0.001, False, 'north']
    """
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text) and len(text) <= MAX_DIGITS + 1:
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1).lower())
    return text


def other_reading(text: str) -> str | None:
    """What some readers take an unquoted scalar for, if they do not agree; else None.

    >>> other_reading("010"), other_reading("10")
    ('an octal number to some readers', None)
    """
    for pattern, reading in AMBIGUOUS:
        if pattern.fullmatch(text):
            return reading
    return None
