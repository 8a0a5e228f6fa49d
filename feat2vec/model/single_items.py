"""Single items of lists as what noise replaces (`noise.lists: items`).

A list that is replaced as a whole is told from other whole lists, and an item is then learnt through the sums that it
stands in. Here one item of the row's list, each as likely, is the positive; negatives are items, drawn by their counts;
and an item that stands in the row's list is no negative of it. The value of such a group is an item's id, so that
`Noise` draws items as it draws values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array, Int64s, Integers
from feat2vec.model.extractors import Extractor
from feat2vec.model.extractors.base import UNSEEN
from feat2vec.model.extractors.lookup import LookupExtractor
from feat2vec.model.pair_scores import Tensor
from feat2vec.sampling.noise import Draw, Unit
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Schema

NO_ITEM = -1  # of a list without a known item
ENTRIES_AT_ONCE = 1 << 16  # lists whose items are counted at a time
SEED_OF_ITEMS = 1 << 20  # so that the draws of items are not those of the noise


def groups_by_item(schema: Schema, extractors: Sequence[Extractor]) -> tuple[int, ...]:
    """The groups whose lists are told from noise item by item.

    Args:
        schema: The schema, whose `noise.lists` asks for it.
        extractors: The layer of each group.

    Returns:
        The numbers of the groups: lookups of lists and split texts that no joint set has.

    """
    if schema.noise.lists != "items" or schema.target is not None:
        return ()
    joint_groups = {name for names in schema.noise.joint for name in names}
    by_item = []
    for g, (name, extractor) in enumerate(zip(schema.groups, extractors, strict=True)):
        spec = schema.groups[name].extractor
        holds_lists = isinstance(spec, ItemsSpec) and (spec.multi or spec.split is not None)
        if holds_lists and isinstance(extractor, LookupExtractor) and name not in joint_groups:
            by_item.append(g)
    return tuple(by_item)


def item_counts(entries: Array, counts: Integers, size: int) -> Int64s:
    """How often each item occurs; unseen items and padding never do.

    Args:
        entries: The ids of distinct lists, [values, width].
        counts: How often each list occurs, [values].
        size: The number of ids.

    Returns:
        The count of each id, [size].

    >>> item_counts(np.array([[2, 3], [3, 0], [1, 3]]), np.array([5, 2, 1]), 4)
    array([0, 0, 5, 8])

    """
    totals = id_counts(entries, counts, size)
    totals[: UNSEEN + 1] = 0
    return totals


def id_counts(entries: Array, counts: Integers, size: int) -> Int64s:
    """How often each id occurs, those of unseen items and of padding, too.

    Args:
        entries: The ids of distinct lists, [values, width].
        counts: How often each list occurs, [values].
        size: The number of ids.

    Returns:
        The count of each id, [size].

    """
    totals = np.zeros(size, np.int64)
    for start in range(0, len(entries), ENTRIES_AT_ONCE):
        part = np.asarray(entries[start : start + ENTRIES_AT_ONCE])
        repeats = np.broadcast_to(np.asarray(counts[start : start + ENTRIES_AT_ONCE])[:, None], part.shape)
        totals += np.bincount(part.ravel(), repeats.ravel(), size).astype(np.int64)
    return totals


def drawn_items(ids: Tensor, seed: Tensor) -> Tensor:
    """Draw a known item of each list, each as likely.

    Args:
        ids: The ids of lists, [rows, width].
        seed: Two integers.

    Returns:
        The id of an item, `NO_ITEM` for a list without a known one: [rows].

    """
    draws = tf.random.stateless_uniform(tf.shape(ids), seed)
    draws = tf.where(ids > UNSEEN, draws, -1.0)
    places = tf.argmax(draws, axis=1, output_type=tf.int32)  # [rows]
    items = tf.gather(ids, places, batch_dims=1)
    return tf.where(items > UNSEEN, items, NO_ITEM)


def with_drawn_items(rows: Tensor, ids: Mapping[int, Tensor], seed: Tensor) -> Tensor:
    """Put a drawn item in the place of each list.

    Args:
        rows: Value ids, int32 [batch, columns].
        ids: Of groups by item the ids of the rows' lists, [batch, width].
        seed: Two integers.

    Returns:
        The rows as the noise takes them, [batch, columns].

    """
    columns = tf.unstack(rows, axis=1)
    for g, group_ids in ids.items():
        group_seed = tf.random.fold_in(tf.cast(seed, tf.int64), SEED_OF_ITEMS + g, alg="philox")
        columns[g] = drawn_items(group_ids, group_seed)
    return tf.stack(columns, axis=1)


def without_own_items(units: Sequence[Unit], draws: Sequence[Draw], ids: Mapping[int, Tensor]) -> list[Draw]:
    """Mark the negatives that stand in the row's own list, as no negatives of the row.

    Args:
        units: The target units of the noise.
        draws: What was drawn for each.
        ids: Of groups by item the ids of the rows' lists, [batch, width], in the order of the batch.

    Returns:
        The draws, with the hits of whole lists.

    """
    marked, start = [], tf.constant(0)
    for unit, draw in zip(units, draws, strict=True):
        rows = tf.shape(draw.rows)[0]
        g = unit.groups[0]
        if g in ids:
            of_rows = ids[g][start : start + rows]  # [rows, width]
            negatives = draw.values[0] if draw.values[0].shape.rank == 2 else draw.values[0][None]  # [rows or 1, k]
            is_own = tf.reduce_any(of_rows[:, :, None] == negatives[:, None, :], axis=1)
            draw = draw._replace(hits=is_own)
        marked.append(draw)
        start += rows
    return marked


def item_entries(items: Tensor, *, weighted: bool) -> Tensor:
    """The entries of single items: lists of one, each with the weight 1.

    Args:
        items: Ids, `NO_ITEM` for none, of any shape.
        weighted: Whether entries are ids and then weights.

    Returns:
        int32 [items, 1], or [items, 2] if weighted.

    """
    ids = tf.maximum(tf.reshape(items, [-1, 1]), 0)
    if not weighted:
        return ids
    return tf.concat([ids, tf.fill(tf.shape(ids), int(np.float32(1).view(np.int32)))], axis=1)


def item_ids(entries: Tensor, *, weighted: bool) -> Tensor:
    """The ids of lists, [rows, width], without weights."""
    if not weighted:
        return entries
    return entries[:, : (entries.shape[1] or tf.shape(entries)[1]) // 2]


def join_lists(lists: Sequence[Tensor], *, weighted: bool) -> Tensor:
    """Entries of lists below each other, padded to the widest; of weighted ones ids and weights are padded apart."""
    if not weighted:
        width = max(part.shape[1] for part in lists)
        return tf.concat([_padded(part, width) for part in lists], axis=0)
    width = max(part.shape[1] // 2 for part in lists)
    halves = []
    for part in lists:
        ids, weights = tf.split(part, 2, axis=1)
        halves.append(tf.concat([_padded(ids, width), _padded(weights, width)], axis=1))
    return tf.concat(halves, axis=0)


def _padded(ids: Tensor, width: int) -> Tensor:
    """The same with padding up to a width."""
    return tf.pad(ids, [[0, 0], [0, width - ids.shape[1]]])
