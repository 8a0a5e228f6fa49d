"""Fitting how much the nearest rows say (`neighbours`), by maximum likelihood with a ridge.

Of most candidates the nearest rows say nothing, so their probabilities follow from the space's alone. Only the others
are kept one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feat2vec.arrays import Float32s, Floats, Int64s
from feat2vec.space.geometry import blocks
from feat2vec.space.neighbours import EXPECTED, Sparse

RIDGE = 4.0
LEAST_OF_SPACE = 0.02  # of the power of the space's own probability
IMPOSSIBLE = np.float32(-1e4)  # log p of what cannot be; its least power is a probability of 0 all the same
MOST_STEPS = 30
SCORES_AT_ONCE = 1 << 17  # which the caches of a core hold
LEAST_GAIN = 1e-7  # of the loss: a step that gains less is the last one, and is not measured


def fitted_powers(
    of_space: Float32s,
    evidence: Sequence[Sparse],
    truth: Sparse,
    ridge: float = RIDGE,
    start: Sequence[float] = EXPECTED,
) -> Floats:
    """The powers of the space's probability and of what the nearest rows say.

    Args:
        of_space: Log p of the space, -inf for a candidate that cannot be: [rows, candidates].
        evidence: What the nearest rows say in each way, [rows, candidates].
        truth: The share of each candidate in what a row holds, [rows, candidates]; those of a row sum to 1.
        ridge: One over the variance of what is expected.
        start: Where to begin, such as with those of fewer rows.

    Returns:
        The powers, of the space first, none of them negative, that make

            - sum over rows, v of truth(v) log p(v) + ridge / 2 |powers - EXPECTED|^2

        smallest.

    """
    loss = PowersLoss(of_space, evidence, truth, ridge)
    lowest = np.zeros(len(EXPECTED))
    lowest[0] = LEAST_OF_SPACE
    powers = np.array(start)
    value, gradient, curvature = loss(powers)
    for _ in range(MOST_STEPS):
        is_free = (powers > lowest) | (gradient < 0)
        step = np.zeros(len(powers))
        step[is_free] = np.linalg.solve(curvature[np.ix_(is_free, is_free)], gradient[is_free])
        if gradient @ step / 2 < LEAST_GAIN * (1 + abs(value)):
            return np.asarray(np.maximum(powers - step, lowest))
        length = 1.0
        while length > 1e-6:
            moved = np.maximum(powers - length * step, lowest)
            new_value, new_gradient, new_curvature = loss(moved)
            if new_value <= value:
                break
            length /= 2
        if length <= 1e-6 or value - new_value < 1e-9 * (1 + abs(value)):
            break
        powers, value, gradient, curvature = moved, new_value, new_gradient, new_curvature
    return powers


class PowersLoss:
    """The loss of powers for some rows. The arguments are those of `fitted_powers`.

    A number is kept for each feature of each candidate that the nearest rows say something of: `features` [numbers,
    touched], in the rows `rows` [touched], ascending. `untouched` [rows, candidates] is log p of all others.
    """

    def __init__(self, of_space: Float32s, evidence: Sequence[Sparse], truth: Sparse, ridge: float = RIDGE) -> None:
        total_rows, candidates = of_space.shape
        keys_of_ways, true_keys = [_keys(matrix) for matrix in evidence], _keys(truth)
        is_touched = np.zeros(total_rows * candidates, np.bool_)
        for of_matrix in (true_keys, *keys_of_ways):
            is_touched[of_matrix] = True
        keys = np.flatnonzero(is_touched)
        place_of_key = np.zeros(len(is_touched), np.int32)
        place_of_key[keys] = np.arange(len(keys))
        self.rows, places = np.divmod(keys, candidates)
        self.untouched = np.maximum(of_space, IMPOSSIBLE)
        self.features = np.zeros((1 + len(evidence), len(keys)))  # [numbers, touched]
        self.features[0] = self.untouched[self.rows, places]
        for of_way, of_keys, matrix in zip(self.features[1:], keys_of_ways, evidence, strict=True):
            of_way[place_of_key[of_keys]] = matrix.data
        self.of_truth = self.features[:, place_of_key[true_keys]] @ truth.data.astype(np.float64)  # [numbers]
        self.untouched[self.rows, places] = IMPOSSIBLE
        self.highest = self.untouched.max(axis=1).astype(np.float64)  # [rows]
        self.rows_with_touched, self.starts = np.unique(self.rows, return_index=True)
        self.total_rows, self.ridge = total_rows, ridge

    def __call__(self, powers: Floats) -> tuple[float, Floats, Floats]:
        """The loss, its gradient [numbers] and its second derivatives [numbers, numbers]."""
        logits = powers @ self.features  # [touched]
        top = powers[0] * self.highest  # [rows]
        highest = np.maximum.reduceat(logits, self.starts) if len(logits) else logits
        top[self.rows_with_touched] = np.maximum(top[self.rows_with_touched], highest)
        totals, first, second = self._sums_of_untouched(powers[0], top)
        probabilities = np.exp(logits - top[self.rows])
        totals += self._sums(probabilities)
        probabilities /= totals[self.rows]
        weighted = self.features * probabilities  # [numbers, touched]
        means = np.stack([self._sums(of_feature) for of_feature in weighted])  # [numbers, rows]
        means[0] += first / totals
        curvature = weighted @ self.features.T - means @ means.T
        curvature[0, 0] += (second / totals).sum()
        distance = powers - np.array(EXPECTED)
        value = float((top + np.log(totals)).sum() - powers @ self.of_truth)
        value += self.ridge / 2 * float(distance @ distance)
        gradient = means.sum(axis=1) - self.of_truth + self.ridge * distance
        return value, gradient, curvature + self.ridge * np.eye(len(powers))

    def _sums_of_untouched(self, power: float, top: Floats) -> Floats:
        """The sums of p^power / exp(top) of the untouched candidates, with log p, and with its square: [3, rows]."""
        sums = np.empty((3, self.total_rows))
        for block in blocks(self.total_rows, max(SCORES_AT_ONCE // max(self.untouched.shape[1], 1), 1)):
            log_p = self.untouched[block]
            of_each = log_p * np.float32(power)
            of_each -= top[block, None].astype(np.float32)
            np.exp(of_each, out=of_each)
            sums[0, block] = of_each.sum(axis=1)
            of_each *= log_p
            sums[1, block] = of_each.sum(axis=1)
            sums[2, block] = np.einsum("rv,rv->r", of_each, log_p)
        return sums

    def _sums(self, of_touched: Floats) -> Floats:
        """The sums of each row, [rows]."""
        return np.bincount(self.rows, of_touched, minlength=self.total_rows).astype(np.float64)


def _keys(matrix: Sparse) -> Int64s:
    """Row times candidates plus candidate, of each number that a matrix holds."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    keys: Int64s = rows * matrix.shape[1] + matrix.indices
    return keys
