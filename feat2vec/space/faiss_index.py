"""An approximate index of vectors, which is built once and kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from feat2vec.space.exact_index import SCORE_BYTES_PER_BLOCK, ExactIndex, Hits
from feat2vec.space.faiss_build import EF_SEARCH, ApproximateKind, build_index, import_faiss
from feat2vec.space.faiss_files import digest_of, load_index, save_index
from feat2vec.space.geometry import Floats


class FaissIndex:
    """An approximate index of vectors. It finds nearly the best ones; the scores of what it finds are exact."""

    def __init__(self, exact: ExactIndex, index: Any) -> None:
        self.exact, self.index = exact, index

    @classmethod
    def open(cls, exact: ExactIndex, kind: ApproximateKind, path: Path | None) -> FaissIndex:
        """Read the index at `path` if it is undamaged and of these vectors; else build it, and write it if possible."""
        faiss = import_faiss()
        digest = digest_of(exact)
        index = None if path is None else load_index(faiss, exact, kind, path, digest)
        if index is None:
            index = build_index(faiss, exact, kind)
            if path is not None:
                save_index(faiss, index, path, digest)
        return cls(exact, index)

    def search(self, queries: Floats, k: int) -> Hits:
        """Nearly the k best vectors of each query [queries, dim]."""
        exact = self.exact
        if hasattr(self.index, "hnsw"):  # a search finds no more vectors than it keeps as candidates
            self.index.hnsw.efSearch = max(EF_SEARCH, 2 * k)
        _, ids = self.index.search(exact.unit_queries(queries), min(k, len(exact.vectors)))  # [queries, k], -1: none
        scores = self._products(queries, ids)
        if exact.scale is not None:
            scores *= exact.scale[ids]
        if exact.shift is not None:
            scores += exact.shift[ids]
        scores[ids < 0] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")
        return Hits(np.take_along_axis(ids.astype(np.int64), order, 1), np.take_along_axis(scores, order, 1))

    def _products(self, queries: Floats, ids: Any) -> Floats:
        """The dot products of queries with the vectors of some ids, [queries, k]."""
        vectors = self.exact.vectors
        products = np.empty(ids.shape, np.float32)
        queries_per_block = max(SCORE_BYTES_PER_BLOCK // max(products[:1].size * vectors.shape[1], 1), 1)
        for start in range(0, len(queries), queries_per_block):
            rows = slice(start, start + queries_per_block)
            products[rows] = np.matmul(vectors[ids[rows]], queries[rows, :, None])[..., 0]
        return products
