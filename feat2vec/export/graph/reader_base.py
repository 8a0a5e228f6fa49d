"""What a reader is: it stands for a group, and makes its entries of raw columns inside a TensorFlow graph."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from feat2vec.model.pair_scores import Tensor

IS_DATE = "a date, as 2024-01-31, 2024-01-31 10:30:00 or 2024-01-31T10:30:00+02:00"


@dataclass(frozen=True)
class InputColumn:
    """A tensor that stands for a column.

    Args:
        column: The column's name.
        dtype: The tensor's type.
        shape: Its shape, None for a size that is not fixed.
        form: What its values are, in words.
        missing: How a missing value is written, in words.

    """

    column: str
    dtype: str
    shape: tuple[int | None, ...]
    form: str
    missing: str


class Reader(tf.Module):  # type: ignore[misc]
    """The base of readers. A call takes a tensor for each of `inputs`, in their order."""

    inputs: list[InputColumn]

    def __call__(self, *columns: Tensor) -> Tensor:
        """Entries [batch, width]: padded ids, or numbers that are NaN where the group is missing."""
        raise NotImplementedError


def finite(numbers: Tensor, column: str) -> Tensor:
    """The same numbers; a graph that meets one that is not finite stops."""
    return tf.debugging.assert_all_finite(numbers, f"{column}: numbers must be finite")


def finite_or_missing(numbers: Tensor, is_missing: Tensor, column: str) -> Tensor:
    """The same numbers, which are finite where they are not missing."""
    return tf.where(is_missing, numbers, finite(tf.where(is_missing, tf.zeros_like(numbers), numbers), column))
