"""What noise draws, compared with exact probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from feat2vec.sampling.noise import Noise
from tests import reference
from tests.sampling.tables import COUNTS, JOINT, JOINT_COUNTS, random_rows


def chi_square(observed: npt.NDArray[Any], probability: npt.NDArray[np.float64]) -> float:
    """The p-value of counts against exact probabilities; a draw of what cannot be drawn has p = 0."""
    if observed[probability == 0].any():
        return 0.0
    expected = probability[probability > 0] * observed.sum()
    statistic = ((observed[probability > 0] - expected) ** 2 / expected).sum()
    return float(tf.math.igammac(np.float64((len(expected) - 1) / 2), statistic / 2))


def find_tuple(pair: Sequence[int]) -> int:
    """The index of a tuple in JOINT; pairs that were never seen are no index at all."""
    indices = np.flatnonzero((np.array(pair) == JOINT).all(axis=1))
    return int(indices[0]) if len(indices) else 1_000_000


def p_values(noise: Noise, alpha: float) -> list[float]:
    """The p-value of a million draws of each unit of the groups of `tables.py`, if counts had the exponent `alpha`."""
    batch = 200_000 if noise.sharing == "record" else 5
    has_joint_unit = any(len(unit.groups) > 1 for unit in noise.units)
    draws = noise.sample(tf.constant(random_rows(batch, columns=4 if has_joint_unit else 3)), (5, 1))
    p_of_unit, total = [], 0
    for unit, draw in zip(noise.units, draws, strict=True):
        is_joint = len(unit.groups) > 1
        counts = JOINT_COUNTS if is_joint else COUNTS[unit.groups[0]]
        index = np.asarray(draw.values[0])
        if is_joint:
            tuples = np.array([find_tuple(pair) for pair in np.ndindex(5, 3)])
            index = tuples[index * 3 + np.asarray(draw.values[1])]
        total += index.size
        exact = reference.noise_probabilities(counts.tolist(), alpha)
        p_of_unit.append(chi_square(np.bincount(index.ravel(), minlength=len(counts)), exact))
    assert total >= 1_000_000
    return p_of_unit
