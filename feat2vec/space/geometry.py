"""The learnt space: the vectors of a group's candidates and of queries, and their similarity.

A pair of values meets at the lower of its two levels. For a candidate v of level k and a query whose groups have, at
level p, the summed free part F_p and dependent part D_p (see `pair_scores`), that is exactly

    q . v = sum_{p < k} F_p . v_p + (F_k + D_k) . v_k

so towards v the query is the vector (F_1, .., F_{k-1}, F_k + D_k). The cosine divides by that vector's norm and by the
norm of v over the levels at which the query has something; for two values it is the cosine at their own level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Float32s, Integers, as_numbers
from feat2vec.encode.codecs import Entries, ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST
from feat2vec.model.stored_table import squares_of
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.space.search_options import VectorSimilarity

if TYPE_CHECKING:
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.stored_model import StoredModel

Model: TypeAlias = "Feat2Vec | StoredModel"  # in memory, or in its file
Rows: TypeAlias = "slice | Integers | Bools"
ROWS_PER_BATCH = 8192  # that go through an extractor at a time


@dataclass(frozen=True)
class Candidates:
    """The values of a group, those of the highest level first.

    Args:
        tables: The vectors of each level p of the values F_p whose own level is p or higher, [|F_p|, D_p].
        known_squares: What `squares` is, where it has been computed already.

    """

    tables: list[Float32s]
    known_squares: list[Float32s] | None = None

    def sizes(self) -> list[int]:
        """|F_1| .. |F_m|, and 0."""
        return [len(table) for table in self.tables] + [0]

    def has_vector(self, candidate: int) -> bool:
        """Whether a candidate has a number other than zero at any level."""
        return any(bool(table[candidate].any()) for table in self.tables if candidate < len(table))

    def without_vector(self) -> Bools:
        """Which candidates are zero at all levels, [|F_1|]."""
        is_zero = np.ones(len(self.tables[0]), np.bool_)
        for table in self.tables:
            for rows in blocks(len(table), ROWS_PER_BATCH):
                is_zero[rows] &= ~table[rows].any(axis=1)
        return is_zero

    def part(self, rows: slice) -> Candidates:
        """Consecutive candidates."""
        squares = [square[rows] for square in self.squares]
        return Candidates([table[rows] for table in self.tables], squares)

    @cached_property
    def squares(self) -> list[Float32s]:
        """|v_p|^2 for each level p, [|F_1|]; zero for candidates without the level."""
        if self.known_squares is not None:
            return self.known_squares
        squares = [np.zeros(len(self.tables[0]), np.float32) for _ in self.tables]
        for square, table in zip(squares, self.tables, strict=True):
            square[: len(table)] = squares_of(table)
        return squares


class Queries(NamedTuple):
    """The sums of groups' vectors, for each level p: the free part F_p and the dependent part D_p, [queries, D_p]."""

    free: list[Float32s]
    dependent: list[Float32s]

    def take(self, rows: Rows) -> Queries:
        """The queries of some rows: their numbers, a mask or a slice."""
        return Queries([part[rows] for part in self.free], [part[rows] for part in self.dependent])

    def times(self, factor: float) -> Queries:
        """The queries with every vector multiplied."""
        return self.scaled([factor] * len(self.free))

    def scaled(self, factors: Sequence[float]) -> Queries:
        """The queries with the vectors of each level multiplied by a factor of their own."""
        free = [part * np.float32(factor) for part, factor in zip(self.free, factors, strict=True)]
        dependent = [part * np.float32(factor) for part, factor in zip(self.dependent, factors, strict=True)]
        return Queries(free, dependent)

    def plus(self, queries: Queries) -> Queries:
        """The sums of the vectors of these queries and of others."""
        free = [a + b for a, b in zip(self.free, queries.free, strict=True)]
        dependent = [a + b for a, b in zip(self.dependent, queries.dependent, strict=True)]
        return Queries(free, dependent)

    def put_into(self, queries: Queries, rows: Rows) -> None:
        """Write these queries over some rows of others."""
        for parts, of_queries in ((self.free, queries.free), (self.dependent, queries.dependent)):
            for part, of_part in zip(parts, of_queries, strict=True):
                of_part[rows] = part

    def towards(self, level: int) -> list[Float32s]:
        """The vector that candidates of a level (counted from 0) meet: its parts [queries, D_p] of levels up to it."""
        return [*self.free[:level], self.free[level] + self.dependent[level]]


@dataclass(frozen=True)
class GroupQueries:
    """The vectors of several groups in the same rows, so that weighing them is a matrix product.

    Args:
        groups: The names of the groups.
        parts: The vectors of each level, [rows, D_p, groups]: the groups come last.

    """

    groups: Sequence[str]
    parts: Queries

    @classmethod
    def stacked(cls, vectors: Mapping[str, Queries]) -> GroupQueries:
        """The vectors of groups, each [rows, D_p].

        >>> one = Queries([np.ones((2, 3), "f4")], [np.zeros((2, 3), "f4")])
        >>> stacked = GroupQueries.stacked({"a": one, "b": one})
        >>> stacked.weighted({"a": 1.0, "b": 2.0}).free[0][0].tolist()
        [3.0, 3.0, 3.0]
        """
        levels = range(len(next(iter(vectors.values())).free))
        free = [np.stack([queries.free[p] for queries in vectors.values()], axis=2) for p in levels]
        dependent = [np.stack([queries.dependent[p] for queries in vectors.values()], axis=2) for p in levels]
        return cls(list(vectors), Queries(free, dependent))

    def of_group(self, group: str) -> Queries:
        """The vectors of a group, [rows, D_p]."""
        place = self.groups.index(group)
        return Queries(
            [part[:, :, place] for part in self.parts.free], [part[:, :, place] for part in self.parts.dependent]
        )

    def weighted(self, weights: Mapping[str, float], rows: Rows = slice(None)) -> Queries:
        """The weighted sums of the vectors of some rows, [rows, D_p]; a group without a weight is left out."""
        numbers = np.array([weights.get(group, 0.0) for group in self.groups], np.float32)

        def weigh(part: Float32s) -> Float32s:
            chosen = part[rows]
            return np.asarray((chosen.reshape(-1, len(numbers)) @ numbers).reshape(chosen.shape[:2]))

        return Queries(list(map(weigh, self.parts.free)), list(map(weigh, self.parts.dependent)))


def stored_candidates(model: Model, encoder: Encoder, group: str) -> Candidates:
    """`candidates`, of which large tables stay in the model's file if it is not in memory."""
    from feat2vec.model.stored_model import StoredModel

    gain = getattr(model.schema.groups[group].extractor, "gain", 1.0)
    tables = None
    if isinstance(model, StoredModel) and model.schema.model.activation is None:
        tables = model.stored_tables(group)
    if tables is None:
        return candidates(model, encoder, group)
    has_unseen_key = [True, *(False for _ in tables[1:])]  # as its first row
    stored = [table.without_first(has, gain) for table, has in zip(tables, has_unseen_key, strict=True)]
    return Candidates(cast("list[Float32s]", stored))  # whose rows are read as those of arrays


def candidates(model: Model, encoder: Encoder, group: str) -> Candidates:
    """The keys of a lookup group in the order of their ids, or the training values of another group."""
    if model.is_lookup(group):
        tables = _tables_of_keys(model, encoder, group)
        gain = getattr(model.schema.groups[group].extractor, "gain", 1.0)
        return Candidates(tables if gain == 1 else [table * np.float32(gain) for table in tables])
    return candidates_of_entries(model, group, encoder.values[group].entries)


def _tables_of_keys(model: Model, encoder: Encoder, group: str) -> list[Float32s]:
    """The vectors of a lookup's keys at each level; zeros for keys that have none, in tables that are copied then."""
    lookup, activation = model.lookup(group), model.schema.model.activation
    unseen_and_keys, *higher_tables = lookup.tables
    tables = [unseen_and_keys[1:], *higher_tables]
    vocabulary = encoder.codecs[group].vocabulary
    if activation is None or vocabulary is None:
        return tables
    without_vector = len(vocabulary.keys) - len(tables[0])
    tables[0] = np.concatenate([tables[0], np.zeros((without_vector, tables[0].shape[1]), np.float32)])
    if activation.linear and lookup.linear is not None:
        is_zero = lookup.linear[1:] == 0  # [keys]
        tables = [np.where(is_zero[: len(table), None], np.float32(0), table) for table in tables]
    return tables


def candidates_of_entries(model: Model, group: str, entries: Array) -> Candidates:
    """Entries [values, width] of a group that is no lookup."""
    group_model = model.model_of_group(group)
    batches_of_level: list[list[Float32s]] = [[] for _ in model.schema.model.levels.dims]
    for start in range(0, len(entries), ROWS_PER_BATCH):
        vectors = extract(group_model, {group: entries[start : start + ROWS_PER_BATCH]})
        for batches, free, dependent in zip(batches_of_level, vectors.free, vectors.dependent, strict=True):
            batches.append(free + dependent)
    return Candidates([np.concatenate(batches) for batches in batches_of_level if batches])


def values_as_queries(values: Candidates, ids: Integers, *, truncate: bool) -> Queries:
    """What `extract` gives for single candidates; with truncation every part of a vector is free."""
    free, dependent = [], []
    for size_above, table in zip(values.sizes()[1:], values.tables, strict=True):
        vectors = np.zeros((len(ids), table.shape[1]), np.float32)
        has_level = ids < len(table)
        vectors[has_level] = table[ids[has_level]]
        is_dependent = (ids < size_above)[:, None] & (not truncate)  # a value of a higher level
        free.append(np.where(is_dependent, 0, vectors))
        dependent.append(np.where(is_dependent, vectors, 0))
    return Queries(free, dependent)


def linear_terms(model: Model, encoder: Encoder, group: str) -> Float32s:
    """What each of the `candidates` adds to a score by itself: [candidates]."""
    if not model.schema.model.bias:
        return np.zeros(candidates(model, encoder, group).sizes()[0], np.float32)
    if model.is_lookup(group):
        linear = model.lookup(group).linear
        assert linear is not None
        return linear[1:]  # without the unseen key
    import tensorflow as tf

    entries, group_model = encoder.values[group].entries, model.model_of_group(group)
    terms = []
    for rows in blocks(len(entries), ROWS_PER_BATCH):
        terms.append(as_numbers(group_model.vectors(group, tf.convert_to_tensor(entries[rows])).linear))
    return np.concatenate(terms)


def is_keyed(model: Model, group: str) -> bool:
    """Whether the group's `candidates` are its keys, not the entries of its training rows."""
    return model.is_lookup(group)


def keys_of(encoder: Encoder, group: str) -> pa.StringArray | None:
    """A lookup group's keys (Arrow strings), in the order of `candidates`; None for other groups."""
    codec, spec = encoder.codecs[group], encoder.schema.groups[group].extractor
    return codec.vocabulary.keys if isinstance(codec, ItemsCodec) and isinstance(spec, ItemsSpec) else None


def dense(entries: Entries) -> Array:
    """The entries of every row [rows, width]; a row without one gets the missing entry."""
    missing = np.nan if entries.rows.dtype == np.float32 else 0
    entries_of_rows = np.full((len(entries.present), entries.rows.shape[1]), missing, entries.rows.dtype)
    entries_of_rows[entries.present] = entries.rows
    return entries_of_rows


def known(encoder: Encoder, group: str, entries: Array) -> Bools:
    """Which entries [rows, width] hold something that training has seen: [rows]."""
    if entries.dtype == np.float32:
        is_present: Bools = ~np.isnan(entries[:, 0])
        return is_present
    codec = encoder.codecs[group]
    ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
    is_seen: Bools = np.any(ids >= FIRST, axis=1)
    return is_seen


def extract(model: Model, entries: Mapping[str, Array]) -> Queries:
    """The sums over groups of the vectors of their entries [rows, width].

    Of a model in its file these are lookups, whose vectors are computed without TensorFlow.
    """
    return sum_of_groups(extract_groups(model, entries))


def sum_of_groups(vectors: Mapping[str, Queries]) -> Queries:
    """The sums over groups of their vectors, as `extract` gives them."""
    total: Queries | None = None
    for group_queries in vectors.values():
        total = group_queries if total is None else total.plus(group_queries)
    if total is None:
        raise ValueError("a query needs a group")
    return total


def extract_groups(model: Model, entries: Mapping[str, Array]) -> dict[str, Queries]:
    """The vectors of each group's entries [rows, width], as `extract` adds them up."""
    from feat2vec.model.stored_model import StoredModel

    truncate = model.schema.model.levels.nested
    if not isinstance(model, StoredModel):
        return {name: _queries_of_tensors(model, name, rows) for name, rows in entries.items()}
    with model.lookup_sums() as lookup_sums:
        sums = lookup_sums(entries)(slice(None))
    return {name: _queries_of(sums[name].free, sums[name].dependent, truncate=truncate) for name in entries}


def _queries_of_tensors(model: Feat2Vec, group: str, entries: Array) -> Queries:
    """A group's vectors by TensorFlow."""
    import tensorflow as tf

    levels = model.vectors(group, tf.convert_to_tensor(np.ascontiguousarray(entries))).levels
    free = [as_numbers(level.free) for level in levels]
    dependent = [
        np.zeros_like(part) if level.dependent is None else as_numbers(level.dependent)
        for part, level in zip(free, levels, strict=True)
    ]
    return _queries_of(free, dependent, truncate=model.schema.model.levels.nested)


def _queries_of(free: list[Float32s], dependent: list[Float32s], *, truncate: bool) -> Queries:
    """Parts of vectors as queries; with truncation every part is free."""
    if not truncate:
        return Queries(free, dependent)
    vectors = [free_part + dependent_part for free_part, dependent_part in zip(free, dependent, strict=True)]
    return Queries(vectors, [np.zeros_like(part) for part in vectors])


def similarities(queries: Queries, values: Candidates, similarity: VectorSimilarity) -> Float32s:
    """The similarity of each query with each candidate, [queries, candidates]."""
    sizes = values.sizes()
    if len(values.tables) == 1:
        scores = np.asarray((queries.free[0] + queries.dependent[0]) @ values.tables[0][0:].T, np.float32)
    else:
        scores = np.zeros((len(queries.free[0]), sizes[0]), np.float32)
        for p, (free, dependent, table) in enumerate(zip(*queries, values.tables, strict=True)):
            size_above, size = sizes[p + 1], sizes[p]
            if size_above:
                scores[:, :size_above] += free @ table[:size_above].T
            if size > size_above:
                scores[:, size_above:size] += (free + dependent) @ table[size_above:].T
    if similarity == "cosine":
        scores *= _inverse_roots(_candidate_squares(queries, values))
        for p in range(len(values.tables)):
            of_level = slice(sizes[p + 1], sizes[p])  # candidates whose own level this is
            query_squares = sum(_squares(part) for part in queries.towards(p))
            scores[:, of_level] *= _inverse_roots(query_squares)[:, None]
    return scores


def _candidate_squares(queries: Queries, values: Candidates) -> Float32s:
    """|v|^2 towards each query, over the levels at which it has something: [queries or 1, candidates]."""
    squares, sizes = values.squares, values.sizes()
    if len(squares) == 1:
        return squares[0][None]
    towards_queries = np.zeros((len(queries.free[0]), sizes[0]), np.float32)
    for p, (free, dependent, square) in enumerate(zip(*queries, squares, strict=True)):
        size_above, size = sizes[p + 1], sizes[p]
        towards_queries[:, :size_above] += np.any(free, axis=1, keepdims=True) * square[:size_above]
        has_something = np.any(free + dependent, axis=1, keepdims=True)  # [queries, 1]
        towards_queries[:, size_above:size] += has_something * square[size_above:size]
    return towards_queries


def blocks(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover `total` rows.

    >>> list(blocks(7, 3))
    [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    """
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def _squares(vectors: Float32s) -> Float32s:
    """|v|^2 of vectors [n, dim]: [n]."""
    squares: Float32s = np.einsum("ij,ij->i", vectors, vectors)
    return squares


def _inverse_roots(squares: Any) -> Float32s:
    """1 / sqrt, and 0 for 0: a zero vector is similar to nothing."""
    roots: Float32s = np.divide(1, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    return roots
