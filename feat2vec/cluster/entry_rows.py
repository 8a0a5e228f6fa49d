"""Arrays of entries that each worker has without reading them: those of single keys, and small ones.

`tf.gather` takes them as it takes a variable.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array

ROWS_PER_PIECE = 1 << 20


class KeyRows:
    """The entries of a group whose values are its single keys, in their order: 0, then numbers that follow each other.

    Args:
        first: The entry in row 1.
        rows: The number of rows.

    Example:
        >>> tf.gather(KeyRows(first=2, rows=4), tf.constant([0, 1, 3])).numpy().tolist()
        [[0], [2], [4]]

    """

    def __init__(self, first: int, rows: int) -> None:
        self.first, self.shape = first, tf.TensorShape([rows, 1])

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Rows [..., 1] by their numbers [...]."""
        del name
        return tf.cast(tf.where(indices == 0, 0, indices + (self.first - 1)), tf.int32)[..., None]


class GraphRows:
    """An array that is part of the graph of a step.

    Args:
        array: The array.

    Example:
        >>> tf.gather(GraphRows(np.array([5, 6, 7])), tf.constant([2, 0])).numpy()
        array([7, 5])

    """

    def __init__(self, array: Array) -> None:
        self.array, self.shape = array, tf.TensorShape(array.shape)

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Rows by their numbers."""
        del name
        return tf.gather(tf.constant(self.array), indices)


def key_rows(entries: Array) -> KeyRows | None:
    """The entries of single keys, if these are what an array holds.

    Args:
        entries: The array, whose row 0 is the missing entry.

    Example:
        >>> rows = key_rows(np.array([[0], [2], [3]], np.int32))
        >>> None if rows is None else rows.first
        2

    """
    if entries.dtype != np.int32 or entries.ndim != 2 or entries.shape[1] != 1 or len(entries) < 2 or entries[0, 0]:
        return None
    first = int(entries[1, 0])
    for start in range(1, len(entries), ROWS_PER_PIECE):
        keys = entries[start : start + ROWS_PER_PIECE, 0]
        if (keys != np.arange(first + start - 1, first + start - 1 + len(keys))).any():
            return None
    return KeyRows(first, len(entries))
