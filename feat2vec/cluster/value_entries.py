"""The entries of value ids where the workers are: the keys of a list, the tokens of a text, numbers.

Records have value ids, and negatives are value ids, so both need their entries by number:

- of a group whose values are its single keys an entry is the value id plus a number, and there is no table;
- a small table is part of the graph that each worker has;
- a large one lies on the parameter servers, a value on each in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.spread_arrays import SpreadArray

MOST_GRAPH_BYTES = 1 << 20  # of a table that is part of the graph
ROWS_PER_PIECE = 1 << 20


class ValueEntries:
    """The entries of the values of all groups.

    Args:
        tables: The entries of each group's values, int32 or float32 [values, width]; they may be memory-mapped.
        devices: The parameter servers.
        most_graph_bytes: The size of a table that is part of the graph, at most.

    Example:
        >>> import numpy as np, tensorflow as tf
        >>> entries = ValueEntries({"who": np.array([[2], [3], [4]], np.int32)}, ["CPU:0"])
        >>> entries.gather("who", tf.constant([0, 2, -1])).numpy().tolist()
        [[2], [4], [0]]

    """

    def __init__(
        self, tables: Mapping[str, Array], devices: Sequence[str], most_graph_bytes: int = MOST_GRAPH_BYTES
    ) -> None:
        self.groups = list(tables)
        self.first_keys: dict[str, int] = {}  # of groups without a table
        self.in_graph: dict[str, Array] = {}  # with the missing entry in row 0
        self.on_servers: dict[str, SpreadArray] = {}
        self.missing = {group: np.nan if table.dtype == np.float32 else 0 for group, table in tables.items()}
        for group, table in tables.items():
            if are_single_keys(table):
                self.first_keys[group] = int(table[0, 0])
            elif table.nbytes <= most_graph_bytes:
                missing = np.full((1, table.shape[1]), self.missing[group], table.dtype)
                self.in_graph[group] = np.concatenate([missing, table])
            else:
                self.on_servers[group] = SpreadArray(table, devices)

    def gather(self, group: str, values: tf.Tensor) -> tf.Tensor:
        """The entries of value ids, [n, width].

        Args:
            group: The group.
            values: Value ids, int32 [n], -1 for none.

        """
        if group in self.first_keys:
            return tf.where(values < 0, 0, values + self.first_keys[group])[:, None]
        if group in self.in_graph:
            return tf.gather(tf.constant(self.in_graph[group]), values + 1)
        entries = self.on_servers[group].gather(tf.maximum(values, 0))
        return tf.where((values < 0)[:, None], tf.constant(self.missing[group], entries.dtype), entries)

    def inputs(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The entries of rows, as the model takes them: of each group [batch, width].

        Args:
            ids: The value ids of rows, int32 [batch, groups or more].

        """
        return {group: self.gather(group, ids[:, place]) for place, group in enumerate(self.groups)}


def are_single_keys(table: Array) -> bool:
    """Whether the entry of each value is one key, and the keys are numbers that follow each other.

    >>> are_single_keys(np.array([[2], [3]], np.int32)), are_single_keys(np.array([[2, 0], [3, 4]], np.int32))
    (True, False)
    """
    if table.dtype != np.int32 or table.shape[1] != 1 or not len(table):
        return False
    first = int(table[0, 0])
    for start in range(0, len(table), ROWS_PER_PIECE):
        keys = np.asarray(table[start : start + ROWS_PER_PIECE, 0])
        if (keys != np.arange(first + start, first + start + len(keys))).any():
            return False
    return True
