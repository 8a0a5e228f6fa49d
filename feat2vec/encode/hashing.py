"""64-bit hashes of numbers, the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from feat2vec.arrays import Array, Int64s

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


def entry_hashes(entries: Array) -> Words:
    """A hash of each entry of a group, [rows]. Ids of 0, the padding of short bags, add nothing to it.

    Args:
        entries: Entries of the group, int32 or float32 [rows, width].

    """
    hashes = np.zeros(len(entries), np.uint64)
    for place in range(entries.shape[1]):
        column = entries[:, place]
        if column.dtype == np.float32:
            column = column + np.float32(0)  # 0 and -0 are one number
        words = np.ascontiguousarray(column).view(np.uint32).astype(np.uint64)
        (of_place,) = mixed(np.array([place + 1], np.uint64))
        is_padding = (entries[:, place] == 0) & (entries.dtype != np.float32)
        hashes += np.where(is_padding, np.uint64(0), mixed(words ^ of_place))
    return hashes


def group_hashes(group: str, hashes: Words) -> Words:
    """The hashes of a group's entries, [rows], as the group adds them to the hashes of rows."""
    of_group = np.uint64(int.from_bytes(hashlib.blake2b(group.encode(), digest_size=8).digest(), "little"))
    return mixed(hashes ^ of_group)
