"""Predictions of two models: their mean, and what each counts."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.cli.training import loss_of_predictions
from feat2vec.schema.reading import read_schema
from feat2vec.space.mixture import Mixture, mixed, weigh
from feat2vec.space.predict import Predictor
from tests.short_trainings import finetune, train

SCHEMA: dict[str, Any] = {
    "version": 1, "model": {"dim": 2}, "groups": {"a": {"column": "a"}, "b": {"column": "b"}},
    "training": {"epochs": 1, "validation": 0},
}  # fmt: skip


def objective(kind: str) -> Any:
    return read_schema({**SCHEMA, "objective": {"type": kind, "target": "y"}}).objective


def kept(targets: Any, scores: Any, places: Any = None) -> bytes:
    file = io.BytesIO()
    places = np.arange(len(targets)) if places is None else places
    np.save(file, np.column_stack([places, targets, scores]).astype(np.float64))
    return file.getvalue()


def sigmoid(scores: Any) -> Any:
    return 1 / (1 + np.exp(-scores))


def softmax(scores: Any) -> Any:
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def test_numbers_are_averaged_and_of_other_answers_the_probabilities() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50)).astype(np.float32)
    expected = 0.7 * a.astype(np.float64) + 0.3 * b
    np.testing.assert_allclose(mixed(objective("regression"), a, b, 0.3), expected, rtol=1e-5, atol=1e-6)
    of_both = mixed(objective("logistic"), a * 4, b * 4, 0.3)
    np.testing.assert_allclose(sigmoid(of_both), 0.7 * sigmoid(4 * a) + 0.3 * sigmoid(4 * b), rtol=1e-5)
    a, b = rng.normal(size=(2, 50, 4)).astype(np.float32)
    np.testing.assert_allclose(
        np.exp(mixed(objective("softmax"), a, b, 0.3)), 0.7 * softmax(a) + 0.3 * softmax(b), rtol=1e-5
    )
    sure = mixed(objective("logistic"), np.array([1e4, -1e4]), np.array([1e4, 1e4]), 0.5)
    assert np.isfinite(sure).all()
    assert sure[1] == pytest.approx(0)


def test_many_held_out_rows_decide_and_few_hardly_do() -> None:
    rng = np.random.default_rng(1)
    targets = rng.normal(size=2000)
    good, bad = targets + rng.normal(0, 0.1, 2000), targets + rng.normal(0, 1.0, 2000)
    shares: list[dict[str, Any]] = [
        dict(weigh(objective("regression"), kept(targets[:n], bad[:n]), kept(targets[:n], good[:n])).metrics)
        for n in (5, 2000)
    ]
    assert 0.5 < shares[0]["share_from_scratch"] < shares[1]["share_from_scratch"] == 0.98
    assert shares[1]["loss_from_run"] == pytest.approx(np.mean((bad - targets) ** 2), rel=1e-6)
    assert shares[1]["loss_from_scratch"] == pytest.approx(np.mean((good - targets) ** 2), rel=1e-6)
    as_good = targets + rng.normal(0, 0.1, 2000)
    both = weigh(objective("regression"), kept(targets, good), kept(targets, as_good))
    assert both.metrics["share_from_scratch"] == pytest.approx(0.5, abs=0.05)
    assert float(both.metrics["loss_of_both"]) < 0.006 < float(both.metrics["loss_from_run"])  # 0.01 / 2, and 0.01
    assert both.lines == [
        f"loss on 2,000 held-out rows: {both.metrics['loss_from_run']:.4g} from the run's vectors, "
        f"{both.metrics['loss_from_scratch']:.4g} from scratch, {both.metrics['loss_of_both']:.4g} of both, "
        f"of which {both.metrics['share_from_scratch']:.0%} from scratch"
    ]


def test_what_is_not_measured_on_the_same_rows_counts_evenly() -> None:
    labels, scores = np.array([0, 1, 1]), np.zeros(3)
    for first, second in (
        (None, kept(labels, scores)),
        (kept(labels, scores), None),
        (kept(labels, scores), kept(1 - labels, scores)),
        (kept(labels, scores), kept(labels, scores, [7, 8, 9])),
    ):
        assert weigh(objective("logistic"), first, second).metrics == {"share_from_scratch": 0.5}
    unknown = kept(np.full(3, -1), np.zeros((3, 2)))  # classes that training has not seen
    assert weigh(objective("softmax"), unknown, unknown).metrics == {"share_from_scratch": 0.5}
    partly = kept(np.array([-1, 0]), np.array([[9.0, 0], [0, 9.0]]))
    assert weigh(objective("softmax"), partly, partly).metrics["loss_of_both"] == pytest.approx(np.log1p(np.exp(9)))


def test_rows_that_one_of_both_has_learnt_do_not_count() -> None:
    rng = np.random.default_rng(4)
    targets, places = rng.integers(0, 2, 60), np.arange(60) * 3
    first, second = rng.normal(size=(2, 60))
    expected = weigh(objective("logistic"), kept(targets[20:40], first[20:40]), kept(targets[20:40], second[20:40]))
    by_places = weigh(
        objective("logistic"),
        kept(targets[:40], first[:40], places[:40]),
        kept(targets[20:], second[20:], places[20:]),
    )
    assert by_places == expected
    assert len(by_places.metrics) == 4


@pytest.mark.slow
def test_two_runs_predict_the_mean_of_what_each_predicts() -> None:
    rng = np.random.default_rng(2)
    rows = pa.table({name: [f"{name}{i}" for i in rng.integers(0, 5, 40)] for name in "ab"})
    rows = rows.append_column("y", pa.array(rng.normal(size=40)))
    options = {**SCHEMA, "objective": {"type": "regression", "target": "y"}}
    first = train(options, rows, quiet=True)
    second = train({**options, "groups": {"b": {"column": "b"}}, "model": {"dim": 3}}, rows, quiet=True)
    answers = [Predictor(run.fitted, run.model).predict(rows)["prediction"] for run in (first, second)]
    np.testing.assert_allclose(
        Mixture(first, second, 0.25).predict(rows)["prediction"], 0.75 * answers[0] + 0.25 * answers[1], rtol=1e-5
    )
    without_b = rows.drop_columns(["b"])
    with pytest.raises(feat2vec.UserError, match="has none of the columns"):
        second.predict(without_b)
    assert len(Mixture(first, second, 0.25).predict(without_b)["prediction"]) == 40


@pytest.mark.slow
def test_a_target_that_the_run_has_learnt_of_the_same_rows_is_answered_from_scratch(
    capfd: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(3)
    rows = {"a": rng.integers(0, 9, 400).astype(str), "b": [f"b{i}" for i in range(400)], "y": rng.integers(0, 2, 400)}
    table = pa.table(rows)
    schema = {**SCHEMA, "groups": {name: {"column": name} for name in rows}, "noise": {"negatives": 2}}
    first = train(schema, table.slice(0, 300), quiet=True)
    settings = ["training.epochs=1", "training.batch_size=300"]
    known = finetune(first, table.slice(0, 300), "y", settings=settings)
    assert known.metrics["share_from_scratch"] == 1
    assert "the run was trained on these rows with 'y'" in capfd.readouterr().err
    assert known.from_scratch is not None
    of_scratch = f"loss {known.from_scratch.metrics['held_out_loss']:.4f} on 30 held-out rows"
    assert loss_of_predictions(known).startswith("predictions from scratch alone: epoch 1 of 1, ")
    assert loss_of_predictions(known).endswith(of_scratch)
    expected = Predictor(known.from_scratch.fitted, known.from_scratch.model_for_scores()).predict(table)["score"]
    np.testing.assert_allclose(known.predict(table)["score"], expected, rtol=1e-4, atol=1e-5)
    new = finetune(first, table.slice(300), "y", settings=settings, quiet=True)
    assert new.metrics["share_from_scratch"] < 1
    frozen = finetune(first, table.slice(0, 300), "y", settings=settings, freeze=True)
    assert frozen.from_scratch is None
    assert "losses on held-out rows are too low" in capfd.readouterr().err
