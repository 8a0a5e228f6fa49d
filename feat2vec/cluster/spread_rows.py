"""`SpreadRows`: a table whose rows are in variables on several servers, read and written as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.spread import Spread
from feat2vec.model.large_variables import BYTES_PER_PIECE, RowStart, row_slices
from feat2vec.model.optimizers import by_row, is_by_row, read_rows, resource_of
from feat2vec.model.optimizers.divided_rows import DividedRows
from feat2vec.model.optimizers.tables import Variable


class SpreadRows(DividedRows):
    """The rows of a table, which `Spread` divides among variables.

    A read sends each server the ids of its rows, each once, and brings the rows back. So do gradients.

    Args:
        parts: The variables, [rows of the part, ...].
        shape: The shape of the whole.

    Example:
        >>> import numpy as np
        >>> whole = np.arange(10.0, dtype=np.float32).reshape(5, 2)
        >>> spread = Spread(5, 2)
        >>> table = SpreadRows([keras.Variable(whole[spread.ids_of_part(part)]) for part in range(2)], (5, 2))
        >>> tf.gather(table, tf.constant([3, 0, 3])).numpy()
        array([[6., 7.],
               [0., 1.],
               [6., 7.]], dtype=float32)

    """

    def __init__(self, parts: Sequence[Variable], shape: Sequence[int]) -> None:
        super().__init__(parts, shape)
        self.spread = Spread(int(shape[0]), len(self.parts))

    def read_distinct(self, ids: tf.Tensor) -> tf.Tensor:
        """Read rows at ids that do not repeat, [n] to [n, ...]."""
        if len(self.parts) == 1:
            return read_rows(self.parts[0], ids)
        part_of_id, rows = self.spread.places(ids)
        places = tf.dynamic_partition(tf.range(tf.size(ids)), part_of_id, len(self.parts))
        rows_of_parts = tf.dynamic_partition(rows, part_of_id, len(self.parts))
        values = [read_rows(part, rows) for part, rows in zip(self.parts, rows_of_parts, strict=True)]
        return tf.ensure_shape(tf.dynamic_stitch(places, values), [None, *self.shape[1:]])

    def sparse_read(self, indices: tf.Tensor, name: str | None = None) -> tf.Tensor:
        """Read rows at ids of any shape, each distinct one once."""
        del name
        indices = tf.convert_to_tensor(indices)
        ids, places = tf.unique(tf.reshape(indices, [-1]))
        rows = tf.gather(self.read_distinct(ids), places)
        return tf.reshape(rows, tf.concat([tf.shape(indices), self.shape[1:]], axis=0))

    def by_part(self, rows: tf.IndexedSlices) -> list[tuple[Variable, tf.Tensor, tf.Tensor]]:
        """Divide rows among the parts: each part, its own ids, by its own numbers, and their rows."""
        part_of_id, rows_of_ids = self.spread.places(rows.indices)
        ids_of_parts = tf.dynamic_partition(rows_of_ids, part_of_id, len(self.parts))
        values_of_parts = tf.dynamic_partition(rows.values, part_of_id, len(self.parts))
        return list(zip(self.parts, ids_of_parts, values_of_parts, strict=True))

    def scatter_update(self, rows: tf.IndexedSlices) -> None:
        """Replace rows at ids that do not repeat."""
        for part, ids, values in self.by_part(rows):
            resource_of(part).scatter_update(tf.IndexedSlices(values, ids))

    def rows_of_part(self, part: int, rows: slice) -> slice:
        """Where some neighbouring rows are among those of a part."""
        if rows == slice(None):
            return rows
        return slice(self.spread.rows_before(part, rows.start), self.spread.rows_before(part, rows.stop))


class NewPart(NamedTuple):
    """A part of a table that is made.

    Args:
        variable: The part, whose rows hold nothing yet.
        device: Where it is.
        number: Its number.

    """

    variable: Variable
    device: str
    number: int


def draw_part(part: NewPart, spread: Spread, start: RowStart, piece: int = BYTES_PER_PIECE) -> None:
    """Fill a part with what a table begins with, drawn in pieces by the server that has the part.

    Args:
        part: The part.
        spread: Of the table.
        start: What the table begins with.
        piece: The bytes of the table that are drawn at a time.

    """
    dim = int(part.variable.shape[1])
    for ids in row_slices([spread.size, dim], "float32", piece):
        rows = slice(spread.rows_before(part.number, ids.start), spread.rows_before(part.number, ids.stop))
        if rows.start == rows.stop:
            continue
        places = spread.ids_of_part(part.number, rows) - ids.start  # among the rows that are drawn
        with tf.device(part.device):
            drawn = tf.gather(start.rows(ids, dim), places)  # [rows, dim]
            resource_of(part.variable).scatter_update(tf.IndexedSlices(drawn, tf.range(rows.start, rows.stop)))


def copy_part(part: NewPart, spread: Spread, table: Array, piece: int = BYTES_PER_PIECE) -> None:
    """Fill a part with the rows of an array that are its own.

    Args:
        part: The part.
        spread: Of the table.
        table: The whole, [size, ...].
        piece: The bytes that are sent at a time.

    """
    for rows in row_slices(part.variable.shape, table.dtype, piece):
        values = table[spread.ids_of_part(part.number, rows)]
        resource_of(part.variable).scatter_update(tf.IndexedSlices(values, tf.range(rows.start, rows.stop)))


def as_keras_variable(rows: DividedRows, name: str) -> keras.Variable:
    """A Keras variable whose value is a divided table that is there already, such as the slots of one.

    Args:
        rows: The divided table.
        name: The variable's name.

    """

    def give_rows(next_creator: Callable[..., tf.Variable], **kwargs: object) -> DividedRows:
        del next_creator, kwargs
        return rows

    with tf.variable_creator_scope(give_rows):
        variable = keras.Variable("zeros", rows.shape, rows.dtype.name, trainable=False, autocast=False, name=name)
    return by_row(variable) if is_by_row(rows.parts[0]) else variable
