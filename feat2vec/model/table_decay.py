"""L2 of whole tables (`training.l2_over: tables`): what it adds to the loss, and to the gradient of each row.

A table's numbers stay where they are. Of a table that is divided among servers each part is squared on its own server,
and each part's gradient is made there, of the rows that a step has read: these alone are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from feat2vec.model.optimizers import is_by_row, sum_duplicates
from feat2vec.model.optimizers.base import Gradient
from feat2vec.model.optimizers.tables import Variable, parts_of, resource_of


def penalty_of_tables(variables: Sequence[keras.Variable], weight: float) -> tf.Tensor:
    """The sum of the squares of all numbers of tables, times half of a weight.

    Args:
        variables: Variables, of which those that are no tables count for nothing.
        weight: The weight.

    Returns:
        A scalar.

    Example:
        >>> from feat2vec.model import optimizers
        >>> table, bias = optimizers.by_row(keras.Variable([[1.0, 2.0], [0.0, 1.0]])), keras.Variable(5.0)
        >>> float(penalty_of_tables([table, bias], weight=0.5))
        1.5

    """
    squares = []
    for part in (part for variable in variables if is_by_row(variable) for part in parts_of(variable)):
        resource = resource_of(part)
        with tf.device(resource.device):
            squares.append(tf.reduce_sum(tf.square(tf.convert_to_tensor(resource))))
    return weight / 2 * tf.add_n(squares)


def with_decay(gradient: Gradient, part: Variable, weight: float) -> Gradient:
    """The gradient of a variable, and what `penalty_of_tables` adds to it.

    Args:
        gradient: The gradient of the rest of the loss; None for none.
        part: The variable, or a part of a divided table.
        weight: The weight.

    Returns:
        The gradient of a table, [rows, ...]; that of another variable as it was.

    Example:
        >>> from feat2vec.model import optimizers
        >>> table = optimizers.by_row(keras.Variable([[1.0], [2.0], [3.0]]))
        >>> import tensorflow as tf
        >>> with_decay(tf.IndexedSlices(tf.constant([[4.0], [4.0]]), tf.constant([1, 1])), table, weight=0.5).numpy()
        array([[0.5],
               [9. ],
               [1.5]], dtype=float32)

    """
    if not is_by_row(part):
        return gradient
    resource = resource_of(part)
    rows = sum_duplicates(gradient) if isinstance(gradient, tf.IndexedSlices) else None
    with tf.device(resource.device):
        decay = weight * tf.convert_to_tensor(resource)  # [rows, ...]
        if gradient is None:
            return decay
        if rows is None:
            return decay + tf.cast(gradient, decay.dtype)
        return tf.tensor_scatter_nd_add(decay, rows.ids[:, None], tf.cast(rows.values, decay.dtype))
