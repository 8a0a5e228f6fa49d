"""The few Arrow types that columns of a table have, which of them another type becomes, and the kinds of their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from feat2vec.errors import UserError

# A "numeral" is a key from text that reads as a number: it keeps its spelling, as no type says that it is a number.
# A "float" is a number with which text is compared as a float64: text may have more digits than the key.
# A "float32" is a number with which others are compared as float32s, as a cast to the column's type would round them.
Kind = Literal["text", "number", "float", "float32", "numeral", "boolean", "date"]

MISSING_NUMBERS = ("NA", "NaN", "nan", "NULL", "null", "N/A", "None", "<NA>")  # in a column of numbers of a text file
KINDS_WITH_MISSING_WORDS: tuple[Kind, ...] = ("number", "float", "float32", "numeral", "boolean")


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
    """`kind_of_type`, which tells floats from other numbers."""
    while is_list(type_):
        type_ = type_.value_type
    if pa.types.is_float32(type_):
        return "float32"
    return "float" if pa.types.is_float64(type_) else kind_of_type(type_)


def is_list(type_: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_))


def is_text(type_: pa.DataType) -> bool:
    """Whether a column of this type holds text, plain or as a dictionary."""
    return bool(pa.types.is_string(type_) or (pa.types.is_dictionary(type_) and pa.types.is_string(type_.value_type)))


BATCH_ROWS = 2**17
BATCH_BYTES = 2**26
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days since 1970
FLOAT_DIGITS = 15  # of decimals that stay distinct as float64
DATES = "dates must be in the years 1 to 9999"
UNTYPED = b"feat2vec: text without types"  # a key in the metadata of a file that was made of a CSV


@dataclass(frozen=True)
class TablePart:
    """One file or one object that rows of a table come from.

    Attributes:
        source: the file or the object, as messages call it.
        types: the type of each column, by name, before it is normalised.
        read: reads these columns, in this order, a batch at a time.
        typed: whether columns have types; where they have none, text may stand for a number.
        unreadable: columns of which some value has no type.

    """

    source: str
    types: Mapping[str, pa.DataType]
    read: Callable[[list[str]], Iterator[pa.RecordBatch]]
    typed: bool = True
    unreadable: frozenset[str] = frozenset()


def column_types(source: str, fields: Iterable[tuple[object, pa.DataType]]) -> dict[str, pa.DataType]:
    """Return the types of a source's columns by name, in order.

    Raises:
        UserError: when there is no column, or a name is no string or comes twice, or a type cannot be read.

    """
    types: dict[str, pa.DataType] = {}
    for name, type_ in fields:
        if not isinstance(name, str):
            raise UserError(f"{source}: column names must be strings, received {name!r}: rename that column")
        if name in types:
            raise UserError(f"{source}: two columns are called {name!r}: rename one of them")
        try:
            normal_type(type_)
        except ValueError as error:  # a damaged file: lists of a negative size, a time zone that is not UTF-8
            raise UserError(f"{source}: column {name!r}: its type cannot be read ({error}): write it again") from error
        types[name] = type_
    if not types:
        raise UserError(f"{source}: has no columns: a table needs at least one")
    return types


def batch_rows(row_bytes: float) -> int:
    """Return how many rows of this size a batch may have."""
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(row_bytes, 1))))


def unsupported(description: str) -> pa.DataType:
    """Return a type for a column that exists but cannot be read; `description` is for messages."""
    return pa.opaque(pa.null(), description, "feat2vec")


def describe(type_: pa.DataType) -> str:
    """Name a type in a message."""
    return str(type_.type_name) if isinstance(type_, pa.OpaqueType) else str(type_)


def normal_type(type_: pa.DataType) -> pa.DataType:
    """Return the type that a column of this type gets; a type that is not supported stays as it is."""
    t = pa.types
    if isinstance(type_, (pa.FixedShapeTensorType, pa.JsonType)):
        return normal_type(type_.storage_type)
    if (t.is_run_end_encoded(type_) or is_any_list(type_)) and t.is_run_end_encoded(type_.value_type):
        return type_  # which Arrow cannot decode
    if t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        return normal_type(type_.value_type)
    if t.is_fixed_size_list(type_) and t.is_floating(type_.value_type):
        return pa.list_(normal_type(type_.value_type), type_.list_size)
    if is_any_list(type_):  # lists of times of day stay as they are: of no use
        return type_ if t.is_time(type_.value_type) else pa.list_(normal_type(type_.value_type))
    if t.is_timestamp(type_):
        return pa.timestamp("ns" if type_.unit == "ns" else "us", type_.tz)
    return _normal_scalar(type_)


def _normal_scalar(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    if is_any_text(type_) or t.is_time(type_):  # times of day are text such as 14:30:00
        return pa.string()
    if t.is_integer(type_) and not t.is_uint64(type_):
        return pa.int64()
    if t.is_float16(type_):
        return pa.float32()
    if t.is_decimal(type_):
        return _normal_decimal(type_.precision - type_.scale, type_.scale)
    return pa.date32() if t.is_date(type_) else type_


def _normal_decimal(before: int, after: int) -> pa.DataType:
    """Return a type in which all decimals with so many digits before and after the point stay distinct.

    Integers become int64 where it holds them, as they are ids more often than amounts. A float64 holds 15 digits.
    """
    before, after = max(before, 0), max(after, 0)
    digits = min(before + after, 76)
    if after == 0 and digits <= 18:
        return pa.int64()
    if digits <= FLOAT_DIGITS:
        return pa.float64()
    return pa.decimal128(digits, after) if digits <= 38 else pa.decimal256(digits, after)


def _digits(type_: pa.DataType) -> tuple[int, int]:
    """Return the digits before and after the point of decimals or integers."""
    return (type_.precision - type_.scale, type_.scale) if pa.types.is_decimal(type_) else (20, 0)


def is_any_list(type_: pa.DataType) -> bool:
    """Whether a type, normalised or not, is one of lists."""
    t = pa.types
    tests = (t.is_list, t.is_large_list, t.is_list_view, t.is_large_list_view, t.is_fixed_size_list)
    return any(test(type_) for test in tests)


def is_any_text(type_: pa.DataType) -> bool:
    """Whether a type, normalised or not, is one of text or bytes."""
    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary, t.is_binary_view)
    return any(test(type_) for test in tests)


def is_supported(type_: pa.DataType) -> bool:
    """Whether a normalised type is one of the few."""
    t = pa.types
    if is_any_list(type_):
        return is_supported(type_.value_type)
    tests = (
        t.is_string,
        t.is_boolean,
        t.is_integer,
        t.is_floating,
        t.is_decimal,
        t.is_date32,
        t.is_timestamp,
        t.is_null,
    )
    return any(test(type_) for test in tests)


def knows_time_zone(type_: pa.DataType) -> bool:
    """Whether times of this type, or lists of them, have a time zone that Arrow and Python know, or none."""
    while is_any_list(type_):
        type_ = type_.value_type
    if not pa.types.is_timestamp(type_) or type_.tz is None:
        return True
    try:
        pa.scalar(0, type_).cast(pa.string())
        pa.scalar(0, type_).as_py()
    except ValueError:  # an ArrowInvalid, or zoneinfo's own
        return False
    return True


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the normalised type that holds the values of both types, or None when there is none."""
    t = pa.types
    if a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    if t.is_integer(a) and t.is_integer(b):
        return pa.int64()
    if all(t.is_integer(type_) or t.is_decimal(type_) for type_ in (a, b)):
        before, after = zip(*map(_digits, (a, b)), strict=True)
        return _normal_decimal(max(before), max(after))
    if all(t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) for type_ in (a, b)):
        return pa.float64()  # casts refuse the integers and decimals that it would change
    if t.is_timestamp(a) and t.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        unit = a.unit if a.unit == b.unit else "us"  # those in nanoseconds end in 2262
        return pa.timestamp(unit, a.tz if a.tz == b.tz else "UTC")
    if is_any_list(a) and is_any_list(b):
        value = common_type(a.value_type, b.value_type)
        fixed = t.is_fixed_size_list(a) and t.is_fixed_size_list(b) and a.list_size == b.list_size
        return None if value is None else pa.list_(value, a.list_size) if fixed else pa.list_(value)
    return None
