"""`run.vectors(group)`: a group's vectors to look up, compare and search, with the habits of gensim's KeyedVectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from feat2vec.encode.array_files import Array, file_name
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.encode.entry_text import distinct_names
from feat2vec.errors import UnknownKeyError, UserError, listed, suggest
from feat2vec.schema.levels import is_level
from feat2vec.schema.levels import levels as levels_of
from feat2vec.space.geometry import (
    ROWS,
    Candidates,
    Floats,
    Model,
    Queries,
    blocks,
    candidates,
    extract,
    is_keyed,
    linear_terms,
    similarities,
    values_as_queries,
)
from feat2vec.space.key_names import KeyNames, Names, ValueNames, nearest
from feat2vec.space.search import INDEXED, Flat, Hits, Index, IndexKind, best
from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    from feat2vec.model.keras_model import Feat2Vec

Similarity = Literal["cosine", "dot", "score"]
Input = Any  # a key, a vector, or a pair of one of them and a weight
SIMILARITIES, INDEXES = ("cosine", "dot", "score"), ("exact", "hnsw", "ivf")


@dataclass(frozen=True)
class Hit:
    """A value that was found."""

    group: str
    key: str
    score: float
    count: int


class Vectors:
    """Vectors by key. Keys are strings, the most frequent first; values that are no keys are spelled as text.

    In a model with ranks two values meet at the lower of their two levels, and so they are compared; `vectors` and
    `v[key]` are those of level 1, which every value has. With a `level`, these are the values that reach it, each with
    its vector there (with `level_sharing: truncate`, its first coordinates), and everything is compared in that space.

    `similarity` is one of

    - "cosine", from -1 to 1;
    - "dot", what the pair adds to the model's score;
    - "score", the model's own score of a row that holds the two values and nothing else: its bias, both linear terms,
      and the dot product. The offsets of `nce` are no part of it, nor the classes of `softmax`.
    """

    def __init__(
        self,
        name: str,
        keys: Names,
        found: Callable[[], Candidates],
        counts: Array,
        levels: Array,
        *,
        level: int | None = None,
        truncate: bool = False,
        linear: Callable[[], Floats] | None = None,
        bias: Callable[[], float] = lambda: 0.0,
        apart: Queries | None = None,
        folder: Path | None = None,
        open_group: Callable[[str], Vectors] | None = None,
    ) -> None:
        self.name, self.level = name, level
        self._keys, self._find, self._counts, self._levels = keys, found, counts, levels
        self._truncate, self._find_linear, self._find_bias = truncate, linear, bias
        self._apart = apart  # of rows: what other groups see of them, each value at its own level
        self._folder, self._open_group = folder, open_group
        self._groups: dict[str, Vectors] = {}
        self._opened: dict[str, Flat | Index] = {}

    def __repr__(self) -> str:
        level = "" if self.level is None else f", level {self.level}"
        return f"<Vectors of {self.name!r}: {len(self):,} of {self.vector_size} dimensions{level}>"

    # --- keys and vectors -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.index_to_key)

    def __contains__(self, key: object) -> bool:
        return 0 <= self._keys.find(key) < len(self)

    def __getitem__(self, key: Any) -> Floats:
        """A key's vector [dim], or the vectors [keys, dim] of a list of keys."""
        if isinstance(key, (list, tuple, np.ndarray)):
            return self.vectors[[self.get_index(one) for one in key]]
        return self.get_vector(key)

    @property
    def index_to_key(self) -> list[str]:
        """Every key."""
        return self._keys.every[: len(self)]

    @property
    def strings(self) -> pa.StringArray:
        """Every key, as Arrow strings."""
        return self._keys.strings[: len(self)]

    @property
    def counts(self) -> Array:
        """How often each key comes among the training rows."""
        return self._counts

    @property
    def levels(self) -> Array:
        """The level of each key, from 1."""
        return self._levels

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """The place of every key."""
        return {key: i for i, key in enumerate(self.index_to_key)}

    @property
    def vectors(self) -> Floats:
        """Every vector [n, dim], to be read; without a level those of level 1."""
        vectors = self._found.tables[0].view()
        vectors.flags.writeable = False
        return vectors

    @property
    def vector_size(self) -> int:
        """Dimensions of `vectors`."""
        return int(self._found.tables[0].shape[1])

    def get_index(self, key: object) -> int:
        """The place of a key; one that is not here is a KeyError that names the nearest keys."""
        i = self._keys.find(key)
        if 0 <= i < len(self):
            return i
        where = "the table" if self._apart is not None else f"the group {self.name!r}"
        where = where if self._open_group is not None else f"{self.name!r}"
        if i >= 0:
            raise UnknownKeyError(f"{where}: {key!r} does not reach level {self.level}; use a lower level, or none")
        raise UnknownKeyError(f"{where} has no {key!r}{nearest(str(key), self._keys, len(self))}")

    def get_vector(self, key: object, norm: bool = False) -> Floats:
        """A copy of a key's vector; with `norm`, of length 1."""
        vector: Floats = self.vectors[self.get_index(key)].copy()
        if norm:
            vector /= max(float(np.linalg.norm(vector)), 1e-30)
        return vector

    def get_vecattr(self, key: object, attr: str) -> int:
        """A key's "count" among the training rows, or its "level"."""
        if attr not in ("count", "level"):
            raise UserError(
                f"a vector has a 'count' and a 'level'; received {attr!r}{suggest(attr, ['count', 'level'])}"
            )
        return int((self._counts if attr == "count" else self._levels)[self.get_index(key)])

    # --- similarity -------------------------------------------------------------------------------------------------

    def similarity(self, a: Input, b: object, *, to: str | None = None, similarity: Similarity = "cosine") -> float:
        """The similarity of two keys, the second one of the group `to`.

        >>> round(run.vectors("director").similarity("Ozu", "Ozu"), 3)
        1.0
        """
        _check("similarity", similarity, SIMILARITIES)
        other = self._other(to)
        i = other.get_index(b)
        asked, constant = self._ask([(a, 1.0)], other, similarity)
        return float(other._scores(asked, constant, similarity, exact=True)(slice(i, i + 1))[0, 0])

    def most_similar(
        self,
        positive: Any = None,
        negative: Any = None,
        topn: int | None = 10,
        *,
        to: str | None = None,
        similarity: Similarity = "cosine",
        index: IndexKind = "exact",
    ) -> Any:
        """The `topn` keys that are most similar to some, as pairs of key and similarity; None is every similarity [n].

        `positive` and `negative` are a key, a vector, or a list of these and of pairs with a weight. Their vectors of
        length 1 are averaged (for "dot" and "score", the vectors as they are, are added up), the negative ones times
        -1. Keys that are given are left out. `to` names another group to search in.

        `index` "hnsw" or "ivf" searches by faiss, nearly exactly and much faster, in a group of 10,000 values or more
        that has one level. An index is built once and kept in the run's folder.

        >>> v = run.vectors("director")
        >>> sorted(key for key, _ in v.most_similar("Ozu"))
        ['Tati', 'Varda']
        >>> len(v.most_similar("Ozu", topn=1, to="genre"))
        1
        """
        if topn is not None:
            hits = self.search(positive, negative, topn, to=to, similarity=similarity, index=index)
            return [(hit.key, hit.score) for hit in hits]
        given, other = self._given(positive, negative, similarity), self._other(to)
        scores = other._scores(*self._ask(given, other, similarity), similarity)
        return np.concatenate([scores(some)[0] for some in blocks(len(other), 1 << 16)])

    def search(
        self,
        positive: Any = None,
        negative: Any = None,
        topn: int = 10,
        *,
        to: str | None = None,
        similarity: Similarity = "cosine",
        index: IndexKind = "exact",
    ) -> list[Hit]:
        """What `most_similar` finds, with groups and counts."""
        _check("index", index, INDEXES)
        given, other = self._given(positive, negative, similarity), self._other(to)
        asked, constant = self._ask(given, other, similarity)
        own = {self.get_index(key) for key, _ in given if not _is_vector(key)} if other is self else set()
        if topn < 1:
            return []
        found = other._search(asked, constant, topn + len(own), similarity, index)
        ranked = zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        pairs = [(i, score) for i, score in ranked if i not in own and i >= 0][:topn]
        keys = other._keys.at([i for i, _ in pairs])
        return [Hit(other.name, key, score, int(other._counts[i])) for key, (i, score) in zip(keys, pairs, strict=True)]

    def nearest(self, some: Array, topn: int = 10, *, to: str | None = None) -> Hits:
        """The places in `to` of what is nearest, by cosine, to each of some keys, which are given by their places.

        A key alone gets what `search` finds. Many are multiplied together, and so summed in another order: what is
        equal but for the last bits may change places.
        """
        other = self._other(to)
        hits = other._search(self._values_as_query(some, other), 0.0, topn + (other is self), "cosine", "exact")
        if other is not self:
            return hits
        order = np.argsort(hits.ids == np.asarray(some)[:, None], axis=1, kind="stable")  # itself comes last
        order = order[:, : min(topn, len(self) - 1)]
        return Hits(np.take_along_axis(hits.ids, order, 1), np.take_along_axis(hits.scores, order, 1))

    def similar_by_key(self, key: object, topn: int | None = 10, **options: Any) -> Any:
        """`most_similar` of one key."""
        return self.most_similar([key], topn=topn, **options)

    def similar_by_vector(self, vector: Any, topn: int | None = 10, **options: Any) -> Any:
        """`most_similar` of one vector; in a model with ranks, and without a level, it is one of level 1."""
        return self.most_similar([np.asarray(vector, np.float32)], topn=topn, **options)

    def _given(self, positive: Any, negative: Any, similarity: Similarity) -> list[tuple[Input, float]]:
        _check("similarity", similarity, SIMILARITIES)
        given = [*_inputs(positive, 1.0), *_inputs(negative, -1.0)]
        if not given:
            raise UserError("a search needs a key or a vector; received none")
        return given

    # --- how --------------------------------------------------------------------------------------------------------

    @cached_property
    def _found(self) -> Candidates:
        return self._find()

    @cached_property
    def _linear(self) -> Floats | None:
        return None if self._find_linear is None else self._find_linear()[: len(self)]

    def _other(self, to: str | None) -> Vectors:
        named = isinstance(to, str) and to == self.name
        if to is None or (named and self._apart is None and self._open_group is not None):
            return self
        if self._open_group is None:
            raise UserError(f"{self.name!r} stands alone, without other groups; received to={to!r}")
        if not isinstance(to, str) or to not in self._groups:
            self._groups[to] = self._open_group(to)
        return self._groups[to]

    def _ask(
        self, given: Sequence[tuple[Input, float]], other: Vectors, similarity: Similarity
    ) -> tuple[Queries, float]:
        """One query of keys and vectors, and what a score has whatever the candidate is."""
        total: list[list[Floats]] | None = None
        constant = self._find_bias() if similarity == "score" else 0.0
        for key, weight in given:
            if _is_vector(key):
                asked = self._vector_as_query(key, other)
            else:
                i = self.get_index(key)
                asked = self._values_as_query(np.array([i]), other)
                if similarity == "score" and self._linear is not None:
                    constant += weight * float(self._linear[i])
            if similarity == "cosine" and len(given) > 1:
                asked = self._unit(asked)
            parts = [[part * np.float32(weight) for part in side] for side in asked]
            if total is not None:
                parts = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(total, parts, strict=True)]
            total = parts
        assert total is not None
        return Queries(*total), constant

    def _values_as_query(self, some: Array, other: Vectors) -> Queries:
        if self._apart is not None and other is not self:
            return self._apart.take(some)
        return values_as_queries(self._found, some, truncate=self._truncate)

    def _vector_as_query(self, vector: Any, other: Vectors) -> Queries:
        vector = np.asarray(vector, np.float32)
        if vector.shape != (self.vector_size,):
            raise UserError(f"{self.name!r} has vectors of {self.vector_size} dimensions; received {vector.shape}")
        parts = [np.zeros((1, table.shape[1]), np.float32) for table in other._found.tables]
        parts[0] = vector[None]
        return Queries(parts, [np.zeros_like(part) for part in parts])

    def _unit(self, asked: Queries) -> Queries:
        """A value's vectors, each of length 1; what is compared with all of its levels at once, as a whole."""
        squares = [float(np.sum(np.square(free)) + np.sum(np.square(held))) for free, held in zip(*asked, strict=True)]
        if self._truncate or self._apart is not None:
            squares = [sum(squares)] * len(squares)
        by = [np.float32(1 / np.sqrt(square) if square else 0) for square in squares]
        return Queries(*([part * one for part, one in zip(side, by, strict=True)] for side in asked))

    def _scores(
        self, asked: Queries, constant: float, similarity: Similarity, exact: bool = False
    ) -> Callable[[slice], Floats]:
        """The similarities of a query with some candidates, [1, some]."""
        compared: Literal["cosine", "dot"] = "cosine" if similarity == "cosine" else "dot"
        linear = self._linear if similarity == "score" else None
        found = self._found
        if exact:  # one pair: nothing is computed of the others

            def part(some: slice) -> Candidates:
                return Candidates([table[some] for table in found.tables])
        else:
            part = found.part

        def of(some: slice) -> Floats:
            scores = similarities(asked, part(some), compared)
            return scores + np.float32(constant) + (0 if linear is None else linear[some])

        return of

    def _search(self, asked: Queries, constant: float, k: int, similarity: Similarity, index: IndexKind) -> Hits:
        if len(self._found.tables) > 1:
            return best(self._scores(asked, constant, similarity), len(asked.free[0]), len(self), k)
        query = asked.free[0] + asked.dependent[0]
        if similarity == "cosine":
            query = query / np.maximum(np.linalg.norm(query, axis=1, keepdims=True), np.float32(1e-30))
        hits = self._open(similarity, index).search(query, k)
        return Hits(hits.ids, hits.scores + np.float32(constant))

    def _open(self, similarity: Similarity, index: IndexKind) -> Flat | Index:
        """What searches a space of one level."""
        name = f"{similarity}.{index}"
        if name in self._opened:
            return self._opened[name]
        table = self._found.tables[0]
        scale = None
        if similarity == "cosine":
            norms = np.sqrt(self._found.squares[0])
            scale = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
        flat = Flat(table, scale, self._linear if similarity == "score" else None)
        opened: Flat | Index = flat
        if index != "exact" and len(self) >= INDEXED:
            path = None
            if self._folder is not None:
                level = "" if self.level is None else f".level{self.level}"
                path = self._folder / "index" / f"{file_name(self.name)}{level}.{name}"
            opened = Index.open(flat, index, path)
        self._opened[name] = opened
        return opened


# --- of a run -------------------------------------------------------------------------------------------------------


def vectors_of_group(run: TrainedRun, group: str, level: int | None = None) -> Vectors:
    """A run's vectors of a group by key."""
    return group_vectors(run.learnt, run.fitted, group, level, run.folder)


def vectors_of_rows(run: TrainedRun, data: object, level: int | None = None) -> Vectors:
    """A run's vectors of rows as a whole."""
    return row_vectors(run.model, run.fitted, data, level)


# --- groups and rows ------------------------------------------------------------------------------------------------


def group_vectors(
    model: Model, encoder: Encoder, group: str, level: int | None = None, folder: Path | None = None
) -> Vectors:
    """The vectors of a group's keys, or of its values where it has none."""
    names = list(encoder.codecs)
    if not isinstance(group, str) or group not in names:
        rows = "; rows as a whole are `run.row_vectors(data)`" if isinstance(group, str) and group == "row" else ""
        raise UserError(
            f"there is no group {group!r}{suggest(group, names) or '; the groups are ' + listed(names)}{rows}"
        )
    ranks = _ranks(model, level)
    if is_keyed(model, group):
        vocabulary = encoder.codecs[group].vocabulary
        assert vocabulary is not None
        keys: Names = KeyNames(encoder, group)
        counts = vocabulary.counts
        levels = levels_of(counts, ranks)
    else:
        keys, counts = ValueNames(encoder, group), encoder.values[group].counts
        levels = np.full(len(counts), len(ranks), np.int8)
    truncate = model.schema.model.level_sharing == "truncate"
    total = len(counts) if level is None else int((levels >= level).sum())
    if not total:
        if level is None:
            raise UserError(f"the group {group!r} has no vectors: none of its keys is as frequent as `min_count` asks")
        raise UserError(f"no value of the group {group!r} reaches level {level}; use a lower level, or none")
    return Vectors(
        group,
        keys,
        lambda: _at_level(candidates(model, encoder, group), level, truncate),
        counts[:total],
        levels[:total],
        level=level,
        truncate=truncate,
        linear=(lambda: linear_terms(model, encoder, group)) if model.schema.model.bias else None,
        bias=model.bias_value,
        folder=folder,
        open_group=lambda to: group_vectors(model, encoder, to, level, folder),
    )


def row_vectors(model: Feat2Vec, encoder: Encoder, data: object, level: int | None = None) -> Vectors:
    """The vectors of rows as a whole: the sums of their groups' vectors.

    Keys are the names in the schema's `id` column, or the numbers of the rows, from 1. In a model with ranks, values
    of other groups are compared with a row's values each at its own level. Two rows are compared at one level, the
    first one if none is given, as a row has values of several levels (with `level_sharing: truncate` nothing is lost
    by it).
    """
    ranks, truncate = _ranks(model, level), model.schema.model.level_sharing == "truncate"
    encoded = encoder.encode(data)
    names = encoded.names()
    if names is None and encoder.schema.id is not None:
        raise UserError(f"the rows have no column {encoder.schema.id!r}, the schema's `id`, which names them; add it")
    numbers = np.arange(1, len(encoded) + 1)
    keys = distinct_names(names["name"].combine_chunks() if names else pa.array(numbers).cast(pa.string()))
    free, dependent, linear = _sum_rows(model, encoded)
    if truncate:
        tables = free if level is None else [np.concatenate(free[:level], axis=1)]
    else:
        tables = [free[(level or 1) - 1] + dependent[(level or 1) - 1]]
    one = np.ones(len(encoded), np.int64)
    apart = Queries(free, dependent) if level is None else None
    return Vectors(
        "row",
        Names(keys),
        lambda: Candidates(tables),
        one,
        (one * len(ranks)).astype(np.int8),
        level=level,
        truncate=truncate,
        linear=(lambda: linear) if model.schema.model.bias else None,
        bias=model.bias_value,
        apart=apart or Queries(tables, [np.zeros_like(table) for table in tables]),
        open_group=lambda to: group_vectors(model, encoder, to, level),
    )


def _sum_rows(model: Feat2Vec, encoded: Encoded) -> tuple[list[Floats], list[Floats], Floats]:
    """Each row's sums over its groups: free and dependent parts [rows, D_p], and linear terms [rows]."""
    free, dependent = ([np.zeros((len(encoded), dim), np.float32) for dim in model.dims] for _ in range(2))
    linear = np.zeros(len(encoded), np.float32)
    for g, group in enumerate(model.groups):
        ids = np.asarray(encoded.rows[:, g])
        used, place = np.unique(ids, return_inverse=True)
        used, there = used[used >= 0], np.flatnonzero(ids >= 0)
        place = place[there] - (len(there) < len(ids))  # -1, a missing one, comes first
        for some in blocks(len(used), ROWS):
            entries = np.asarray(encoded.values[group].entries[used[some]])
            parts = extract(model, {group: entries})
            here = (place >= some.start) & (place < some.stop)
            rows, at = there[here], place[here] - some.start
            for sums, values in ((free, parts.free), (dependent, parts.dependent)):
                for whole, part in zip(sums, values, strict=True):
                    whole[rows] += part[at]
            if model.schema.model.bias:
                linear[rows] += model.vectors(group, entries).linear.numpy()[at]
    return free, dependent, linear


def _at_level(found: Candidates, level: int | None, truncate: bool) -> Candidates:
    if level is None:
        return found
    if not truncate:
        return Candidates([found.tables[level - 1]])
    total = found.sizes()[level - 1]
    return Candidates([np.concatenate([table[:total] for table in found.tables[:level]], axis=1)])


def _ranks(model: Model, level: int | None) -> Sequence[int]:
    """The ranks of a model, which has this level."""
    ranks = model.schema.model.ranks or (model.schema.model.dim,)
    if level is not None and not is_level(level, len(ranks)):
        has = f"levels 1 to {len(ranks)} (ranks {', '.join(map(str, ranks))})" if len(ranks) > 1 else "one level, 1"
        raise UserError(f"the model has {has}; received level {level!r}")
    return ranks


# --- what is given --------------------------------------------------------------------------------------------------


def _inputs(given: Any, sign: float) -> list[tuple[Input, float]]:
    """Keys and vectors with their weights."""
    if given is None:
        return []
    if not isinstance(given, (list, tuple, np.ndarray)) or (isinstance(given, np.ndarray) and given.ndim == 1):
        given = [given]
    pairs = ((one if isinstance(one, tuple) else (one, 1.0)) for one in given)
    return [(key, sign * float(weight)) for key, weight in pairs]


def _is_vector(given: Input) -> bool:
    return isinstance(given, np.ndarray) and given.ndim > 0


def _check(name: str, word: str, known: Sequence[str]) -> None:
    if not isinstance(word, str) or word not in known:
        raise UserError(f"{name} is one of {', '.join(known)}; received {word!r}{suggest(word, known)}")


__all__ = ["Hit", "Vectors", "group_vectors", "row_vectors"]
