"""`Spread`: which part of a table each row is in, so that each server has its share of the frequent keys.

Ids are in the order of counts, the most frequent key first. So neighbouring ids go to different parts, to and fro: with
three parts the ids 0, 1, 2 are in the parts 0, 1, 2, the ids 3, 4, 5 in the parts 2, 1, 0, and so on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Int64s


class Spread(NamedTuple):
    """A bijection between the ids of a table and pairs of a part and a row in it.

    Args:
        size: The number of ids.
        parts: The number of parts.

    Example:
        >>> spread = Spread(size=8, parts=3)
        >>> [spread.ids_of_part(part).tolist() for part in range(3)]
        [[0, 5, 6], [1, 4, 7], [2, 3]]
        >>> [place.numpy().tolist() for place in spread.places(tf.constant([0, 1, 2, 3, 4, 5]))]
        [[0, 1, 2, 2, 1, 0], [0, 0, 0, 1, 1, 1]]

    """

    size: int
    parts: int

    def places(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return where ids are.

        Args:
            ids: Integers [n].

        Returns:
            The part of each, int32 [n], and its row there, of the type of the ids, [n].

        """
        rows = tf.truncatediv(ids, self.parts)
        place = ids - rows * self.parts  # [n], in the order of a row
        part = tf.where(rows % 2 == 0, place, self.parts - 1 - place)
        return tf.cast(part, tf.int32), rows

    def rows(self, part: int) -> int:
        """Return how many ids are in a part.

        Args:
            part: The number of the part.

        """
        return self.rows_before(part, self.size)

    def rows_before(self, part: int, id_: int) -> int:
        """Return how many ids below one are in a part.

        Args:
            part: The number of the part.
            id_: The id.

        """
        whole_rows, place = divmod(id_, self.parts)
        return whole_rows + (self._place(part, whole_rows) < place)

    def ids_of_part(self, part: int, rows: slice | None = None) -> Int64s:
        """Return the ids in a part, in the order of its rows.

        Args:
            part: The number of the part.
            rows: A slice of its rows; all by default.

        """
        numbers = np.arange(self.rows(part)) if rows is None else np.arange(rows.start, rows.stop)
        places = np.where(numbers % 2 == 0, part, self.parts - 1 - part)
        ids: Int64s = numbers * self.parts + places
        return ids

    def _place(self, part: int, row: int) -> int:
        """Where a part comes in the order of a row."""
        return part if row % 2 == 0 else self.parts - 1 - part
