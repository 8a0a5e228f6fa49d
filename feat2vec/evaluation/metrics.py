"""Metrics of scores and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def summary_of_ranks(ranks: Floats, total: int) -> dict[str, float | None]:
    """Metrics of the ranks [queries], from 0, of true candidates among `total`: None where there is no query."""
    if not len(ranks):
        return dict.fromkeys(("mpr", "mrr", "top1", "recall_at_10", "median_rank"))
    return {
        "mpr": float(ranks.mean() / total),
        "mrr": float((1 / (ranks + 1)).mean()),
        "top1": float((ranks == 0).mean()),
        "recall_at_10": float((ranks < 10).mean()),
        "median_rank": float(np.median(ranks)),
    }


def log_loss(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """The mean of log(1 + exp(-s)) over targets of 1 and log(1 + exp(s)) over targets of 0."""
    return float(np.logaddexp(0, np.where(targets > 0, -scores, scores)).mean())


def auc(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float | None:
    """The share of pairs of a 1 and a 0 in which the 1 scores higher, ties counting half; None without a pair."""
    ones = targets > 0
    pairs = int(ones.sum()) * int((~ones).sum())
    if not pairs:
        return None
    ranks = middle_ranks(scores)
    above = ranks[ones].sum() - ones.sum() * (ones.sum() + 1) / 2
    return float(above / pairs)


def spearman(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float | None:
    """Spearman's rank correlation, ties having their middle rank; None where either array is constant."""
    if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return None
    return float(np.corrcoef(middle_ranks(first), middle_ranks(second))[0, 1])


def middle_ranks(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Ranks from 1; equal values have the middle of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
