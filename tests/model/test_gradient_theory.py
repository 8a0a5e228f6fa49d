"""Smoothness, critical points and geometric rates (seed 003, definitions 16 to 21, lemmas 18, 20 and 22).

The function is the package's own loss of one value's vector with all else held: its squared errors beside other values,
and an L2 penalty. It is a quadratic, so its constants are known: L and mu are its largest and smallest curvature.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.model.pair_scores import pairwise
from feat2vec.schema.objectives import Regression, supervised

L2 = 0.1


@tf.function
def of_held(vector: Any, held: Any, targets: Any) -> tuple[Any, Any]:
    """The mean squared error of a vector beside held ones, with its penalty, and the slope."""
    with tf.GradientTape() as tape:
        tape.watch(vector)
        rows = tf.stack([tf.broadcast_to(vector, tf.shape(held)), held], axis=1)  # [n, 2, d]
        losses = supervised(Regression(target="y"), pairwise(rows), targets)
        loss = tf.reduce_mean(losses) + L2 / 2 * tf.reduce_sum(vector**2)
    return loss, tape.gradient(loss, vector)


class HeldLoss:
    """The loss of a vector u beside held vectors [n, d] with targets [n]."""

    def __init__(self, seed: int, n: int = 8, d: int = 4) -> None:
        rng = np.random.default_rng(seed)
        self.held, self.targets = rng.normal(size=(n, d)), rng.normal(size=n)
        curvature = np.linalg.eigvalsh(2 / n * self.held.T @ self.held) + L2
        self.smoothness, self.convexity = float(curvature[-1]), float(curvature[0])
        inverse = np.linalg.inv(2 / n * self.held.T @ self.held + L2 * np.eye(d))
        self.least = self.loss(inverse @ (2 / n * self.held.T @ self.targets))

    def loss_and_slope(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = of_held(tf.constant(u), tf.constant(self.held), tf.constant(self.targets))
        return float(loss), slope.numpy()

    def loss(self, u: np.ndarray) -> float:
        return self.loss_and_slope(u)[0]


@pytest.mark.parametrize("seed", range(3))
def test_gradient_descent_on_a_vector_keeps_its_bounds(seed: int) -> None:
    """With the step 1 / L: few steps to a critical point (18), and a geometric rate (20) by strong convexity (22)."""
    held, rng = HeldLoss(seed), np.random.default_rng(seed)
    u = 3 * rng.normal(size=4)
    start_gap = held.loss(u) - held.least
    rate = 1 - held.convexity / held.smoothness
    norms, epsilon = [], 1e-2
    for step in range(60):
        loss, slope = held.loss_and_slope(u)
        gap = loss - held.least
        norms.append(float(np.linalg.norm(slope)))
        assert 0.5 * norms[-1] ** 2 >= held.convexity * gap - 1e-9  # definition 19
        assert gap <= rate**step * start_gap + 1e-9  # lemma 20
        other = u + rng.normal(size=4)
        other_loss, other_slope = held.loss_and_slope(other)
        distance = float(np.linalg.norm(other - u))
        assert np.linalg.norm(other_slope - slope) <= held.smoothness * distance * (1 + 1e-9)  # definition 16
        assert other_loss >= loss + slope @ (other - u) + held.convexity / 2 * distance**2 - 1e-9  # strong convexity
        u = u - slope / held.smoothness
    most = 2 * held.smoothness * start_gap / epsilon**2
    assert min(norms) < epsilon
    assert next(step for step, norm in enumerate(norms) if norm < epsilon) <= most  # lemma 18
    u = 3 * rng.normal(size=4)
    for _ in range(60):  # a step that is too long for the smoothness goes away
        u = u - 2.1 / held.smoothness * held.loss_and_slope(u)[1]
    assert held.loss(u) > start_gap + held.least


@tf.function
def of_product(vectors: Any, target: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        loss = tf.reduce_sum(supervised(Regression(target="y"), pairwise(vectors), target)) / 2
    return tape.gradient(loss, vectors)


def slope_of_product(u: np.ndarray, target: float) -> np.ndarray:
    """The slope of 1/2 (a - u_0 u_1)^2, of two values with vectors of one number."""
    slope: np.ndarray = of_product(tf.constant(u[None, :, None]), tf.constant([target], tf.float64)).numpy().ravel()
    return slope


@pytest.mark.parametrize("target", [1.0, 2.0])
def test_the_product_of_two_numbers_follows_its_flow(target: float) -> None:
    """Seed 003, 2.1: no convex loss, as it has a saddle at 0, and yet u v goes to a from u = v, by the closed form."""
    steps = 1e-5 * np.eye(2)
    hessian = [(slope_of_product(step, target) - slope_of_product(-step, target)) / 2e-5 for step in steps]
    np.testing.assert_allclose(hessian, [[0, -target], [-target, 0]], atol=1e-8)
    assert np.linalg.eigvalsh(hessian)[0] < 0  # lemma 6: not convex
    start, rate, u = 0.04, 0.005, np.full(2, 0.2)
    for step in range(1, 701):
        u = u - rate * slope_of_product(u, target)
        time = rate * step
        flow = target + (target * start - target**2) / (start * np.exp(2 * target * time) + target - start)
        assert u[0] == u[1]
        assert abs(u.prod() - flow) < 0.02 * target
    assert u.prod() == pytest.approx(target, rel=0.05)
