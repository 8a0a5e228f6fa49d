"""Keys that read as numbers: the forms of their text, and which columns hold integers or floats alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

NUMERAL = r"-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?"
INTEGER = r"-?(0|[1-9][0-9]*)"
WHOLE_FLOAT = r"-?(0|[1-9][0-9]*)\.0"
FLOAT = r"-?(0|[1-9][0-9]*)\.(0|[0-9]*[1-9])"  # the shortest text of one without an exponent


def without_point(keys: pa.StringArray) -> pa.StringArray:
    """Spell whole numbers without .0 at their end.

    >>> without_point(pa.array(["26.0", "-0.0", "9007199254740993.0"])).to_pylist()
    ['26', '0', '9007199254740993']

    """
    return pc.replace_substring_regex(pc.replace_substring_regex(keys, r"\.0$", ""), "^-0$", "0")


class Forms(NamedTuple):
    """Whether all keys of a column read as integers, or as floats; None for a column without keys."""

    are_integers: bool | None
    are_floats: bool | None


def are_integers_and_floats(forms_of_columns: Iterable[Forms]) -> bool:
    """Whether some columns hold integers alone, and all others floats alone.

    >>> integers, floats, mixed = Forms(True, False), Forms(False, True), Forms(False, False)
    >>> [are_integers_and_floats(forms) for forms in ([integers, floats], [floats] * 2, [integers, floats, mixed])]
    [True, False, False]

    """
    with_keys = {forms for forms in forms_of_columns if forms.are_integers is not None}
    return with_keys == {Forms(True, False), Forms(False, True)}
