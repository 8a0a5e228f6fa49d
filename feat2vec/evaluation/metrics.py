"""Metrics of scores and ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from feat2vec.schema.objectives.formulas import softmax

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


def log_loss(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float | None:
    """The mean of log(1 + exp(-s)) for a 1 and log(1 + exp(s)) for a 0; `class_log_loss` of scores [rows, classes]."""
    if scores.ndim == 2:
        return class_log_loss(scores, targets)
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


def class_log_loss(scores: npt.NDArray[Any], classes: npt.NDArray[Any]) -> float | None:
    """The mean of -log softmax(s)[class], for scores [rows, classes]; None without rows."""
    if not len(classes):
        return None
    log_probabilities = np.take_along_axis(np.log(softmax(scores)), classes[:, None], axis=1)  # [rows, 1]
    return float(-log_probabilities.mean())


def accuracy(scores: npt.NDArray[Any], classes: npt.NDArray[Any]) -> float | None:
    """The share of rows whose class has the highest score, for scores [rows, classes]; None without rows."""
    return float((scores.argmax(axis=1) == classes).mean()) if len(classes) else None


def rmse(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """The root of the mean of the squared errors."""
    return float(np.sqrt(np.square(scores - targets).mean()))


def mae(scores: npt.NDArray[Any], targets: npt.NDArray[Any]) -> float:
    """The mean of the absolute errors."""
    return float(np.abs(scores - targets).mean())


# Of scores and targets, by the names in an objective's `metrics`.
PREDICTION_METRICS: Mapping[str, Callable[[npt.NDArray[Any], npt.NDArray[Any]], float | None]] = {
    "log_loss": log_loss,
    "auc": auc,
    "rmse": rmse,
    "mae": mae,
    "accuracy": accuracy,
}


def spearman(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> float | None:
    """Spearman's rank correlation, ties having their middle rank; None where either array is constant."""
    if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return None
    return float(np.corrcoef(middle_ranks(first), middle_ranks(second))[0, 1])


def middle_ranks(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Ranks from 1; equal values have the middle of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
