"""`DividedRows`: the rows of a table, each in one of several variables, in place of one variable.

A table of the model is a `keras.Variable`. Its `value` is a `tf.Variable`, or `DividedRows`, which is read and written
row by row as one. Nothing here, and nothing in the model, knows where the parts are: see the room `cluster`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class DividedRows:
    """The rows of a table in several variables. `tf.gather` takes it as it takes a variable.

    Args:
        parts: The variables, each with some of the rows.
        shape: The shape of the whole.

    """

    def __init__(self, parts: Sequence[Any], shape: Sequence[int]) -> None:
        self.parts, self.shape = list(parts), tf.TensorShape(shape)

    @property
    def dtype(self) -> tf.DType:
        """The type of the numbers."""
        return tf.as_dtype(self.parts[0].dtype)

    def read_distinct(self, ids: tf.Tensor) -> tf.Tensor:
        """Read rows at ids that do not repeat; each part's gradient is a `Rows`.

        Args:
            ids: Integers [n], no two of them the same.

        Returns:
            The rows, [n, ...].

        """
        raise NotImplementedError

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Read rows, as `tf.Variable.sparse_read` does.

        Args:
            indices: Integers of any shape, which may repeat.
            name: Not used.

        Returns:
            The rows, [..., ...].

        """
        raise NotImplementedError

    def by_part(self, rows: tf.IndexedSlices) -> list[tuple[Any, tf.Tensor, tf.Tensor]]:
        """Divide rows among the parts.

        Args:
            rows: Ids [n] and a row for each, [n, ...].

        Returns:
            Each part, its own ids, by its own numbers, and their rows.

        """
        raise NotImplementedError

    def scatter_update(self, rows: tf.IndexedSlices) -> None:
        """Replace rows, as `tf.Variable.scatter_update` does.

        Args:
            rows: The ids [n], which do not repeat, and the rows [n, ...].

        """
        raise NotImplementedError

    def rows_of_part(self, part: int, rows: slice) -> slice:
        """Where some neighbouring rows are among those of a part.

        Args:
            part: The number of the part.
            rows: A slice of the rows of the whole, with a start and a stop; slice(None) is all of them.

        Returns:
            The slice of the part's rows, which stand in their order.

        """
        raise NotImplementedError

    def assign(self, values: tf.Tensor) -> None:
        """Replace all rows, which are few.

        Args:
            values: The numbers, of the whole shape.

        """
        self.scatter_update(tf.IndexedSlices(values, tf.range(self.shape[0])))

    def numpy(self) -> Any:
        """Return all rows, which are few.

        Returns:
            An array of the whole shape.

        """
        return self.sparse_read(tf.range(self.shape[0])).numpy()
