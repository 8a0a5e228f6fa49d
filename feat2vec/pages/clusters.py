"""Clusters of a group's vectors: a mixture of Gaussians, each named by its most typical values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Float32s, Floats, Int64s
from feat2vec.errors import UserError

MOST_CLUSTERS = 6  # as many as have a colour of their own
VALUES_LEARNT_FROM = 2_000  # more are drawn at random
VALUES_PER_CLUSTER = 5  # at least, on average
AXES = 16  # principal axes on which values are compared, at most,
LEAST_LENGTH = 0.1  # and their least deviation, as a share of the largest: vectors of length 1 lie on a curved surface
LEAST_VARIANCE = 1e-3  # of a cluster along an axis, in units of the mean variance of all values
TYPICAL_VALUES = 3  # that name a cluster
NAME_LENGTH = 24  # letters of each of them
VALUES_PER_BLOCK = 1 << 16

KeysAt = Callable[[Int64s], Sequence[str]]  # the keys of values, by their numbers


class Clusters(NamedTuple):
    """What cluster each value is in.

    Attributes:
        codes: The cluster of each value, from the largest on, [values].
        names: Of each cluster, such as "1: Ozu, Varda, Tati".
        bic: The Bayesian information criterion of 1, 2, ... clusters; the lowest decides how many there are.

    """

    codes: Int64s
    names: list[str]
    bic: list[float]


def clusters_of(vectors: Float32s, counts: Int64s, keys_at: KeysAt, seed: int = 0) -> Clusters:
    """Return the clusters of vectors, which are compared at length 1 on their principal axes.

    A mixture of Gaussians with diagonal covariances is learnt by expectation maximization, once for each number of
    clusters up to 6, from at most 2,000 of the values.

    Args:
        vectors: One for each value, [values, dim].
        counts: In how many rows each value is, [values].
        keys_at: Returns the keys of values, of which the most typical name a cluster.
        seed: Decides the values that are learnt from, and where the learning begins.

    Raises:
        UserError: scikit-learn is not installed.

    """
    require_sklearn("clusters")
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    drawn = drawn_values(len(vectors), VALUES_LEARNT_FROM, seed)
    mean, axes = _principal_axes(_of_length_one(vectors[drawn]))
    learnt_from = (_of_length_one(vectors[drawn]) - mean) @ axes  # [drawn, axes]
    if not learnt_from.shape[1]:  # all vectors point one way
        codes = np.zeros(len(vectors), np.int64)
        return Clusters(codes, _names(codes, np.zeros(len(vectors)), counts, keys_at), [])
    mixtures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it counts as it is
        for clusters in range(1, max(min(MOST_CLUSTERS, len(drawn) // VALUES_PER_CLUSTER), 1) + 1):
            mixture = GaussianMixture(clusters, covariance_type="diag", reg_covar=LEAST_VARIANCE, random_state=seed)
            mixtures.append(mixture.fit(learnt_from))
    bic = [float(mixture.bic(learnt_from)) for mixture in mixtures]
    best = mixtures[int(np.argmin(bic))]
    codes, densities = np.empty(len(vectors), np.int64), np.empty(len(vectors))
    for start in range(0, len(vectors), VALUES_PER_BLOCK):
        block = slice(start, start + VALUES_PER_BLOCK)
        places = (_of_length_one(vectors[block]) - mean) @ axes
        codes[block] = best.predict(places)
        distances = np.square(places - best.means_[codes[block]]) * best.precisions_[codes[block]]
        densities[block] = -distances.sum(axis=1)
    codes = by_size(codes)
    return Clusters(codes, _names(codes, densities, counts, keys_at), bic)


def require_sklearn(purpose: str) -> None:
    """Raise a `UserError` if scikit-learn is not installed.

    Args:
        purpose: What needs it.

    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise UserError(f"{purpose}: scikit-learn is not installed: `pip install 'feat2vec[explore]'`") from None


def drawn_values(total: int, most: int, seed: int) -> Int64s:
    """The numbers of all values, or of so many that are drawn at random, ascending.

    >>> drawn_values(3, 5, seed=0).tolist(), len(drawn_values(9, 5, seed=0))
    ([0, 1, 2], 5)
    """
    if total <= most:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, most, replace=False))


def by_size(codes: Int64s) -> Int64s:
    """Codes that count from the most frequent one on; -1 stays.

    >>> by_size(np.array([5, 2, 2, -1])).tolist()
    [1, 0, 0, -1]
    """
    used, places, sizes = np.unique(codes[codes >= 0], return_inverse=True, return_counts=True)
    rank = np.empty(len(used), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(used))
    result = np.full(len(codes), -1, np.int64)
    result[codes >= 0] = rank[places]
    return result


def short_name(number: int, keys: Sequence[str]) -> str:
    """The name of the cluster or topic of a number, counted from 0.

    >>> short_name(0, ["a film with a very long title", "b"])
    '1: a film with a very lo..., b'
    """
    cut = [key if len(key) <= NAME_LENGTH else f"{key[: NAME_LENGTH - 3]}..." for key in keys]
    return f"{number + 1}: {', '.join(cut)}"


def _names(codes: Int64s, densities: Floats, counts: Int64s, keys_at: KeysAt) -> list[str]:
    """The names of clusters: those of its values nearest to its middle, among the more frequent half of them."""
    names = []
    for cluster in range(int(codes.max(initial=-1)) + 1):
        members = np.flatnonzero(codes == cluster)
        frequent = members[counts[members] >= np.median(counts[members])]
        typical = frequent[np.argsort(-densities[frequent], kind="stable")[:TYPICAL_VALUES]]
        names.append(short_name(cluster, keys_at(typical)))
    return names


def _of_length_one(vectors: Float32s) -> Floats:
    """Vectors of length 1; those of length 0 stay."""
    numbers = vectors.astype(np.float64)
    lengths = np.linalg.norm(numbers, axis=1, keepdims=True)
    unit_vectors: Floats = np.divide(numbers, lengths, out=np.zeros_like(numbers), where=lengths > 0)
    return unit_vectors


def _principal_axes(vectors: Floats) -> tuple[Floats, Floats]:
    """The mean [dim] and the axes of the largest variance [dim, axes], so long that the mean variance on them is 1.

    On them coordinates are not correlated, as the diagonal covariances of a mixture ask for.
    """
    mean = vectors.mean(axis=0)
    _, lengths, axes = np.linalg.svd(vectors - mean, full_matrices=False)
    used = lengths > max(LEAST_LENGTH * float(lengths.max(initial=0)), 1e-6)
    used[AXES:] = False
    if not used.any():
        return mean, np.zeros((vectors.shape[1], 0))
    deviation = np.sqrt(np.square(lengths[used]).mean() / len(vectors))
    return mean, axes[used].T / deviation


__all__ = ["Clusters", "by_size", "clusters_of", "drawn_values", "require_sklearn", "short_name"]
