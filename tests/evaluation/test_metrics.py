"""Spearman's correlation against its definition, and what is said of pairs that people have judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.errors import UserError
from feat2vec.evaluation.key_pairs import pair_similarities
from feat2vec.evaluation.metrics import spearman

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
