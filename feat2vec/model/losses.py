"""What is learnt: losses of scores, each as in its paper. A loss is [rows]; their mean and weights are the caller's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from keras import ops

from feat2vec.model.custom_gradients import custom_gradient
from feat2vec.schema.options import Contrastive, Glove, Nce, Regression, Softmax

Floats = npt.NDArray[np.float64]


class Noisy(NamedTuple):
    """A number for a row and one for each of its negatives: scores, logits, or log Q2 of their values."""

    positive: Any  # [rows]
    negatives: Any  # [rows, k], or [k] where the rows share them


def self_supervised(
    objective: Any, scores: Noisy, log_q: Noisy, hits: Any, offset: Any, target: Noisy | None = None
) -> Any:
    """The loss that the schema names; `hits` [rows, k] are negatives that are the row's own value.

    With a `target`, scores of the level above, it is the loss against their probabilities and not the labels.
    """
    up, down = _logits(objective, scores, log_q, offset)
    above = None if target is None else _logits(objective, target, log_q, offset)
    if isinstance(objective, Contrastive):
        kept = ops.logical_not(hits) if objective.correction else None
        rivals = _rivals(up, down, kept)
        return n_pair(rivals) if above is None else soft_cross_entropy(rivals, ops.softmax(_rivals(*above, kept)))
    if above is None:
        return ops.softplus(-up) + ops.sum(ops.softplus(down), axis=-1)  # -log sigmoid(up) - sum log sigmoid(-down)
    return soft_log_loss(up, above.positive) + ops.sum(soft_log_loss(down, above.negatives), axis=-1)


def supervised(objective: Any, scores: Any, label: Any, target: Any = None) -> Any:
    """The loss that the schema names; with a `target`, scores of the level above, the loss against those."""
    match objective:
        case Regression():
            return ops.square(scores - (label if target is None else target))
        case Glove():
            return glove(scores, label, objective.n_max, objective.alpha, target)
        case Softmax():
            return cross_entropy(scores, label) if target is None else soft_cross_entropy(scores, ops.softmax(target))
    return log_loss(scores, label) if target is None else soft_log_loss(scores, target)


# --- labels --------------------------------------------------------------------------------------------------------


def log_loss(logits: Any, label: Any) -> Any:
    """-y log sigmoid(s) - (1 - y) log(1 - sigmoid(s)).

    >>> ops.convert_to_numpy(log_loss(ops.zeros(2), ops.convert_to_tensor([0.0, 1.0]))).round(4)  # log 2
    array([0.6931, 0.6931], dtype=float32)
    """
    # Not relu(s) - s y + softplus(-|s|): its gradient at s = 0 is 0 - y, as those of relu and |s| are 0 there.
    return label * ops.softplus(-logits) + (1 - label) * ops.softplus(logits)


def soft_log_loss(logits: Any, target: Any) -> Any:
    """`log_loss` against the probability sigmoid(target)."""
    return ops.sigmoid(target) * ops.softplus(-logits) + ops.sigmoid(-target) * ops.softplus(logits)


def cross_entropy(scores: Any, classes: Any) -> Any:
    """-log softmax(s)[class], scores [rows, classes]; a class that training has not seen, -1, has no probability."""
    classes = ops.cast(classes, "int32")
    loss = -ops.take_along_axis(ops.log_softmax(scores), ops.expand_dims(classes, -1), axis=-1)[..., 0]
    return ops.where(classes < 0, math.inf, loss)  # Keras counts -1 from the end


def soft_cross_entropy(scores: Any, probability: Any) -> Any:
    """-sum p log softmax(s); a score may be -inf where p is 0. The probabilities are constants."""

    def meet(scores: Any, probability: Any) -> tuple[Any, Any]:
        softmax, top = ops.softmax(scores), _largest(scores)
        below = ops.where(probability > 0, scores - ops.expand_dims(top, -1), 0.0)  # 0 times -inf is NaN
        share = ops.sum(probability, axis=-1)
        loss = -share * ops.log(_largest(softmax)) - ops.sum(probability * below, axis=-1)

        def gradient(upstream: Any) -> tuple[Any, None]:
            return (softmax * ops.expand_dims(share, -1) - probability) * ops.expand_dims(upstream, -1), None

        return loss, gradient

    return custom_gradient(meet)(scores, probability)


def glove(scores: Any, count: Any, n_max: float, alpha: float, target: Any = None) -> Any:
    """f(N) (log N - s)^2 with f = min(1, (N / n_max)^alpha), for N > 0; a `target` stands in for log N.

    >>> float(glove(ops.zeros(1), ops.convert_to_tensor([1.0]), n_max=100.0, alpha=0.75)[0])  # log 1 is 0
    0.0
    """
    weight = ops.power(ops.minimum(1.0, count / n_max), alpha)
    return weight * ops.square(scores - (ops.log(count) if target is None else target))


# --- noise ----------------------------------------------------------------------------------------------------------


def nce_logit(scores: Any, log_q: Any, negatives: Any, offset: Any = 0.0) -> Any:
    """The logit s + offset - log(k Q2): its sigmoid is exp(s) / (exp(s) + k Q2(x_i)), where s has its offset."""
    return scores + offset - (ops.log(ops.cast(negatives, scores.dtype)) + ops.cast(log_q, scores.dtype))


def n_pair(rivals: Any) -> Any:
    """log(1 + sum_i exp(s(x_i^-) - s(x^+))), for the positive's logit and those of its negatives, [rows, 1 + k].

    >>> ops.convert_to_numpy(n_pair(ops.convert_to_tensor([[2.0, 2.0, 2.0, 2.0]]))).round(4)  # log 4
    array([1.3863], dtype=float32)
    """

    def meet(rivals: Any) -> tuple[Any, Any]:
        probability = ops.softmax(rivals)
        right = ops.one_hot(0, ops.shape(rivals)[-1], dtype=rivals.dtype)
        loss = _largest(rivals) - rivals[..., 0] - ops.log(_largest(probability))
        return loss, lambda upstream: (probability - right) * ops.expand_dims(upstream, -1)

    return custom_gradient(meet)(rivals)


# log sum exp(s) = max s - log max softmax(s): the largest of a softmax is at least 1 / its size
_largest = partial(ops.max, axis=-1)


def _logits(objective: Any, scores: Noisy, log_q: Noisy, offset: Any) -> Noisy:
    if isinstance(objective, Nce):
        negatives = ops.shape(scores.negatives)[-1]
        each = zip(scores, log_q, strict=True)
        return Noisy(*(nce_logit(score, log, negatives, offset) for score, log in each))
    if isinstance(objective, Contrastive):
        scores = Noisy(*(score / objective.temperature for score in scores))
        if objective.correction:
            return Noisy(*(score - ops.cast(log, score.dtype) for score, log in zip(scores, log_q, strict=True)))
    return scores


def _rivals(up: Any, down: Any, kept: Any) -> Any:
    """[rows, 1 + k], -inf for negatives that are not kept."""
    down = down if kept is None else ops.where(kept, down, -math.inf)
    return ops.concatenate([ops.expand_dims(up, -1), down], axis=-1)


# --- Proposition 3.3: what the contrastive loss says about classes --------------------------------------------------


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
