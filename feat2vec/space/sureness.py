"""How much of what a fit says beyond popularity is believed: a factor, which rows that it has not seen decide.

Numbers that are fitted to few rows say of these more than they may say of others. With a factor of 0 only popularity
would be left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Bools, Float32s
from feat2vec.space.completer import log_softmax
from feat2vec.space.geometry import blocks

SURENESS = np.exp(np.linspace(-3, 0.4, 137))  # factors of what a fit says beyond popularity
SPREAD_OF_SURENESS = 1.0  # of its logarithm, before any row is seen
IMPOSSIBLE = np.float32(-1e4)  # log p of what cannot be, less log counts; with the least factor, too, p is 0
SCORES_AT_ONCE = 1 << 17  # which the caches of a core hold, with what is made of them
MOST_STEPS = 30


class Slopes(NamedTuple):
    """A loss, and its first and its second derivative."""

    loss: float
    first: float
    second: float


class Unseen:
    """What a fit says of some rows that it has not seen.

    Args:
        log_p: Log p of the candidates [rows, candidates]; -inf of what cannot be.
        is_true: Which candidates each row has, [rows, candidates].
        log_counts: log(count + 1) of the candidates, [candidates].

    """

    def __init__(self, log_p: Float32s, is_true: Bools, log_counts: Float32s) -> None:
        self.is_true, self.log_counts = is_true, log_counts
        self.beyond = np.maximum(log_p - log_counts, IMPOSSIBLE)  # popularity
        rows, places = np.nonzero(is_true)
        shares = 1 / is_true.sum(axis=1)[rows]
        self.of_true = float(shares @ log_counts[places]), float(shares @ self.beyond[rows, places])

    def log_p(self, factor: float) -> Float32s:
        """Log p, where what it says beyond popularity is multiplied by a factor: [rows, candidates]."""
        tilted = self.beyond * np.float32(factor)
        tilted += self.log_counts
        return log_softmax(tilted)

    def slopes(self, factor: float) -> Slopes:
        """The sum of the rows' -log p of true values, and its derivatives by the factor."""
        popular, beyond_popular = self.of_true
        loss, first, second = -popular - factor * beyond_popular, -beyond_popular, 0.0
        for block in blocks(len(self.beyond), max(SCORES_AT_ONCE // max(len(self.log_counts), 1), 1)):
            beyond = self.beyond[block]
            shares = beyond * np.float32(factor)
            shares += self.log_counts
            top = shares.max(axis=1, keepdims=True)
            shares -= top
            np.exp(shares, out=shares)
            totals = shares.sum(axis=1).astype(np.float64)
            shares *= beyond
            means = shares.sum(axis=1).astype(np.float64) / totals
            squares = np.einsum("rv,rv->r", shares, beyond).astype(np.float64) / totals
            loss += float(top.sum(dtype=np.float64) + np.log(totals).sum())
            first += float(means.sum())
            second += float((squares - means**2).sum())
        return Slopes(loss, first, second)


def sureness(unseen: Sequence[Unseen]) -> float:
    """The factor of what fits say beyond popularity that makes values which they have not seen most probable.

    Its logarithm x is found by the method of Newton; where that would leave the interval in which the loss has its
    least value, the interval is halved.

    Args:
        unseen: What each fit says of rows that it has not seen.

    Returns:
        One of `SURENESS`.

    """
    low, high, x = float(np.log(SURENESS[0])), float(np.log(SURENESS[-1])), 0.0
    width = (high - low) / (len(SURENESS) - 1)
    for _ in range(MOST_STEPS):
        factor = float(np.exp(x))
        parts = [part.slopes(factor) for part in unseen]
        by_factor = factor * sum(part.first for part in parts)
        slope = by_factor + x / SPREAD_OF_SURENESS**2
        curvature = by_factor + factor**2 * sum(part.second for part in parts) + 1 / SPREAD_OF_SURENESS**2
        low, high = (low, x) if slope > 0 else (x, high)
        moved = x - slope / curvature if curvature > 0 else np.inf
        if not low <= moved <= high:
            moved = (low + high) / 2
        is_near, x = abs(moved - x) < width / 8, float(moved)
        if is_near:
            break
    return float(SURENESS[np.abs(np.log(SURENESS) - x).argmin()])
