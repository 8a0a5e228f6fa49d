"""Vectors to look up by key, with the habits of gensim's KeyedVectors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Bools, Float32s, Int8s, Int64s, Integers
from feat2vec.errors import UnknownKeyError, UserError, suggest
from feat2vec.space.key_lookup import Names, nearest
from feat2vec.space.value_space import ValueSpace


class KeyedVectors:
    """Vectors by key. Keys are strings, the most frequent first; values that are no keys are spelled as text.

    Args:
        name: The group, or "row".
        owner: What messages call it, such as "the group 'director'".
        names: The keys as strings.
        counts: How often each key comes in the training rows, [n].
        levels: The level of each key, from 1, [n].
        space: The vectors, in the same order.

    """

    def __init__(self, name: str, owner: str, names: Names, counts: Int64s, levels: Int8s, space: ValueSpace) -> None:
        self.name, self._owner = name, owner
        self._names, self._counts, self._levels, self._space = names, counts, levels, space

    def __repr__(self) -> str:
        level = "" if self.level is None else f", level {self.level}"
        return f"<Vectors of {self.name!r}: {len(self):,} of {self.vector_size} dimensions{level}>"

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.index_to_key)

    def __contains__(self, key: object) -> bool:
        return 0 <= self._names.find(key) < len(self)

    def __getitem__(self, key: object) -> Float32s:
        """A key's vector [dim], or the vectors [keys, dim] of a list of keys."""
        if isinstance(key, (list, tuple, np.ndarray)):
            return self._space.vectors_at(np.array([self.get_index(listed_key) for listed_key in key], np.int64))
        return self.get_vector(key)

    @property
    def level(self) -> int | None:
        """The level in whose space everything is compared; None if each pair is compared at its own level."""
        return self._space.level

    @property
    def index_to_key(self) -> list[str]:
        """Every key."""
        return self._names.all_strings[: len(self)]

    @property
    def strings(self) -> pa.StringArray:
        """Every key, as Arrow strings."""
        return self._names.strings[: len(self)]

    @property
    def counts(self) -> Int64s:
        """How often each key comes among the training rows."""
        return self._counts

    @property
    def levels(self) -> Int8s:
        """The level of each key, from 1."""
        return self._levels

    @cached_property
    def without_vector(self) -> Bools:
        """Which keys have zeros in place of a vector, as `model.activation` leaves them, [n]."""
        return self._space.candidates.without_vector()

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """The position of every key."""
        return {key: position for position, key in enumerate(self.index_to_key)}

    @property
    def vectors(self) -> Float32s:
        """Every vector [n, dim], read-only; without a level those of level 1."""
        vectors = self._space.vectors.view()
        vectors.flags.writeable = False
        return vectors

    @property
    def table(self) -> Float32s:
        """What `vectors` are read from: a large table stays in its file, and `table[rows]` reads some of its rows."""
        return self._space.table

    @property
    def vector_size(self) -> int:
        """Dimensions of `vectors`."""
        return self._space.dim

    def get_index(self, key: object) -> int:
        """The position of a key.

        Args:
            key: A key.

        Returns:
            Its position among the keys, from 0.

        Raises:
            UnknownKeyError: There is no such key; the message names the nearest ones.

        """
        position = self._names.find(key)
        if 0 <= position < len(self):
            return position
        if position >= 0:
            raise UnknownKeyError(
                f"{self._owner}: {key!r} does not reach level {self.level}; use a lower level, or none"
            )
        raise UnknownKeyError(f"{self._owner} has no {key!r}{nearest(str(key), self._names, len(self))}")

    def get_vector(self, key: object, norm: bool = False) -> Float32s:
        """A copy of a key's vector.

        Args:
            key: A key.
            norm: Whether to scale the vector to length 1.

        Returns:
            The vector, [dim].

        Raises:
            UnknownKeyError: There is no such key.

        """
        vector: Float32s = self._space.vectors_at(np.array([self.get_index(key)]))[0]
        if norm:
            vector /= max(float(np.linalg.norm(vector)), 1e-30)
        return vector

    def get_vecattr(self, key: object, attr: str) -> int:
        """What is known of a key.

        Args:
            key: A key.
            attr: "count", how often the key comes among the training rows, or "level".

        Returns:
            The count or the level.

        Raises:
            UnknownKeyError: There is no such key.
            UserError: The attribute is neither of these.

        """
        attributes: dict[str, Integers] = {"count": self._counts, "level": self._levels}
        if attr not in list(attributes):  # a list, as what is given may have no hash
            raise UserError(f"a vector has a 'count' and a 'level'; received {attr!r}{suggest(attr, attributes)}")
        return int(attributes[attr][self.get_index(key)])
