"""Rows of tables: reading them, their gradients, and writing them.

A *table* is a variable that is read and written row by row. The gradient of `tf.gather` on a variable is a
`tf.IndexedSlices`, in which an id may repeat. `Rows` is one in which no id does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

Variable: TypeAlias = Any  # a keras.Variable or a tf.Variable
BY_ROW = "feat2vec_by_row"  # the attribute that marks tables
READ_ROWS = "Feat2VecReadRows"  # the name of the registered gradient of `read_rows`


# --- tables ---------------------------------------------------------------------------------------------------------


def by_row(table: Variable) -> Variable:
    """Mark a variable as a table: each of its rows belongs to a few rows of data, not to all.

    Args:
        table: a variable.

    Returns:
        The same variable.

    Example:
        >>> table = by_row(keras.Variable([[1.0, 2.0]]))
        >>> is_by_row(table)
        True

    """
    setattr(table, BY_ROW, True)
    return table


def is_by_row(variable: Variable) -> bool:
    """Return whether rows of a variable are read and written alone: a table, or a slot of one."""
    return bool(getattr(variable, BY_ROW, False))


def resource_of(variable: Variable) -> tf.Variable:
    """Return TensorFlow's variable behind Keras'."""
    return variable.value if isinstance(variable, keras.Variable) else variable


# --- gradients ------------------------------------------------------------------------------------------------------


class Rows(tf.IndexedSlices):
    """A row-sparse gradient whose ids are distinct: `ids` [n] and `values` [n, ...]."""

    def __init__(self, ids: tf.Tensor, values: tf.Tensor, dense_shape: tf.Tensor | None = None) -> None:
        super().__init__(values, ids, dense_shape)

    @property
    def ids(self) -> tf.Tensor:
        """The rows of the table, [n]."""
        return self.indices


def read_rows(table: Variable, ids: tf.Tensor) -> tf.Tensor:
    """Read rows of a table at ids that do not repeat, so that an optimizer need not look for repeated ids.

    It is `tf.gather(table, ids)`, whose gradient is a `Rows`. Where the gradients of two reads meet, the sum is a plain
    `tf.IndexedSlices`, since ids of the two may be the same.

    Args:
        table: a variable [rows, ...].
        ids: integers [n], no two of them the same.

    Returns:
        The rows, [n, ...].

    Example:
        >>> table = tf.Variable([[1.0], [2.0], [3.0]])
        >>> @tf.function
        ... def gradient(ids):
        ...     with tf.GradientTape() as tape:
        ...         loss = tf.reduce_sum(read_rows(table, ids) ** 2)
        ...     return isinstance(tape.gradient(loss, table), Rows)
        >>> bool(gradient(tf.constant([2, 0])))
        True

    """
    resource = resource_of(table)
    rows = tf.gather(resource, ids)
    if tf.executing_eagerly():
        return rows
    rows = tf.identity(rows)
    shape = tf.constant(resource.shape.as_list(), tf.int64)
    # For tapes, in place of the gradient of `tf.identity`, which gradients of a whole function use.
    tf.__internal__.record_gradient(READ_ROWS, [resource.handle, ids, shape], (), [rows])
    return rows


@tf.RegisterGradient(READ_ROWS)  # type: ignore[untyped-decorator]
def _gradient_of_read_rows(node: Any, upstream: tf.Tensor) -> Sequence[Rows | None]:
    _, ids, shape = node.inputs
    return [Rows(ids, upstream, shape), None, None]


def distinct(ids: tf.Tensor) -> tf.Tensor:
    """Return the ids as they are.

    It used to mark ids that do not repeat. `read_rows` does so now; `tf.gather(table, distinct(ids))` gives the same
    numbers, a little slower.

    Example:
        >>> distinct(tf.constant([2, 0])).numpy()
        array([2, 0], dtype=int32)

    """
    return tf.identity(ids)


def sum_duplicates(gradient: tf.IndexedSlices) -> Rows:
    """Sum the values that share an id, in their order, so that an optimizer sees each id once."""
    if isinstance(gradient, Rows):
        return gradient
    ids, position = tf.unique(gradient.indices)
    # scatter_nd: the bits of unsorted_segment_sum in two thirds of its time
    shape = tf.concat([tf.shape(ids), tf.shape(gradient.values)[1:]], axis=0)
    return Rows(ids, tf.scatter_nd(position[:, None], gradient.values, shape))


# --- updates --------------------------------------------------------------------------------------------------------


class RowsOfTable:
    """The rows of a table, or of a slot, that a step updates."""

    def __init__(self, table: Variable, ids: tf.Tensor) -> None:
        self.resource, self.ids = resource_of(table), ids
        self.dtype = self.resource.dtype

    def update(self, new_rows: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Replace the rows [n, ...] by a function of them, and return what they are now."""
        # The update kernel copies rows, in a fifth of the add kernel's time; of two concurrent steps the last one wins.
        rows = new_rows(tf.gather(self.resource, self.ids))
        self.resource.scatter_update(tf.IndexedSlices(rows, self.ids))
        return rows
