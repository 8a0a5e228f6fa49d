"""The bins of a column of numbers, which are its keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Floats, Ints
from feat2vec.table.keys import Items


def binned(numbers: Floats, edges: Sequence[float]) -> Items:
    """Numbers as the bin they fall into, `[low, high)`; missing ones have none."""
    present = ~np.isnan(numbers)
    codes = bins_of(numbers[present], edges)
    return Items(present.astype(np.int32), codes, pa.array(bin_names(edges), pa.string()), None, 0)


def bins_of(numbers: Floats, edges: Sequence[float]) -> Ints:
    """The bin of each number, counted from 0, [numbers]."""
    return np.searchsorted(np.array(edges), numbers, side="right").astype(np.int32)


def bin_names(edges: Sequence[float]) -> list[str]:
    """The keys of the bins between edges, in ascending order."""
    ends = ["-inf", *(f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge) for edge in edges), "inf"]
    return [f"[{low}, {high})" for low, high in pairwise(ends)]
