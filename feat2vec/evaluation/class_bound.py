"""What the contrastive loss says about classes: Proposition 3.3, by enumeration or by draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Bound(NamedTuple):
    """L_sup,k <= `mean_classifier` <= `bound` = k / (1 - tau) (`contrastive` - tau log(N + 1)), tau = C^-N."""

    mean_classifier: float
    bound: float
    contrastive: float
    tau: float
    exact: bool


def contrastive_bound(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    negatives: int,
    k: int,
    draws: int = 200_000,
    seed: int = 0,
) -> Bound:
    """Both sides of Proposition 3.3 for encoded rows [rows, d] and their classes, each class counting the same.

    `negatives` is N, and 2 <= k + 1 <= C, the number of classes. A row and its positive are two draws from one class,
    and may be the same row. Expectations are enumerated where they have at most `draws` terms, else estimated from that
    many draws (`exact` says which).
    """
    features, labels = np.asarray(features, np.float64), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not np.isfinite(features).all():
        raise ValueError(
            "needs finite features [rows, d] and a label for each row. "
            f"Received: features {features.shape}, labels {labels.shape}"
        )
    names, labels = np.unique(labels, return_inverse=True)
    count = len(names)
    if not 2 <= k + 1 <= count or negatives < 1 or draws < 1:
        raise ValueError(
            "needs 2 <= k + 1 <= classes, negatives >= 1 and draws >= 1. "
            f"Received: {k=}, {negatives=}, {draws=}, classes={count}"
        )
    members = [features[labels == c] for c in range(count)]
    rng = np.random.default_rng(seed)
    unsupervised, exact = _contrastive_loss(members, negatives, draws, rng)
    mean, exact_mean = _mean_classifier_loss(members, k, draws, rng)
    tau = float(count) ** -negatives
    bound = k / (1 - tau) * (unsupervised - tau * math.log(negatives + 1))
    return Bound(mean, bound, unsupervised, tau, exact and exact_mean)


def _contrastive_loss(
    members: list[Floats], negatives: int, draws: int, rng: np.random.Generator
) -> tuple[float, bool]:
    """E log(1 + sum_i exp f(x).(f(x_i^-) - f(x+))) over classes, then rows of a class."""
    rows = np.concatenate(members)
    sizes = np.array([len(some) for some in members])
    weight = np.repeat(1 / len(members) / sizes, sizes)  # of a row
    if int((sizes**2).sum()) * len(rows) ** negatives <= draws:
        tuples = np.array(list(itertools.product(range(len(rows)), repeat=negatives)))
        chance, total = weight[tuples].prod(axis=1), 0.0
        for some in members:
            for anchor, positive in itertools.product(some, repeat=2):
                up = (rows - positive) @ anchor  # [rows]
                total += chance @ _log_one_plus(up[tuples]) / len(members) / len(some) ** 2
        return float(total), True
    starts, total = np.cumsum(sizes) - sizes, 0.0
    for some_draws in _chunks(draws, negatives * rows.shape[1]):
        c = rng.integers(len(members), size=some_draws)
        anchor, positive = (rows[starts[c] + rng.integers(sizes[c])] for _ in range(2))
        others = rows[rng.choice(len(rows), p=weight, size=(some_draws, negatives))]  # [draws, N, d]
        total += _log_one_plus(np.einsum("id,ind->in", anchor, others - positive[:, None])).sum()
    return float(total / draws), False


def _mean_classifier_loss(members: list[Floats], k: int, draws: int, rng: np.random.Generator) -> tuple[float, bool]:
    """E -log softmax of the right class among k + 1 distinct ones, classified by f(x) . mu_c."""
    means = np.stack([some.mean(axis=0) for some in members])  # [classes, d]
    exact = math.comb(len(members) - 1, k) * sum(map(len, members)) <= draws
    total = 0.0
    for c, some in enumerate(members):
        others = np.delete(np.arange(len(members)), c)
        if exact:
            sets = np.array(list(itertools.combinations(others, k)))
        else:
            count = max(1, draws // len(members) // len(some))
            sets = others[np.argsort(rng.random((count, len(others))), axis=1)[:, :k]]
        scores = some @ means.T  # [rows, classes]
        total += _log_one_plus(scores[:, sets] - scores[:, c, None, None]).mean() / len(members)
    return float(total), exact


def _log_one_plus(differences: Floats) -> Floats:
    """log(1 + sum exp d), over the last axis."""
    total: Floats = np.logaddexp(0, np.logaddexp.reduce(differences, axis=-1))
    return total


def _chunks(draws: int, width: int, limit: int = 1 << 22) -> Iterator[int]:
    """Sizes that sum to `draws`, each of at most about `limit` numbers: 64 negatives of 50 would take 5 GB at once."""
    size = max(1, limit // max(1, width))
    for start in range(0, draws, size):
        yield min(size, draws - start)
