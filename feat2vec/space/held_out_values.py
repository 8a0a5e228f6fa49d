"""Held-out rows, and which candidates of a group they truly have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Int64s
from feat2vec.encode.codecs import NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.value_tables import padded
from feat2vec.encode.vocabulary import FIRST, UNSEEN
from feat2vec.space.completer import Completer
from feat2vec.space.geometry import GroupQueries, Model, blocks, dense, extract_groups

MOST_ROWS = 2000
ROWS_PER_COPY = 3  # held-out rows, one of which stands there a second time
LEFT_OUT_SHARE = 0.5  # of the groups of a held-out row where it stands the second time
LEAST_ROWS = 20  # with a value of the group; of fewer nothing is fitted
MOST_VECTOR_BYTES = 64 << 20  # of the rows' vectors of all groups
IDS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows, every third of them twice: as it is, and without about half of its groups.

    Who completes a row often knows little of it. Numbers that are fitted to whole rows rely on the groups that tell
    most, and are too sure without them.

    Args:
        originals: The held-out row that each row is, ascending: [rows].
        truths: The entries of each group, [rows, width].
        entries: What is given of them, [rows, width].
        vectors: The vectors of what is given.

    """

    originals: Int64s
    truths: Mapping[str, Array]
    entries: Mapping[str, Array]
    vectors: GroupQueries


def read_held_out(
    encoder: Encoder, model: Model, rows: pa.Table, rng: np.random.Generator, counts: Mapping[str, Int64s] | None = None
) -> HeldOut:
    """Encode held-out rows, and make their vectors with some left out.

    Args:
        encoder: The encoder.
        model: The model.
        rows: The rows.
        rng: Chooses what is left out.
        counts: How often each value of a group occurs in the training rows; by default what the encoder says.

    """
    dims = sum(encoder.schema.model.levels.dims) * 4 * len(encoder.codecs)
    rows = rows.slice(0, min(MOST_ROWS, max(MOST_VECTOR_BYTES // dims, LEAST_ROWS)))
    batches = [{name: dense(entries) for name, entries in batch.items()} for batch in encoder.entries(rows)]
    entries = {}
    for name in encoder.codecs:
        width = max(batch[name].shape[1] for batch in batches)
        entries[name] = np.concatenate([padded(batch[name], width) for batch in batches])
    total = len(next(iter(entries.values())))
    originals = np.sort(np.concatenate([np.arange(total), np.arange(0, total, ROWS_PER_COPY)]))
    truths = {name: of_group[originals] for name, of_group in entries.items()}
    given = truths if counts is None else as_new_rows(encoder, truths, counts)
    given = {name: without_some(of_group, originals, rng) for name, of_group in given.items()}
    return HeldOut(originals, truths, given, GroupQueries.stacked(extract_groups(model, given)))


def as_new_rows(
    encoder: Encoder, entries: Mapping[str, Array], counts: Mapping[str, Int64s], ids_at_once: int = IDS_AT_ONCE
) -> dict[str, Array]:
    """Entries of held-out rows [rows, width] of each group, as they are of rows that the encoder has not seen.

    The encoder knows the keys of held-out rows. Those that only such rows have are not learnt, and become unseen.

    Args:
        encoder: The encoder.
        entries: The entries of each group.
        counts: How often each value of a group occurs in the rows that were learnt from.
        ids_at_once: How many ids of a group's values are looked at in memory.

    """
    are_learnt: dict[str, Bools] = {}  # of the keys that groups share, [ids]
    for name, values in encoder.values.items():
        vocabulary = encoder.codecs[name].vocabulary
        if vocabulary is None:
            continue
        is_learnt = are_learnt.setdefault(encoder.schema.owner(name), np.zeros(len(vocabulary), np.bool_))
        for block in blocks(len(values.entries), max(ids_at_once // max(values.entries.shape[1], 1), 1)):
            ids = _ids(encoder, name, values.entries[block][counts[name][block] > 0])
            is_learnt[ids.astype(np.int64)] = True
    result = {}
    for name, of_group in entries.items():
        owner = encoder.schema.owner(name)
        if owner in are_learnt:
            of_group = of_group.copy()
            ids = _ids(encoder, name, of_group)  # a view
            ids[(ids >= FIRST) & ~are_learnt[owner][ids.astype(np.int64)]] = UNSEEN
        result[name] = of_group
    return result


def _ids(encoder: Encoder, group: str, entries: Array) -> Array:
    """The ids of entries without their weights, [rows, ids]."""
    return entries[:, : entries.shape[1] // 2] if getattr(encoder.codecs[group], "weighted", False) else entries


def without_some(entries: Array, originals: Int64s, rng: np.random.Generator) -> Array:
    """Entries of a group [rows, width], about half of which are missing where a row stands the second time."""
    is_second = np.append(False, originals[1:] == originals[:-1])
    is_left_out = is_second & (rng.random(len(entries)) < LEFT_OUT_SHARE)
    given = entries.copy()
    given[is_left_out] = np.nan if given.dtype == np.float32 else 0
    return given


@dataclass(frozen=True)
class Truth:
    """The true candidates of held-out rows: which of the rows, which of the candidates."""

    rows: Int64s
    places: Int64s


def counts_of_candidates(encoder: Encoder, completer: Completer, counts_of_values: Int64s) -> Int64s:
    """How often each candidate occurs in the training rows, given how often each value of the group does."""
    hidden, values = completer.hidden, encoder.values[completer.group]
    if hidden.entries is None:
        codec = hidden.codec
        entries = np.asarray(values.entries)
        ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
        weights = np.repeat(np.asarray(counts_of_values, np.float64), ids.shape[1])
        return np.bincount(ids.ravel(), weights, len(hidden) + FIRST)[FIRST:].round().astype(np.int64)
    if len(hidden) == len(values.counts):
        return np.asarray(counts_of_values, np.int64)
    return hidden.counts  # quantiles of many numbers, each of which stands for many rows


def true_candidates(completer: Completer, entries: Array, counts: Int64s) -> Truth:
    """The candidates that rows have, given their entries [rows, width] of the group.

    Of numbers it is the nearest of those that training has seen.
    """
    hidden, codec = completer.hidden, completer.hidden.codec
    if hidden.entries is None:
        ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
        rows, items = np.nonzero(ids >= FIRST)
        pairs = np.unique(np.stack([rows, ids[rows, items] - FIRST], axis=1), axis=0)
        return Truth(pairs[:, 0], pairs[:, 1])
    candidates = np.asarray(hidden.entries)
    if isinstance(codec, NumbersCodec):
        rows = np.flatnonzero(~np.isnan(entries[:, 0]))
        is_unseen = np.where(counts > 0, 0, np.inf)
        nearest = [int((np.abs(candidates - entries[row]).sum(axis=1) + is_unseen).argmin()) for row in rows]
        return Truth(rows, np.array(nearest, np.int64))
    place_of_entry = {_trimmed(entry): place for place, entry in enumerate(candidates)}
    places = np.array([place_of_entry.get(_trimmed(entry), -1) for entry in entries], np.int64)
    rows = np.flatnonzero(places >= 0)
    return Truth(rows, places[rows])


def _trimmed(entry: Array) -> bytes:
    """An entry without its padding, which may be longer in new rows."""
    if entry.dtype == np.float32:
        return entry.tobytes()
    return entry[: np.flatnonzero(entry).max(initial=-1) + 1].tobytes()
