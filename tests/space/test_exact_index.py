"""The best of many vectors against a sort of all scores."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from feat2vec.space.exact_index import SCORE_BYTES_PER_BLOCK, ExactIndex, best_candidates
from tests.space.indexes import EXACT, QUERIES, RNG, VECTORS, sorted_scores


@pytest.mark.parametrize("kind", list(EXACT))
@pytest.mark.parametrize("k", [1, 10, 2000, 5000])
@pytest.mark.parametrize("block", [1, 1 << 21])
def test_the_best_are_those_of_a_sort(kind: str, k: int, block: int) -> None:
    order, scores = sorted_scores(EXACT[kind], k)
    hits = EXACT[kind].search(QUERIES, k, queries_per_block=3, score_bytes_per_block=block)
    assert hits.ids.shape == order.shape
    np.testing.assert_allclose(hits.scores, scores, atol=1e-5)
    assert (hits.ids == order).mean() > 0.99  # rounding may reorder neighbours


def test_of_equal_scores_the_first_come_first() -> None:
    scores = np.repeat(RNG.integers(0, 4, (2, 30)), 100, axis=1).astype(np.float32)
    hits = best_candidates(lambda rows: scores[:, rows], 2, 3000, 150)
    np.testing.assert_array_equal(hits.ids, np.argsort(-scores, axis=1, kind="stable")[:, :150])
    same = np.zeros((1, 5000), np.float32)
    assert best_candidates(lambda rows: same[:, rows], 1, 5000, 3).ids.tolist() == [[0, 1, 2]]


def test_nothing_is_found_in_nothing() -> None:
    assert ExactIndex(VECTORS[:0]).search(QUERIES, 3).ids.shape == (7, 0)
    assert ExactIndex(VECTORS).search(QUERIES[:0], 3).ids.shape == (0, 3)
    assert ExactIndex(VECTORS).search(QUERIES, 0).ids.shape == (7, 0)


def test_no_matrix_of_all_scores_is_made() -> None:
    seen = []

    def scores(rows: slice) -> Any:
        seen.append(rows.stop - rows.start)
        return np.zeros((100, seen[-1]), np.float32)

    best_candidates(scores, 100, 1_000_000, 10)
    assert max(seen) * 400 <= SCORE_BYTES_PER_BLOCK
    assert sum(seen) == 1_000_000


@pytest.mark.parametrize("kind", list(EXACT))
def test_unit_vectors_give_the_same_order(kind: str) -> None:
    flat = EXACT[kind]
    units = np.concatenate([flat.unit_vectors(slice(0, 1000)), flat.unit_vectors(slice(1000, 3000))])
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, rtol=1e-5)
    assert units.shape[1] == flat.unit_dim
    products = flat.unit_queries(QUERIES) @ units.T
    scores = flat.scores(QUERIES)(slice(0, 3000))
    ratio = np.median(scores / products)
    np.testing.assert_allclose(products * ratio, scores, atol=1e-4)


def test_searching_imports_neither_tensorflow_nor_faiss() -> None:
    code = "import sys, feat2vec.space.value_space; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "faiss"} & set(done.stdout.split())
