"""The few Arrow types that a table's columns have here, and the way there from any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa

from feat2vec.errors import UserError

BATCH_ROWS = 2**17
BATCH_BYTES = 2**26
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days since 1970
FLOAT_DIGITS = 15  # of a decimal that float64 tells from every other
DATES = "dates must be in the years 1 to 9999"


@dataclass(frozen=True)
class TablePart:
    """One file or one object that rows of a table come from.

    Attributes:
        source: the file or the object, as messages call it.
        types: the type of each column, by name, before it is normalised.
        read: reads these columns, in this order, a batch at a time.

    """

    source: str
    types: Mapping[str, pa.DataType]
    read: Callable[[list[str]], Iterator[pa.RecordBatch]]


def column_types(source: str, fields: Iterable[tuple[object, pa.DataType]]) -> dict[str, pa.DataType]:
    """Return the columns of a source in order; names are strings, none comes twice, and there is at least one."""
    types: dict[str, pa.DataType] = {}
    for name, kind in fields:
        if not isinstance(name, str):
            raise UserError(f"{source}: column names must be strings, received {name!r}: rename that column")
        if name in types:
            raise UserError(f"{source}: two columns are called {name!r}: rename one of them")
        try:
            normal_type(kind)
        except ValueError as error:  # a damaged file: lists of a negative size, a time zone that is not UTF-8
            raise UserError(f"{source}: column {name!r}: its type cannot be read ({error}): write it again") from error
        types[name] = kind
    if not types:
        raise UserError(f"{source}: has no columns: a table needs at least one")
    return types


def batch_rows(row_bytes: float) -> int:
    """How many rows of this size a batch may have."""
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(row_bytes, 1))))


def unsupported(what: str) -> pa.DataType:
    """Return a type for a column that exists and cannot be read; `what` is said when somebody asks for it."""
    return pa.opaque(pa.null(), what, "feat2vec")


def describe(kind: pa.DataType) -> str:
    """Name a type in a message."""
    return str(kind.type_name) if isinstance(kind, pa.OpaqueType) else str(kind)


def normal_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column of this type gets; a type that is not supported stays as it is."""
    t = pa.types
    if isinstance(kind, (pa.FixedShapeTensorType, pa.JsonType)):
        return normal_type(kind.storage_type)
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return normal_type(kind.value_type)
    if t.is_fixed_size_list(kind) and t.is_floating(kind.value_type):
        return pa.list_(normal_type(kind.value_type), kind.list_size)
    if _is_list(kind):
        return pa.list_(normal_type(kind.value_type))
    if t.is_timestamp(kind):
        return pa.timestamp("ns" if kind.unit == "ns" else "us", kind.tz)
    return _normal_scalar(kind)


def _normal_scalar(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if _is_text(kind):
        return pa.string()
    if t.is_integer(kind) and not t.is_uint64(kind):
        return pa.int64()
    if t.is_float16(kind):
        return pa.float32()
    if t.is_decimal(kind):
        return _normal_decimal(kind.precision - kind.scale, kind.scale)
    return pa.date32() if t.is_date(kind) else kind


def _normal_decimal(before: int, after: int) -> pa.DataType:
    """Return the type for decimals with so many digits before and after the point; none merges two of them.

    Whole ones are int64 where it holds them, as they are ids more often than amounts. A float64 holds 15 digits.
    """
    before, after = max(before, 0), max(after, 0)
    digits = min(before + after, 76)
    if after == 0 and digits <= 18:
        return pa.int64()
    if digits <= FLOAT_DIGITS:
        return pa.float64()
    return pa.decimal128(digits, after) if digits <= 38 else pa.decimal256(digits, after)


def _is_list(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_list, t.is_large_list, t.is_list_view, t.is_large_list_view, t.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    tests = (t.is_string, t.is_large_string, t.is_string_view, t.is_binary, t.is_large_binary, t.is_binary_view)
    return any(test(kind) for test in tests)


def is_supported(kind: pa.DataType) -> bool:
    """Whether a normalised type is one of the few."""
    t = pa.types
    if _is_list(kind):
        return is_supported(kind.value_type)
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
    return any(test(kind) for test in tests)


def knows_time_zone(kind: pa.DataType) -> bool:
    """Whether times of this type, or lists of them, have a time zone that Arrow and Python know, or none."""
    while _is_list(kind):
        kind = kind.value_type
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return True
    try:
        pa.scalar(0, kind).cast(pa.string())
        pa.scalar(0, kind).as_py()
    except ValueError:  # an ArrowInvalid, or zoneinfo's own
        return False
    return True


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the normalised type that holds the values of both, or None when there is none."""
    t = pa.types
    if a == b or t.is_null(b):
        return a
    if t.is_null(a):
        return b
    if t.is_integer(a) and t.is_integer(b):
        return pa.int64()
    if all(t.is_integer(kind) or t.is_decimal(kind) for kind in (a, b)):
        sizes = [(kind.precision - kind.scale, kind.scale) if t.is_decimal(kind) else (20, 0) for kind in (a, b)]
        return _normal_decimal(*map(max, *sizes))
    if all(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) for kind in (a, b)):
        return pa.float64()  # integers and decimals that it would make others of are refused, each with its row
    if t.is_timestamp(a) and t.is_timestamp(b) and (a.tz is None) == (b.tz is None):
        unit = a.unit if a.unit == b.unit else "us"  # those in nanoseconds end in 2262
        return pa.timestamp(unit, a.tz if a.tz == b.tz else "UTC")
    if _is_list(a) and _is_list(b):
        value = common_type(a.value_type, b.value_type)
        fixed = t.is_fixed_size_list(a) and t.is_fixed_size_list(b) and a.list_size == b.list_size
        return None if value is None else pa.list_(value, a.list_size) if fixed else pa.list_(value)
    return None


def normal_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast to `kind`; strings may stay dictionary<int32, string>. An ArrowInvalid when a value does not fit."""
    cast = _cast(array, kind)
    cast.validate(full=not _is_ascii(cast))  # Arrow itself does not look whether what a file calls text is UTF-8
    return cast


def _is_ascii(array: pa.Array) -> bool:
    """Whether an array of strings, or of lists of them, is ASCII throughout: ten times as fast as a full validation."""
    if pa.types.is_list(array.type):
        array = array.flatten()
    if not pa.types.is_string(array.type) or not len(array):
        return False
    _, offsets, text = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[[array.offset, array.offset + len(array)]]
    return text is None or bool(np.frombuffer(text, np.uint8)[slice(*ends)].max(initial=0) < 128)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        import pyarrow.compute as pc

        array = pc.run_end_decode(array)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = _list(array)
    if pa.types.is_dictionary(array.type) and _is_text(array.type.value_type):
        array = array.cast(pa.dictionary(pa.int32(), pa.string()))
        if kind == pa.string() and not array.dictionary.null_count:
            return array
    # the hours of a date64 are cut off on purpose; anything else that would lose is an error
    if "date64" in str(array.type):
        _refuse_far_dates(array)  # before they are cut off
    _refuse_long_decimals(array, kind)
    # PyArrow casts lists of nothing but null to lists with fewer items, if their type is the same
    if array.type != kind:
        array = array.cast(kind, safe="date64" not in str(array.type))
    _refuse_far_dates(array)
    return array


def _refuse_far_dates(array: pa.Array) -> None:
    """Raise an ArrowInvalid for dates that Python's datetime cannot hold: they would fail wherever one is shown."""
    import pyarrow.compute as pc

    while _is_list(array.type):
        array = array.flatten()
    if not pa.types.is_temporal(array.type) or not len(array) or getattr(array.type, "unit", "") == "ns":
        return  # nanoseconds are of the years 1677 to 2262
    is_date32 = pa.types.is_date32(array.type)
    limits = pc.min_max(array.view(pa.int32() if is_date32 else pa.int64())).as_py()
    if limits["min"] is None:
        return
    day = 1 if is_date32 else 86_400_000 if pa.types.is_date64(array.type) else 86_400_000_000  # in the type's units
    margin = day if getattr(array.type, "tz", None) else 0  # in another time zone it may be the next year already
    if limits["min"] < FIRST_DAY * day + margin or limits["max"] >= (LAST_DAY + 1) * day - margin:
        raise pa.ArrowInvalid(DATES)


def _refuse_long_decimals(array: pa.Array, kind: pa.DataType) -> None:
    """Raise an ArrowInvalid for decimals of more digits than a float64 keeps, if that is what they become."""
    import pyarrow.compute as pc

    while _is_list(array.type) and _is_list(kind):
        array, kind = array.flatten(), kind.value_type
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    if not pa.types.is_floating(kind) or not pa.types.is_decimal(values.type):
        return
    least_long = Decimal(10).scaleb(FLOAT_DIGITS - 1 - values.type.scale)
    if any(limit is not None and abs(limit) >= least_long for limit in pc.min_max(values).as_py().values()):
        raise pa.ArrowInvalid(f"it has more than {FLOAT_DIGITS} digits, and other files have floats: write one type")


def _list(views: pa.Array) -> pa.Array:
    """List views as lists; Arrow's own cast gives an array that is not valid when the views were concatenated."""
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(views), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
    return pa.LargeListArray.from_arrays(offsets, views.flatten(), mask=views.is_null())


def first_misfit(array: pa.Array, kind: pa.DataType) -> int:
    """Find the first value that `normal_array` refuses."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(array.slice(low, middle - low), kind) else (low, middle)
    return low


def _fits(array: pa.Array, kind: pa.DataType) -> bool:
    try:
        if pa.types.is_dictionary(array.type):  # else a bad entry is the fault of every row
            array = array.dictionary.take(array.indices)
        cast = _cast(array, kind)
        # a slice is validated with the values around it, what is taken from it is not
        cast.take(pa.array(range(len(cast)))).validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
