"""Bags of keys: the items of a batch, and sums of their vectors.

A *bag* is what a row of the batch holds, an *item* is one of its keys. A batch of n rows has few distinct keys, so that
a table is read once a distinct key, and each item says which of them it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from feat2vec.custom_gradients import custom_gradient
from feat2vec.model.pair_scores import Tensor


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
