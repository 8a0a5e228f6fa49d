"""The temperature of answers, against searches over a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.model.answer_scale import AnswerScale
from feat2vec.run import train
from feat2vec.training.calibration import binary_loss, class_loss, coolest, likely_temperature, share_to_keep

HEAD = {"type": "mlp", "hidden": [16], "inputs": ["vectors"], "members": 2, "pairs": False}


def test_the_temperature_is_the_best_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=400), rng.integers(0, 2, 400).astype(float)
    labels[scores > 1] = 1
    grid = np.exp(np.linspace(np.log(0.05), np.log(2), 400))
    signs = 1 - 2 * labels
    losses = [np.mean([np.log1p(np.exp(t * s)) for s in scores * signs]) for t in grid[::4]]
    best = coolest(lambda factor: binary_loss(scores * factor, labels))
    assert binary_loss(scores * best, labels) <= min(losses) + 1e-9
    class_scores, classes = rng.normal(size=(400, 3)) * 4, rng.integers(0, 3, 400).astype(float)
    best = coolest(lambda factor: class_loss(class_scores * factor, classes))
    assert class_loss(class_scores * best, classes) <= min(class_loss(class_scores * t, classes) for t in grid) + 1e-9
    assert best < 0.2  # the scores tell nothing


def test_of_few_rows_the_temperature_is_near_what_is_expected_of_a_network() -> None:
    rng = np.random.default_rng(0)
    scores = 4 * rng.normal(size=49)
    labels = (rng.random(49) < 1 / (1 + np.exp(-scores / 4))).astype(float)  # the best temperature is about 0.25
    grid = np.exp(np.linspace(np.log(0.05), np.log(2), 4000))
    for rows in (2, 10, 49):
        few, their_labels = scores[:rows], labels[:rows]
        surprise = [
            np.sum(np.logaddexp(0, t * few) - their_labels * t * few) + (np.log(t) - np.log(0.6)) ** 2 / (2 * 0.3**2)
            for t in grid
        ]
        found = likely_temperature(lambda factor: binary_loss(few * factor, their_labels), rows)  # noqa: B023
        assert found == pytest.approx(grid[int(np.argmin(surprise))], rel=2e-3)
    assert likely_temperature(lambda factor: abs(factor - 1.5), 50) == pytest.approx(1.5)


def test_numbers_keep_the_share_that_least_squares_says() -> None:
    labels = np.array([1.0, -1.0, 2.0, -2.0])
    assert share_to_keep(2 * labels, labels) == pytest.approx(0.5)
    assert share_to_keep(0.5 * labels, labels) == 1  # not more than all
    assert share_to_keep(-labels, labels) == 0
    assert share_to_keep(np.zeros(4), labels) == 1


def test_answers_are_in_the_unit_and_the_range_of_the_labels() -> None:
    labels = np.array([10.0, 30.0, 20.0], np.float32)
    scale = AnswerScale.of_numbers(labels)
    assert scale == pytest.approx((20, labels.std(), 10, 30, 1))
    np.testing.assert_allclose(scale.apply(np.array([0.0, 99.0, -99.0], np.float32)), [20, 30, 10])
    cooler = scale._replace(temperature=0.5)
    np.testing.assert_allclose(cooler.apply(np.array([1.0], np.float32)), [20 + labels.std() / 2], rtol=1e-6)
    assert AnswerScale.of_numbers(np.full(3, 7.0)) == (7, 1, 7, 7, 1)
    scores = np.array([3.0], np.float32)
    assert AnswerScale().apply(scores) is scores


@pytest.mark.slow
@pytest.mark.parametrize("refit", [False, True])
def test_labels_that_are_noise_are_answered_by_the_mean(tmp_path: Path, refit: bool) -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({"who": [f"w{i}" for i in rng.integers(0, 300, 600)], "price": 5e6 + 1e6 * rng.normal(size=600)})
    schema: dict[str, Any] = {
        "version": 1, "groups": {"who": {"column": "who"}}, "model": {"dim": 4, "bias": True},
        "objective": {"type": "regression", "target": "price"}, "head": HEAD,
        "training": {
            "epochs": 2, "batch_size": 32, "refit": refit, "optimizer": {"type": "adam", "learning_rate": 0.02},
        },
    }  # fmt: skip
    run = train(schema, rows, tmp_path / "run", quiet=True)
    temperature = run.metrics["temperature"]
    assert 0 <= temperature < 0.95
    again = feat2vec.load(tmp_path / "run")
    assert again.model.answer_scale_value().temperature == pytest.approx(temperature, abs=1e-6)
    predictions = again.predict(rows)["prediction"]
    prices = rows["price"].to_numpy()
    assert prices.min() <= predictions.min()
    assert predictions.max() <= prices.max()
    assert predictions.std() < 0.6 * prices.std()
    assert run.metrics["held_out_loss"] == pytest.approx(prices.var(), rel=0.6)  # in the unit of prices
