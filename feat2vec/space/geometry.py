"""The learnt space: the vectors of a group's candidates and of queries, and their similarity.

A pair of values meets at the lower of its two levels. For a candidate v of level k and a query whose groups have, at
level p, the summed free part F_p and dependent part D_p (see `interactions`), that is exactly

    q . v = sum_{p < k} F_p . v_p + (F_k + D_k) . v_k

so towards v the query is the vector (F_1, .., F_{k-1}, F_k + D_k). The cosine divides by that vector's norm and by the
norm of v over the levels at which the query has something; for two values it is the cosine at their own level.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from feat2vec.encode.array_files import Array
from feat2vec.encode.codecs import Entries, ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST
from feat2vec.schema.extractor_options import ItemsSpec

if TYPE_CHECKING:
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.model_file import StoredModel
    from feat2vec.model.pair_scores import Level

Model: TypeAlias = "Feat2Vec | StoredModel"  # in memory, or in its file
Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.signedinteger[Any]]
Similarity = Literal["cosine", "dot"]
ROWS = 8192  # that go through an extractor at a time


@dataclass(frozen=True)
class Candidates:
    """Values of one group: table p, [|F_p|, D_p], holds those whose own level is p or higher, which come first."""

    tables: list[Floats]

    def sizes(self) -> list[int]:
        """|F_1| .. |F_m|, and 0."""
        return [len(table) for table in self.tables] + [0]

    def part(self, some: slice) -> Candidates:
        """Consecutive ones."""
        part = Candidates([table[some] for table in self.tables])
        part.__dict__["squares"] = [square[some] for square in self.squares]  # already known
        return part

    @cached_property
    def squares(self) -> list[Floats]:
        """|v_p|^2, zero for candidates without level p: for each level [|F_1|]."""
        whole = [np.zeros(len(self.tables[0]), np.float32) for _ in self.tables]
        for square, table in zip(whole, self.tables, strict=True):
            square[: len(table)] = np.einsum("ij,ij->i", table, table)
        return whole


class Queries(NamedTuple):
    """Sums of groups' vectors: for each level F_p and D_p, [queries, D_p]."""

    free: list[Floats]
    dependent: list[Floats]

    def take(self, some: Any) -> Queries:
        """Some of them."""
        return Queries([part[some] for part in self.free], [part[some] for part in self.dependent])

    def towards(self, level: int) -> list[Floats]:
        """What candidates of a level (counted from 0) see: parts [queries, D_p] of levels up to it."""
        return [*self.free[:level], self.free[level] + self.dependent[level]]


def candidates(model: Model, encoder: Encoder, group: str) -> Candidates:
    """The keys of a lookup group in the order of their ids, or the training values of another group."""
    if model.is_lookup(group):
        tables, gain = model.lookup(group).tables, getattr(model.schema.groups[group].extractor, "gain", 1.0)
        tables[0] = tables[0][1:]  # without the unseen key
        return Candidates(tables if gain == 1 else [table * np.float32(gain) for table in tables])
    entries = encoder.values[group].entries
    whole = model.part(group)
    parts = [extract(whole, {group: entries[at : at + ROWS]}) for at in range(0, len(entries), ROWS)]
    levels = ([free + dependent for free, dependent in zip(*part, strict=True)] for part in parts)
    return Candidates([np.concatenate(pieces) for pieces in zip(*levels, strict=True)])


def values_as_queries(found: Candidates, some: Ints, *, truncate: bool) -> Queries:
    """What `extract` gives for single candidates; with truncation every part of a vector is free."""
    parts: list[tuple[Floats, Floats]] = []
    for size, table in zip(found.sizes()[1:], found.tables, strict=True):
        rows = np.zeros((len(some), table.shape[1]), np.float32)
        here = some < len(table)
        rows[here] = table[some[here]]
        higher = (some < size)[:, None] & (not truncate)
        parts.append((np.where(higher, 0, rows), np.where(higher, rows, 0)))
    return Queries(*map(list, zip(*parts, strict=True)))


def linear_terms(model: Model, encoder: Encoder, group: str) -> Floats:
    """What each of the `candidates` adds to a score by itself: [candidates]."""
    if not model.schema.model.bias:
        return np.zeros(candidates(model, encoder, group).sizes()[0], np.float32)
    if model.is_lookup(group):
        linear = model.lookup(group).linear
        assert linear is not None
        return linear[1:]
    import tensorflow as tf

    entries, whole = encoder.values[group].entries, model.part(group)
    parts = (whole.vectors(group, tf.convert_to_tensor(entries[part])) for part in blocks(len(entries), ROWS))
    return np.concatenate([part.linear.numpy() for part in parts])


def is_keyed(model: Model, group: str) -> bool:
    """Whether the group's `candidates` are its keys, not the entries of its training rows."""
    return model.is_lookup(group)


def keys_of(encoder: Encoder, group: str) -> Any:
    """A lookup group's keys (Arrow strings), in the order of `candidates`; None for other groups."""
    codec, spec = encoder.codecs[group], encoder.schema.groups[group].extractor
    return codec.vocabulary.keys if isinstance(codec, ItemsCodec) and isinstance(spec, ItemsSpec) else None


def dense(entries: Entries) -> Array:
    """Entries of every row; a row without one gets the missing entry."""
    missing = np.nan if entries.rows.dtype == np.float32 else 0
    rows = np.full((len(entries.present), entries.rows.shape[1]), missing, entries.rows.dtype)
    rows[entries.present] = entries.rows
    return rows


def known(encoder: Encoder, group: str, entries: Array) -> npt.NDArray[np.bool_]:
    """Which entries hold something that training has seen."""
    if entries.dtype == np.float32:
        there: npt.NDArray[np.bool_] = ~np.isnan(entries[:, 0])
        return there
    codec = encoder.codecs[group]
    ids = entries[:, : entries.shape[1] // 2] if getattr(codec, "weighted", False) else entries
    seen: npt.NDArray[np.bool_] = np.any(ids >= FIRST, axis=1)
    return seen


def extract(model: Feat2Vec, entries: Mapping[str, Array]) -> Queries:
    """The sums over groups of the vectors of their entries [rows, width]."""
    import tensorflow as tf

    sums: Queries | None = None
    for name, rows in entries.items():
        found = model.vectors(name, tf.convert_to_tensor(np.ascontiguousarray(rows))).levels
        parts = Queries(*map(list, zip(*(_parts(level) for level in found), strict=True)))
        if model.schema.model.level_sharing == "truncate":
            both = [free + dependent for free, dependent in zip(*parts, strict=True)]
            parts = Queries(both, [np.zeros_like(part) for part in both])
        if sums is None:
            sums = parts
        else:
            added = ([a + b for a, b in zip(*pair, strict=True)] for pair in zip(sums, parts, strict=True))
            sums = Queries(*added)
    if sums is None:
        raise ValueError("a query needs a group")
    return sums


def similarities(queries: Queries, found: Candidates, similarity: Similarity) -> Floats:
    """[queries, candidates]."""
    sizes = found.sizes()
    scores = np.zeros((len(queries.free[0]), sizes[0]), np.float32)
    for level, (free, dependent, table) in enumerate(zip(*queries, found.tables, strict=True)):
        higher, all_ = sizes[level + 1], sizes[level]
        if higher:
            scores[:, :higher] += free @ table[:higher].T
        if all_ > higher:
            scores[:, higher:all_] += (free + dependent) @ table[higher:].T
    if similarity == "cosine":
        scores *= _inverse(_candidate_squares(queries, found))
        for level in range(len(found.tables)):
            own = slice(sizes[level + 1], sizes[level])
            scores[:, own] *= _inverse(sum(_squares(part) for part in queries.towards(level)))[:, None]
    return scores


def _candidate_squares(queries: Queries, found: Candidates) -> Floats:
    """|v|^2 towards each query, over the levels at which it has something: [queries or 1, candidates]."""
    squares, sizes = found.squares, found.sizes()
    if len(squares) == 1:
        return squares[0][None]
    whole = np.zeros((len(queries.free[0]), sizes[0]), np.float32)
    for level, (free, dependent, square) in enumerate(zip(*queries, squares, strict=True)):
        higher, all_ = sizes[level + 1], sizes[level]
        whole[:, :higher] += np.any(free, axis=1, keepdims=True) * square[:higher]
        whole[:, higher:all_] += np.any(free + dependent, axis=1, keepdims=True) * square[higher:all_]
    return whole


def blocks(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size`."""
    return (slice(at, min(at + size, total)) for at in range(0, total, size))


def _squares(part: Floats) -> Any:
    return np.einsum("ij,ij->i", part, part)


def _inverse(squares: Any) -> Any:
    """1 / sqrt, 0 for 0: a zero vector is like nothing."""
    return np.divide(1, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)


def _parts(level: Level) -> tuple[Floats, Floats]:
    free = level.free.numpy()
    return free, np.zeros_like(free) if level.dependent is None else level.dependent.numpy()
