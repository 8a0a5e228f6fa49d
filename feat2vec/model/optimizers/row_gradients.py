"""Gradients by rows: what `read_rows` gives, and `sum_duplicates` makes of any other.

The gradient of `tf.gather` on a variable is a `tf.IndexedSlices`, in which an id may repeat. `Rows` is one in which no
id does.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from feat2vec.model.optimizers.divided_rows import DividedRows
from feat2vec.model.optimizers.tables import Variable, resource_of

READ_ROWS = "Feat2VecReadRows"  # the name of the registered gradient of `read_rows`


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
    if isinstance(resource, DividedRows):
        return resource.read_distinct(ids)
    rows = tf.gather(resource, ids)
    if tf.executing_eagerly():
        return rows
    rows = tf.identity(rows)
    shape = tf.constant(resource.shape.as_list(), tf.int64)
    # For tapes, in place of the gradient of `tf.identity`, which gradients of a whole function use.
    tf.__internal__.record_gradient(READ_ROWS, [resource.handle, ids, shape], (), [rows])
    return rows


@tf.RegisterGradient(READ_ROWS)  # type: ignore[untyped-decorator]
def _gradient_of_read_rows(node: tf.Operation, upstream: tf.Tensor) -> Sequence[Rows | None]:
    _, ids, shape = node.inputs
    return [Rows(ids, upstream, shape), None, None]


def distinct(ids: tf.Tensor) -> tf.Tensor:
    """Return the ids as they are.

    It used to mark ids that do not repeat. `read_rows` does so now; `tf.gather(table, distinct(ids))` gives the same
    numbers, a little slower.

    Args:
        ids: integers [n], no two of them the same.

    Returns:
        The same integers.

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
