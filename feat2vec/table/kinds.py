"""What the type of a column says of its values: the kind of their keys, and whether they are lists or text."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

# A "numeral" is a key from text that reads as a number: it keeps its spelling, as no type says that it is a number.
# A "float" is a number with which text is compared as a float64: text may have more digits than the key.
Kind = Literal["text", "number", "float", "numeral", "boolean", "date"]

MISSING_NUMBERS = ("NA", "NaN", "nan", "NULL", "null", "N/A", "None", "<NA>")  # in a column of numbers of a text file


def kind_of_type(type_: pa.DataType) -> Kind:
    """What kind of keys a typed column has."""
    while is_list(type_):
        type_ = type_.value_type
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    return "date" if pa.types.is_temporal(type_) else "text"


def kind_of_keys(type_: pa.DataType) -> Kind:
    """`kind_of_type`, which tells float64 from other numbers."""
    while is_list(type_):
        type_ = type_.value_type
    return "float" if pa.types.is_float64(type_) else kind_of_type(type_)


def is_list(type_: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_))


def is_text(type_: pa.DataType) -> bool:
    """Whether a column of this type holds text, plain or as a dictionary."""
    return bool(pa.types.is_string(type_) or (pa.types.is_dictionary(type_) and pa.types.is_string(type_.value_type)))
