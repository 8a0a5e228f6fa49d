"""Losses of supervised objectives against loops in float64 (tests/reference.py), and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.schema.objectives import Glove, Logistic, Softmax, supervised
from tests.schema.objectives.cases import (
    EXTREMES,
    SUPERVISED,
    central,
    for_each_dtype,
    for_each_supervised_objective,
    labelled,
    slow_loss,
)


@for_each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@for_each_supervised_objective
def test_supervised_losses(objective: Any, target: bool, dtype: str) -> None:
    scores, above, label = labelled(objective, np.random.default_rng(0))
    got = supervised(objective, *(tf.constant(x, dtype) for x in (scores, label, *([above] if target else []))))
    assert got.dtype == dtype
    rows = zip(scores, label, above, strict=True)
    expected = [slow_loss(objective, s, y, t if target else None) for s, y, t in rows]
    np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@for_each_supervised_objective
def test_supervised_gradients(objective: Any, target: bool) -> None:
    at, above, label = labelled(objective, np.random.default_rng(1))
    at[0] = 0.0

    def loss(scores: Any) -> Any:
        return tf.reduce_sum(supervised(objective, scores, tf.constant(label), tf.constant(above) if target else None))

    scores = tf.constant(at)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = loss(scores)
    expected = central(lambda x: float(loss(tf.constant(x))), at)
    np.testing.assert_allclose(tape.gradient(total, scores), expected, rtol=1e-6, atol=1e-9)


@for_each_dtype
@for_each_supervised_objective
def test_supervised_losses_at_extremes(objective: Any, dtype: str) -> None:
    rng = np.random.default_rng(2)
    _, above, label = labelled(objective, rng, rows=100)
    scores = tf.constant(rng.choice(EXTREMES, above.shape), dtype)
    targets = rng.choice(EXTREMES, above.shape)
    for target in (None, targets):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            more = () if target is None else (tf.constant(target, dtype),)
            loss = supervised(objective, scores, tf.constant(label, dtype), *more)
        rows = zip(scores.numpy().astype(float), label, targets, strict=True)
        expected = [slow_loss(objective, s, y, None if target is None else t) for s, y, t in rows]
        rtol, atol = (1e-6, 1e-11) if dtype == "float64" else (2e-5, 1e-6)
        np.testing.assert_allclose(loss, expected, rtol=rtol, atol=atol)
        assert np.isfinite(tape.gradient(loss, scores).numpy()).all()


def test_a_certain_target_is_a_label_as_well() -> None:
    rng = np.random.default_rng(3)
    for objective in SUPERVISED:
        scores, _, label = labelled(objective, rng)
        match objective:
            case Softmax():
                above = 2e3 * np.eye(4)[label.astype(int)]
            case Logistic():
                above = 4e3 * label - 2e3
            case Glove():
                above = np.log(label)
            case _:
                above = label
        got = supervised(objective, *(tf.constant(x) for x in (scores, label, above)))
        expected = supervised(objective, *(tf.constant(x) for x in (scores, label)))
        np.testing.assert_allclose(got, expected, rtol=1e-13)
