"""Linear classifiers of given vectors: the least loss that one can have, and a probe that is measured on other rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from feat2vec.arrays import Bools, Floats, Integers
from feat2vec.space.geometry import blocks

MOST_WORK = 2e10  # products of features with weights in one search
MOST_STEPS = 500  # of a search
FEWEST_STEPS_OF_PROBE = 5  # with fewer it has learnt nothing
MOST_SCORES = 1 << 21  # of rows and classes that are in memory at a time
SMALLEST_SPREAD = 1e-12  # of a direction of the vectors, beside the largest: below it there is nothing to weigh
MEASURED_SHARE = 0.2  # of the rows of a probe
PENALTY = 1.0  # of a probe: what its squared weights count beside the sum of the losses, halved


class LinearFit(NamedTuple):
    """A linear classifier.

    Args:
        weights: A class has the score f(x) . w, [d, classes].
        loss: The mean of -log softmax of the right class, with what the penalty adds.

    """

    weights: Floats
    loss: float


class Probe(NamedTuple):
    """A linear classifier on rows that it has not learnt from, beside one that knows how frequent classes are.

    Args:
        learnt: The rows that both have learnt from.
        measured: The rows that they are measured on.
        accuracy: The share of these rows whose class the probe says.
        log_loss: The mean of -log of the probability that it gives the right class.
        most_frequent: The accuracy of saying the most frequent class.
        shares_log_loss: The log loss of the classes' shares.

    Example:
        >>> probe = linear_probe(np.repeat([[1.0], [-1.0]], 10, axis=0), np.repeat([0, 1], 10))
        >>> probe.learnt, probe.measured, probe.accuracy
        (16, 4, 1.0)

    """

    learnt: int
    measured: int
    accuracy: float
    log_loss: float
    most_frequent: float
    shares_log_loss: float


def classifier_loss(features: Floats, class_ids: Integers, row_weights: Floats, weights: Floats) -> float:
    """Return the mean loss of a linear classifier: of -log softmax of the right class.

    Args:
        features: [rows, d].
        class_ids: [rows].
        row_weights: What each row counts, [rows]; they add up to 1.
        weights: [d, classes].

    Returns:
        The loss.

    Example:
        >>> round(classifier_loss(np.eye(2), np.array([0, 1]), np.array([0.5, 0.5]), np.zeros((2, 2))), 4)  # log 2
        0.6931

    """
    loss = 0.0
    for rows in blocks(len(features), block_rows(weights.shape[1])):
        logs = log_shares(features[rows] @ weights)  # [rows of the block, classes]
        loss -= float(row_weights[rows] @ logs[np.arange(len(logs)), class_ids[rows]])
    return loss


def block_rows(classes: int) -> int:
    """Return how many rows are scored at a time."""
    return max(1, MOST_SCORES // classes)


def log_shares(scores: Floats) -> Floats:
    """Return log softmax of scores [rows, classes]."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    shares: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shares


def best_classifier(features: Floats, class_ids: Integers, row_weights: Floats, start: Floats) -> LinearFit:
    """Return the linear classifier with the least loss on these very rows, as far as the search goes.

    The loss is convex. It is searched by L-BFGS in coordinates in which the vectors spread evenly, from classifiers
    that are known; the result is never worse than those. Where classes can be told apart without a mistake, the least
    loss is 0 and only weights without end reach it.

    Args:
        features: [rows, d].
        class_ids: [rows].
        row_weights: What each row counts, [rows]; they add up to 1.
        start: The weights to begin with, [d, classes].

    Returns:
        The classifier and its loss.

    Example:
        >>> fit = best_classifier(np.eye(2), np.array([0, 1]), np.array([0.5, 0.5]), np.zeros((2, 2)))
        >>> fit.loss < 0.001
        True

    """
    moments = (features * row_weights[:, None]).T @ features  # [d, d]
    spreads, directions = np.linalg.eigh(moments)
    kept = spreads > SMALLEST_SPREAD * spreads.max()
    if not kept.any():  # every vector is 0
        return LinearFit(start, classifier_loss(features, class_ids, row_weights, start))
    to_even = directions[:, kept] / np.sqrt(spreads[kept])  # [d, kept]
    from_start = (directions[:, kept] * np.sqrt(spreads[kept])).T @ start  # [kept, classes]
    fit = _search(features @ to_even, class_ids, row_weights, from_start, np.zeros(int(kept.sum())))
    weights = to_even @ fit.weights
    fits = [LinearFit(np.zeros_like(start), math.log(start.shape[1]))]
    fits += [LinearFit(known, classifier_loss(features, class_ids, row_weights, known)) for known in (start, weights)]
    return min(fits, key=lambda fit: fit.loss)


def _search(features: Floats, class_ids: Integers, row_weights: Floats, start: Floats, penalties: Floats) -> LinearFit:
    """L-BFGS on the mean loss, and half of the squared weights of each feature times its penalty, [d]."""
    places = start.shape

    def loss_and_slope(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(places)
        loss, slope = float(penalties @ np.square(weights).sum(axis=1)) / 2, penalties[:, None] * weights
        for rows in blocks(len(features), block_rows(places[1])):
            logs = log_shares(features[rows] @ weights)  # [rows of the block, classes]
            right = np.arange(len(logs)), class_ids[rows]
            loss -= float(row_weights[rows] @ logs[right])
            errors = np.exp(logs)
            errors[right] -= 1
            slope += features[rows].T @ (errors * row_weights[rows, None])
        return loss, slope.ravel()

    steps = _steps(features.size, places[1])
    if steps == 0:
        return LinearFit(start, loss_and_slope(start.ravel())[0])
    options = {"maxiter": steps, "gtol": 1e-9, "ftol": 1e-13, "maxcor": 20}
    optimum = minimize(loss_and_slope, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    return LinearFit(optimum.x.reshape(places), float(optimum.fun))


def _steps(numbers: int, classes: int) -> int:
    """How many steps a search may take, of so many numbers of features."""
    return int(min(MOST_STEPS, MOST_WORK / (numbers * classes + 1)))


def linear_probe(features: Floats, class_ids: Integers, seed: int = 0, penalty: float = PENALTY) -> Probe | None:
    """Return how well a linear classifier tells the classes of rows that it has not learnt from.

    A fifth of the rows is held out at random; of each class at least one row is learnt. Features are standardized, and
    the classifier has an intercept and a penalty on its other weights: it is logistic regression.

    Args:
        features: [rows, d].
        class_ids: The number of the class of each row, from 0, [rows].
        seed: What decides which rows are held out.
        penalty: What half of the squared weights counts beside the sum of the losses.

    Returns:
        The measures, or None if no row is left to measure on, or there are too many rows and classes to learn from.

    Example:
        >>> vectors = np.repeat([[1.0, 0.0], [0.0, 1.0]], 20, axis=0)
        >>> linear_probe(vectors, np.repeat([0, 1], 20)).accuracy
        1.0

    """
    is_measured = held_out(class_ids, seed)
    if not is_measured.any() or _steps(features.size, len(np.unique(class_ids))) < FEWEST_STEPS_OF_PROBE:
        return None
    learnt, measured = features[~is_measured], features[is_measured]
    learnt_ids, measured_ids = class_ids[~is_measured], class_ids[is_measured]
    middle, spread = learnt.mean(axis=0), learnt.std(axis=0)
    spread = np.where(spread > 0, spread, 1)
    learnt, measured = (_with_ones((part - middle) / spread) for part in (learnt, measured))
    counts = np.bincount(learnt_ids)  # [classes]
    start = np.zeros((learnt.shape[1], len(counts)))
    start[-1] = np.log(counts / len(learnt))
    penalties = np.full(learnt.shape[1], penalty / len(learnt))
    penalties[-1] = 0
    even = np.full(len(learnt), 1 / len(learnt))
    logs = log_shares(measured @ _search(learnt, learnt_ids, even, start, penalties).weights)
    rows = np.arange(len(measured))
    return Probe(
        len(learnt),
        len(measured),
        accuracy=float((logs.argmax(axis=1) == measured_ids).mean()),
        log_loss=float(-logs[rows, measured_ids].mean()),
        most_frequent=float((measured_ids == counts.argmax()).mean()),
        shares_log_loss=float(-start[-1][measured_ids].mean()),
    )


def held_out(class_ids: Integers, seed: int) -> Bools:
    """Return which rows a probe is measured on, bool [rows]: a fifth at random, but not the first of a class."""
    order = np.random.default_rng(seed).permutation(len(class_ids))
    is_measured = np.zeros(len(class_ids), np.bool_)
    is_measured[order[: math.floor(MEASURED_SHARE * len(order))]] = True
    is_measured[np.unique(class_ids, return_index=True)[1]] = False
    return is_measured


def _with_ones(features: Floats) -> Floats:
    """Features with a last one that is 1 in every row, for the intercept."""
    return np.column_stack([features, np.ones(len(features))])
