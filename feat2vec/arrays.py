"""Names for the NumPy arrays that the rooms exchange, by the type of their elements.

The shape of an array stands in a comment beside it: `ids: Ints  # [rows]`.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]  # whose type of elements depends on the group: ids are int32, numbers float32
Bools = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]  # levels
Ints = npt.NDArray[np.int32]  # ids, codes, lengths
Int64s = npt.NDArray[np.int64]  # counts, offsets, row numbers
Integers = npt.NDArray[np.integer[Any]]  # of any size: positions, counts
Floats = npt.NDArray[np.float64]  # numbers of a table
Float32s = npt.NDArray[np.float32]  # weights and vectors, as a model takes them
Strings = npt.NDArray[np.str_]  # names


class OnDevice(Protocol):
    """A tensor, wherever it is."""

    def numpy(self) -> Array: ...


def as_numbers(tensor: OnDevice) -> Array:
    """A tensor's numbers for NumPy: those of less than four bytes, which a model may compute with, become float32."""
    numbers = tensor.numpy()
    return numbers if numbers.itemsize >= 4 else numbers.astype(np.float32)
