"""Bags of keys: the items of a batch, and sums of their vectors.

A *bag* is what a row of the batch holds, an *item* is one of its keys. A batch of n rows has few distinct keys, so that
a table is read once a distinct key, and each item says which of them it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from feat2vec.custom_gradients import custom_gradient
from feat2vec.model.extractors.base import UNSEEN, Extracted, Extractor, layer
from feat2vec.model.large_variables import ZeroStart
from feat2vec.model.optimizers import by_row, linear_terms
from feat2vec.model.pair_scores import Level, Tensor
from feat2vec.model.pair_scores_by_key import KeyVectors, key_vectors_of


class Items(NamedTuple):
    """The items that are there, bag by bag."""

    keys: Tensor  # [items], which of the distinct keys an item is
    bags: Tensor  # [items], ascending
    weights: Tensor | None  # [items, 1]; None where each is 1

    def at(self, places: Tensor) -> Items:
        """Return the items at some places."""
        weights = None if self.weights is None else tf.gather(self.weights, places)
        return Items(tf.gather(self.keys, places), tf.gather(self.bags, places), weights)

    def followed_by(self, items: Items) -> Items:
        """Return these items and then those of later bags."""
        weights = None if self.weights is None else tf.concat([self.weights, items.weights], axis=0)
        keys, bags = tf.concat([self.keys, items.keys], axis=0), tf.concat([self.bags, items.bags], axis=0)
        return Items(keys, bags, weights)


class Bags(NamedTuple):
    """The bags of a batch."""

    ids: Tensor  # [keys], the distinct ids, without padding
    counts: Tensor  # [keys], how often each occurs, as floats
    items: Items
    scale: Tensor | None  # [batch, 1], what the sum of a bag is multiplied by; None where it is 1
    batch: Tensor  # the number of rows

    def sum(self, vectors: Tensor, items: Items | None = None) -> Tensor:
        """Return the scaled sum of the items' vectors, rows of `vectors`, in each bag: [batch, D]."""
        return self.scaled(sum_bags(vectors, self.items if items is None else items, self.batch))

    def scaled(self, sums: Tensor) -> Tensor:
        """Return the bags' sums [batch, D] as the combiner wants them."""
        return sums if self.scale is None else sums * self.scale


def sum_bags(vectors: Tensor, items: Items, bags: Tensor) -> Tensor:
    """Return the sum of the items' vectors, rows of `vectors`, in each of a number of bags: [bags, D]."""
    if items.weights is None:
        return tf.sparse.segment_sum(vectors, items.keys, items.bags, num_segments=bags)
    weighted = tf.gather(vectors, items.keys) * items.weights  # [items, D]
    return tf.sparse.segment_sum(weighted, tf.range(tf.shape(weighted)[0]), items.bags, num_segments=bags)


def bag_weights(ids: Tensor, weights: Tensor | None, combiner: str, dtype: str) -> tuple[Tensor | None, Tensor | None]:
    """Return the weights of items [batch, width] and what a bag's sum is multiplied by [batch, 1].

    Each is None where it is 1. `mean` divides a bag by the sum of its weights, `sqrtn` by the root of the sum of their
    squares; a bag whose weights sum to nothing is zero.
    """
    is_item = ids > 0
    if weights is not None:
        weights = tf.where(is_item, weights, 0)
    if combiner == "sum":
        return weights, None
    if weights is None:
        size = tf.math.count_nonzero(is_item, axis=1, keepdims=True, dtype=dtype)
    else:
        size = tf.reduce_sum(weights if combiner == "mean" else tf.square(weights), axis=1, keepdims=True)
    return weights, tf.math.divide_no_nan(tf.ones_like(size), size if combiner == "mean" else tf.sqrt(size))


@custom_gradient
def count_squares(vectors: Tensor, counts: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, None]]]:
    """Return |v|^2 over the occurrences: vectors [keys, D], and how often each occurs, `counts` [keys]."""
    total = tf.reduce_sum(tf.reduce_sum(tf.square(vectors), axis=1) * counts)
    return total, lambda upstream: (vectors * (2 * upstream * counts)[:, None], None)


class Tops(NamedTuple):
    """The highest level that a key reaches, counted from 0; -1 for a key that has no vector."""

    of_keys: Tensor  # [keys], of the distinct keys
    of_items: Tensor  # [items]


class LevelKeys(NamedTuple):
    """The distinct keys of a batch that reach a level."""

    rows: Tensor  # [reaching keys], their rows in the level's table
    counts: Tensor  # [reaching keys], how often each occurs
    places: Tensor | None  # [keys], where a key is among them; None where all keys reach the level


@layer("lookup")
class LookupExtractor(Extractor):
    """A vector for each key and level. The keys of level k are a prefix of the ids, so its table is just shorter.

    Level 1 has a row for unseen keys, zero until training meets one, then one for each key; the levels above have only
    keys. A bag's items are summed, each times its weight; `mean` divides by the sum of the weights, `sqrtn` by the root
    of the sum of their squares. Its arguments are those of `Extractor`.

    A table is read once a call, at its distinct keys: so what the optimizer gets is summed by key already.

    With `Shape.active` and `Shape.needs_term` some keys have a linear term alone: their vectors are not read.

    Example:
        >>> spec = {**feat2vec.specs.Lookup(multi=True).model_dump(), "combiner": "mean"}
        >>> shape = feat2vec.extractors.Shape(width=2, sizes=(5,))
        >>> cast = feat2vec.extractors.LookupExtractor(spec, shape, dims=[3])
        >>> cast(np.array([[2, 3], [0, 0]])).levels[0].free[1].numpy()  # a bag without items
        array([0., 0., 0.], dtype=float32)

    """

    is_random = True

    def build(self, input_shape: object = None) -> None:
        """Make a table a level, and the linear terms."""
        del input_shape
        self.tables = [
            self.add_table(size, dim, f"table_{level}", unseen=level == 1, scale=self.scale)
            for level, (size, dim) in enumerate(zip(self.shape.table_sizes, self.dims, strict=True), start=1)
        ]
        if self.bias:
            terms = self.add_weight((self.shape.sizes[0], 1), initializer=ZeroStart(), name="linear", autocast=False)
            self.linear = linear_terms(by_row(terms))
        super().build(None)

    @property
    def leaves_keys_out(self) -> bool:
        """Whether some keys have no vector."""
        return self.shape.active is not None or self._needs_term

    @property
    def _needs_term(self) -> bool:
        return self.shape.needs_term and self.bias

    def call(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return the vectors of bags: ids [batch, width], or ids and then weights if the group is weighted."""
        bags = self._bags(entries, training, seed)
        terms, linear, linear_square = self._linear_terms(bags)
        tops = self._tops(bags, terms)
        levels, squares = [], []
        for level in range(len(self.tables)):
            keys, vectors = self._read(level, bags, tops)
            squares.append(count_squares(vectors, keys.counts))
            levels.append(self._level(level, vectors, keys, bags, tops))
        return Extracted(tuple(levels), linear, tf.add_n(squares), linear_square)

    def by_key(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return what `call` does, with `key_vectors` in place of levels.

        The vectors of a group with one item a row are read no more than once a key. Of bags, which have a sum a row,
        the last level has only the rows that reach it.
        """
        with tf.name_scope(self.name):  # as Keras does in `__call__`
            bags = self._bags(entries, training, seed)
            terms, linear, linear_square = self._linear_terms(bags)
            tops = self._tops(bags, terms)
            is_bag = bags.items.weights is not None or entries.shape[1] != 1
            key_vectors, squares = [], []
            for level in range(len(self.tables)):
                keys, vectors = self._read(level, bags, tops)
                squares.append(count_squares(vectors, keys.counts))
                if not is_bag:
                    key_vectors.append(self._vectors_of_keys(level, vectors, keys, bags, tops))
                elif self._is_last(level) and level > 0:
                    key_vectors.append(self._sums_that_reach_the_last_level(vectors, keys, bags, tops))
                else:
                    key_vectors.append(key_vectors_of(self._level(level, vectors, keys, bags, tops)))
            return Extracted((), linear, tf.add_n(squares), linear_square, tuple(key_vectors))

    def bags(self, entries: Tensor) -> Bags:
        """Return the bags of entries, of which nothing is dropped.

        Args:
            entries: as in `call`.

        Returns:
            The distinct keys, and the items that they are in.

        """
        return self._bags(entries, False, None)

    def drop_items(self, ids: Tensor, seed: Tensor | None) -> Tensor:
        """Leave out the items that a training step drops.

        Args:
            ids: The items of bags, [batch, width].
            seed: Two integers, which decide what is dropped; not needed without dropout.

        Returns:
            The same with 0 for items that are dropped.

        """
        rate = self.spec.get("item_dropout", 0.0)
        if not rate:
            return ids
        keep = tf.random.stateless_uniform(tf.shape(ids), self.needed(seed)) >= rate
        return tf.where(keep, ids, 0)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _bags(self, entries: Tensor, training: bool, seed: Tensor | None) -> Bags:
        """Find the items and the distinct keys of entries; in training without the items that are dropped."""
        width = entries.shape[1] or tf.shape(entries)[1]  # bags of new rows may be wider
        width = width // 2 if self.shape.weighted else width
        ids, weights = entries[:, :width], None
        if training:
            ids = self.drop_items(ids, seed)
        if self.shape.weighted:
            weights = tf.cast(tf.bitcast(entries[:, width:], tf.float32), self.compute_dtype)
        weights, scale = bag_weights(ids, weights, self.spec["combiner"], self.compute_dtype)
        flat_ids = tf.reshape(ids, [-1])  # [batch * width]
        places = tf.where(flat_ids > 0)[:, 0]  # [items]
        keys, key_of_item, counts = tf.unique_with_counts(tf.gather(flat_ids, places))
        bag_of_item = tf.truncatediv(tf.cast(places, tf.int32), width)  # `//` takes four times as long
        if weights is not None:
            weights = tf.gather(tf.reshape(weights, [-1, 1]), places)  # [items, 1]
        items = Items(key_of_item, bag_of_item, weights)
        return Bags(keys, tf.cast(counts, self.compute_dtype), items, scale, tf.shape(entries)[0])

    def _linear_terms(self, bags: Bags) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Return the linear terms [keys, 1] and their sums [batch], None without bias, and the sum of their squares.

        The squares are those of all occurrences.
        """
        if not self.bias:
            return None, None, 0.0
        terms = self.gather_distinct(self.linear, bags.ids - UNSEEN)  # [keys, 1]
        square = count_squares(terms, bags.counts)
        return terms, bags.sum(terms)[:, 0], square

    def _read(self, level: int, bags: Bags, tops: Tops | None) -> tuple[LevelKeys, Tensor]:
        """Return the keys that reach a level, and their vectors [reaching keys, D_k]."""
        keys = LevelKeys(bags.ids - UNSEEN, bags.counts, None)
        if tops is not None and (level > 0 or self.leaves_keys_out):
            reaches = tops.of_keys >= level
            active = tf.where(reaches)[:, 0]
            places = tf.cumsum(tf.cast(reaches, tf.int32)) - 1
            rows = keys.rows - 1 if level > 0 else keys.rows  # above level 1 there is no row for unseen keys
            keys = LevelKeys(tf.gather(rows, active), tf.gather(bags.counts, active), places)
        return keys, self.gather_distinct(self.tables[level], keys.rows)

    # --- levels -----------------------------------------------------------------------------------------------------

    def _is_last(self, level: int) -> bool:
        return level == len(self.tables) - 1

    def _tops(self, bags: Bags, terms: Tensor | None) -> Tops | None:
        """Return the top levels; None where there is one level, which all keys have. `terms` are [keys, 1]."""
        if len(self.tables) == 1 and not self.leaves_keys_out:
            return None
        number = bags.ids - (UNSEEN + 1)  # -1 for an unseen one, whose top level is the first
        reached = [tf.cast((number >= 0) & (number < size), tf.int32) for size in self.shape.sizes[1:]]
        of_keys = tf.add_n(reached) if reached else tf.zeros_like(bags.ids, tf.int32)
        if self.leaves_keys_out:
            of_keys = tf.where(self._has_vector(bags.ids, terms), of_keys, -1)
        return Tops(of_keys, tf.gather(of_keys, bags.items.keys))

    def _has_vector(self, ids: Tensor, terms: Tensor | None) -> Tensor:
        """Return whether keys, by their ids [keys] and linear terms [keys, 1], have a vector: [keys]."""
        has_vector = tf.ones_like(ids, tf.bool)
        if self.shape.active is not None:
            has_vector &= ids - UNSEEN < self.shape.active
        if self._needs_term and terms is not None:
            has_vector &= terms[:, 0] != 0
        return has_vector

    def _level(self, level: int, vectors: Tensor, keys: LevelKeys, bags: Bags, tops: Tops | None) -> Level:
        """Return the bags' sums at a level, [batch, D_k] each: of keys that end here, and of those that go higher."""
        items = self._items(level, keys, bags, tops)
        if self._is_last(level):
            return Level(bags.sum(vectors, items))
        free, dependent = tf.split(sum_bags(vectors, items, 2 * bags.batch), 2)
        return Level(bags.scaled(free), bags.scaled(dependent))

    def _items(self, level: int, keys: LevelKeys, bags: Bags, tops: Tops | None) -> Items:
        """Return the items to sum at a level, with their keys as places among those that reach it.

        Below the last level the items that end there come first; those that go higher follow, in bags of their own.
        """
        if tops is None:
            return bags.items
        items = bags.items.at(tf.where(tops.of_items == level)[:, 0])
        if not self._is_last(level):
            higher = bags.items.at(tf.where(tops.of_items > level)[:, 0])
            items = items.followed_by(higher._replace(bags=higher.bags + bags.batch))
        return items if keys.places is None else items._replace(keys=tf.gather(keys.places, items.keys))

    # --- vectors by key ---------------------------------------------------------------------------------------------

    def _vectors_of_keys(
        self, level: int, vectors: Tensor, keys: LevelKeys, bags: Bags, tops: Tops | None
    ) -> KeyVectors:
        """Return the keys' vectors at a level, and where a row's own is."""
        key_of_row = tf.scatter_nd(bags.items.bags[:, None], bags.items.keys + 1, [bags.batch])  # 0 for none
        if tops is None:
            return KeyVectors(vectors, key_of_row)
        places = tf.range(tf.size(tops.of_keys)) if keys.places is None else keys.places
        free = _of_rows(tf.where(tops.of_keys == level, places + 1, 0), key_of_row)
        if self._is_last(level):
            return KeyVectors(vectors, free)
        return KeyVectors(vectors, free, _of_rows(tf.where(tops.of_keys > level, places + 1, 0), key_of_row))

    def _sums_that_reach_the_last_level(
        self, vectors: Tensor, keys: LevelKeys, bags: Bags, tops: Tops | None
    ) -> KeyVectors:
        """Return the sums of the bags that have an item at the last level, and where a row's own is."""
        items = self._items(len(self.tables) - 1, keys, bags, tops)
        reaching_rows, bag_of_item = tf.unique(items.bags)
        sums = sum_bags(vectors, items._replace(bags=bag_of_item), tf.size(reaching_rows))
        if bags.scale is not None:
            sums *= tf.gather(bags.scale, reaching_rows)
        places = tf.range(1, tf.size(reaching_rows) + 1)
        return KeyVectors(sums, tf.scatter_nd(reaching_rows[:, None], places, [bags.batch]))


def _of_rows(numbers: Tensor, key_of_row: Tensor) -> Tensor:
    """Return the number of each row's key, `numbers` [keys]; 0 where a row has none: [batch]."""
    return tf.gather(tf.concat([[0], numbers], axis=0), key_of_row)
