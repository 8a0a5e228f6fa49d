"""Losses of noise objectives against loops in float64 (tests/reference.py), and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.schema.objectives.cases import Case, Floats, central, for_each_dtype, for_each_noise_objective


@for_each_noise_objective
@for_each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@pytest.mark.parametrize("shared", [False, True], ids=["record", "batch"])
def test_noise_losses(objective: Any, dtype: str, target: bool, shared: bool) -> None:
    for k in (1, 3):
        case = Case(k=k, shared=shared)
        got = case.loss(objective, dtype, target)
        assert got.dtype == dtype
        tolerance = 1e-12 if dtype == "float64" else 2e-6
        np.testing.assert_allclose(got, case.expected(objective, target), rtol=tolerance, atol=tolerance)


@for_each_noise_objective
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_noise_gradients(objective: Any, target: bool) -> None:
    case = Case(seed=1)
    case.scores[0] = 0.0  # where |s| and relu have kinks

    def total(scores: Floats) -> float:
        return float(tf.reduce_sum(case.loss(objective, "float64", target, scores)))

    np.testing.assert_allclose(
        case.gradient(objective, "float64", target), central(total, case.scores), rtol=1e-7, atol=1e-9
    )


@for_each_noise_objective
@for_each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_noise_losses_at_extremes(objective: Any, dtype: str, target: bool) -> None:
    case = Case(rows=400, extreme=True)
    got = case.loss(objective, dtype, target).numpy()
    temperature = getattr(objective, "temperature", 1.0)
    # At 1e4 a float32 is 1e-3 apart from the next, and a probability made of such logits is as inexact.
    rtol, atol = (1e-6, 1e-11) if dtype == "float64" else (1e-3 / temperature if target else 1e-6, 2e-3 / temperature)
    np.testing.assert_allclose(got, case.expected(objective, target), rtol=rtol, atol=atol)
    gradient = case.gradient(objective, dtype, target)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient) * temperature <= 1 + 1e-6).all()


@for_each_noise_objective
def test_a_certain_target_is_a_label(objective: Any) -> None:
    case = Case(seed=3)
    case.target[:, 0], case.target[:, 1:] = 2e3, -2e3
    plain, soft = (case.loss(objective, "float64", target) for target in (False, True))
    np.testing.assert_allclose(plain, soft, rtol=1e-13, atol=1e-300)
    plain, soft = (case.gradient(objective, "float64", target) for target in (False, True))
    np.testing.assert_allclose(plain, soft, rtol=1e-13, atol=1e-300)


@for_each_noise_objective
def test_a_target_is_reached_at_itself(objective: Any) -> None:
    """The gradient is 0 where a level's scores are those of the level above."""
    case = Case(seed=4)
    case.target = case.scores
    np.testing.assert_allclose(case.gradient(objective, "float64", True), 0, atol=1e-15)
