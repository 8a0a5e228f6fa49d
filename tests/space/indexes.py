"""Vectors and queries for tests of indexes, and a slow search."""

from __future__ import annotations

from typing import Any

import numpy as np

from feat2vec.space.exact_index import ExactIndex

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((3000, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((7, 8)).astype(np.float32)
SCALE = (1 / np.linalg.norm(VECTORS, axis=1)).astype(np.float32)
SHIFT = RNG.standard_normal(3000).astype(np.float32)
FEW = ExactIndex(VECTORS[:400], scale=SCALE[:400])
EXACT = {
    "dot": ExactIndex(VECTORS),
    "cosine": ExactIndex(VECTORS, scale=SCALE),
    "score": ExactIndex(VECTORS, shift=SHIFT),
}


def sorted_scores(exact: ExactIndex, k: int) -> tuple[Any, Any]:
    """The k best of all scores, in float64: ids and scores [queries, k]."""
    scores = QUERIES.astype(float) @ exact.vectors.astype(float).T
    scores = scores * (1 if exact.scale is None else exact.scale) + (0 if exact.shift is None else exact.shift)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)
