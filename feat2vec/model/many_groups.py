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
from feat2vec.model.optimizers.tables import Variable
from feat2vec.model.pair_scores import Level, Submodels, Tensor, context, replaced, submodels
from feat2vec.model.pair_scores_by_key import (
    LevelByKey,
    OccurrenceGrid,
    Occurrences,
    level_of_places,
    sum_of_places,
    sums_of_rows,
)
from feat2vec.sampling.batches import table_of_entries
from feat2vec.sampling.noise import Draws, Noise
from feat2vec.schema.objectives import Noisy, self_supervised
from feat2vec.schema.objectives.formulas import UNIT_EPSILON
from feat2vec.schema.options import Schema

MIN_GROUPS = 32  # fewer are trained one by one, several operations side by side
MIN_LABELLED_GROUPS = 2  # of rows with labels, whose steps are so short that each operation counts
ENTRIES = "*"  # the name of all groups' entries, [batch, groups]; no group has it


class TableRows(NamedTuple):
    """Rows of tables, table by table."""

    ids: Sequence[Tensor]  # for each table its rows
    sizes: Tensor  # [tables], how many
    tables: Tensor  # [rows], the table of each


class KeysOfLevel(NamedTuple):
    """The distinct keys of a step that reach a level."""

    vectors: Tensor  # [reaching keys, D_k], table by table
    rows: TableRows  # [reaching keys]
    active: Tensor | None = None  # [reaching keys], which of the distinct keys they are; None for all
    places: Tensor | None = None  # [keys], where a key is among those that reach the level, from 1; None for all


class Read(NamedTuple):
    """The distinct keys of a step."""

    levels: Sequence[KeysOfLevel]
    terms: Tensor  # [keys, 1], None without bias
    rows: TableRows  # [keys], of the tables of linear terms
    counts: Tensor  # [keys], how often each occurs
    # [keys], the highest level that a key reaches, from 0, and -1 for no vector; None where all keys have one level
    tops: Tensor | None = None

    @property
    def vectors(self) -> Tensor:
        """The vectors of all keys at the first level, [keys, dim]."""
        return self.levels[0].vectors


class ManyLookups:
    """The tables of lookups whose entries are one id each.

    Args:
        extractors: The lookup of each group. One that groups share has its tables once, which are read once for both.
        bias: Whether there are linear terms.

    """

    def __init__(self, extractors: Sequence[LookupExtractor], bias: bool) -> None:
        distinct = list({id(extractor): extractor for extractor in extractors}.values())
        self.tables = [list(tables) for tables in zip(*(extractor.tables for extractor in distinct), strict=True)]
        self.linear = [extractor.linear for extractor in distinct] if bias else None
        # The keys of each level are the first ones of the level below, whose table has one row more, of unseen keys.
        self.sizes = [np.array(sizes, np.int64) for sizes in zip(*(e.shape.sizes for e in distinct), strict=True)]
        self.actives = np.array([extractor.shape.table_sizes[0] for extractor in distinct], np.int64)
        self.leaves_keys_out = any(extractor.leaves_keys_out for extractor in distinct)
        self.needs_terms = any(extractor.shape.needs_term for extractor in distinct)
        self.ends = np.cumsum(self.sizes[0])  # [tables]
        self.starts = self.ends - self.sizes[0]  # [tables]
        table_of_extractor = {id(extractor): table for table, extractor in enumerate(distinct)}
        self.group_tables = [table_of_extractor[id(extractor)] for extractor in extractors]  # the same where shared
        self.group_starts = self.starts[self.group_tables]  # [groups]

    @property
    def all_tables(self) -> list[Variable]:
        """The tables of all levels, and the linear terms."""
        return [table for tables in self.tables for table in tables] + (self.linear or [])

    def places(self, entries: Tensor, groups: Tensor) -> Tensor:
        """Return the rows that entries of groups (of the same shape) have if all tables stand one below the other.

        An entry that is missing has -1.
        """
        rows = tf.cast(entries, tf.int64) - UNSEEN
        return tf.where(rows >= 0, rows + tf.gather(self.group_starts, groups), -1)

    def distinct(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the distinct ones of places [n], table by table, those of them that are present, and what they are.

        Returns:
            The distinct places [keys], ascending; where a place is present [occurrences, 1]; which of the distinct
            ones it is [occurrences]; and how often each occurs [keys].

        """
        present = tf.where(places >= 0)
        keys, slots, counts = tf.unique_with_counts(tf.gather_nd(places, present))
        order = tf.argsort(keys)
        slots = tf.gather(tf.math.invert_permutation(order), slots)
        return tf.gather(keys, order), present, slots, tf.gather(counts, order)

    def read(self, places: Tensor) -> tuple[Read, Tensor]:
        """Read the distinct ones of places [n].

        Also returns where in `Read` each place is, [n]: counted from 1, and 0 for none.
        """
        keys, present, slots, counts = self.distinct(places)
        table = tf.searchsorted(self.ends, keys, side="right")
        rows = keys - tf.gather(self.starts, table)
        rows_of_keys = self._rows_of_tables(rows, table)
        terms = None if self.linear is None else _gather(self.linear, rows_of_keys)
        has_vector = self._have_vectors(rows, table, terms) if self.leaves_keys_out else None
        levels: list[KeysOfLevel] = []
        tops = None if has_vector is None else tf.cast(has_vector, tf.int32) - 1
        if has_vector is None:
            levels.append(KeysOfLevel(_gather(self.tables[0], rows_of_keys), rows_of_keys))
        else:
            levels.append(self._read_reaching(0, rows, table, has_vector))
        for level in range(1, len(self.tables)):
            numbers = rows - UNSEEN
            reaches = (numbers >= 0) & (numbers < tf.gather(self.sizes[level], table))  # [keys]
            if has_vector is not None:
                reaches &= has_vector
            levels.append(self._read_reaching(level, numbers, table, reaches))
            has_level = tf.cast(reaches, tf.int32)
            tops = has_level if tops is None else tops + has_level
        counts = tf.cast(counts, levels[0].vectors.dtype)
        slot = tf.scatter_nd(present, slots + 1, tf.shape(places, tf.int64))
        return Read(levels, terms, rows_of_keys, counts, tops), slot

    def _have_vectors(self, rows: Tensor, table: Tensor, terms: Tensor | None) -> Tensor:
        """Return whether keys have a vector, [keys], by their rows, tables and linear terms [keys, 1]."""
        has_vector = rows < tf.gather(self.actives, table)
        return has_vector if terms is None or not self.needs_terms else has_vector & (terms[:, 0] != 0)

    def _read_reaching(self, level: int, rows: Tensor, table: Tensor, reaches: Tensor) -> KeysOfLevel:
        """Read those of the rows [keys] of the tables at a level that reach it; they stand table by table."""
        active = tf.where(reaches)[:, 0]
        rows_of_level = self._rows_of_tables(tf.gather(rows, active), tf.gather(table, active))
        places = tf.where(reaches, tf.cumsum(tf.cast(reaches, tf.int32)), 0)
        return KeysOfLevel(_gather(self.tables[level], rows_of_level), rows_of_level, active, places)

    def _rows_of_tables(self, rows: Tensor, table: Tensor) -> TableRows:
        """Return rows [keys], which stand table by table, as those of each table."""
        tables = len(self.starts)
        sizes = tf.math.bincount(table, minlength=tables, maxlength=tables)
        return TableRows(tf.split(rows, sizes, num=tables), sizes, table)

    def gradients(
        self, read: Read, vectors: Sequence[Tensor | None], terms: Tensor | None
    ) -> list[tuple[Rows, Variable]]:
        """Return (gradient, table) for each table, from the gradients of each level's vectors and of the terms."""
        parts = [
            (gradient, level.rows, tables)
            for gradient, level, tables in zip(vectors, read.levels, self.tables, strict=True)
        ]
        if self.linear is not None:
            parts.append((terms, read.rows, self.linear))
        pairs: list[tuple[Rows, Variable]] = []
        for gradient, rows, tables in parts:
            if gradient is None:
                continue
            of_tables = tf.split(gradient, rows.sizes, num=len(tables))
            for ids, values, table in zip(rows.ids, of_tables, tables, strict=True):
                pairs.append((Rows(ids, values), table))
        return pairs


def _gather(tables: Sequence[Variable], rows: TableRows) -> Tensor:
    """Read rows of each table, [keys, ...]."""
    rows_of_each = [tf.gather(table.value, ids) for table, ids in zip(tables, rows.ids, strict=True)]
    return tf.concat(rows_of_each, axis=0)


def are_plain(extractors: Sequence[Extractor]) -> bool:
    """Return whether each group is a lookup whose entries are one id, all of it learnt."""
    return all(_is_plain(extractor) for extractor in extractors)


def _is_plain(extractor: Extractor) -> bool:
    return (
        type(extractor) is LookupExtractor
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
    fixed_size: Tensor | None = None  # the number of rows, where shapes are fixed and the last rows may be none

    @property
    def is_fixed(self) -> bool:
        """Whether all shapes are fixed, as XLA needs them; see `padded_keys.py`."""
        return self.fixed_size is not None


def join_values(tables: Sequence[Tensor]) -> JoinedValues:
    """Value tables [values, 1] below each other."""
    sizes = np.array([table.shape[0] for table in tables], np.int64)
    entries = tf.concat(list(tables), axis=0)[:, 0]
    return JoinedValues(table_of_entries(entries), np.cumsum(sizes) - sizes)


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
    linear = tf.zeros([rows], batch.keys.vectors.dtype)
    occurrences: Occurrences | OccurrenceGrid
    if batch.is_fixed:
        occurrences = OccurrenceGrid(batch.slots)
        if batch.keys.terms is not None:
            linear += sums_of_rows(batch.keys.terms, occurrences, rows)[:, 0]
    else:
        present = tf.where(batch.slots > 0)  # [occurrences, 2]: row and group
        key_of, row_of = tf.gather_nd(batch.slots, present) - 1, tf.cast(present[:, 0], tf.int32)  # [occurrences]
        occurrences = Occurrences(key_of, row_of)
        if batch.keys.terms is not None:
            terms = tf.gather(batch.keys.terms[:, 0], key_of)
            linear += tf.math.unsorted_segment_sum(terms, row_of, rows)
    if not schema.model.pairs:
        return Submodels([linear + bias], [])
    if batch.keys.tops is None and not schema.model.together:
        levels = [LevelByKey(batch.keys.vectors, occurrences)]
    else:
        levels = [_level_of_rows(schema, batch, level) for level in range(len(batch.keys.levels))]
    return scores_by_key(schema, levels, linear + bias, masks, training=training)


def _level_of_rows(schema: Schema, batch: ReadBatch, level: int) -> LevelByKey:
    """The vectors of rows' groups at a level, of which those that are `together` are added up first."""
    free, dependent = _places_at_level(batch, level, truncated=schema.model.levels.nested)  # [batch, groups] each
    names = list(schema.groups)
    alone = [names.index(unit[0]) for unit in schema.partners if len(unit) == 1]
    sets = [[names.index(name) for name in unit] for unit in schema.partners if len(unit) > 1]
    vectors = batch.keys.levels[level].vectors
    fixed = batch.is_fixed
    sums = [
        sum_of_places(vectors, tf.gather(free, members, axis=1), _columns(dependent, members), fixed=fixed)
        for members in sets
    ]
    alone_free, alone_dependent = tf.gather(free, alone, axis=1), _columns(dependent, alone)
    return level_of_places(vectors, alone_free, alone_dependent, sums, sparse=level > 0, fixed=fixed)


def _columns(places: Tensor | None, columns: Sequence[int]) -> Tensor | None:
    return None if places is None else tf.gather(places, columns, axis=1)


def _places_at_level(batch: ReadBatch, level: int, *, truncated: bool) -> tuple[Tensor, Tensor | None]:
    """Where rows' vectors are among those of a level, from 1, 0 for none: of keys that end there, and that go higher.

    Both are [batch, groups]; the second is None at the last level, and with truncation.
    """
    keys, slots = batch.keys, batch.slots
    if keys.tops is None:
        return slots, None
    of_keys = keys.levels[level].places
    places = slots if of_keys is None else _at_slots(of_keys, slots, 0)
    if truncated:
        return places, None
    tops = _at_slots(keys.tops, slots, -1)
    free = tf.where(tops == level, places, 0)
    return free, None if level == len(keys.levels) - 1 else tf.where(tops > level, places, 0)


def _at_slots(of_keys: Tensor, slots: Tensor, of_none: int) -> Tensor:
    """The number of each slot's key, `of_keys` [keys]; another one where there is none."""
    return tf.gather(tf.concat([[of_none], of_keys], axis=0), slots)


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
    weights = [schema.l2_of(name) for name in schema.owners]  # of each table
    if any(weights):
        for level in keys.levels:
            squares = tf.reduce_sum(tf.square(level.vectors), axis=1)  # [reaching keys]
            of_keys = tf.gather(tf.constant(weights, squares.dtype), level.rows.tables)  # [reaching keys]
            counts = keys.counts if level.active is None else tf.gather(keys.counts, level.active)
            penalties.append(tf.reduce_sum(squares * counts * of_keys) / 2 / rows)
    if training.l2_linear and keys.terms is not None:
        squares = tf.square(keys.terms[:, 0])  # [keys]
        penalties.append(training.l2_linear / 2 * tf.reduce_sum(squares * keys.counts) / rows)
    return penalties
