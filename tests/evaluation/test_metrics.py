"""Spearman's correlation against its definition, and what is said of pairs that people have judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.errors import UserError
from feat2vec.evaluation.key_pairs import pair_similarities
from feat2vec.evaluation.metrics import rank_scores, spearman
from tests.reference import ranks_of_true_values

NUMBERS = {("a", "b"): 0.9, ("a", "c"): -0.5, ("b", "c"): 0.1, ("c", "c"): 1.0}


class Vectors:
    """What gensim's and ours have in common."""

    def __contains__(self, key: object) -> bool:
        return key in ("a", "b", "c")

    def similarity(self, one: str, other: str) -> float:
        return NUMBERS[one, other]


def ranks_loop(values: Any) -> list[float]:
    return [sum(other < x for other in values) + (sum(other == x for other in values) + 1) / 2 for x in values]


def test_spearman_is_the_correlation_of_ranks_with_ties_in_the_middle() -> None:
    random = np.random.default_rng(0)
    one, other = random.integers(0, 6, 40).astype(float), random.integers(0, 6, 40).astype(float)
    x, y = (np.array(ranks_loop(values)) - 20.5 for values in (one, other))
    assert spearman(one, other) == pytest.approx((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))
    assert spearman(one, -one) == pytest.approx(-1)
    assert spearman(one, np.exp(one)) == pytest.approx(1)
    assert spearman(one, np.ones(40)) is None


def test_pairs_are_found_in_lower_case_and_unseen_ones_are_counted() -> None:
    rows = [("a", "b", 8.0), ("A", "c", 9.0), ("b", "c", 3.0), ("c", "c", 10.0), ("a", "other", 5.0)]
    table = pa.table(dict(zip(("one", "other", "judged"), map(list, zip(*rows, strict=True)), strict=True)))
    found = pair_similarities(table, Vectors())
    # ranks 3, 1, 2, 4 of what is said and 2, 3, 1, 4 of what is judged: 1 - 6 (1 + 4 + 1 + 0) / (4 (16 - 1))
    assert found == {"n": 4, "skipped_unseen": 1, "spearman": pytest.approx(0.4)}


def test_a_list_of_pairs_needs_two_keys_and_a_number() -> None:
    with pytest.raises(UserError, match="needs three columns"):
        pair_similarities(pa.table({"one": ["a"], "other": ["b"]}), Vectors())
    with pytest.raises(UserError, match="row 1: column 'judged': received None; a pair needs a number"):
        pair_similarities(pa.table({"o": ["a"], "p": ["b"], "judged": pa.array([None], pa.float64())}), Vectors())


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
        ranks = rank_scores(lambda rows: scores[rows], 40, row, value, scores_in_memory=most, long_row=40)
        np.testing.assert_array_equal(ranks, expected)


def test_ties_count_half_and_a_rows_other_true_values_not_at_all() -> None:
    equal = np.zeros((2, 11), np.float32)
    row, value = np.array([0, 0, 1]), np.array([3, 7, 5])
    assert rank_scores(lambda some: equal[some], 11, row, value).tolist() == [4.5, 4.5, 5]
    best = equal.copy()
    best[row, value] = 1  # a perfect model: nothing is above a true value, and nothing ties with it
    assert rank_scores(lambda some: best[some], 11, row, value).tolist() == [0, 0, 0]
