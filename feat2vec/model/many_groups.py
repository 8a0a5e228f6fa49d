"""Many lookups at once: a step's vectors of all groups, read in as few operations as groups.

A graph's operations cost time and memory before the first step: about half a millisecond and 30 kB each. Group by group
a step takes 100 to 400 of them for each group; here a group has one reading of its table, and in the optimizer two
readings and two writings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Int64s
from feat2vec.model.extractors import UNSEEN, Extractor, LookupExtractor
from feat2vec.model.group_vectors import scores_by_key
from feat2vec.model.optimizers import Rows
from feat2vec.model.optimizers.base import Variable
from feat2vec.model.pair_scores import Level, Submodels, Tensor, context, replaced, submodels
from feat2vec.model.pair_scores_by_key import LevelByKey, Occurrences
from feat2vec.sampling.noise import Draws, Noise
from feat2vec.schema.objectives import Noisy, self_supervised
from feat2vec.schema.objectives.formulas import UNIT_EPSILON
from feat2vec.schema.options import Schema

MIN_GROUPS = 32  # fewer are trained one by one, several operations side by side
MIN_LABELLED_GROUPS = 2  # of rows with labels, whose steps are so short that each operation counts
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


@dataclass(frozen=True)
class JoinedValues:
    """The value tables of all groups, of entries of one id each, as one table."""

    entries: tf.Variable  # [values of all groups], each group's missing entry first
    starts: Int64s  # [groups], where the entries of each group begin


class NegativeSlots(NamedTuple):
    """The negatives of a batch."""

    draws: Draws
    target_groups: Tensor  # [batch], the group in which each row has negatives
    slots: Tensor  # [batch or units, k], which vector each negative has, as in `ReadBatch.slots`


class ReadBatch(NamedTuple):
    """The vectors of a batch, each distinct key once."""

    keys: Read
    slots: Tensor  # [batch, groups], one more than the place of the vector among those of `keys`; 0 for none
    negatives: NegativeSlots | None  # None where rows have a target


def join_values(tables: Sequence[Tensor]) -> JoinedValues:
    """Value tables [values, 1] below each other."""
    sizes = np.array([table.shape[0] for table in tables], np.int64)
    entries = tf.concat(list(tables), axis=0)[:, 0]
    return JoinedValues(tf.Variable(entries, trainable=False), np.cumsum(sizes) - sizes)


def read_rows(lookups: ManyLookups, entries: Tensor) -> ReadBatch:
    """Read the vectors of rows, whose `entries` are [batch, groups]."""
    keys, slots = lookups.read(_places_of_rows(lookups, entries))
    return ReadBatch(keys, tf.reshape(slots, [-1, entries.shape[1]]), None)


def read_rows_and_negatives(
    lookups: ManyLookups, entries: Tensor, rows: Tensor, noise: Noise, values: JoinedValues, seed: Tensor
) -> ReadBatch:
    """Draw negatives for rows, and read the vectors of both.

    Args:
        lookups: The tables.
        entries: [batch, groups].
        rows: Value ids [batch, groups].
        noise: What negatives are drawn by.
        values: The entries of the values.
        seed: Two integers.

    """
    groups = entries.shape[1]
    row_places = _places_of_rows(lookups, entries)  # [batch * groups]
    draws = noise.sample_all(rows, seed)
    target_groups = tf.gather([unit.groups[0] for unit in noise.units], draws.unit)  # [batch]
    is_shared = noise.sharing == "batch"
    groups_of_draws = tf.constant([unit.groups[0] for unit in noise.units]) if is_shared else target_groups
    value_starts = tf.gather(values.starts, groups_of_draws)[:, None]  # [batch or units, 1]
    negatives = tf.gather(values.entries, tf.cast(draws.values, tf.int64) + 1 + value_starts)  # [batch or units, k]
    negative_groups = tf.zeros_like(negatives) + groups_of_draws[:, None]  # [batch or units, k]
    negative_places = tf.reshape(lookups.places(negatives, negative_groups), [-1])
    keys, slots = lookups.read(tf.concat([row_places, negative_places], axis=0))
    row_slots = tf.reshape(slots[: tf.size(entries)], [-1, groups])
    negative_slots = tf.reshape(slots[tf.size(entries) :], tf.shape(draws.values))
    return ReadBatch(keys, row_slots, NegativeSlots(draws, target_groups, negative_slots))


def _places_of_rows(lookups: ManyLookups, entries: Tensor) -> Tensor:
    """Where the vectors of entries [batch, groups] are among those of all tables: [batch * groups]."""
    groups = tf.zeros_like(entries) + tf.range(entries.shape[1])
    return tf.reshape(lookups.places(entries, groups), [-1])


def row_scores(
    schema: Schema, batch: ReadBatch, bias: Tensor, masks: Sequence[Tensor] | None, *, training: bool = False
) -> Submodels:
    """The score of each row, [batch]; `masks` are as in `submodels_by_key`."""
    rows = tf.shape(batch.slots)[0]
    present = tf.where(batch.slots > 0)  # [occurrences, 2]: row and group
    key_of, row_of = tf.gather_nd(batch.slots, present) - 1, tf.cast(present[:, 0], tf.int32)  # [occurrences]
    linear = tf.zeros([rows], batch.keys.vectors.dtype)
    if batch.keys.terms is not None:
        terms = tf.gather(batch.keys.terms[:, 0], key_of)
        linear += tf.math.unsorted_segment_sum(terms, row_of, rows)
    vectors = LevelByKey(batch.keys.vectors, Occurrences(key_of, row_of))
    return scores_by_key(schema, [vectors], linear + bias, masks, training=training)


def many_groups_noise_loss(
    schema: Schema, batch: ReadBatch, keep: Tensor, bias: Tensor, offsets: Tensor | None
) -> Tensor:
    """The mean loss of a batch's rows against their negatives, as `noise_loss.noise_loss`: scalar.

    `keep` [batch, groups] is 1 for the groups of a row's context, `offsets` are [groups].
    """
    assert batch.negatives is not None
    keys, slots = batch.keys, batch.slots
    draws, target_groups, negative_slots = batch.negatives
    objective, dependents = schema.objective, schema.model.dependents

    vectors = rows_at(keys.vectors, slots)  # [batch, groups, rank]
    context_vectors = [Level(vectors * keep[..., None])]
    positives = tf.gather(vectors, target_groups, batch_dims=1)[:, None]  # [batch, 1, rank]
    negatives = rows_at(keys.vectors, negative_slots)  # [batch or units, k, rank]
    if keys.terms is None:
        context_linear = tf.zeros_like(context_vectors[0].free[..., 0])  # [batch, groups]
        positive_linear = tf.zeros_like(positives[..., 0])  # [batch, 1]
        negative_linear = tf.zeros_like(negatives[..., 0])  # [batch or units, k]
    else:
        row_terms = rows_at(keys.terms, slots)[..., 0]
        context_linear = row_terms * keep
        positive_linear = tf.gather(row_terms, target_groups, batch_dims=1)[:, None]
        negative_linear = rows_at(keys.terms, negative_slots)[..., 0]
    if objective.unit_candidates:
        positives = tf.math.l2_normalize(positives, axis=-1, epsilon=UNIT_EPSILON)
        negatives = tf.math.l2_normalize(negatives, axis=-1, epsilon=UNIT_EPSILON)

    context_scores = submodels(context_vectors, tf.reduce_sum(context_linear, axis=1) + bias, dependents)
    context_sums = context(context_vectors)
    positive_scores = replaced(context_scores, [Level(positives)], context_sums, positive_linear, dependents).scores[-1]
    if schema.noise.sharing == "batch":
        products = _products_of_units(context_sums[0].free, negatives, draws)  # [batch, k]
        negative_scores = context_scores.scores[-1][:, None] + products + tf.gather(negative_linear, draws.unit)
        draws = draws._replace(values=tf.gather(draws.values, draws.unit), log_q=tf.gather(draws.log_q, draws.unit))
    else:
        of_negatives = replaced(context_scores, [Level(negatives)], context_sums, negative_linear, dependents)
        negative_scores = of_negatives.scores[-1]
    scores = Noisy(positive_scores[:, 0], negative_scores)
    if offsets is not None:
        offset = tf.gather(tf.convert_to_tensor(offsets), target_groups)  # [batch]
        scores = Noisy(scores.positive + offset, scores.negatives + offset[:, None])
    log_q = Noisy(draws.log_q_positive, draws.log_q)
    hits = draws.positive[:, None] == draws.values  # [batch, k]
    losses = self_supervised(objective, scores, log_q, hits, 0.0)
    losses = tf.where(draws.positive >= 0, losses, tf.zeros_like(losses))  # [batch]
    return tf.reduce_sum(losses) / tf.cast(tf.shape(losses)[0], losses.dtype)


def _products_of_units(contexts: Tensor, negatives: Tensor, draws: Draws) -> Tensor:
    """The dot products of rows' contexts [batch, rank] with the negatives of their units [units, k, rank]: [batch, k].

    The rows of a unit stand one after the other. They are padded to the largest number of rows of a unit, so that one
    product of matrices serves each unit, and no row has a copy of the negatives.
    """
    units, rank = negatives.shape[0], contexts.shape[1]
    most = tf.reduce_max(draws.sizes)
    place_in_unit = tf.range(tf.shape(contexts)[0]) - tf.gather(tf.cumsum(draws.sizes, exclusive=True), draws.unit)
    places = draws.unit * most + place_in_unit  # [batch]
    padded = tf.scatter_nd(places[:, None], contexts, tf.stack([units * most, rank]))
    products = tf.matmul(tf.reshape(padded, [units, -1, rank]), negatives, transpose_b=True)  # [units, most, k]
    return tf.gather(tf.reshape(products, [-1, tf.shape(negatives)[1]]), places)


def many_groups_penalties(schema: Schema, keys: Read, rows: Tensor) -> list[Tensor]:
    """What L2 adds to the loss of so many rows: a scalar for the vectors, and one for the linear terms."""
    training, rows = schema.training, tf.cast(rows, keys.vectors.dtype)
    penalties = []
    weights = [training.l2_of(name) for name in schema.groups]
    if any(weights):
        squares = tf.reduce_sum(tf.square(keys.vectors), axis=1)  # [keys]
        of_keys = tf.repeat(tf.constant(weights, squares.dtype), keys.sizes)  # [keys]
        penalties.append(tf.reduce_sum(squares * keys.counts * of_keys) / 2 / rows)
    if training.l2_linear and keys.terms is not None:
        squares = tf.square(keys.terms[:, 0])  # [keys]
        penalties.append(training.l2_linear / 2 * tf.reduce_sum(squares * keys.counts) / rows)
    return penalties
