"""Lemmas 4.1 and 4.2 of seed 002, of the contrastive loss as the package has it: its smoothness, and small slopes.

l(z) = -log softmax(z_1 . z_2, z_1 . z_3)_1 of a row z_1, its positive z_2 and its negative z_3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from feat2vec.schema.objectives import Contrastive, Noisy, self_supervised
from tests import reference

PROPERTY = settings(deadline=None, max_examples=25, derandomize=True)


def losses_and_slopes(z: Any) -> tuple[np.ndarray, np.ndarray]:
    """The package's loss with one negative, [n], and its gradient, [n, 3, d], at z [n, 3, d]."""
    points = tf.constant(z, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(points)
        scores = tf.reduce_sum(points[:, :1] * points[:, 1:], axis=2)  # [n, 2], of the positive and the negative
        noisy = Noisy(scores[:, 0], scores[:, 1:])
        log_q, hits = Noisy(0 * scores[:, 0], 0 * scores[:, 1:]), tf.zeros_like(scores[:, 1:], tf.bool)
        losses = self_supervised(Contrastive(correction=False), noisy, log_q, hits, 0.0)
    return losses.numpy(), tape.gradient(losses, points).numpy()


def in_ball(rng: np.random.Generator, n: int, d: int, radius: float) -> np.ndarray:
    """Triples of vectors of at most this length, [n, 3, d]; many of them are as long."""
    z = rng.normal(size=(n, 3, d))
    lengths = radius * np.minimum(1, rng.uniform(0.2, 1.5, size=(n, 3, 1)))
    return z / np.linalg.norm(z, axis=2, keepdims=True) * lengths


def hessian(z: np.ndarray) -> np.ndarray:
    """The second derivatives of the loss at z [3, d] by central differences of its gradient, [3 d, 3 d]."""
    steps = 1e-5 * np.eye(z.size).reshape(-1, *z.shape)
    _, high = losses_and_slopes(z + steps)
    _, low = losses_and_slopes(z - steps)
    return (high - low).reshape(z.size, z.size) / 2e-5


def test_the_loss_is_that_of_the_paper() -> None:
    z = in_ball(np.random.default_rng(0), 20, 3, 2.0)
    losses, slopes = losses_and_slopes(z)
    np.testing.assert_allclose(losses, [reference.triple_loss(*triple) for triple in z], rtol=1e-12)
    for (x, positive, negative), slope in zip(z, slopes, strict=True):
        v = np.exp(reference.log_shares([float(x @ positive), float(x @ negative)]))
        expected = [(v[0] - 1) * positive + v[1] * negative, (v[0] - 1) * x, v[1] * x]
        np.testing.assert_allclose(slope, expected, atol=1e-14)


@PROPERTY
@given(st.integers(0, 100_000), st.integers(1, 4), st.sampled_from([0.05, 0.5, 1.0, 3.0, 10.0]))
def test_lemma_4_1(seed: int, d: int, radius: float) -> None:
    """The gradient is Lipschitz with 2 + 8 C^2 where no vector is longer than C."""
    rng = np.random.default_rng(seed)
    ends, near = in_ball(rng, 8, d, radius), in_ball(rng, 8, d, radius)
    near[:4] = ends[:4] + 1e-3 * (near[:4] - ends[:4])  # the ball is convex, so these are in it as well
    _, first = losses_and_slopes(ends)
    _, second = losses_and_slopes(near)
    distances = np.linalg.norm((ends - near).reshape(8, -1), axis=1)
    assert (np.linalg.norm((first - second).reshape(8, -1), axis=1) <= (2 + 8 * radius**2) * distances + 1e-12).all()


@pytest.mark.parametrize("radius", [0.1, 1.0, 4.0])
def test_no_second_derivative_is_above_it(radius: float) -> None:
    z = in_ball(np.random.default_rng(1), 15, 2, radius)
    largest = max(np.linalg.norm(hessian(triple), 2) for triple in z)
    assert largest <= 2 + 8 * radius**2


def test_no_constant_without_the_square_would_do() -> None:
    """z_2 and z_3 opposite, z_1 short: the norm grows as C^2, and is above any constant such as 2 + 8 C."""
    for radius in (10.0, 30.0):
        z = np.array([[1e-9, 0.0], [radius, 0.0], [-radius, 0.0]])
        norm = np.linalg.norm(hessian(z), 2)
        assert norm > 2 + 8 * radius
        assert norm == pytest.approx(radius**2, rel=0.01)


@PROPERTY
@given(st.integers(0, 100_000), st.integers(1, 3), st.floats(0.3, 2.0), st.floats(0.0, 12.0))
def test_lemma_4_2(seed: int, d: int, eta: float, margin: float) -> None:
    """With no slope longer than epsilon < eta / 2, and no vector shorter than eta, l(z) <= 2 epsilon / eta."""
    rng = np.random.default_rng(seed)
    z = in_ball(rng, 1, d, 3 * eta)
    z *= np.maximum(1, eta * (1 + 1e-9) / np.linalg.norm(z, axis=2, keepdims=True))  # of length eta at least
    z[0, 1] += margin * z[0, 0]
    assume((np.linalg.norm(z, axis=2) >= eta).all())
    losses, slopes = losses_and_slopes(z)
    epsilon = float(np.linalg.norm(slopes, axis=2).max())
    assume(epsilon < eta / 2)
    assert losses[0] <= 2 * epsilon / eta


def test_lemma_4_2_is_of_many_triples_and_needs_its_factor() -> None:
    """Its condition is often met; without the condition, or with a quarter of the bound, there are counterexamples."""
    rng, eta = np.random.default_rng(0), 1.0
    z = in_ball(rng, 4_000, 2, 3.0)
    z *= np.maximum(1, eta * (1 + 1e-9) / np.linalg.norm(z, axis=2, keepdims=True))
    losses, slopes = losses_and_slopes(z)
    epsilon = np.linalg.norm(slopes, axis=2).max(axis=1)
    meets = epsilon < eta / 2
    assert 200 < meets.sum() < 3_800
    assert (losses[meets] <= 2 * epsilon[meets] / eta).all()
    assert (losses[~meets] > 2 * epsilon[~meets] / eta).any()
    same = np.array([[[1.0, 0.0], [1.0, 4.0], [-0.2, 4.0]]])
    (loss,), (slope,) = losses_and_slopes(same)
    assert loss > 0.5 * np.linalg.norm(slope, axis=1).max() / eta
