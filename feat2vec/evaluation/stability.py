"""How many neighbours two runs of one schema share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Float32s, Integers
from feat2vec.errors import UserError, suggest
from feat2vec.evaluation.metrics import SCORES_IN_MEMORY
from feat2vec.space.geometry import blocks, candidates, is_keyed, keys_of
from feat2vec.training.run_folder import TrainedRun

LEAST_LENGTH = 1e-30  # a vector of zeros stays one


class Stability(NamedTuple):
    """How many nearest neighbours two runs share.

    Args:
        overlap: The mean overlap (Jaccard: shared / either) of the nearest neighbours of a key in both runs.
        topn: How many nearest neighbours a key has.
        asked: How many keys the mean is taken over.
        common: How many keys both runs have. Neighbours are sought among these.

    Example:
        >>> feat2vec.diagnose.stability(run, run, "director", topn=1)
        Stability(overlap=1.0, topn=1, asked=3, common=3)

    """

    overlap: float
    topn: int
    asked: int
    common: int


def stability(
    run: TrainedRun, other_run: TrainedRun, group: str, topn: int = 10, sample: int = 2000, seed: int = 0
) -> Stability:
    """How many of a key's nearest neighbours, by cosine in level 1, two runs of one schema share.

    Train the other run with another seed. Neighbours are sought among the keys that both have.

    Args:
        run: A run.
        other_run: A run of the same schema.
        group: A group of keys.
        topn: How many neighbours a key has.
        sample: The most keys whose neighbours are compared.
        seed: Of the sample.

    Returns:
        The mean overlap.

    Raises:
        UserError: The group is unknown, has no keys, or the runs share too few.

    Example:
        >>> other_run = feat2vec.load("runs/films")  # here the same run, otherwise one with another seed
        >>> directors = feat2vec.diagnose.stability(run, other_run, "director", topn=2)
        >>> directors.overlap, directors.common
        (1.0, 3)

    """
    keys, other_keys = _keys_of_run(run, group), _keys_of_run(other_run, group)
    other_place = pc.index_in(keys, value_set=other_keys).fill_null(-1).to_numpy()  # [keys]
    shared = np.flatnonzero(other_place >= 0)
    topn = min(topn, len(shared) - 1)
    if topn < 1:
        raise UserError(f"the group {group!r}: the two runs share {len(shared)} keys, too few for neighbours")
    vectors = _unit_vectors(run, group, shared)  # [shared, dim]
    other_vectors = _unit_vectors(other_run, group, other_place[shared])
    rng = np.random.default_rng(seed)
    sampled = np.sort(rng.choice(len(shared), min(sample, len(shared)), replace=False))
    total = 0.0
    for block in blocks(len(sampled), max(SCORES_IN_MEMORY // len(shared), 1)):
        neighbours = _nearest(vectors, sampled[block], topn)  # [block, topn]
        other_neighbours = _nearest(other_vectors, sampled[block], topn)
        in_both = (neighbours[:, :, None] == other_neighbours[:, None, :]).sum(axis=(1, 2))  # [block]
        total += float((in_both / (2 * topn - in_both)).sum())
    return Stability(total / len(sampled), topn, len(sampled), len(shared))


def _keys_of_run(run: TrainedRun, group: str) -> pa.StringArray:
    """The keys of a group, as Arrow strings."""
    if group not in run.schema.groups:
        raise UserError(f"{run.folder}: has no group {group!r}{suggest(group, run.schema.groups)}")
    keys = keys_of(run.fitted, group)
    if keys is None or not is_keyed(run.model, group):
        raise UserError(f"the group {group!r} has no keys to be compared by; name a lookup group")
    return keys


def _unit_vectors(run: TrainedRun, group: str, rows: Integers) -> Float32s:
    vectors: Float32s = candidates(run.model, run.fitted, group).tables[0][rows]
    unit_vectors: Float32s = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), LEAST_LENGTH)
    return unit_vectors


def _nearest(unit_vectors: Float32s, rows: Integers, topn: int) -> Integers:
    """The rows [rows, topn] with the largest cosine, in no order, without the row itself."""
    scores = unit_vectors[rows] @ unit_vectors.T
    scores[np.arange(len(rows)), rows] = -np.inf
    return np.argpartition(-scores, topn - 1, axis=1)[:, :topn]
