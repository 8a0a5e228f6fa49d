"""Many lookups at once: a step's vectors of all groups, read in as few operations as groups.

A graph's operations cost time and memory before the first step: about half a millisecond and 30 kB each. Group by group
a step takes 100 to 400 of them for each group; here a group has one reading of its table, and in the optimizer two
readings and two writings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.model.extractors import UNSEEN, Extractor, LookupExtractor
from feat2vec.model.optimizers import Rows

MIN_GROUPS = 32  # fewer are trained one by one, several operations side by side
ENTRIES = "*"  # the name of all groups' entries, [batch, groups]; no group has it


class Read(NamedTuple):
    """The distinct keys of a step."""

    vectors: Any  # [keys, dim], group by group
    terms: Any  # [keys, 1], None without bias
    counts: Any  # [keys], how often each occurs
    ids: Sequence[Any]  # for each group the rows of its table
    sizes: Any  # [groups], how many


class ManyLookups:
    """The tables of lookups of one level, whose entries are one id each."""

    def __init__(self, extractors: Sequence[LookupExtractor], bias: bool) -> None:
        self.tables = [extractor.tables[0] for extractor in extractors]
        self.linear = [extractor.linear for extractor in extractors] if bias else None
        sizes = np.array([extractor.shape.sizes[0] for extractor in extractors], np.int64)
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes

    def places(self, entries: Any, groups: Any) -> Any:
        """The rows that entries of groups (of the same shape) have if all tables stand one below the other, or -1."""
        there = tf.cast(entries, tf.int64) - UNSEEN
        return tf.where(there >= 0, there + tf.gather(self.starts, groups), -1)

    def read(self, places: Any) -> tuple[Read, Any]:
        """Read the distinct places [n]; with what place i has in `Read`, counted from 1, and 0 for none."""
        present = tf.where(places >= 0)
        keys, slots, counts = tf.unique_with_counts(tf.gather_nd(places, present))
        order = tf.argsort(keys)  # group by group
        keys, counts = tf.gather(keys, order), tf.gather(counts, order)
        slots = tf.gather(tf.math.invert_permutation(order), slots)
        group = tf.searchsorted(self.ends, keys, side="right")
        sizes = tf.math.bincount(group, minlength=len(self.tables), maxlength=len(self.tables))
        ids = tf.split(keys - tf.gather(self.starts, group), sizes, num=len(self.tables))
        vectors = self._gather(self.tables, ids)
        terms = None if self.linear is None else self._gather(self.linear, ids)
        slot = tf.scatter_nd(present, slots + 1, tf.shape(places, tf.int64))
        return Read(vectors, terms, tf.cast(counts, vectors.dtype), ids, sizes), slot

    def _gather(self, tables: Sequence[Any], ids: Sequence[Any]) -> Any:
        parts = [tf.gather(table.value, rows) for table, rows in zip(tables, ids, strict=True)]
        return tf.concat(parts, axis=0)

    def gradients(self, read: Read, vectors: Any, terms: Any) -> list[tuple[Rows, Any]]:
        """Each table's gradient, by rows, from those of what was read."""
        pairs: list[tuple[Rows, Any]] = []
        for gradient, tables in ((vectors, self.tables), (terms, self.linear)):
            if gradient is not None and tables is not None:
                parts = tf.split(gradient, read.sizes, num=len(tables))
                pairs += [(Rows(*pair), table) for *pair, table in zip(read.ids, parts, tables, strict=True)]
        return pairs


def are_plain(extractors: Sequence[Extractor]) -> bool:
    """Whether each group is a lookup of one level whose entries are one id, all of it learnt."""
    return all(
        type(one) is LookupExtractor
        and len(one.dims) == 1
        and one.shape.width == 1
        and not one.shape.weighted
        and one.spec.get("gain", 1.0) == 1
        and not one.spec.get("item_dropout", 0.0)
        and one.compute_dtype == "float32"
        and all(weight.trainable for weight in one.weights)
        for one in extractors
    )


def rows_at(vectors: Any, slots: Any) -> Any:
    """Vectors at slots that are counted from 1; zero at 0."""
    empty = tf.zeros([1, vectors.shape[1]], vectors.dtype)
    return tf.gather(tf.concat([empty, vectors], axis=0), slots)
