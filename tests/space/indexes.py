"""Vectors and queries for tests of indexes, and a slow search."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from feat2vec.space.exact_index import ExactIndex
from feat2vec.space.faiss_index import DIGEST_BYTES

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
    scores = QUERIES.astype(float) @ np.asarray(exact.vectors, float).T
    scores = scores * (1 if exact.scale is None else exact.scale) + (0 if exact.shift is None else exact.shift)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


def forged(kind: str, whole: bytes, seed: int) -> bytes:
    """An index's file with some of its numbers replaced, and the digests of who knows how they are made."""
    rng = np.random.default_rng(seed)
    digest = whole[-2 * DIGEST_BYTES : -DIGEST_BYTES]
    numbers = np.frombuffer(whole[: -2 * DIGEST_BYTES], np.int32).copy()
    edges = {"hnsw": [0, 400, len(numbers) - 1, len(numbers)], "ivf": [0, 400, len(numbers)]}[kind]
    part = int(rng.integers(len(edges) - 1))
    many = int(rng.choice([1, 3, 1000]))
    extremes = [-(2**31), -2, -1, 0, 1, 2, 6, 7, 79, 80, 399, 400, 2**31 - 1, 0x7FC00000]
    numbers[rng.integers(edges[part], edges[part + 1], many)] = rng.choice(extremes, many)
    body = numbers.tobytes()
    if seed % 5 == 0:
        body = body[: int(rng.integers(len(body)))]
    if seed % 7 == 0:
        body += bytes(rng.integers(0, 256, 400, np.uint8))
    return body + digest + hashlib.blake2b(body + digest, digest_size=DIGEST_BYTES).digest()
