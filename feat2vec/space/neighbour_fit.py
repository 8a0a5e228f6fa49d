"""Fitting how much the nearest rows say (`neighbours`), by maximum likelihood with a ridge."""

from __future__ import annotations

import numpy as np

from feat2vec.arrays import Float32s, Floats
from feat2vec.space.neighbours import EXPECTED

RIDGE = 4.0
LEAST_OF_SPACE = 0.02  # of the power of the space's own probability
MOST_STEPS = 30
TOLERANCE = 1e-4


def fitted_powers(features: Float32s, truth: Float32s, ridge: float = RIDGE) -> Floats:
    """The powers of the space's probability and of what the nearest rows say.

    Args:
        features: Log p of the space, and then what the nearest rows say: [numbers, rows, candidates]. A candidate
            that cannot be has -inf as log p.
        truth: The share of each candidate in what a row holds, [rows, candidates]; they sum to 1.
        ridge: One over the variance of what is expected.

    Returns:
        The powers [numbers], none of them negative, that make

            - sum over rows, v of truth(v) log p(v) + ridge / 2 |powers - EXPECTED|^2

        smallest.

    """
    lowest = np.zeros(len(EXPECTED))
    lowest[0] = LEAST_OF_SPACE
    powers = np.array(EXPECTED)
    value, gradient, curvature = _loss(features, truth, powers, ridge)
    for _ in range(MOST_STEPS):
        is_free = (powers > lowest) | (gradient < 0)
        if np.abs(gradient[is_free]).max(initial=0) < TOLERANCE:
            break
        step = np.zeros(len(powers))
        step[is_free] = np.linalg.solve(curvature[np.ix_(is_free, is_free)], gradient[is_free])
        length = 1.0
        while length > 1e-6:
            moved = np.maximum(powers - length * step, lowest)
            new_value, new_gradient, new_curvature = _loss(features, truth, moved, ridge)
            if new_value <= value:
                break
            length /= 2
        if length <= 1e-6 or value - new_value < 1e-9 * (1 + abs(value)):
            break
        powers, value, gradient, curvature = moved, new_value, new_gradient, new_curvature
    return powers


def _loss(features: Float32s, truth: Float32s, powers: Floats, ridge: float) -> tuple[float, Floats, Floats]:
    """The loss, its gradient [numbers] and its second derivatives [numbers, numbers]."""
    can_be = np.isfinite(features[0])
    logits = np.where(can_be, np.tensordot(powers.astype(np.float32), _finite(features), 1), -np.inf)
    logits = logits.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    probabilities = np.exp(logits)  # [rows, candidates]
    finite = _finite(features)
    difference = (probabilities - truth).astype(np.float32)
    gradient = np.array([np.vdot(difference, feature) for feature in finite], np.float64)
    means = np.stack([np.einsum("rv,rv->r", probabilities, feature) for feature in finite])  # [numbers, rows]
    curvature = np.zeros((len(powers), len(powers)))
    for i, feature in enumerate(finite):
        weighted = (probabilities * feature).astype(np.float32)
        for j in range(i, len(powers)):
            curvature[i, j] = curvature[j, i] = np.vdot(weighted, finite[j]) - means[i] @ means[j]
    distance = powers - np.array(EXPECTED)
    value = -float((truth * np.where(truth > 0, logits, 0)).sum()) + ridge / 2 * float(distance @ distance)
    return value, gradient + ridge * distance, curvature + ridge * np.eye(len(powers))


def _finite(features: Float32s) -> Float32s:
    """The same with 0 for log p of what cannot be."""
    return np.where(np.isfinite(features), features, np.float32(0))
