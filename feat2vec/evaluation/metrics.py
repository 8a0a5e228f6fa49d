"""Ranks of true candidates by any scores, in blocks that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from feat2vec.arrays import Array, Floats, Integers
from feat2vec.schema.objectives.formulas import softmax
from feat2vec.space.geometry import Candidates, Queries, blocks, similarities
from feat2vec.space.search_options import VectorSimilarity

Scores = npt.NDArray[np.floating[Any]]
ScoresOfRows = Callable[[Integers], Scores]  # the numbers of rows [rows] -> their scores [rows, candidates]

SCORES_IN_MEMORY = 1 << 23  # scores that are computed at a time
LONG_ROW = 4096  # candidates, to compare which takes longer than a turn of a loop


def rank_queries(
    queries: Queries,
    candidates: Candidates,
    query_rows: Integers,
    true_candidates: Integers,
    similarity: VectorSimilarity,
) -> Floats:
    """`rank_scores` by the similarities of rows' vectors with candidates."""

    def scores_of(rows: Integers) -> Scores:
        return similarities(queries.take(rows), candidates, similarity)

    return rank_scores(scores_of, candidates.sizes()[0], query_rows, true_candidates)


def rank_scores(
    scores_of: ScoresOfRows,
    total: int,
    query_rows: Integers,
    true_candidates: Integers,
    scores_in_memory: int = SCORES_IN_MEMORY,
    long_row: int = LONG_ROW,
) -> Floats:
    """The rank of each query: how many candidates score strictly higher than the true one, plus half of the ties.

    A query is a row and one of its true candidates. The row's other true candidates are left out of its ranking: they
    are neither higher nor ties.

    Args:
        scores_of: Gives the scores [rows, total] of rows.
        total: The number of candidates.
        query_rows: The row of each query [queries], in ascending order.
        true_candidates: The true candidate of each query [queries]; those of one row are distinct.
        scores_in_memory: How many scores may be in memory at a time.
        long_row: From so many candidates on, rows are ranked one by one, without copies of their scores.

    Returns:
        The ranks [queries], from 0.

    """
    ranks = np.zeros(len(query_rows))
    rows, row_place = np.unique(query_rows, return_inverse=True)
    # The queries of rows[i] are those from first_query[i] to end_query[i].
    first_query = np.searchsorted(row_place, np.arange(len(rows)))
    end_query = np.searchsorted(row_place, np.arange(len(rows)), "right")
    for block in blocks(len(rows), max(scores_in_memory // max(total, 1), 1)):
        scores = scores_of(rows[block])  # [rows of the block, total]
        begin, end = first_query[block.start], end_query[block.stop - 1]
        if total >= long_row:
            for row in range(block.start, block.stop):
                of_row = slice(first_query[row], end_query[row])
                ranks[of_row] = _ranks_in_row(scores[row - block.start], true_candidates[of_row])
            del scores  # before the next are made
            continue
        for part in blocks(end - begin, block.stop - block.start):
            queries = np.arange(part.start, part.stop) + begin
            rivals = scores[row_place[queries] - block.start]  # [queries, total], a copy
            true_scores = rivals[np.arange(len(queries)), true_candidates[queries]]  # [queries]
            query_index, same_row = _pairs_of_one_row(first_query[row_place[queries]], end_query[row_place[queries]])
            rivals[query_index, true_candidates[same_row]] = np.nan  # neither above nor a tie
            higher = np.count_nonzero(rivals > true_scores[:, None], axis=1)
            ties = np.count_nonzero(rivals == true_scores[:, None], axis=1)
            ranks[queries] = higher + ties / 2
    return ranks


def _ranks_in_row(scores: Array, true_candidates: Integers) -> Floats:
    """The ranks of the true candidates of a row, [queries], given the scores of all, [total]."""
    true_scores = scores[true_candidates]
    ranks = np.zeros(len(true_scores))
    for query, score in enumerate(true_scores):
        higher = np.count_nonzero(scores > score) - np.count_nonzero(true_scores > score)
        ties = np.count_nonzero(scores == score) - np.count_nonzero(true_scores == score)
        ranks[query] = higher + ties / 2
    return ranks


def _pairs_of_one_row(first: Integers, end: Integers) -> tuple[Integers, Integers]:
    """All pairs of a query and a query of the same row, given where each query's row begins and ends [queries]."""
    lengths = end - first
    query_index = np.repeat(np.arange(len(lengths)), lengths)
    pairs_before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return query_index, np.repeat(first, lengths) + np.arange(len(query_index)) - pairs_before


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


def log_loss(scores: Array, targets: Array) -> float | None:
    """The mean of log(1 + exp(-s)) for a 1 and log(1 + exp(s)) for a 0; `class_log_loss` of scores [rows, classes]."""
    if scores.ndim == 2:
        return class_log_loss(scores, targets)
    return float(np.logaddexp(0, np.where(targets > 0, -scores, scores)).mean())


def auc(scores: Array, targets: Array) -> float | None:
    """The share of pairs of a 1 and a 0 in which the 1 scores higher, ties counting half; None without a pair."""
    ones = targets > 0
    pairs = int(ones.sum()) * int((~ones).sum())
    if not pairs:
        return None
    ranks = middle_ranks(scores)
    above = ranks[ones].sum() - ones.sum() * (ones.sum() + 1) / 2
    return float(above / pairs)


def class_log_loss(scores: Array, classes: Array) -> float | None:
    """The mean of -log softmax(s)[class], for scores [rows, classes]; None without rows."""
    if not len(classes):
        return None
    log_probabilities = np.take_along_axis(np.log(softmax(scores)), classes[:, None], axis=1)  # [rows, 1]
    return float(-log_probabilities.mean())


def accuracy(scores: Array, classes: Array) -> float | None:
    """The share of rows whose class has the highest score, for scores [rows, classes]; None without rows."""
    return float((scores.argmax(axis=1) == classes).mean()) if len(classes) else None


def rmse(scores: Array, targets: Array) -> float:
    """The root of the mean of the squared errors."""
    return float(np.sqrt(np.square(scores - targets).mean()))


def mae(scores: Array, targets: Array) -> float:
    """The mean of the absolute errors."""
    return float(np.abs(scores - targets).mean())


# Of scores and targets, by the names in an objective's `metrics`.
PREDICTION_METRICS: Mapping[str, Callable[[Array, Array], float | None]] = {
    "log_loss": log_loss,
    "auc": auc,
    "rmse": rmse,
    "mae": mae,
    "accuracy": accuracy,
}


def spearman(first: Array, second: Array) -> float | None:
    """Spearman's rank correlation, ties having their middle rank; None where either array is constant."""
    if len(np.unique(first)) < 2 or len(np.unique(second)) < 2:
        return None
    return float(np.corrcoef(middle_ranks(first), middle_ranks(second))[0, 1])


def middle_ranks(values: Array) -> Floats:
    """Ranks from 1; equal values have the middle of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
