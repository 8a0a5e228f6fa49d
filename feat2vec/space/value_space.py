"""The vectors of a group's values as candidates and as queries: what `Vectors` compares and searches by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from feat2vec.arrays import Array, Float32s, Integers
from feat2vec.encode.arrays_on_disk import file_name
from feat2vec.model.stored_table import StoredTable, rows_of_file
from feat2vec.schema.activation import Activation
from feat2vec.space.exact_index import ExactIndex, Hits, InverseNorms, best_candidates
from feat2vec.space.faiss_index import MIN_INDEXED, FaissIndex
from feat2vec.space.geometry import Candidates, Queries, similarities, values_as_queries
from feat2vec.space.search_options import IndexKind, Similarity, VectorSimilarity


@dataclass(eq=False)
class ValueSpace:
    """The vectors of a group's values, or of rows as a whole. They are read when they are first needed.

    Args:
        name: The group.
        size: How many values are used: the first ones of the candidates.
        read_candidates: Reads the vectors.
        read_linear: Reads the linear terms, [values]; None if the model has none.
        read_bias: Reads the model's bias.
        level: The level that all vectors are of; None if each value has those of its own levels.
        truncate: Whether a value's vectors of several levels are parts of one vector.
        row_queries: Where the values are rows: what other groups' values meet, each at its own level.
        folder: The run's folder, in which indexes are kept.
        min_indexed: Fewer values are searched exactly.
        activation: What a key needs to have a vector, where not all of them have one.

    """

    name: str
    size: int
    read_candidates: Callable[[], Candidates]
    read_linear: Callable[[], Float32s] | None = None
    read_bias: Callable[[], float] = lambda: 0.0
    level: int | None = None
    truncate: bool = False
    row_queries: Queries | None = None
    folder: Path | None = None
    min_indexed: int = MIN_INDEXED
    activation: Activation | None = None

    def __post_init__(self) -> None:
        self._opened: dict[str, ExactIndex | FaissIndex] = {}

    @cached_property
    def candidates(self) -> Candidates:
        """The vectors, level by level."""
        return self.read_candidates()

    @cached_property
    def linear(self) -> Float32s | None:
        """The linear term of each value, [values]."""
        return None if self.read_linear is None else self.read_linear()[: self.size]

    @cached_property
    def vectors(self) -> Float32s:
        """The vectors of the first level, [values, dim], all of them in memory."""
        return np.asarray(self.candidates.tables[0])

    @property
    def table(self) -> Float32s:
        """The vectors of the first level, [values, dim], of which rows are read when they are asked for."""
        return self.candidates.tables[0]

    def vectors_at(self, positions: slice | Integers) -> Float32s:
        """Some vectors of the first level, [positions, dim]; no others are read if the table stays in its file."""
        return self.candidates.tables[0][positions]

    @property
    def dim(self) -> int:
        """Dimensions of `vectors`."""
        return int(self.candidates.tables[0].shape[1])

    def reason_without_vector(self, position: int, count: int) -> str | None:
        """Why a value, which occurs `count` times, has zeros in place of a vector; None for one that has a vector."""
        if self.candidates.has_vector(position):
            return None
        activation, linear = self.activation, self.linear
        if activation is not None and count < activation.count:
            return f"its count is {count:,}, and `model.activation` gives vectors from {activation.count:,} on"
        if activation is not None and activation.linear and linear is not None and linear[position] == 0:
            return f"its linear term is zero (its count is {count:,}), and `model.activation` needs another one"
        return f"all its coordinates are zero (its count is {count:,})"

    # --- queries ----------------------------------------------------------------------------------------------------

    def query_of_values(self, positions: Array, searched: ValueSpace) -> Queries:
        """The queries that values of this space are, in the space that is searched."""
        if self.row_queries is not None and searched is not self:
            return self.row_queries.take(positions)
        return values_as_queries(self.candidates, positions, truncate=self.truncate)

    def query_of_vector(self, vector: Float32s, searched: ValueSpace) -> Queries:
        """The query that a vector of the first level is, in the space that is searched."""
        higher_tables = searched.candidates.tables[1:]
        free = [vector[None], *(np.zeros((1, table.shape[1]), np.float32) for table in higher_tables)]
        return Queries(free, [np.zeros_like(part) for part in free])

    def with_unit_length(self, query: Queries) -> Queries:
        """A value's query with vectors of length 1 at each level.

        What meets all levels of a candidate at once, in a truncated model or as a row, has length 1 as a whole.
        """
        squares = []
        for free, dependent in zip(query.free, query.dependent, strict=True):
            squares.append(float(np.sum(np.square(free)) + np.sum(np.square(dependent))))
        if self.truncate or self.row_queries is not None:
            squares = [sum(squares)] * len(squares)
        return query.scaled([1 / np.sqrt(square) if square else 0 for square in squares])

    # --- search -----------------------------------------------------------------------------------------------------

    def similarity(self, query: Queries, constant: float, similarity: Similarity, position: int) -> float:
        """The similarity of a query with one value; nothing is computed of the others."""
        rows = slice(position, position + 1)
        candidate = Candidates([table[rows] for table in self.candidates.tables])
        return float(
            self._finished(similarities(query, candidate, _geometric(similarity)), rows, constant, similarity)[0, 0]
        )

    def scores(self, query: Queries, constant: float, similarity: Similarity) -> Callable[[slice], Float32s]:
        """What computes the similarities of queries with consecutive values, [queries, values of the slice]."""

        def scores_of(rows: slice) -> Float32s:
            part = self.candidates.part(rows)
            return self._finished(similarities(query, part, _geometric(similarity)), rows, constant, similarity)

        return scores_of

    def _finished(self, scores: Float32s, rows: slice, constant: float, similarity: Similarity) -> Float32s:
        """Similarities with what a score has beside the dot product."""
        linear = self.linear[rows] if similarity == "score" and self.linear is not None else 0
        finished: Float32s = scores + np.float32(constant) + linear
        return finished

    def search(self, query: Queries, constant: float, k: int, similarity: Similarity, index: IndexKind) -> Hits:
        """The k values that are most similar to each query; `constant` is added to the scores."""
        if len(self.candidates.tables) > 1:
            scores = self.scores(query, constant, similarity)
            most_rows = rows_of_file(self.candidates.tables[0])
            return best_candidates(scores, len(query.free[0]), self.size, k, most_rows=most_rows)
        vectors = query.free[0] + query.dependent[0]  # [queries, dim]
        if similarity == "cosine":
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-30))
        hits = self._index(similarity, index).search(vectors, k)
        return Hits(hits.ids, hits.scores + np.float32(constant))

    def _index(self, similarity: Similarity, kind: IndexKind) -> ExactIndex | FaissIndex:
        """What searches a space of one level; it is made or read once."""
        name = f"{similarity}.{kind}"
        if name not in self._opened:
            exact = self._exact_index(similarity)
            if kind == "exact" or self.size < self.min_indexed:
                self._opened[name] = exact
            else:
                self._opened[name] = FaissIndex.open(exact, kind, self._index_path(name))
        return self._opened[name]

    def _exact_index(self, similarity: Similarity) -> ExactIndex:
        vectors: Float32s | StoredTable = self.candidates.tables[0]
        scale = None
        if similarity == "cosine":
            squares = None if isinstance(vectors, StoredTable) else self.candidates.squares[0]
            scale = InverseNorms(vectors, squares)
        return ExactIndex(vectors, scale, self.linear if similarity == "score" else None)

    def _index_path(self, name: str) -> Path | None:
        if self.folder is None:
            return None
        level = "" if self.level is None else f".level{self.level}"
        return self.folder / "index" / f"{file_name(self.name)}{level}.{name}"


def _geometric(similarity: Similarity) -> VectorSimilarity:
    """The part of a similarity that follows from vectors alone."""
    return "cosine" if similarity == "cosine" else "dot"
