"""The levels of a rank-aware model: their ranks, what each adds, and the level that a value has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from feat2vec.schema.options import Schema

Counts = npt.NDArray[np.int64]


def levels(counts: Counts, ranks: Sequence[int]) -> npt.NDArray[np.int8]:
    """k_v = argmin_k |log n_v - log D_k|, from 1; the lower level where two are as near.

    >>> levels(np.array([1000, 100, 23, 22, 1]), [8, 64]).tolist()
    [2, 2, 2, 1, 1]
    """
    middles = [math.isqrt(low * high) for low, high in pairwise(ranks)]  # n is nearer to `high` if n^2 > low * high
    return (np.searchsorted(np.array(middles, np.int64), counts) + 1).astype(np.int8)


def is_level(level: object, most: int) -> bool:
    """Whether this is a level of a model, counted from 1.

    >>> is_level(2, 2), is_level(3, 2), is_level("2", 2)
    (True, False, False)
    """
    return isinstance(level, (int, np.integer)) and not isinstance(level, bool) and 1 <= int(level) <= most


def dims_of(schema: Schema) -> tuple[int, ...]:
    """The rank of each level; for truncation, of what each level adds to the one below."""
    ranks = schema.model.ranks or (schema.model.dim,)
    if schema.model.level_sharing == "truncate":
        return (ranks[0], *(high - low for low, high in pairwise(ranks)))
    return ranks


def size_of(schema: Schema) -> str:
    """The key of the schema that says how large the space is."""
    return "dim" if schema.model.ranks is None else "ranks"
