"""Many lookups at once: a step's vectors of all groups, read in as few operations as groups.

A graph's operations cost time and memory before the first step: about half a millisecond and 30 kB each. Group by group
a step takes 100 to 400 of them for each group; here a group has one reading of its table, and in the optimizer two
readings and two writings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.model.extractors import UNSEEN, Extractor, LookupExtractor
from feat2vec.model.optimizers import Rows
from feat2vec.model.optimizers.rows import Variable
from feat2vec.model.pair_scores import Tensor

MIN_GROUPS = 32  # fewer are trained one by one, several operations side by side
ENTRIES = "*"  # the name of all groups' entries, [batch, groups]; no group has it


class Read(NamedTuple):
    """The distinct keys of a step."""

    vectors: Tensor  # [keys, dim], group by group
    terms: Tensor  # [keys, 1], None without bias
    counts: Tensor  # [keys], how often each occurs
    ids: Sequence[Tensor]  # for each group the rows of its table
    sizes: Tensor  # [groups], how many


class ManyLookups:
    """The tables of lookups of one level, whose entries are one id each."""

    def __init__(self, extractors: Sequence[LookupExtractor], bias: bool) -> None:
        self.tables = [extractor.tables[0] for extractor in extractors]
        self.linear = [extractor.linear for extractor in extractors] if bias else None
        sizes = np.array([extractor.shape.sizes[0] for extractor in extractors], np.int64)
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes

    def places(self, entries: Tensor, groups: Tensor) -> Tensor:
        """Return the rows that entries of groups (of the same shape) have if all tables stand one below the other.

        An entry that is missing has -1.
        """
        rows = tf.cast(entries, tf.int64) - UNSEEN
        return tf.where(rows >= 0, rows + tf.gather(self.starts, groups), -1)

    def read(self, places: Tensor) -> tuple[Read, Tensor]:
        """Read the distinct ones of places [n].

        Also returns where in `Read` each place is, [n]: counted from 1, and 0 for none.
        """
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

    def _gather(self, tables: Sequence[Variable], ids: Sequence[Tensor]) -> Tensor:
        rows_of_each = [tf.gather(table.value, rows) for table, rows in zip(tables, ids, strict=True)]
        return tf.concat(rows_of_each, axis=0)

    def gradients(self, read: Read, vectors: Tensor, terms: Tensor | None) -> list[tuple[Rows, Variable]]:
        """Return (gradient, table) for each table, from the gradients of the vectors and terms that were read."""
        pairs: list[tuple[Rows, Variable]] = []
        for gradient, tables in ((vectors, self.tables), (terms, self.linear)):
            if gradient is None or tables is None:
                continue
            of_tables = tf.split(gradient, read.sizes, num=len(tables))
            for ids, values, table in zip(read.ids, of_tables, tables, strict=True):
                pairs.append((Rows(ids, values), table))
        return pairs


def are_plain(extractors: Sequence[Extractor]) -> bool:
    """Return whether each group is a lookup of one level whose entries are one id, all of it learnt."""
    return all(_is_plain(extractor) for extractor in extractors)


def _is_plain(extractor: Extractor) -> bool:
    return (
        type(extractor) is LookupExtractor
        and len(extractor.dims) == 1
        and extractor.shape.width == 1
        and not extractor.shape.weighted
        and extractor.spec.get("gain", 1.0) == 1
        and not extractor.spec.get("item_dropout", 0.0)
        and extractor.compute_dtype == "float32"
        and all(weight.trainable for weight in extractor.weights)
    )


def rows_at(vectors: Tensor, slots: Tensor) -> Tensor:
    """Return the vectors at slots that are counted from 1; zero at 0."""
    empty = tf.zeros([1, vectors.shape[1]], vectors.dtype)
    return tf.gather(tf.concat([empty, vectors], axis=0), slots)
