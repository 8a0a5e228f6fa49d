"""Ranks of true candidates by any scores, in blocks that fit in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from feat2vec.space.geometry import Candidates, Queries, VectorSimilarity, blocks, similarities

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.signedinteger[Any]]
ScoresOfRows = Callable[[Ints], Floats]  # the numbers of rows [rows] -> their scores [rows, candidates]

SCORES_IN_MEMORY = 1 << 23  # scores that are computed at a time


def rank_queries(
    queries: Queries, candidates: Candidates, query_rows: Ints, true_candidates: Ints, similarity: VectorSimilarity
) -> npt.NDArray[np.float64]:
    """`rank_scores` by the similarities of rows' vectors with candidates."""

    def scores_of(rows: Ints) -> Floats:
        return similarities(queries.take(rows), candidates, similarity)

    return rank_scores(scores_of, candidates.sizes()[0], query_rows, true_candidates)


def rank_scores(
    scores_of: ScoresOfRows,
    total: int,
    query_rows: Ints,
    true_candidates: Ints,
    scores_in_memory: int = SCORES_IN_MEMORY,
) -> npt.NDArray[np.float64]:
    """The rank of each query: how many candidates score strictly higher than the true one, plus half of the ties.

    A query is a row and one of its true candidates. The row's other true candidates are left out of its ranking: they
    are neither higher nor ties.

    Args:
        scores_of: Gives the scores [rows, total] of rows.
        total: The number of candidates.
        query_rows: The row of each query [queries], in ascending order.
        true_candidates: The true candidate of each query [queries]; those of one row are distinct.
        scores_in_memory: How many scores may be in memory at a time.

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


def _pairs_of_one_row(first: Ints, end: Ints) -> tuple[Ints, Ints]:
    """All pairs of a query and a query of the same row, given where each query's row begins and ends [queries]."""
    lengths = end - first
    query_index = np.repeat(np.arange(len(lengths)), lengths)
    pairs_before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return query_index, np.repeat(first, lengths) + np.arange(len(query_index)) - pairs_before
