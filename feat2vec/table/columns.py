"""Columns of Arrow as NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Ints

Element = TypeVar("Element", bound=np.generic)


def floats_of(numbers: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return numbers as the nearest floats of a type, with NaN for null."""
    return pc.fill_null(numbers.cast(type_, safe=False), float("nan"))


@overload
def concat(arrays: Sequence[pa.Array]) -> Ints: ...
@overload
def concat(arrays: Sequence[pa.Array], dtype: type[Element]) -> npt.NDArray[Element]: ...
def concat(arrays: Sequence[pa.Array], dtype: type[np.generic] = np.int32) -> npt.NDArray[np.generic]:
    """Return chunks as one array."""
    if not arrays:
        return np.zeros(0, dtype)
    return np.concatenate([array.to_numpy(zero_copy_only=False) for array in arrays]).astype(dtype, copy=False)


def flatten(values: pa.ChunkedArray) -> tuple[Ints, pa.ChunkedArray]:
    """Return the number of items of each list (0 for null), and the items of all lists, one list after the other."""
    lengths = concat([pc.fill_null(pc.list_value_length(chunk), 0).cast(pa.int32()) for chunk in values.chunks])
    return lengths, pa.chunked_array([chunk.flatten() for chunk in values.chunks], values.type.value_type)
