"""The best of many vectors for a query, exactly: scores are computed and looked through in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Float32s, Floats, Int64s, Integers
from feat2vec.model.coarse_table import CoarseRows, bounds
from feat2vec.model.stored_table import StoredTable, rows_of_file, squares_of
from feat2vec.space.geometry import blocks

SCORE_BYTES_PER_BLOCK = 1 << 23  # few blocks, as the threads of BLAS wait for each other at the end of each
QUERIES_PER_BLOCK = 1024
MIN_CANDIDATES_PER_BLOCK = 1024
MOST_READ_SHARE = 0.01  # of the vectors of a table in a file that are read one by one


class Hits(NamedTuple):
    """The best candidates of each query, best first; of equal ones the first. -1 and -inf where there are fewer."""

    ids: Int64s  # [queries, k]
    scores: Float32s  # [queries, k]


def best_candidates(
    scores: Callable[[slice], Float32s],
    queries: int,
    candidates: int,
    k: int,
    *,
    score_bytes_per_block: int = SCORE_BYTES_PER_BLOCK,
    most_rows: int | None = None,
) -> Hits:
    """The k best candidates of each query.

    Args:
        scores: Computes the scores of consecutive candidates, [queries, candidates of the slice], which are read before
            the next call.
        queries: How many queries there are.
        candidates: How many candidates there are.
        k: How many candidates to keep.
        score_bytes_per_block: The size of a block of scores, about.
        most_rows: How many candidates a block has at most, if they are read from a file.

    """
    k = min(k, candidates)
    best = Hits(np.full((queries, k), -1), np.full((queries, k), -np.inf, np.float32))
    if not k or not queries:
        return best
    block_size = max(score_bytes_per_block // (4 * queries), MIN_CANDIDATES_PER_BLOCK, k)
    for rows in blocks(candidates, block_size if most_rows is None else max(min(block_size, most_rows), k)):
        block_scores = scores(rows)  # [queries, candidates of the block]
        if rows.start == 0:
            is_longer = block_scores.shape[1] > k
            kth_best = np.partition(block_scores, -k, axis=1)[:, -k] if is_longer else block_scores.min(axis=1)
            threshold = np.nextafter(kth_best, np.float32(-np.inf))  # so that the k-th best itself is above it
        else:
            threshold = best.scores[:, -1]
        improved = np.flatnonzero(block_scores.max(axis=1) > threshold)  # queries that find a better candidate here
        if len(improved):
            _merge(best, improved, block_scores[improved], threshold[improved], rows.start)
    return best


def _merge(best: Hits, queries: Array, block_scores: Float32s, threshold: Float32s, first_id: int) -> None:
    """Put the scores of a block that are above the threshold among the best of some queries.

    `block_scores` has the shape [queries, candidates of the block]; `first_id` is the id of its first candidate.
    """
    query, column = np.nonzero(block_scores > threshold[:, None])
    counts = np.bincount(query, minlength=len(queries))  # better candidates of each query
    place = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)  # among those of the same query
    k = best.ids.shape[1]
    scores = np.full((len(queries), k + int(counts.max())), -np.inf, np.float32)
    ids = np.full(scores.shape, -1)
    scores[:, :k], ids[:, :k] = best.scores[queries], best.ids[queries]
    scores[query, k + place], ids[query, k + place] = block_scores[query, column], column + first_id
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best.scores[queries] = np.take_along_axis(scores, order, 1)
    best.ids[queries] = np.take_along_axis(ids, order, 1)


class InverseNorms:
    """1 / |v| of each vector, and 0 for 0, computed when they are first needed.

    Args:
        vectors: The vectors, [n, dim].
        squares: |v|^2, [n], if they are known.

    """

    def __init__(self, vectors: Float32s | StoredTable, squares: Float32s | None = None) -> None:
        self.vectors = vectors
        self.inverse_norms: Float32s = np.full(len(vectors), np.nan, np.float32)  # NaN is not known yet
        if squares is not None:
            self.inverse_norms[:] = _inverse_roots(squares)

    def __len__(self) -> int:
        return len(self.inverse_norms)

    @property
    def shape(self) -> tuple[int, ...]:
        """[n]."""
        return self.inverse_norms.shape

    def __getitem__(self, rows: slice | Integers) -> Float32s:
        """Those of some vectors, [vectors of the rows]."""
        inverse_norms = self.inverse_norms[rows]
        if np.isnan(inverse_norms).any():
            self.of_vectors(rows, self.vectors[rows])
            inverse_norms = self.inverse_norms[rows]
        return inverse_norms

    def of_vectors(self, rows: slice | Integers, vectors: Float32s) -> Float32s:
        """Those of some vectors that are read already, [vectors of the rows]."""
        if np.isnan(self.inverse_norms[rows]).any():
            self.inverse_norms[rows] = _inverse_roots(np.einsum("...j,...j->...", vectors, vectors))
        return self.inverse_norms[rows]


def _inverse_roots(squares: Float32s) -> Float32s:
    norms = np.sqrt(squares)
    inverse: Float32s = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    return inverse


@dataclass(frozen=True)
class ExactIndex:
    """Vectors that are compared with a query by `query . vector * scale + shift`.

    Args:
        vectors: The vectors, [n, dim].
        scale: 1 / |vector| where the comparison is a cosine, [n].
        shift: The linear terms where it is a score, [n].

    """

    vectors: Float32s | StoredTable
    scale: Float32s | InverseNorms | None = None
    shift: Float32s | None = None

    def scores(self, queries: Float32s) -> Callable[[slice], Float32s]:
        """What computes the scores of consecutive vectors, in memory that the next call uses again."""
        memory = np.zeros(0, np.float32)

        def scores_of(rows: slice) -> Float32s:
            nonlocal memory
            vectors = self.vectors[rows]
            size = len(queries) * len(vectors)
            if size > len(memory):
                memory = np.empty(size, np.float32)
            scores = memory[:size].reshape(len(queries), len(vectors))
            np.matmul(queries, vectors.T, out=scores)
            if self.scale is not None:
                scores *= self._scale_of(rows, vectors)
            if self.shift is not None:
                scores += self.shift[rows]
            return scores

        return scores_of

    def _scale_of(self, rows: slice, vectors: Float32s) -> Float32s:
        """The scale of consecutive vectors, which are read already."""
        assert self.scale is not None
        return self.scale.of_vectors(rows, vectors) if isinstance(self.scale, InverseNorms) else self.scale[rows]

    def search(
        self,
        queries: Float32s,
        k: int,
        *,
        queries_per_block: int = QUERIES_PER_BLOCK,
        score_bytes_per_block: int = SCORE_BYTES_PER_BLOCK,
    ) -> Hits:
        """The k best vectors of each query [queries, dim].

        >>> index = ExactIndex(np.array([[1, 0], [0, 1], [3, 4]], np.float32))
        >>> index.search(np.array([[1, 0]], np.float32), k=2).ids.tolist()
        [[2, 0]]
        """
        if len(queries) == 1 and isinstance(self.vectors, StoredTable):
            coarse_blocks = self.vectors.coarse_blocks()
            hits = None if coarse_blocks is None else self._search_by_bounds(queries, k, coarse_blocks)
            if hits is not None:
                return hits
        ids, scores = [], []
        for start in range(0, max(len(queries), 1), queries_per_block):
            block = queries[start : start + queries_per_block]
            hits = best_candidates(
                self.scores(block),
                len(block),
                len(self.vectors),
                k,
                score_bytes_per_block=score_bytes_per_block,
                most_rows=rows_of_file(self.vectors),
            )
            ids.append(hits.ids)
            scores.append(hits.scores)
        return Hits(np.concatenate(ids), np.concatenate(scores))

    def _search_by_bounds(self, query: Float32s, k: int, blocks: Iterator[CoarseRows]) -> Hits | None:
        """The k best vectors of a query [1, dim], of which only those are read that may be; None if these are many."""
        total = len(self.vectors)
        k = min(k, total)
        about, slack = np.empty(total, np.float32), np.empty(total, np.float32)
        for block in blocks:
            about[block.rows], slack[block.rows] = bounds(block, query[0], cosine=self.scale is not None)
        if self.shift is not None:
            about += self.shift
        kth_lower = np.partition(about - slack, total - k)[total - k]
        ids = np.flatnonzero(about + slack >= kth_lower)
        if len(ids) > max(MOST_READ_SHARE * total, k):
            return None
        vectors = self.vectors[ids]
        scores = (query @ vectors.T)[0]
        if self.scale is not None:
            scores *= _inverse_roots(np.einsum("ij,ij->i", vectors, vectors))
        if self.shift is not None:
            scores += self.shift[ids]
        order = np.argsort(-scores, kind="stable")[:k]
        return Hits(ids[order][None], scores[order][None])

    # An approximate index compares vectors of length 1. What is no cosine becomes one: with s the largest of
    # |(v, shift)|, the vector (v, shift, sqrt(s^2 - |(v, shift)|^2)) has length s, and a query (q, 1, 0) still gives
    # q . v + shift.

    @property
    def unit_dim(self) -> int:
        """Dimensions of the vectors of length 1."""
        return int(self.vectors.shape[1]) + (0 if self.scale is not None else 2)

    @cached_property
    def _squares(self) -> Floats:
        """|(v, shift)|^2, [n]."""
        squares: Array = squares_of(self.vectors).astype(np.float64)
        if self.shift is not None:
            squares += np.square(self.shift, dtype=np.float64)
        return squares

    def unit_vectors(self, rows: slice) -> Float32s:
        """Consecutive vectors as vectors of length 1, [rows, unit_dim]."""
        vectors = self.vectors[rows]
        if self.scale is not None:
            return vectors * self._scale_of(rows, vectors)[:, None]
        largest_square = self._squares.max(initial=1e-30)
        shift = np.zeros(len(vectors), np.float32) if self.shift is None else self.shift[rows]
        rest = np.sqrt(np.maximum(largest_square - self._squares[rows], 0))
        units: Float32s = (np.column_stack([vectors, shift, rest]) / np.sqrt(largest_square)).astype(np.float32)
        return units

    def unit_queries(self, queries: Float32s) -> Float32s:
        """Queries of the vectors of length 1, [queries, unit_dim]."""
        if self.scale is not None:
            return np.ascontiguousarray(queries, np.float32)
        ones = np.full(len(queries), self.shift is not None)
        return np.column_stack([queries, ones, np.zeros(len(queries))]).astype(np.float32)
