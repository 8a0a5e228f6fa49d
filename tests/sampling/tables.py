"""Counts, joint sets and rows that the tests of sampling share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int32]
COUNTS = [
    np.array([50, 20, 10, 0, 5, 3, 1, 1, 0, 1]),  # two values of new rows
    np.array([400, 90, 70, 60, 40, 30, 20, 10, 10, 5, 5, 1]),
    np.array([3, 2, 1]),
]
PARAMS = [500, 60_000, 4]
JOINT = np.array([[0, 0], [0, 2], [1, 1], [2, 0], [2, 2], [4, 1]], np.int32)  # tuples of groups 0 and 2
JOINT_COUNTS = np.array([40, 12, 9, 4, 2, 1])


def random_rows(batch: int, seed: int = 0, columns: int = 3) -> Rows:
    """Rows of COUNTS' values, a fifth of them missing; a fourth column has ids of JOINT."""
    rng = np.random.default_rng(seed)
    sizes = [len(count) for count in COUNTS] + [len(JOINT)]
    rows = np.stack([rng.integers(0, size, batch) for size in sizes[:columns]], 1)
    rows[rng.random(rows.shape) < 0.2] = -1
    return rows.astype(np.int32)
