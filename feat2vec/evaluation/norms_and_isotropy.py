"""What a learnt space looks like: lengths of vectors by frequency, isotropy, sizes of levels."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from feat2vec.arrays import Int64s
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError
from feat2vec.model.extractors import Extractor
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.space.geometry import blocks, candidates, is_keyed

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the quantiles of lengths
ROWS_AT_ONCE = 1 << 16  # vectors that are float64 at a time


class NormBin(NamedTuple):
    """The values that training has seen about equally often, and how long their vectors are.

    Args:
        low: The smallest count of a value.
        high: The largest count of a value.
        values: The number of values.
        quantiles: The quantiles `SHARES` of the lengths of their vectors.

    Example:
        >>> (directors,) = feat2vec.diagnose.norms(run.model, run.fitted, "director")
        >>> directors.low, directors.high, directors.values, len(directors.quantiles)
        (20, 20, 3, 5)

    """

    low: int
    high: int
    values: int
    quantiles: tuple[float, ...]


class Isotropy(NamedTuple):
    """How evenly vectors fill their space.

    Args:
        partition: min Z(c) / max Z(c) with Z(c) = sum over v of exp(c . v), over the unit eigenvectors c of V'V and
            their opposites (Mu and Viswanath, All-but-the-Top, 2018): 1 is perfectly even. It depends on the vectors'
            lengths.
        mean_cosine: The mean cosine of all pairs of two vectors, not an estimate: about 0 where no direction is shared.

    Example:
        >>> round(feat2vec.diagnose.isotropy([[1, 0], [0, 1], [-1, 0], [0, -1]]).mean_cosine, 3)
        -0.333

    """

    partition: float
    mean_cosine: float


class LevelSize(NamedTuple):
    """The size of a level of a group. Level 0 stands for what all levels share.

    Args:
        level: The level, from 1.
        rank: Its number of dimensions.
        values: The number of values whose own level it is.
        parameters: The number of its weights.

    Example:
        >>> feat2vec.diagnose.levels(run.model, "director", values=3)
        [LevelSize(level=1, rank=4, values=3, parameters=16)]

    """

    level: int
    rank: int
    values: int
    parameters: int


def norms(model: Feat2Vec, encoder: Encoder, group: str) -> list[NormBin]:
    """The lengths of a group's vectors, each at its own level, by how often training has seen the values.

    A bin holds counts of up to twice the bin before: 1, 2, 3 to 4, 5 to 8, ...

    Args:
        model: The model.
        encoder: Its encoder.
        group: The group.

    Returns:
        The bins that hold values, in ascending order.

    Raises:
        ValueError: If the model has no group of that name.

    Example:
        >>> [bin.values for bin in feat2vec.diagnose.norms(run.model, run.fitted, "genre")]
        [1, 1]

    """
    group_candidates = candidates(model, encoder, group)
    squares = np.zeros(group_candidates.sizes()[0], np.float32)  # [candidates]
    concatenated = model.schema.model.levels.nested  # a vector is all of its levels' parts
    for table in group_candidates.tables:  # [candidates of the level, rank]
        level_squares = np.einsum("ij,ij->i", table, table)
        squares[: len(table)] = level_squares + (squares[: len(table)] if concatenated else np.float32(0))
    lengths, counts = np.sqrt(squares), counts_of(model, encoder, group)
    bin_of_candidate = np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    bins = []
    for bin_number in np.unique(bin_of_candidate):
        bin_lengths = lengths[bin_of_candidate == bin_number]
        bin_counts = counts[bin_of_candidate == bin_number]
        quantiles = tuple(float(quantile) for quantile in np.quantile(bin_lengths, SHARES))
        bins.append(NormBin(int(bin_counts.min()), int(bin_counts.max()), len(bin_lengths), quantiles))
    return bins


def counts_of(model: Feat2Vec, encoder: Encoder, group: str) -> Int64s:
    """How often training has seen each of the group's `candidates`: [candidates]."""
    vocabulary = encoder.codecs[group].vocabulary
    return vocabulary.counts if vocabulary is not None and is_keyed(model, group) else encoder.values[group].counts


def isotropy(vectors: npt.ArrayLike) -> Isotropy:
    """How evenly vectors fill their space; those of length 0 are left out.

    Args:
        vectors: Vectors [n, dim].

    Returns:
        The two measures.

    Raises:
        UserError: There are fewer than two vectors.

    >>> feat2vec.diagnose.isotropy([[1, 0], [0, 1], [-1, 0], [0, -1]]).partition
    1.0

    """
    nonzero = np.asarray(vectors)
    lengths = np.linalg.norm(nonzero, axis=1)  # [n]
    nonzero, lengths = nonzero[lengths > 0], lengths[lengths > 0].astype(np.float64)
    count, dim = nonzero.shape
    if count < 2:
        raise UserError(f"isotropy is of two vectors or more; received {count}")
    gram, unit_sum = np.zeros((dim, dim)), np.zeros(dim)  # V'V, and the sum of v / |v|
    for block in blocks(count, ROWS_AT_ONCE):
        part = nonzero[block].astype(np.float64)
        gram += part.T @ part
        unit_sum += (part / lengths[block, None]).sum(axis=0)
    eigenvectors = np.linalg.eigh(gram)[1]  # [dim, dim], in columns
    directions = np.concatenate([eigenvectors, -eigenvectors], axis=1)  # [dim, 2 dim]
    log_partitions = np.full(directions.shape[1], -np.inf)  # log Z(c) of each direction c
    for block in blocks(count, ROWS_AT_ONCE):
        dot_products = nonzero[block].astype(np.float64) @ directions
        log_partitions = np.logaddexp(log_partitions, np.logaddexp.reduce(dot_products, axis=0))
    mean_cosine = (float(unit_sum @ unit_sum) - count) / (count * (count - 1))
    return Isotropy(float(np.exp(log_partitions.min() - log_partitions.max())), mean_cosine)


def levels(model: Feat2Vec, group: str, values: int) -> list[LevelSize]:
    """How many values and weights each level of a group has.

    Args:
        model: The model.
        group: The group.
        values: The number of its values.

    Returns:
        A `LevelSize` for each level, after level 0 if the levels share weights.

    Raises:
        ValueError: If the model has no group of that name.

    Example:
        >>> (level,) = feat2vec.diagnose.levels(run.model, "genre", values=2)
        >>> level.values, level.parameters  # with a row for unseen keys
        (2, 12)

    """
    extractor: Extractor = model.extractors[model.groups.index(group)]
    ranks = model.schema.model.levels.ranks
    tables = getattr(extractor, "tables", None)
    if tables is not None:  # a lookup: the table of level p holds the values of that level or a higher one
        reaching = [tables[0].shape[0] - 1, *(table.shape[0] for table in tables[1:]), 0]  # without the unseen key
        values_of_level = [lower - higher for lower, higher in pairwise(reaching)]
        weights = [int(np.prod(table.shape)) for table in tables]
    else:  # every value has the highest level
        values_of_level = [*([0] * (len(ranks) - 1)), values]
        weights = [int(head.count_params()) for head in getattr(extractor, "heads", [])] or [0] * len(ranks)
    sizes = []
    for i, rank in enumerate(ranks):
        sizes.append(LevelSize(i + 1, rank, values_of_level[i], weights[i]))
    shared_weights = extractor.params() - sum(weights)
    return [LevelSize(0, 0, 0, shared_weights), *sizes] if shared_weights else sizes
