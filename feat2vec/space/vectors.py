"""`run.vectors(group)`: a group's vectors to look up, compare and search, with the habits of gensim's KeyedVectors."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from feat2vec.arrays import Float32s, Int8s, Int64s, Integers
from feat2vec.errors import UserError, suggest
from feat2vec.space.exact_index import Hits
from feat2vec.space.geometry import Queries, blocks
from feat2vec.space.key_lookup import Names
from feat2vec.space.keyed_vectors import KeyedVectors
from feat2vec.space.search_options import INDEX_KINDS, SIMILARITIES, IndexKind, Similarity
from feat2vec.space.value_space import ValueSpace

KeyOrVector: TypeAlias = object  # a key is a string, or what a string is made of
Term: TypeAlias = tuple[KeyOrVector, float]  # with its weight

VALUES_PER_BLOCK = 1 << 16  # whose similarities are computed at a time


@dataclass(frozen=True)
class Hit:
    """A value that a search found.

    Args:
        group: The group that was searched.
        key: The key of the value.
        score: Its similarity to what was searched for.
        count: How often the key comes among the training rows.

    Example:
        >>> (hit,) = run.vectors("director").search("Ozu", topn=1, to="genre")
        >>> hit.group, hit.key in films["genre"].unique()
        ('genre', True)

    """

    group: str
    key: str
    score: float
    count: int


class Vectors(KeyedVectors):
    """Vectors by key, to compare and to search.

    In a model with ranks two values meet at the lower of their two levels, and so they are compared; `vectors` and
    `v[key]` are those of level 1, which every value has. With a `level`, these are the values that reach it, each with
    its vector there (with `level_sharing: truncate`, its first coordinates), and everything is compared in that space.

    `similarity` is one of

    - "cosine", from -1 to 1;
    - "dot", what the pair adds to the model's score;
    - "score", the model's own score of a row that holds the two values and nothing else: its bias, both linear terms,
      and the dot product. The offsets of `nce` are no part of it, nor the classes of `softmax`.

    Args:
        name: The group, or "row".
        owner: What messages call it, such as "the group 'director'".
        names: The keys as strings.
        counts: How often each key comes in the training rows, [n].
        levels: The level of each key, from 1, [n].
        space: The vectors, in the same order.
        open_group: Opens the vectors of another group of the run.
        reopen: Opens these vectors; a pickle holds it in place of them.

    >>> directors = run.vectors("director")
    >>> directors["Ozu"].shape, "Kurosawa" in directors
    ((4,), False)

    """

    def __init__(
        self,
        name: str,
        owner: str,
        names: Names,
        counts: Int64s,
        levels: Int8s,
        space: ValueSpace,
        open_group: Callable[[str], Vectors],
        reopen: Callable[[], Vectors] | None = None,
    ) -> None:
        super().__init__(name, owner, names, counts, levels, space)
        self._reopen = reopen
        self._open_group = open_group
        self._opened_groups: dict[str, Vectors] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is not None:
            return self._reopen, ()
        return copyreg.__newobj__, (type(self),), vars(self)  # type: ignore[attr-defined]

    # --- similarity -------------------------------------------------------------------------------------------------

    def similarity(
        self, a: KeyOrVector, b: object, *, to: str | None = None, similarity: Similarity = "cosine"
    ) -> float:
        """The similarity of two values.

        Args:
            a: A key of this group, or a vector.
            b: A key of the group `to`.
            to: The second group; None is this one.
            similarity: "cosine", "dot" or "score".

        Raises:
            UnknownKeyError: A group does not have the key.
            UserError: There is no such group or similarity, or the key has no vector (but for "score").

        Returns:
            The similarity.

        >>> round(run.vectors("director").similarity("Ozu", "Ozu"), 3)
        1.0

        """
        _check_choice("similarity", similarity, SIMILARITIES)
        searched = self._vectors_of(to)
        position = searched.get_index(b)
        if similarity != "score":
            searched.refuse_without_vector(position)
        query, constant = self._query([(a, 1.0)], searched, similarity)
        return searched._space.similarity(query, constant, similarity, position)

    def most_similar(
        self,
        positive: object = None,
        negative: object = None,
        topn: int | None = 10,
        *,
        to: str | None = None,
        similarity: Similarity = "cosine",
        index: IndexKind = "exact",
    ) -> Any:
        """The keys that are most similar to some keys or vectors.

        For "cosine" the vectors that are given, at length 1, are averaged; for "dot" and "score" they are added up as
        they are. Keys that are given are left out of the result.

        Args:
            positive: A key, a vector, or a list of these and of pairs with a weight.
            negative: The same, with weights times -1.
            topn: How many keys to find; None returns every similarity instead, [n].
            to: The group to search in; None is this one.
            similarity: "cosine", "dot" or "score".
            index: "exact", or "hnsw" or "ivf" to search by faiss, nearly exactly and much faster, in a group of 10,000
                values or more that has one level. An index is built once and kept in the run's folder.

        Returns:
            Pairs of key and similarity, the most similar first.

        Raises:
            UnknownKeyError: The group does not have a key.
            UserError: There is no such group, similarity or index, nothing is given, or a key has no vector (but for
                "score").

        >>> v = run.vectors("director")
        >>> sorted(key for key, _ in v.most_similar("Ozu"))
        ['Tati', 'Varda']
        >>> len(v.most_similar("Ozu", topn=1, to="genre"))
        1

        """
        if topn is not None:
            hits = self.search(positive, negative, topn, to=to, similarity=similarity, index=index)
            return [(hit.key, hit.score) for hit in hits]
        terms, searched = _terms(positive, negative, similarity), self._vectors_of(to)
        query, constant = self._query(terms, searched, similarity)
        scores = searched._space.scores(query, constant, similarity)
        return np.concatenate([scores(rows)[0] for rows in blocks(len(searched), VALUES_PER_BLOCK)])

    def search(
        self,
        positive: object = None,
        negative: object = None,
        topn: int = 10,
        *,
        to: str | None = None,
        similarity: Similarity = "cosine",
        index: IndexKind = "exact",
    ) -> list[Hit]:
        """Find what `most_similar` finds, with groups and counts.

        Args:
            positive: As for `most_similar`.
            negative: As for `most_similar`.
            topn: How many keys to find.
            to: The group to search in; None is this one.
            similarity: "cosine", "dot" or "score".
            index: "exact", "hnsw" or "ivf", as for `most_similar`.

        Returns:
            The values, the most similar first.

        Raises:
            UnknownKeyError: The group does not have a key.
            UserError: As from `most_similar`.

        >>> [(hit.group, hit.count) for hit in run.vectors("director").search("Ozu", topn=1)]
        [('director', 20)]

        """
        _check_choice("index", index, INDEX_KINDS)
        terms, searched = _terms(positive, negative, similarity), self._vectors_of(to)
        query, constant = self._query(terms, searched, similarity)
        given_positions = set()
        if searched is self:
            given_positions = {self.get_index(key) for key, _ in terms if not _is_vector(key)}
        if topn < 1:
            return []
        hits = searched._space.search(query, constant, topn + len(given_positions), similarity, index)
        ranked = zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True)
        kept = [(i, score) for i, score in ranked if i not in given_positions and i >= 0][:topn]
        keys = searched._names.at([i for i, _ in kept])
        counts = searched._counts
        return [Hit(searched.name, key, score, int(counts[i])) for key, (i, score) in zip(keys, kept, strict=True)]

    def nearest(self, positions: Integers, topn: int = 10, *, to: str | None = None) -> Hits:
        """The most similar values, by cosine, of many keys at once.

        A single key gets what `search` finds. Many are multiplied at once, and so summed in another order: candidates
        whose similarities differ only in the last bits may change places.

        Args:
            positions: The positions of keys of this group, [keys].
            topn: How many values to find for each key.
            to: The group to search in; None is this one.

        Returns:
            The positions in `to` and the similarities, [keys, topn] both, the most similar first.

        Raises:
            UserError: There is no such group.

        """
        searched = self._vectors_of(to)
        query = self._space.query_of_values(positions, searched._space)
        hits = searched._space.search(query, 0.0, topn + (searched is self), "cosine", "exact")
        if searched is not self:
            return hits
        is_itself = hits.ids == np.asarray(positions)[:, None]
        order = np.argsort(is_itself, axis=1, kind="stable")[:, : min(topn, len(self) - 1)]  # the key itself comes last
        return Hits(np.take_along_axis(hits.ids, order, 1), np.take_along_axis(hits.scores, order, 1))

    def similar_by_key(self, key: object, topn: int | None = 10, **options: Any) -> Any:
        """The keys that are most similar to one key.

        Args:
            key: A key.
            topn: As for `most_similar`.
            **options: The other arguments of `most_similar`.

        Returns:
            As `most_similar`.

        Raises:
            UnknownKeyError: The group does not have the key.
            UserError: As from `most_similar`.

        """
        return self.most_similar([key], topn=topn, **options)

    def similar_by_vector(self, vector: object, topn: int | None = 10, **options: Any) -> Any:
        """The keys that are most similar to one vector.

        Args:
            vector: A vector, [dim]; in a model with ranks, and without a level, it is one of level 1.
            topn: As for `most_similar`.
            **options: The other arguments of `most_similar`.

        Returns:
            As `most_similar`.

        Raises:
            UserError: The vector has another size, or as from `most_similar`.

        """
        return self.most_similar([np.asarray(vector, np.float32)], topn=topn, **options)

    def refuse_without_vector(self, position: int) -> None:
        """Raise for a key of a group that has no vector; a row is the sum of whatever its groups have.

        Args:
            position: The position of the key.

        Raises:
            UserError: The key has no vector; the message says why.

        """
        if self._space.row_queries is not None:
            return
        reason = self._space.reason_without_vector(position, int(self._counts[position]))
        if reason is not None:
            key = self._names.at([position])[0]
            raise UserError(f"{self._owner}: {key!r} has no vector to compare: {reason}")

    # --- queries ----------------------------------------------------------------------------------------------------

    def _vectors_of(self, group: str | None) -> Vectors:
        """The vectors of the group to search in; None is this one."""
        is_this_group = isinstance(group, str) and group == self.name and self._space.row_queries is None
        if group is None or is_this_group:
            return self
        if not isinstance(group, str) or group not in self._opened_groups:
            self._opened_groups[group] = self._open_group(group)
        return self._opened_groups[group]

    def _query(self, terms: Sequence[Term], searched: Vectors, similarity: Similarity) -> tuple[Queries, float]:
        """The weighted sum of keys and vectors as one query, and what its scores have whatever the candidate is."""
        total: Queries | None = None
        constant = self._space.read_bias() if similarity == "score" else 0.0
        for key, weight in terms:
            if _is_vector(key):
                query = self._space.query_of_vector(self._checked_vector(key), searched._space)
            else:
                position = self.get_index(key)
                if similarity != "score":
                    self.refuse_without_vector(position)
                query = self._space.query_of_values(np.array([position]), searched._space)
                if similarity == "score" and self._space.linear is not None:
                    constant += weight * float(self._space.linear[position])
            if similarity == "cosine" and len(terms) > 1:
                query = self._space.with_unit_length(query)
            query = query.times(weight)
            total = query if total is None else total.plus(query)
        assert total is not None
        return total, constant

    def _checked_vector(self, vector: object) -> Float32s:
        vector = np.asarray(vector, np.float32)
        if vector.shape != (self.vector_size,):
            raise UserError(f"{self.name!r} has vectors of {self.vector_size} dimensions; received {vector.shape}")
        checked: Float32s = vector
        return checked


def _terms(positive: object, negative: object, similarity: Similarity) -> list[Term]:
    """The keys and vectors of a search with their weights."""
    _check_choice("similarity", similarity, SIMILARITIES)
    terms = [*_weighted(positive, 1.0), *_weighted(negative, -1.0)]
    if not terms:
        raise UserError("a search needs a key or a vector; received none")
    return terms


def _weighted(keys_and_vectors: object, sign: float) -> list[Term]:
    """Keys and vectors, or a single one, with their weights times a sign; the weight is 1 where none is given."""
    if keys_and_vectors is None:
        return []
    is_single_vector = isinstance(keys_and_vectors, np.ndarray) and keys_and_vectors.ndim == 1
    if is_single_vector or not isinstance(keys_and_vectors, (list, tuple, np.ndarray)):
        keys_and_vectors = [keys_and_vectors]
    terms = []
    for item in keys_and_vectors:
        key, weight = item if isinstance(item, tuple) else (item, 1.0)
        terms.append((key, sign * float(weight)))
    return terms


def _is_vector(key_or_vector: KeyOrVector) -> bool:
    return isinstance(key_or_vector, np.ndarray) and key_or_vector.ndim > 0


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{name} is one of {', '.join(choices)}; received {value!r}{suggest(value, choices)}")


__all__ = ["Hit", "Vectors"]
