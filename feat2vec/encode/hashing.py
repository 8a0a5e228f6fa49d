"""64-bit hashes of numbers, the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from feat2vec.arrays import Int64s

Words = npt.NDArray[np.uint64]


def mixed(words: Words) -> Words:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): distinct words stay distinct, in another order."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_words: Words = words ^ (words >> np.uint64(31))
    return mixed_words


def row_order(rows: Int64s, seed: int) -> Words:
    """A number for each row by which a seed orders rows at random; those of distinct rows differ.

    Args:
        rows: The rows' numbers.
        seed: The seed.

    """
    (of_seed,) = mixed(np.array([seed], np.uint64))
    return mixed(rows.astype(np.uint64) ^ of_seed)
