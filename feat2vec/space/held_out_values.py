"""Held-out rows, and which candidates of a group they truly have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Int64s
from feat2vec.encode.codecs import NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.value_tables import padded
from feat2vec.encode.vocabulary import FIRST
from feat2vec.space.completer import Completer
from feat2vec.space.geometry import GroupQueries, Model, dense, extract_groups

MOST_ROWS = 2000
ROWS_PER_COPY = 3  # held-out rows, one of which stands there a second time
LEFT_OUT_SHARE = 0.5  # of the groups of a held-out row where it stands the second time
LEAST_ROWS = 20  # with a value of the group; of fewer nothing is fitted
MOST_VECTOR_BYTES = 64 << 20  # of the rows' vectors of all groups


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


def read_held_out(encoder: Encoder, model: Model, rows: pa.Table, rng: np.random.Generator) -> HeldOut:
    """Encode held-out rows, and make their vectors with some left out."""
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
    given = {name: without_some(of_group, originals, rng) for name, of_group in truths.items()}
    return HeldOut(originals, truths, given, GroupQueries.stacked(extract_groups(model, given)))


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
