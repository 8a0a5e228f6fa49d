"""Arrays of any type as arrays of the few types of a table's columns; the first value that does not fit is found."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa

from feat2vec.table.types import DATES, FIRST_DAY, FLOAT_DIGITS, LAST_DAY, is_any_list, is_any_text


def cast_array(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast an array to a normalised type; strings may stay dictionary<int32, string>.

    Raises:
        pa.ArrowInvalid: when a value does not fit the type.

    """
    cast = _cast(array, type_)
    cast.validate(full=not _is_ascii(cast))  # Arrow does not check by itself that text is UTF-8
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


def _cast(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_run_end_encoded(array.type):
        array = _run_end_decoded(array)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = _list_from_views(array)
    if pa.types.is_dictionary(array.type) and is_any_text(array.type.value_type):
        array = array.cast(pa.dictionary(pa.int32(), pa.string()))
        if type_ == pa.string() and not array.dictionary.null_count:
            return array
    if is_time_of_day(array.type):
        array = _spell_times_of_day(array)
    array = _with_wide_decimals(array)
    # The hours of a date64 are cut off on purpose; any other loss is an error.
    if "date64" in str(array.type):
        _refuse_far_dates(array)  # before they are cut off
    _refuse_long_decimals(array, type_)
    # PyArrow casts lists of nulls to lists with fewer items, if their type is the same.
    if array.type != type_:
        array = array.cast(type_, safe="date64" not in str(array.type))
    _refuse_far_dates(array)
    return array


def is_time_of_day(type_: pa.DataType) -> bool:
    """Whether a type is one of times of day, plain or as a dictionary."""
    return bool(pa.types.is_time(type_.value_type if pa.types.is_dictionary(type_) else type_))


def _spell_times_of_day(times: pa.Array) -> pa.Array:
    """Return times of day as text: 14:30:00, with a fraction of a second if it has one, whatever the unit is."""
    import pyarrow.compute as pc

    if pa.types.is_dictionary(times.type):
        times = times.dictionary.take(times.indices)
    times.validate(full=True)  # a time of 25 hours has no text
    text = times.cast(pa.string())
    return text if times.type.unit == "s" else pc.replace_substring_regex(text, r"\.0*$|(\.\d*?[1-9])0*$", r"\1")


def _run_end_decoded(array: pa.RunEndEncodedArray) -> pa.Array:
    """Return one value for each row; Arrow decodes numbers and text alone, so the places of the values are decoded."""
    import pyarrow.compute as pc

    places = pa.RunEndEncodedArray.from_arrays(array.run_ends, pa.array(np.arange(len(array.values))))
    return array.values.take(pc.run_end_decode(places.slice(array.offset, len(array))))


def _with_wide_decimals(array: pa.Array) -> pa.Array:
    """Return decimals of 32 or 64 bits, or lists of them, as those of 128, for which Arrow has more functions."""
    if pa.types.is_dictionary(array.type):
        wide_type = _wide_decimal(array.type.value_type)
        if wide_type == array.type.value_type:
            return array
        return array.dictionary.cast(wide_type).take(array.indices)
    wide_type = _wide_decimal(array.type)
    return array if wide_type == array.type else array.cast(wide_type)


def _wide_decimal(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_wide_decimal(type_.value_type), type_.list_size)
    if pa.types.is_list(type_):
        return pa.list_(_wide_decimal(type_.value_type))
    if pa.types.is_large_list(type_):
        return pa.large_list(_wide_decimal(type_.value_type))
    is_narrow = pa.types.is_decimal32(type_) or pa.types.is_decimal64(type_)
    return pa.decimal128(type_.precision, type_.scale) if is_narrow else type_


def _refuse_far_dates(array: pa.Array) -> None:
    """Raise an ArrowInvalid for dates that Python's datetime cannot hold, as messages and vocabularies show dates."""
    import pyarrow.compute as pc

    while is_any_list(array.type):
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


def _refuse_long_decimals(array: pa.Array, type_: pa.DataType) -> None:
    """Raise an ArrowInvalid for decimals of more digits than a float64 keeps, if that is what they become."""
    import pyarrow.compute as pc

    while is_any_list(array.type) and is_any_list(type_):
        array, type_ = array.flatten(), type_.value_type
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    if not pa.types.is_floating(type_) or not pa.types.is_decimal(values.type):
        return
    least_long = Decimal(10).scaleb(FLOAT_DIGITS - 1 - values.type.scale)
    if any(limit is not None and abs(limit) >= least_long for limit in pc.min_max(values).as_py().values()):
        raise pa.ArrowInvalid(f"it has more than {FLOAT_DIGITS} digits, and other files have floats: write one type")


def _list_from_views(views: pa.Array) -> pa.Array:
    """List views as lists; Arrow's own cast gives an array that is not valid when the views were concatenated."""
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(views), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
    return pa.LargeListArray.from_arrays(offsets, views.flatten(), mask=views.is_null())


def first_misfit(array: pa.Array, type_: pa.DataType) -> int:
    """Find the first value that `cast_array` refuses."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(array.slice(low, middle - low), type_) else (low, middle)
    return low


def _fits(array: pa.Array, type_: pa.DataType) -> bool:
    try:
        if pa.types.is_dictionary(array.type):  # else a bad entry is the fault of every row
            array = array.dictionary.take(array.indices)
        cast = _cast(array, type_)
        # a slice is validated with the values around it, what is taken from it is not
        cast.take(pa.array(range(len(cast)))).validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True
