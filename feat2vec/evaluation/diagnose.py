"""What a learnt space looks like: norms, isotropy, levels, neighbours that stay, and the bound of Proposition 3.3."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest
from feat2vec.model.extractors import Extractor
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.losses import Bound, contrastive_bound
from feat2vec.space.embed import Embedder
from feat2vec.space.geometry import blocks, candidates, is_keyed, keys_of
from feat2vec.table.stages import is_list
from feat2vec.table.table import open_table
from feat2vec.training.run_folder import TrainedRun

Floats = npt.NDArray[np.float32]
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
SCORES = 1 << 23  # that are in memory at a time


class NormBin(NamedTuple):
    """The values that training has seen `low` to `high` times, and quantiles of their vectors' lengths, as `SHARES`."""

    low: int
    high: int
    values: int
    quantiles: tuple[float, ...]


class Isotropy(NamedTuple):
    """How evenly vectors fill their space.

    `partition` is min Z(c) / max Z(c) with Z(c) = sum over v of exp(c . v), over the unit eigenvectors c of V'V and
    their opposites (Mu and Viswanath, All-but-the-Top, 2018): 1 is perfectly even. It depends on the vectors' lengths.
    `mean_cosine` is that of all pairs of two vectors, not an estimate: about 0 where no direction is shared.
    """

    partition: float
    mean_cosine: float


class LevelSize(NamedTuple):
    """A level of a group: the values whose own level it is, and the weights that it has. Level 0 is what all share."""

    level: int
    rank: int
    values: int
    parameters: int


class Stability(NamedTuple):
    """The mean overlap (Jaccard: shared / either) of `topn` nearest neighbours in two runs, over `asked` keys."""

    overlap: float
    topn: int
    asked: int
    common: int  # keys that both runs have, among which neighbours are sought


class ClassBound(NamedTuple):
    """Proposition 3.3 for rows and their classes: `bound.mean_classifier` <= `bound.bound`."""

    label: str
    rows: int
    without_label: int
    classes: int
    negatives: int
    k: int
    bound: Bound


def norms(model: Feat2Vec, encoder: Encoder, group: str) -> list[NormBin]:
    """The lengths of a group's vectors, each at its own level, by how often training has seen the values.

    A bin holds counts of up to twice the bin before: 1, 2, 3 to 4, 5 to 8, ...
    """
    found = candidates(model, encoder, group)
    lengths = np.zeros(found.sizes()[0], np.float32)
    for table in found.tables:
        square = np.einsum("ij,ij->i", table, table)
        below = lengths[: len(table)] if model.schema.model.level_sharing == "truncate" else np.float32(0)
        lengths[: len(table)] = below + square
    lengths, counts = np.sqrt(lengths), counts_of(model, encoder, group)
    place = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    bins = []
    for i in np.unique(place):
        some, seen = lengths[place == i], counts[place == i]
        quantiles = tuple(float(x) for x in np.quantile(some, SHARES))
        bins.append(NormBin(int(seen.min()), int(seen.max()), len(some), quantiles))
    return bins


def counts_of(model: Feat2Vec, encoder: Encoder, group: str) -> Any:
    """How often training has seen each of the group's `candidates`."""
    vocabulary = encoder.codecs[group].vocabulary
    return vocabulary.counts if vocabulary is not None and is_keyed(model, group) else encoder.values[group].counts


def isotropy(vectors: npt.ArrayLike) -> Isotropy:
    """See `Isotropy`; vectors [n, dim]. Those of length 0 are left out."""
    given = np.asarray(vectors)
    lengths = np.linalg.norm(given, axis=1)
    given, lengths = given[lengths > 0], lengths[lengths > 0].astype(np.float64)
    count = len(given)
    if count < 2:
        raise UserError(f"isotropy is of two vectors or more; received {count}")
    square, unit_sum = np.zeros((given.shape[1],) * 2), np.zeros(given.shape[1])
    for some in blocks(count, 1 << 16):
        part = given[some].astype(np.float64)
        square += part.T @ part
        unit_sum += (part / lengths[some, None]).sum(axis=0)
    directions = np.linalg.eigh(square)[1]  # [dim, dim], columns
    directions = np.concatenate([directions, -directions], axis=1)
    logs = np.full(directions.shape[1], -np.inf)
    for some in blocks(count, 1 << 16):
        logs = np.logaddexp(logs, np.logaddexp.reduce(given[some].astype(np.float64) @ directions, axis=0))
    cosine = (float(unit_sum @ unit_sum) - count) / (count * (count - 1))
    return Isotropy(float(np.exp(logs.min() - logs.max())), cosine)


def levels(model: Feat2Vec, group: str, values: int) -> list[LevelSize]:
    """How many values and weights each level of a group has; `values` is the number of its values."""
    extractor: Extractor = model.extractors[model.groups.index(group)]
    ranks = model.schema.model.ranks or (model.schema.model.dim,)
    tables = getattr(extractor, "tables", None)
    if tables is not None:
        sizes = [tables[0].shape[0] - 1, *(table.shape[0] for table in tables[1:]), 0]  # without the unseen key
        own = [here - above for here, above in pairwise(sizes)]
        weights = [int(np.prod(table.shape)) for table in tables]
    else:
        own = [*([0] * (len(ranks) - 1)), values]
        weights = [int(head.count_params()) for head in getattr(extractor, "heads", [])] or [0] * len(ranks)
    found = [LevelSize(i, *some) for i, some in enumerate(zip(ranks, own, weights, strict=True), start=1)]
    rest = extractor.params() - sum(weights)
    return [LevelSize(0, 0, 0, rest), *found] if rest else found


def stability(
    run: TrainedRun, other: TrainedRun, group: str, topn: int = 10, sample: int = 2000, seed: int = 0
) -> Stability:
    """How many of a key's nearest neighbours, by cosine in level 1, two runs of one schema share.

    Train the other run with another seed. Neighbours are sought among the keys that both have; up to `sample` keys are
    asked for.
    """
    keys = []
    for one in (run, other):
        if group not in one.schema.groups:
            raise UserError(f"{one.folder}: has no group {group!r}{suggest(group, one.schema.groups)}")
        names = keys_of(one.fitted, group)
        if names is None or not is_keyed(one.model, group):
            raise UserError(f"the group {group!r} has no keys to be compared by; name a lookup group")
        keys.append(names)
    place = pc.index_in(keys[0], value_set=keys[1]).fill_null(-1).to_numpy()
    here = np.flatnonzero(place >= 0)
    topn = min(topn, len(here) - 1)
    if topn < 1:
        raise UserError(f"the group {group!r}: the two runs share {len(here)} keys, too few for neighbours")
    spaces = []
    for one, some in ((run, here), (other, place[here])):
        vectors = candidates(one.model, one.fitted, group).tables[0][some]
        spaces.append(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30))
    rng = np.random.default_rng(seed)
    asked = np.sort(rng.choice(len(here), min(sample, len(here)), replace=False))
    total = 0.0
    for some in blocks(len(asked), max(SCORES // len(here), 1)):
        one, two = (_nearest(space, asked[some], topn) for space in spaces)
        shared = (one[:, :, None] == two[:, None, :]).sum(axis=(1, 2))
        total += float((shared / (2 * topn - shared)).sum())
    return Stability(total / len(asked), topn, len(asked), len(here))


def _nearest(space: Floats, asked: Any, topn: int) -> Any:
    """The places [asked, topn] of those with the largest cosine, in no order."""
    scores = space[asked] @ space.T
    scores[np.arange(len(asked)), asked] = -np.inf
    return np.argpartition(-scores, topn - 1, axis=1)[:, :topn]


def class_bounds(
    model: Feat2Vec,
    encoder: Encoder,
    data: object,
    label: str,
    settings: Sequence[tuple[int, int | None]] = ((1, 1),),
    draws: int = 200_000,
) -> list[ClassBound]:
    """Proposition 3.3 for row vectors and a label column: the contrastive loss bounds the mean classifier's.

    `settings` are pairs of N, the negatives, and k: a row is told from k other classes, from all of them if it is None.
    Vectors are sums of the groups that do not hold the label; rows without one are left out.
    """
    vectors, labels, without = labelled_vectors(model, encoder, data, label)
    classes = len(np.unique(labels))
    if classes < 2:
        raise UserError(f"--label: column {label!r} has {classes} class{'es' * (classes != 1)}; two or more are needed")
    found = []
    for negatives, k in settings:
        others = classes - 1 if k is None else k
        bound = contrastive_bound(vectors, labels, negatives, others, draws)
        found.append(ClassBound(label, len(labels), without, classes, negatives, others, bound))
    return found


def labelled_vectors(model: Feat2Vec, encoder: Encoder, data: object, label: str) -> tuple[Floats, Any, int]:
    """The vectors of the rows that have a label, their labels as numbers, and how many rows have none."""
    table = open_table(data)
    if label not in table.columns:
        near = suggest(label, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"--label: {table.name} has no column {label!r}{near}")
    if is_list(table.columns[label]):
        raise UserError(f"--label: column {label!r} of {table.name} holds lists; a row has one class")
    names = [name for name, group in encoder.schema.groups.items() if label not in group.columns]
    if not names:
        raise UserError(f"--label: every group holds {label!r} itself; name another column")
    vectors, columns = [], []
    for part in Embedder(encoder, model, names).batches(table, [label]):
        vectors.append(part.row_vectors)
        columns.append(part.stage.column(label).slice(part.rows.start, len(part.row_vectors)).cast(pa.string()))
    every = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    there = pc.is_valid(every).to_numpy()
    codes = every.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.concatenate(vectors)[there], codes[there], int((~there).sum())


__all__ = [
    "ClassBound", "Isotropy", "LevelSize", "NormBin", "Stability", "class_bounds", "isotropy", "levels", "norms",
    "stability",
]  # fmt: skip
