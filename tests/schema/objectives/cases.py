"""Rows that the tests of losses share: random scores, their losses by slow loops, and finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from feat2vec.schema.objectives import (
    Contrastive,
    Glove,
    Logistic,
    Nce,
    NegativeSampling,
    Noisy,
    Regression,
    Softmax,
    self_supervised,
)
from tests import reference

Floats = npt.NDArray[np.float64]
NOISE_OBJECTIVES = [
    Nce(),
    NegativeSampling(),
    *(Contrastive(correction=c, temperature=t) for c in (True, False) for t in (1.0, 0.4)),
]
SUPERVISED = [Logistic(target="y"), Regression(target="y"), Softmax(target="y"), Glove(target="y", n_max=3.0)]
EXTREMES = [-1e4, -89.0, -20.0, 0.0, 1.0, 20.0, 89.0, 1e4]


def name_of(objective: Any) -> str:
    plain, temperature = (
        "" if getattr(objective, "correction", True) else " plain",
        getattr(objective, "temperature", 1.0),
    )
    return f"{objective.type}{plain}{'' if temperature == 1 else f' at {temperature}'}"


for_each_noise_objective = pytest.mark.parametrize("objective", NOISE_OBJECTIVES, ids=name_of)
for_each_supervised_objective = pytest.mark.parametrize("objective", SUPERVISED, ids=name_of)
for_each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


class Case:
    """Scores, log Q2 and hits of some rows; of the rows' negatives the last row's are all hits."""

    def __init__(self, rows: int = 5, k: int = 3, shared: bool = False, seed: int = 0, extreme: bool = False) -> None:
        rng = np.random.default_rng(seed)
        shape = (rows, 1 + k)
        self.scores, self.target = (rng.choice(EXTREMES, shape) if extreme else rng.normal(size=shape) for _ in "st")
        self.log_q = np.log(rng.uniform(1e-3, 1, shape))
        if shared:
            self.log_q[:, 1:] = self.log_q[0, 1:]
        self.hits = rng.random((rows, k)) < 0.3
        self.hits[-1] = True
        self.shared, self.offset = shared, float(rng.normal())

    def loss(self, objective: Any, dtype: str, target: bool, scores: Any = None) -> Any:
        def noisy(x: Any, shared_negatives: bool = False) -> Noisy:
            x = tf.cast(x, dtype)
            return Noisy(x[:, 0], x[0, 1:] if shared_negatives else x[:, 1:])

        above = noisy(self.target) if target else None
        scores = noisy(self.scores if scores is None else scores)
        offset = tf.constant(self.offset, dtype)
        return self_supervised(objective, scores, noisy(self.log_q, self.shared), self.hits, offset, above)

    def expected(self, objective: Any, target: bool) -> list[float]:
        rows = zip(self.scores, self.log_q, self.hits, self.target, strict=True)
        correction, temperature = getattr(objective, "correction", True), getattr(objective, "temperature", 1.0)
        return [
            reference.row_loss(objective.type, s, q, h, self.offset, t if target else None, correction, temperature)
            for s, q, h, t in rows
        ]

    def gradient(self, objective: Any, dtype: str, target: bool) -> Any:
        scores = tf.constant(self.scores, dtype)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            loss = tf.reduce_sum(self.loss(objective, dtype, target, scores))
        return tape.gradient(loss, scores).numpy()


def central(function: Callable[[Floats], float], at: Floats, step: float = 1e-5) -> Floats:
    """The gradient by central differences."""
    gradient = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (function(up) - function(down)) / (2 * step)
    return gradient


def labelled(objective: Any, rng: np.random.Generator, rows: int = 6) -> tuple[Floats, Floats, Floats]:
    """Scores, targets above, labels."""
    shape = (rows, 4) if isinstance(objective, Softmax) else (rows,)
    scores, target = rng.normal(size=shape), rng.normal(size=shape)
    match objective:
        case Softmax():
            return scores, target, rng.integers(0, 4, rows).astype(float)
        case Logistic():
            return scores, target, rng.integers(0, 2, rows).astype(float)
        case Glove():
            return scores, target, rng.uniform(0.1, 10.0, rows)
    return scores, target, rng.normal(size=rows)


def slow_loss(objective: Any, s: Any, y: float, t: Any) -> float:
    """A row's loss."""
    match objective:
        case Softmax():
            return -reference.log_shares(s)[int(y)] if t is None else reference.shared_loss(s, t)
        case Logistic():
            p, q = (y, 1 - y) if t is None else (reference.sigmoid(t), reference.sigmoid(-t))
            return reference.binary_loss(s, p, q)
        case Glove():
            weight = min(1.0, (y / objective.n_max) ** objective.alpha)
            return float(weight * ((math.log(y) if t is None else t) - s) ** 2)
    return float((s - (y if t is None else t)) ** 2)
