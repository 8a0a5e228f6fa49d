"""The best linear classifier and the linear probe against scikit-learn and against what convexity asks for."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from feat2vec.evaluation import linear_classifier
from feat2vec.evaluation.linear_classifier import best_classifier, classifier_loss, held_out, linear_probe
from tests import reference


def blobs(seed: int, counts: tuple[int, ...], d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Vectors that overlap around a centre of each class."""
    rng = np.random.default_rng(seed)
    class_ids = np.repeat(np.arange(len(counts)), counts)
    return rng.normal(size=(len(counts), d))[class_ids] + 1.5 * rng.normal(size=(len(class_ids), d)), class_ids


def test_the_loss_is_the_mean_over_rows() -> None:
    features, class_ids = blobs(0, (2, 3, 1))
    rng = np.random.default_rng(1)
    weights, of_rows = rng.normal(size=(3, 3)), rng.dirichlet(np.ones(6))
    logs = [reference.log_shares((row @ weights).tolist())[c] for row, c in zip(features, class_ids, strict=True)]
    assert classifier_loss(features, class_ids, of_rows, weights) == pytest.approx(-of_rows @ logs, rel=1e-12)


@pytest.mark.parametrize("counts", [(40, 40), (60, 20, 10), (30, 30, 30, 5)])
def test_the_best_classifier_has_no_slope_and_is_that_of_scikit_learn(counts: tuple[int, ...]) -> None:
    features, class_ids = blobs(len(counts), counts)
    even = np.full(len(features), 1 / len(features))
    start = np.random.default_rng(0).normal(size=(3, len(counts)))
    fit = best_classifier(features, class_ids, even, start)
    theirs = LogisticRegression(C=1e12, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(features, class_ids)
    logs = theirs.predict_log_proba(features)[np.arange(len(features)), class_ids]
    assert fit.loss == pytest.approx(-logs.mean(), abs=1e-7)
    assert fit.loss < classifier_loss(features, class_ids, even, start)
    for place in np.ndindex(*start.shape):
        moved = [fit.weights.copy() for _ in range(2)]
        moved[0][place] += 1e-4
        moved[1][place] -= 1e-4
        high, low = (classifier_loss(features, class_ids, even, weights) for weights in moved)
        assert abs(high - low) / 2e-4 < 1e-5
        assert min(high, low) >= fit.loss


def test_many_scores_are_made_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    features, class_ids = blobs(1, (20, 15, 6))
    even, start = np.full(41, 1 / 41), np.zeros((3, 3))
    whole = best_classifier(features, class_ids, even, start)
    monkeypatch.setattr(linear_classifier, "MOST_SCORES", 21)
    assert linear_classifier.block_rows(3) == 7
    in_blocks = best_classifier(features, class_ids, even, start)
    assert in_blocks.loss == pytest.approx(whole.loss, abs=1e-9)
    np.testing.assert_allclose(in_blocks.weights, whole.weights, atol=1e-3)


def test_what_would_take_too_long_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    features, class_ids = blobs(1, (20, 15, 6))
    even = np.full(41, 1 / 41)
    monkeypatch.setattr(linear_classifier, "MOST_WORK", 100)
    start = np.eye(3)
    fit = best_classifier(features, class_ids, even, start)
    assert fit.loss == min(classifier_loss(features, class_ids, even, start), np.log(3))
    assert linear_probe(features, class_ids) is None


def test_it_is_never_worse_than_what_is_known() -> None:
    """Vectors of 0, of one direction, classes that can be told apart, and rows that count unevenly."""
    zeros = best_classifier(np.zeros((4, 2)), np.array([0, 0, 1, 1]), np.full(4, 0.25), np.ones((2, 2)))
    assert zeros.loss == pytest.approx(np.log(2))
    apart = best_classifier(np.eye(3), np.arange(3), np.full(3, 1 / 3), np.eye(3))
    assert apart.loss < 1e-4
    flat, ids = np.outer([1.0, 2.0, -1.0, 0.5], [3.0, 4.0]), np.array([0, 1, 1, 0])
    of_rows = np.array([0.1, 0.2, 0.3, 0.4])
    fit = best_classifier(flat, ids, of_rows, np.zeros((2, 2)))
    assert fit.loss < np.log(2)
    assert fit.loss == pytest.approx(classifier_loss(flat, ids, of_rows, fit.weights), rel=1e-12)


def test_the_probe_is_logistic_regression_on_other_rows() -> None:
    features, class_ids = blobs(3, (70, 50, 20))
    features *= [1, 100, 0.01]
    features = np.column_stack([features, np.ones(len(features))])  # a coordinate that is the same in every row
    probe = linear_probe(features, class_ids)
    measured = held_out(class_ids, 0)
    assert probe is not None
    assert (probe.learnt, probe.measured) == (140 - measured.sum(), measured.sum()) == (112, 28)
    learnt, learnt_ids = features[~measured], class_ids[~measured]
    spread = np.where(learnt.std(axis=0) > 0, learnt.std(axis=0), 1)
    scaled = [(part - learnt.mean(axis=0)) / spread for part in (learnt, features[measured])]
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(scaled[0], learnt_ids)
    logs = theirs.predict_log_proba(scaled[1])
    assert probe.log_loss == pytest.approx(-logs[np.arange(28), class_ids[measured]].mean(), abs=1e-5)
    assert probe.accuracy == np.mean(logs.argmax(axis=1) == class_ids[measured])
    assert probe.most_frequent == np.mean(class_ids[measured] == 0)
    shares = np.bincount(learnt_ids) / 112
    assert probe.shares_log_loss == pytest.approx(-np.log(shares[class_ids[measured]]).mean())


def test_a_probe_learns_every_class_and_tells_nothing_of_noise() -> None:
    class_ids = np.array([0] * 50 + [1, 2])
    assert not held_out(class_ids, 5)[[0, 50, 51]].any()
    assert linear_probe(np.eye(3), np.arange(3)) is None  # no row is left
    rng = np.random.default_rng(0)
    probe = linear_probe(rng.normal(size=(400, 4)), rng.integers(2, size=400))
    assert probe is not None
    assert probe.log_loss > probe.shares_log_loss - 0.01
