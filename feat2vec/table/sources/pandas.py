"""Frames of pandas: None, NaN, NA and NaT are null, the index is no column."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.table.sources.registry import ObjectKind, register
from feat2vec.table.types import BATCH_ROWS, TablePart, column_types, unsupported

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "the DataFrame"


def open_if_pandas(source: object) -> TablePart | None:
    """Return the part of a frame, or None for an object that is no frame of pandas."""
    pandas = sys.modules.get("pandas")  # while pandas is not imported, nothing is a frame of it
    return open_pandas(source) if pandas is not None and isinstance(source, pandas.DataFrame) else None


def open_pandas(frame: pd.DataFrame) -> TablePart:
    """Return the part of a frame; columns of Python objects are converted here, the others batch by batch."""
    column_types(SOURCE, [(name, pa.null()) for name in frame.columns])
    arrays: dict[str, pa.ChunkedArray] = {}
    refused: dict[str, UserError] = {}
    fields = []
    for name in frame.columns:
        try:
            if _holds_objects(frame[name].dtype):
                arrays[name] = _convert_objects(name, frame[name])
            type_ = arrays[name].type if name in arrays else _series_type(frame[name])
        except UserError as error:
            refused[name], type_ = error, pa.null()
        fields.append((name, type_))

    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for name in columns:
            if name in refused:
                raise refused[name]
        for start in range(0, len(frame), BATCH_ROWS):
            chunks = [
                arrays[name].slice(start, BATCH_ROWS)
                if name in arrays
                else _chunk(frame[name].iloc[start : start + BATCH_ROWS])
                for name in columns
            ]
            yield from pa.table(chunks, names=columns).to_batches()

    return TablePart(SOURCE, dict(fields), read, unreadable=frozenset(refused))


def _holds_objects(dtype: object) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_object_dtype(dtype.categories if isinstance(dtype, pd.CategoricalDtype) else dtype))


def _series_type(series: pd.Series) -> pa.DataType:
    try:
        return _chunk(series.iloc[:0]).type
    except (pa.ArrowException, TypeError):
        return unsupported(f"pandas {series.dtype}")


def _chunk(series: pd.Series) -> pa.Array:
    array = pa.Array.from_pandas(series)
    if pa.types.is_floating(array.type):  # the nullable and Arrow types of pandas can hold NaN beside NA
        import pyarrow.compute as pc

        return pc.if_else(pc.is_nan(array), None, array)
    return array


def _convert_objects(name: object, series: pd.Series) -> pa.ChunkedArray:
    """Convert a column of Python objects, which must be of one kind."""
    values = list(series)
    kinds = _kinds(values)
    if _is_single_kind(kinds):
        try:
            return pa.chunked_array([_to_arrow(values)])
        except _REFUSALS as error:
            bad, reason = _first_refused(values), str(error)
    else:
        bad, reason = (
            _first_of_another_kind(values),
            f"expected one kind of value, received {' and '.join(sorted(kinds))}",
        )
    raise UserError(f"{SOURCE}: row {bad + 1}: column {name!r}: {values[bad]!r:.80}: {reason}: convert the column")


def _to_arrow(values: list[Any]) -> pa.Array:
    """Convert Python objects; PyArrow infers microseconds of pandas' timestamps, which may have nanoseconds."""
    array = pa.array(values, from_pandas=True)
    precise_type = _with_nanoseconds(array.type)
    if precise_type == array.type or not _have_nanoseconds(values):
        return array
    return pa.array(values, precise_type, from_pandas=True)


def _with_nanoseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(_with_nanoseconds(type_.value_type))
    return pa.timestamp("ns", type_.tz) if pa.types.is_timestamp(type_) else type_


def _have_nanoseconds(values: Sequence[Any] | npt.NDArray[Any]) -> bool:
    """Whether some timestamp among these values, or in a list of them, is no whole number of microseconds."""
    for value in values:
        if isinstance(value, (list, tuple, np.ndarray)):
            if _have_nanoseconds(value):
                return True
        elif getattr(value, "nanosecond", 0):
            return True
    return False


_REFUSALS = (pa.ArrowException, OverflowError, TypeError, ValueError)
_ZONED = "timestamps with a time zone"
_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "bytes": (bytes,),
    "truth values": (bool, np.bool_),
    "numbers": (int, float, Decimal, np.number),
    "timestamps": (datetime, np.datetime64),  # without a time zone
    _ZONED: (),  # see `_timestamp_kind`
    "dates": (date,),
    "times": (time, timedelta),
    "dicts": (dict,),
    "lists": (list, tuple, np.ndarray),
}


@cache
def _missing_types() -> tuple[type, ...]:
    import pandas as pd

    return type(None), type(pd.NA), type(pd.NaT)


def _kind(cls: type) -> str:
    return next((kind for kind, classes in _KINDS.items() if issubclass(cls, classes)), cls.__name__)


def _is_timestamp(value: object) -> bool:
    return isinstance(value, _KINDS["timestamps"]) and not isinstance(value, _missing_types())


def _timestamp_kind(timestamp: object) -> str:
    """Tell times of a time zone, which PyArrow would take for those of UTC beside times without one."""
    return "timestamps" if getattr(timestamp, "tzinfo", None) is None else _ZONED


def _kinds(values: list[object]) -> set[str]:
    """Name the kinds of these values; missing ones are of none, and a list is of the kinds of what it holds too."""
    kinds = {_kind(cls) for cls in set(map(type, values)) if not issubclass(cls, _missing_types())}
    if "timestamps" in kinds:
        kinds = kinds - {"timestamps"} | {_timestamp_kind(value) for value in values if _is_timestamp(value)}
    if len(kinds) > 1 and all(value != value for value in values if _kind(type(value)) == "numbers"):
        kinds.discard("numbers")
    if "lists" in kinds:
        lists: list[Any] = [value for value in values if isinstance(value, _KINDS["lists"])]
        typed = {value.dtype.type for value in lists if isinstance(value, np.ndarray) and value.dtype != object}
        loose: Iterator[object] = chain.from_iterable(
            value for value in lists if not isinstance(value, np.ndarray) or value.dtype == object
        )
        kinds |= {f"lists of {kind}" for kind in _kinds(list(loose)) | {_kind(cls) for cls in typed}}
    return kinds


def _is_single_kind(kinds: set[str]) -> bool:
    """Whether a column can be of these kinds: of one that is known, or of lists (of lists) of one."""
    inner = {kind.removeprefix("lists of ") for kind in kinds - {"lists"}}
    if "lists" in kinds:
        return all(kind.startswith("lists of ") for kind in kinds - {"lists"}) and _is_single_kind(inner)
    return len(kinds) < 2 and kinds <= set(_KINDS)


def _first_of_another_kind(values: list[object]) -> int:
    """Find the first value that is of another kind than those before it, or of one that is not known."""
    seen: set[str] = set()
    for i, value in enumerate(values):
        if not (isinstance(value, float) and value != value):
            seen |= _kinds([value])
        if not _is_single_kind(seen):
            return i
    return 0


def _first_refused(values: list[object]) -> int:
    """Find the first value that Arrow does not take after those before it."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _to_arrow(values[:middle])
            low = middle
        except _REFUSALS:
            high = middle
    return low


register(ObjectKind("a pandas frame", open_if_pandas))
