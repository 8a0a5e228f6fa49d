"""The distinct keys of a batch in arrays of fixed shapes, as XLA needs them.

Each table has room for as many keys as a batch can have of it: a place for unseen keys, then one for each of its rows
or, in a large table, for each of its occurrences in the batch. Places that stay empty have a row beyond the table's
end, which XLA reads as some row and never writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Int64s
from feat2vec.model.extractors import UNSEEN
from feat2vec.model.many_groups import KeysOfLevel, ManyLookups, Read, TableRows
from feat2vec.model.optimizers.tables import Variable
from feat2vec.model.pair_scores import Tensor

SIZE = "rows"  # the names of what `PaddedKeys.of_batch` gives
KEY_ROWS, KEY_COUNTS, SLOTS = "key rows", "key counts", "slots"


class Rooms(NamedTuple):
    """The places of the keys of each table at a level."""

    sizes: list[int]  # [tables]
    starts: list[int]  # [tables]
    tables: Int64s  # [places], the table of each


class PaddedKeys:
    """Where the distinct keys of a batch stand.

    Args:
        lookups: The tables, whose keys all have a vector.
        rows: The largest number of rows of a batch.

    """

    def __init__(self, lookups: ManyLookups, rows: int) -> None:
        self.lookups, self.rows = lookups, rows
        columns = np.bincount(lookups.group_tables, minlength=len(lookups.starts))
        with_unseen = np.minimum(lookups.sizes[0] - UNSEEN, rows * columns) + UNSEEN
        later = [np.minimum(sizes, rows * columns) for sizes in lookups.sizes[1:]]
        self.rooms = [_rooms(sizes) for sizes in (with_unseen, *later)]  # of each level

    def of_batch(self, entries: Tensor) -> dict[str, Tensor]:
        """Find the distinct keys of a batch.

        Args:
            entries: The ids of groups, [rows of the batch, groups].

        Returns:
            The number of rows; of each place its row of the table, and how often it occurs, [places]; and the place
            of each entry, [rows, groups], counted from 1, 0 for none.

        """
        size, groups = tf.shape(entries)[0], entries.shape[1]
        places = self.lookups.places(entries, tf.zeros_like(entries) + tf.range(groups))
        keys, occurrences, slots, counts = self.lookups.distinct(tf.reshape(places, [-1]))
        table = tf.searchsorted(self.lookups.ends, keys, side="right")
        starts = tf.gather(self.lookups.starts, table)  # [keys]
        firsts = tf.searchsorted(keys, self.lookups.starts)  # [tables]
        # [keys], the place within the table's room: the first one is that of unseen keys
        number = tf.range(tf.size(keys)) - tf.gather(firsts, table)
        first_keys = tf.gather(tf.concat([keys, [-1]], axis=0), firsts)
        has_unseen = tf.cast(first_keys == self.lookups.starts, tf.int32)
        number += tf.where(keys == starts, 0, 1 - tf.gather(has_unseen, table))
        room = self.rooms[0]
        place_of_key = tf.gather(room.starts, table) + number  # [keys]
        at = place_of_key[:, None]
        key_rows = tf.tensor_scatter_nd_update(self._beyond(0), at, tf.cast(keys - starts, tf.int32))
        key_counts = tf.scatter_nd(at, tf.cast(counts, tf.float32), [len(room.tables)])
        slot = tf.scatter_nd(occurrences, tf.gather(place_of_key, slots) + 1, tf.size(places, tf.int64)[None])
        slot = tf.pad(tf.reshape(slot, [-1, groups]), [[0, self.rows - size], [0, 0]])
        slot.set_shape([self.rows, groups])
        return {SIZE: size, KEY_ROWS: key_rows, KEY_COUNTS: key_counts, SLOTS: slot}

    def read(self, key_rows: Tensor, key_counts: Tensor) -> Read:
        """Read the tables at the places of a batch's keys.

        Args:
            key_rows: The row of each place, [places].
            key_counts: How often it occurs, [places].

        Returns:
            The vectors of all places at each level; what stands at empty ones counts nothing.

        """
        rows = self._rows_of_tables(0, key_rows)
        terms = None if self.lookups.linear is None else _gather(self.lookups.linear, rows)
        levels = [KeysOfLevel(_gather(self.lookups.tables[0], rows), rows)]
        tops = None
        for level in range(1, len(self.rooms)):
            reaches = self._reaches(level, key_rows)  # [places]
            tops = tf.cast(reaches, tf.int32) if tops is None else tops + tf.cast(reaches, tf.int32)
            levels.append(self._read_level(level, key_rows, reaches))
        return Read(levels, terms, rows, key_counts, tops)

    def _beyond(self, level: int) -> Tensor:
        """Return the row beyond the end of its table for each place of a level, [places]."""
        return tf.constant(self.lookups.sizes[level][self.rooms[level].tables], tf.int32)

    def _reaches(self, level: int, key_rows: Tensor) -> Tensor:
        """Return whether keys reach a level, [places]: those of the first rows after that of unseen keys do."""
        sizes = tf.gather(tf.constant(self.lookups.sizes[level], tf.int32), self.rooms[0].tables)
        return (key_rows >= UNSEEN) & (key_rows < sizes + UNSEEN)

    def _read_level(self, level: int, key_rows: Tensor, reaches: Tensor) -> KeysOfLevel:
        """Read the vectors of the keys that reach a level; zero where there is none."""
        room, first_room = self.rooms[level], self.rooms[0]
        # Keys of a table stand in the order of their rows, so that those which reach the level are the first ones.
        first_places = [start + UNSEEN for start in first_room.starts]  # [tables]
        places = [np.arange(size) + first for size, first in zip(room.sizes, first_places, strict=True)]
        active = np.concatenate(places)  # [places of the level]
        place_of_key = np.zeros(len(first_room.tables), np.int32)  # counted from 1
        place_of_key[active] = np.arange(1, len(active) + 1)
        is_key = tf.gather(reaches, active)
        rows = self._rows_of_tables(level, tf.where(is_key, tf.gather(key_rows, active) - UNSEEN, self._beyond(level)))
        vectors = _gather(self.lookups.tables[level], rows)
        vectors = tf.where(is_key[:, None], vectors, tf.zeros_like(vectors))
        return KeysOfLevel(vectors, rows, tf.constant(active), tf.where(reaches, place_of_key, 0))

    def _rows_of_tables(self, level: int, rows: Tensor) -> TableRows:
        """Return rows [places of a level] as those of each table."""
        room = self.rooms[level]
        return TableRows(tf.split(rows, room.sizes), tf.constant(room.sizes), room.tables)


def _rooms(sizes: Int64s) -> Rooms:
    starts = np.cumsum([0, *sizes])[:-1]
    return Rooms([int(size) for size in sizes], starts.tolist(), np.repeat(np.arange(len(sizes)), sizes))


def _gather(tables: Sequence[Variable], rows: TableRows) -> Tensor:
    """Read rows of each table, [places, ...]."""
    return tf.concat([tf.gather(table.value, ids) for table, ids in zip(tables, rows.ids, strict=True)], axis=0)
