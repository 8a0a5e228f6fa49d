"""Ranks of any scores against loops over queries."""

from __future__ import annotations

import numpy as np
import pytest

from feat2vec.evaluation.ranks import rank_scores
from tests.reference import ranks_of_true_values


@pytest.mark.parametrize("seed", range(20))
def test_ranks_are_those_of_the_reference_also_with_ties(seed: int) -> None:
    """Three different scores among 40 candidates: nearly all are ties, a row's other true values among them."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (30, 40)).astype(np.float32)
    true_values = [sorted(rng.choice(40, rng.integers(0, 7), replace=False).tolist()) for _ in scores]
    expected = [rank for r, values in enumerate(true_values) for rank in ranks_of_true_values(scores[r], values)]
    row = np.repeat(np.arange(30), [len(values) for values in true_values])
    value = np.concatenate(true_values).astype(np.int64)
    for most in (1 << 23, 40 * 7, 1):  # scores in memory: of all rows, of seven, of one
        ranks = rank_scores(lambda rows: scores[rows], 40, row, value, scores_in_memory=most)
        np.testing.assert_array_equal(ranks, expected)


def test_ties_count_half_and_a_rows_other_true_values_not_at_all() -> None:
    equal = np.zeros((2, 11), np.float32)
    row, value = np.array([0, 0, 1]), np.array([3, 7, 5])
    assert rank_scores(lambda some: equal[some], 11, row, value).tolist() == [4.5, 4.5, 5]
    best = equal.copy()
    best[row, value] = 1  # a perfect model: nothing is above a true value, and nothing ties with it
    assert rank_scores(lambda some: best[some], 11, row, value).tolist() == [0, 0, 0]
