"""The levels of a model: how many dimensions each has, and which values reach it.

A model with the ranks D_1 < ... < D_m has m levels. The rank of a value follows from its frequency, so that rare values
have few dimensions. Two values are compared in the space of the lower of their levels. The option `level_sharing` says
how the spaces relate:

- `separate`: each level has its own vectors of D_k numbers (RaFM; Chen et al., 2019).
- `truncate`: the spaces are nested. A value has one vector, and the space of level k holds its first D_k numbers
  (DiFacto; Li et al., 2016). Level k then stores the D_k - D_{k-1} numbers that it adds to the level below.
- `all`: every value has the vectors of all levels (MRMA; Li et al., 2017), so nothing follows from its frequency. They
  stand side by side in one space of D_1 + ... + D_m dimensions, and each level is a whole model: one of the members of
  `pair_scores_by_key.member_scores`.

This is the only module that knows what follows from it; others ask a schema's `model.levels`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    LevelArray = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Levels:
    """The levels of a model, counted from 1.

    Args:
        ranks: The number of dimensions of each level's space, ascending.
        nested: Whether the space of a level contains those below it (`level_sharing: truncate`).
        least_counts: The counts from which on values reach the second level, the third and so on (`levels.counts`);
            None for those of equation 17 of Chen et al.

    >>> levels = Levels((16, 64), nested=True)
    >>> len(levels), levels.dims, levels.default
    (2, (16, 48), 2)

    """

    ranks: tuple[int, ...]
    nested: bool = False
    least_counts: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def dims(self) -> tuple[int, ...]:
        """How many numbers each level stores for a value: its rank, or what it adds to the level below."""
        if not self.nested:
            return self.ranks
        return (self.ranks[0], *(high - low for low, high in pairwise(self.ranks)))

    @property
    def default(self) -> int:
        """The level in which vectors are compared if none is given: every value has a vector there.

        In nested spaces that is the highest level, where the coordinates that a value does not have are 0.
        """
        return len(self.ranks) if self.nested else 1

    @property
    def submodels(self) -> int:
        """How many levels are models of their own, with a score: none but the whole in nested spaces."""
        return 1 if self.nested else len(self.ranks)

    def has(self, level: object) -> bool:
        """Whether this is a level of the model.

        >>> levels = Levels((16, 64))
        >>> levels.has(2), levels.has(3), levels.has("2")
        (True, False, False)
        """
        if isinstance(level, bool) or not isinstance(level, Integral):
            return False
        return 1 <= int(level) <= len(self.ranks)

    def parts_of(self, level: int) -> slice:
        """The levels whose stored vectors, side by side, are the vectors of a level, counted from 0.

        >>> Levels((16, 64)).parts_of(2), Levels((16, 64), nested=True).parts_of(2)
        (slice(1, 2, None), slice(0, 2, None))
        """
        return slice(0 if self.nested else level - 1, level)

    def of_counts(self, counts: Ints | Sequence[int]) -> LevelArray:
        """The level of each value: k = argmin_k |log n - log D_k| for a count n, the lower one of a tie.

        With `least_counts` it is the highest level whose least count n reaches.

        >>> Levels((8, 64)).of_counts([1000, 100, 23, 22, 1]).tolist()
        [2, 2, 2, 1, 1]
        >>> Levels((8, 64), least_counts=(100,)).of_counts([1000, 100, 23, 22, 1]).tolist()
        [2, 2, 1, 1, 1]
        """
        import numpy as np  # not at the top: reading a schema does without it

        least_counts = self.least_counts
        if least_counts is None:
            # n is nearer to `high` than to `low` if n^2 > low * high.
            least_counts = tuple(math.isqrt(low * high) + 1 for low, high in pairwise(self.ranks))
        level_indices = np.searchsorted(np.array(least_counts, np.int64), counts, side="right")
        return (level_indices + 1).astype(np.int8)
