"""Values of a lookup group that training has not seen, the rows that hold them, and what they add to these rows.

A row's vector of the group is the sum of its items' vectors times b_i, which the combiner and the items' weights give,
times the group's gain. So an item with the vector v and the linear term l adds to the score of its row

    b_i (gain v . C + l)

with C the sum of the vectors that the group is paired with in the row. A new value has the first level, at which it
meets the others' free and dependent parts alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Bools, Floats, Int64s, Integers, Ints, as_numbers
from feat2vec.encode.class_weights import named_class_weights, weights_of_rows
from feat2vec.encode.codecs import Entries, ItemsCodec, parse_items
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.targets import targets_of
from feat2vec.encode.vocabulary import UNSEEN
from feat2vec.errors import UserError, listed, suggest
from feat2vec.model.lookup_arrays import BagSums, bag_scale, fm_scores, item_ids, item_weights
from feat2vec.model.stored_model import StoredModel
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.options import Schema
from feat2vec.space.geometry import ROWS_PER_BATCH, Model, Queries, blocks, dense
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage, Table


class NewKeys:
    """Numbers the keys of a lookup group that training has not seen, as they come.

    Args:
        encoder: The run's encoder.
        group: A lookup group.

    """

    def __init__(self, encoder: Encoder, group: str) -> None:
        codec, options = encoder.codecs[group], encoder.schema.groups[group]
        assert isinstance(codec, ItemsCodec)
        assert isinstance(options.extractor, Lookup)
        self.codec, self.options, self.extractor = codec, options, options.extractor
        self.keys = pa.array([], pa.string())  # in the order in which they come
        self.first = len(codec.vocabulary)  # the id of the first

    def entries(self, stage: Stage, *, learn: bool = True) -> Entries:
        """A stage's entries; the ids of new keys follow those of the vocabulary.

        Args:
            stage: The stage.
            learn: Whether keys that have no number get one; otherwise they stay unseen.

        """
        items = parse_items(stage, self.options, self.codec.edges, self.codec.kind)
        ids = self.codec.vocabulary.ids(items.keys)
        places = np.flatnonzero(ids == UNSEEN)
        unseen_keys = items.keys.take(pa.array(places))
        if learn:
            occurring = np.zeros(len(items.keys), np.bool_)
            occurring[items.codes] = True
            fresh = unseen_keys.filter(pa.array(occurring[places]))
            fresh = fresh.filter(pc.invert(pc.is_in(fresh, self.keys)))
            self.keys = pa.concat_arrays([self.keys, fresh])
        numbers = pc.index_in(unseen_keys, self.keys)  # null where a key has none
        is_new = pc.is_valid(numbers).to_numpy(zero_copy_only=False)
        ids = ids.copy()
        ids[places[is_new]] = numbers.drop_null().to_numpy() + self.first
        return self.codec.pack(items, ids, self.options)

    def items(self, entries: Array) -> NewItems:
        """The new items among the entries [rows, width] of some rows."""
        ids = item_ids(entries, weighted=self.codec.weighted)  # [rows, items]
        weights = item_weights(entries) if self.codec.weighted else None
        scale = bag_scale(np.where(ids > 0, ids, -1), weights, self.extractor.combiner)
        rows, places = np.nonzero(ids >= self.first)
        factors = np.ones(len(rows)) if weights is None else weights[rows, places].astype(np.float64)
        if scale is not None:
            factors *= scale[rows]
        return NewItems(rows.astype(np.int64), ids[rows, places].astype(np.int64) - self.first, factors)

    def without_new(self, entries: Array) -> Array:
        """Entries [rows, width] in which new keys are unseen ones, as the model takes them."""
        ids = item_ids(entries, weighted=self.codec.weighted)
        if not (ids >= self.first).any():
            return entries
        known = entries.copy()
        width = ids.shape[1]
        known[:, :width][ids >= self.first] = UNSEEN
        return known


class NewItems(NamedTuple):
    """The items of rows that are new values."""

    rows: Int64s  # [items], ascending
    values: Int64s  # [items]
    factors: Floats  # [items], b


@dataclass(frozen=True)
class NewRows:
    """The rows that hold new values, and what these meet there.

    Args:
        keys: The new values, [values].
        items: Where they are.
        contexts: C of each row, [rows, D_1].
        scores: The score of each row without the new values, [rows].
        targets: What the objective compares scores with, [rows]; None without a target.
        weights: What the loss of each row is multiplied by, [rows].
        queries: The same at all levels, as known candidates meet it.
        pairs: The sum of the pairs in each coordinate without the new values, [rows, D_1]; None where no coordinates
            are dropped in training.

    """

    keys: pa.StringArray
    items: NewItems
    contexts: Floats
    scores: Floats
    targets: Floats | None
    weights: Floats
    queries: Queries
    pairs: Floats | None = None


def sums_of_groups(model: Model, entries: Mapping[str, Array]) -> dict[str, BagSums]:
    """The vectors of entries [rows, width] and their linear terms, by group."""
    if isinstance(model, StoredModel) and model.has_lookups(entries):
        with model.lookup_sums() as lookup_sums:
            return dict(lookup_sums(entries)(slice(None)))
    full, sums = model.full_model(), {}
    for name, group_entries in entries.items():
        extracted = full.vectors(name, np.ascontiguousarray(group_entries))
        free = [as_numbers(level.free) for level in extracted.levels]
        dependent = [
            np.zeros_like(part) if level.dependent is None else as_numbers(level.dependent)
            for part, level in zip(free, extracted.levels, strict=True)
        ]
        has_linear = full.schema.model.bias
        linear = as_numbers(extracted.linear) if has_linear else np.zeros(len(group_entries), np.float32)
        sums[name] = BagSums(free, dependent, linear)
    return sums


def partners_of(schema: Schema, group: str) -> list[str]:
    """The groups that a group is paired with: all but itself, and those that it is added to."""
    added_up = next(members for members in schema.partners if group in members)
    return [name for name in schema.groups if name not in added_up]


def context_queries(schema: Schema, group: str, sums: Mapping[str, BagSums]) -> Queries:
    """The sums of what a group is paired with, at all levels: [rows, D_k] each.

    Args:
        schema: That of the run.
        group: The group.
        sums: The sums of all other groups.

    """
    some_sums = next(iter(sums.values()))
    free, dependent = [np.zeros_like(part) for part in some_sums.free], [np.zeros_like(part) for part in some_sums.free]
    for name in partners_of(schema, group):
        for level in range(len(free)):
            of_level, of_higher = sums[name].free[level], sums[name].dependent[level]
            if schema.model.levels.nested:  # every part of a vector is free
                free[level] += of_level + of_higher
            else:
                free[level] += of_level
                dependent[level] += of_higher
    return Queries(free, dependent)


def entries_of_keys(codec: ItemsCodec, ids: Integers) -> Ints:
    """Entries of one key each, with the weight 1 where items have weights: [keys, width]."""
    entries: Ints = np.asarray(ids, np.int32)[:, None]
    if not codec.weighted:
        return entries
    return np.concatenate([entries, np.ones(entries.shape, np.float32).view(np.int32)], axis=1)


def unseen_vector(model: Model, encoder: Encoder, group: str) -> tuple[Floats, float]:
    """What a key that training has not seen has in the first level: a vector [D_1], without the gain, and a term."""
    codec, extractor = encoder.codecs[group], encoder.schema.groups[group].extractor
    assert isinstance(codec, ItemsCodec)
    sums = sums_of_groups(model, {group: entries_of_keys(codec, np.array([UNSEEN]))})[group]
    return (sums.free[0] + sums.dependent[0])[0].astype(np.float64) / extractor.gain, float(sums.linear[0])


def read_new_rows(model: Model, encoder: Encoder, group: str, table: Table) -> NewRows:
    """The rows of a table that hold new values of a group.

    Args:
        model: The run's model, for vectors.
        encoder: The run's encoder.
        group: A lookup group.
        table: The rows. Where the run has a target, those without one are left out.

    Raises:
        UserError: The table lacks a column.

    """
    _check_columns(encoder.schema, group, table)
    schema, new_keys = encoder.schema, NewKeys(encoder, group)
    labels = [column for column in (schema.target, schema.weight) if column is not None and column in table.columns]
    unseen, unseen_term = unseen_vector(model, encoder, group)
    parts: list[NewRows] = []
    for stage, stage_entries in encoder.staged(table, labels):
        entries = {name: dense(group_entries) for name, group_entries in stage_entries.items()}
        entries[group] = dense(new_keys.entries(stage))
        targets, weights = _labels(schema, stage)
        ids = item_ids(entries[group], weighted=new_keys.codec.weighted)
        is_kept: Bools = (ids >= new_keys.first).any(axis=1) & (weights > 0)
        places = np.flatnonzero(is_kept)
        for block in blocks(len(places), ROWS_PER_BATCH):
            kept = {name: group_entries[places[block]] for name, group_entries in entries.items()}
            items = new_keys.items(kept[group])
            kept[group] = new_keys.without_new(kept[group])
            sums = sums_of_groups(model, kept)
            queries = context_queries(schema, group, sums)
            contexts = (queries.free[0] + queries.dependent[0]).astype(np.float64)
            scores = np.zeros(len(contexts))
            if targets is not None:
                levels = schema.model.levels
                scores += fm_scores(sums, schema.partners, model.bias_value(), len(levels), nested=levels.nested)
                gain = new_keys.extractor.gain
                of_unseen = items.factors * (gain * contexts[items.rows] @ unseen + unseen_term)
                scores -= np.bincount(items.rows, of_unseen, len(scores))
            pairs = None
            if schema.training.interaction_dropout and len(schema.model.levels) == 1 and targets is not None:
                pairs = _pair_coordinates(sums, schema.partners)
                of_unseen = new_keys.extractor.gain * items.factors[:, None] * unseen
                np.add.at(pairs, items.rows, -of_unseen * contexts[items.rows])
            of_rows = None if targets is None else targets[places[block]]
            of_block = weights[places[block]]
            parts.append(NewRows(new_keys.keys, items, contexts, scores, of_rows, of_block, queries, pairs))
    return _joined(parts, new_keys.keys, len(unseen))


def _pair_coordinates(sums: Mapping[str, BagSums], partners: Sequence[Sequence[str]]) -> Floats:
    """The sum of the pairs of partners in each coordinate of a model with one level, [rows, D]."""
    vectors = [np.sum([sums[name].free[0] for name in names], axis=0, dtype=np.float64) for names in partners]
    total = np.sum(vectors, axis=0)
    coordinates: Floats = (np.square(total) - np.sum(np.square(vectors), axis=0)) / 2
    return coordinates


def _joined(parts: Sequence[NewRows], keys: pa.StringArray, dim: int) -> NewRows:
    """Consecutive rows as one; `dim` is D_1."""
    if not parts:
        items = NewItems(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        return NewRows(keys, items, np.zeros((0, dim)), np.zeros(0), None, np.zeros(0), Queries([], []))
    first_rows = np.cumsum([0, *(len(part.scores) for part in parts)])
    rows = [part.items.rows + first for part, first in zip(parts, first_rows, strict=False)]
    items = NewItems(
        np.concatenate(rows),
        np.concatenate([part.items.values for part in parts]),
        np.concatenate([part.items.factors for part in parts]),
    )
    targets = [part.targets for part in parts if part.targets is not None]
    levels = range(len(parts[0].queries.free))
    free = [np.concatenate([part.queries.free[level] for part in parts]) for level in levels]
    dependent = [np.concatenate([part.queries.dependent[level] for part in parts]) for level in levels]
    return NewRows(
        keys,
        items,
        np.concatenate([part.contexts for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate(targets) if targets else None,
        np.concatenate([part.weights for part in parts]),
        Queries(free, dependent),
        None if parts[0].pairs is None else np.concatenate([part.pairs for part in parts if part.pairs is not None]),
    )


def _check_columns(schema: Schema, group: str, table: Table) -> None:
    """Raise unless a table has a group's column, and the target."""
    needed = dict.fromkeys(schema.groups[group].columns, f"of the group {group!r}")
    if schema.target is not None:
        needed[schema.target] = "which the run predicts, and new values are solved for"
    for column, reason in needed.items():
        if column not in table.columns:
            remedy = suggest(column, table.columns) or f"; it has {listed(table.columns)}"
            raise UserError(f"{table.name}: has no column {column!r}, {reason}{remedy}")


def _labels(schema: Schema, stage: Stage) -> tuple[Floats | None, Floats]:
    """The targets of a stage's rows, NaN where one has none, and the weights of their losses, 0 there: [rows] each."""
    weights = np.ones(stage.rows)
    if schema.target is None:
        return None, weights
    targets = targets_of(schema, stage)[0].astype(np.float64)
    if schema.weight is not None and schema.weight in stage.table.columns:
        weights = np.nan_to_num(numbers_of(stage, schema.weight)[0])
    of_classes = named_class_weights(schema.objective, None)
    if of_classes is not None:
        weights = weights * weights_of_rows(of_classes, targets)
    weights[np.isnan(targets)] = 0
    return targets, weights
