"""The numbers that make held-out values probable, against loops, finite differences and what rows were drawn by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.run import train
from feat2vec.schema.levels import Levels
from feat2vec.space import calibration, completion_calibration
from feat2vec.space.calibration import (
    GroupCalibration,
    Reliability,
    completion_text,
    default_calibration,
    read_completion,
)
from feat2vec.space.completer import Completer, log_softmax
from feat2vec.space.completion_calibration import (
    files_of_completion,
    fit_completion,
)
from feat2vec.space.completion_fit import (
    Observations,
    classes_of_rest,
    curvature_of_blocks,
    fitted_list_numbers,
    fitted_numbers,
    loss_and_gradient,
    minimum,
    ridge_of_numbers,
    sampled_candidates,
    score_blocks,
)
from feat2vec.space.geometry import Candidates, Queries, similarities
from feat2vec.space.group_fit import surer, vectors_of_candidates
from feat2vec.space.neighbours import side_by_side
from feat2vec.space.reliability import reliability_of_answers, reliability_of_ranks
from feat2vec.space.run_completion import completion_of_run
from feat2vec.space.sureness import SURENESS, Unseen, sureness
from tests import reference, short_trainings
from tests.space.completed_films import SCHEMA, films

NUMBERS = np.array([0.6, 1.7, -0.4, 0.9])  # of three groups, and the power of counts


def drawn_observations(total: int, candidates: int = 30, outside: int = 0, seed: int = 0) -> Observations:
    """Rows whose true candidates are drawn by `NUMBERS`; the last `outside` candidates are not in the sample."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(total, 3, 4))
    of_candidates, log_counts = rng.normal(size=(candidates, 4)), np.log(1 + rng.integers(1, 50, candidates))
    prior = rng.normal(size=candidates) / 2
    queries = np.einsum("oge,g->oe", vectors, NUMBERS[:3])
    logits = queries @ of_candidates.T + prior + NUMBERS[3] * log_counts
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    true = np.array([rng.choice(candidates, p=p) for p in probabilities])
    sample = candidates - outside
    return Observations(
        vectors, np.arange(total), of_candidates[true], prior[true], log_counts[true],
        np.where(true < sample, true, -1), rng.choice([0.5, 1.0], total),
        of_candidates[:sample], prior[:sample], log_counts[:sample],
    )  # fmt: skip


def loss_loop(observations: Observations, numbers: Any) -> float:
    """The sum over observations, one by one: a true candidate that is not in the sample is added to it."""
    total = 0.0
    for i, row in enumerate(observations.rows):
        candidates, prior = observations.candidates.tolist(), observations.prior.tolist()
        log_counts, true = observations.log_counts.tolist(), int(observations.true_places[i])
        if true < 0:
            true = len(candidates)
            candidates.append(observations.true_vectors[i].tolist())
            prior.append(float(observations.true_prior[i]))
            log_counts.append(float(observations.true_log_counts[i]))
        contexts = observations.vectors[row].astype(float)  # [groups, E]
        products = [[float(context @ np.array(v)) for context in contexts] for v in candidates]
        one = [(true, float(observations.shares[i]), products)]
        total += reference.completion_loss(one, prior, log_counts, list(numbers[:-1]), float(numbers[-1]))
    return total


@pytest.mark.parametrize("outside", [0, 12])
def test_loss_and_gradient_are_those_of_a_loop(outside: int) -> None:
    observations = drawn_observations(300, outside=outside)  # of two blocks
    assert (observations.true_places < 0).any() == bool(outside)
    value, gradient = loss_and_gradient(observations, NUMBERS)
    assert value == pytest.approx(loss_loop(observations, NUMBERS), rel=1e-9)
    for i in range(4):
        step = np.eye(4)[i] * 1e-5
        slope = loss_and_gradient(observations, NUMBERS + step)[0] - loss_and_gradient(observations, NUMBERS - step)[0]
        assert gradient[i] == pytest.approx(slope / 2e-5, rel=1e-5, abs=1e-5)


def test_curvature_is_that_of_finite_differences() -> None:
    observations = drawn_observations(150)
    curvature = curvature_of_blocks(score_blocks(observations), NUMBERS)  # of so few all are used
    for i in range(4):
        step = np.eye(4)[i] * 1e-5
        change = loss_and_gradient(observations, NUMBERS + step)[1] - loss_and_gradient(observations, NUMBERS - step)[1]
        np.testing.assert_allclose(curvature[i], change / 2e-5, rtol=1e-3, atol=1e-3)


def test_many_rows_give_the_numbers_that_drew_them_and_few_the_defaults() -> None:
    np.testing.assert_allclose(fitted_numbers(drawn_observations(4000), 0.5), NUMBERS, atol=0.12)
    few = fitted_numbers(drawn_observations(1), 0.5)
    np.testing.assert_allclose(few, [1, 1, 1, 0.5], atol=0.6)


def test_minimum_of_a_function_that_is_steep_far_away() -> None:
    def steep(x: Any) -> tuple[float, Any]:
        return float(np.exp(5 * x[0]) + np.exp(-x[0]) + x[1] ** 4 + x[1] ** 2), np.array(
            [5 * np.exp(5 * x[0]) - np.exp(-x[0]), 4 * x[1] ** 3 + 2 * x[1]]
        )

    found = minimum(steep, np.array([-3.0, 9.0]), np.eye(2) * 100)  # whose first step would be far too long
    np.testing.assert_allclose(found, [-np.log(5) / 6, 0], atol=1e-4)


def test_a_sample_stands_for_all_candidates() -> None:
    rng = np.random.default_rng(0)
    counts = np.sort(rng.zipf(1.5, 5000).clip(max=10**6))[::-1].copy()
    counts[4000:] = 0  # which training has not seen
    scores = np.exp(rng.normal(size=5000)) * counts
    totals = []
    for seed in range(20):
        sample = sampled_candidates(counts, np.random.default_rng(seed), 1000)
        assert len(sample.places) <= 1000
        assert counts[sample.places].min() > 0
        totals.append((scores[sample.places] * np.exp(sample.log_weights)).sum())
    assert np.mean(totals) == pytest.approx(scores.sum(), rel=0.02)
    few = sampled_candidates(counts[:900], rng, 1000)
    assert few.places.tolist() == list(range(900))
    assert not few.log_weights.any()


@pytest.mark.parametrize("nested", [False, True])
def test_vectors_of_levels_side_by_side(nested: bool) -> None:
    rng = np.random.default_rng(0)
    levels = Levels((2, 5), nested)
    values = Candidates([rng.normal(size=(9, 2)).astype("f"), rng.normal(size=(4, levels.dims[1])).astype("f")])
    free = [rng.normal(size=(6, dim)).astype("f") for dim in levels.dims]
    dependent = [np.zeros_like(part) if nested or i else part[::-1] for i, part in enumerate(free)]
    queries = Queries(free, dependent)
    products = side_by_side(queries, levels) @ vectors_of_candidates(values, np.arange(9), levels).T
    np.testing.assert_allclose(products, similarities(queries, values, "dot"), rtol=1e-5, atol=1e-6)


def test_probability_of_being_in_a_list() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(40, 0.3), 800)
    probability = 1 - np.exp(-3.0 * shares**0.8)
    is_member = rng.random(shares.shape) < probability
    with np.errstate(divide="ignore"):
        log_shares = np.maximum(np.log(shares), -700)
    size, slope = fitted_list_numbers(log_shares, np.ones(40), is_member, 0.0)
    np.testing.assert_allclose([np.exp(size), slope], [3.0, 0.8], rtol=0.1)


@pytest.mark.parametrize("power", [0.05, 1.0, 2.5])
def test_sums_over_candidates_are_taken_by_classes(power: float) -> None:
    rng = np.random.default_rng(2)
    log_shares = np.log(rng.dirichlet(np.full(300, 0.05), 400) + 1e-300)
    log_shares[0, :5] = -1e9  # cannot be
    weights, is_member = rng.uniform(1, 4, 300), rng.random((400, 300)) < 0.1
    log_p, counts = classes_of_rest(log_shares, weights, is_member)
    assert len(counts) < log_shares.size / 2
    of_each = np.where(is_member, 0, weights)
    np.testing.assert_allclose(counts.sum(), of_each.sum())
    exact = of_each * np.exp(power * log_shares)
    np.testing.assert_allclose(counts @ np.exp(power * log_p), exact.sum(), rtol=3e-5)
    products = counts * np.exp(power * log_p) * log_p
    np.testing.assert_allclose(products.sum(), (exact * np.maximum(log_shares, -1e6)).sum(), rtol=1e-4)


def test_reliability() -> None:
    said = np.array([0.1, 0.9, 0.5, 0.5])
    told = reliability_of_answers(said, np.array([False, True, True, False]))
    assert (sorted(told.said), told.counts) == ([0.1, 0.5, 0.5, 0.9], (1, 1, 1, 1))
    assert told.error == pytest.approx((0.1 + 0.1 + 0.5 + 0.5) / 4)
    spread = reliability_of_ranks((np.arange(1000) + 0.5) / 1000)
    np.testing.assert_allclose([spread.said[0], spread.true[0], spread.error], [0.1, 0.1, 0], atol=1e-9)
    assert reliability_of_ranks(np.full(10, 0.45)).error == pytest.approx(
        2 * (0.1 + 0.2 + 0.3 + 0.4) / 9 + 0.1 * 0, abs=0.06
    )


def test_groups_of_a_run_are_calibrated(completed_run: feat2vec.Run) -> None:
    held_out = films(300, seed=3)
    fitted = fit_completion(completed_run, held_out)
    assert set(fitted) == set(SCHEMA["groups"])
    for group, numbers in fitted.items():
        assert numbers.log_loss is not None
        assert numbers.popularity_log_loss is not None
        assert numbers.reliability is not None
        assert numbers.log_loss < numbers.popularity_log_loss  # directors say the rest
        assert numbers.reliability.error < 0.15, group
        assert list(numbers.weights) == [name for name in SCHEMA["groups"] if name != group]
    assert fit_completion(completed_run, held_out) == fitted  # a killed training fits the same again
    test = films(400, seed=9)
    losses = {}
    default = default_calibration(completed_run.fitted, "genre")
    for name, numbers in (("fitted", fitted["genre"]), ("default", default)):
        completer = Completer(completed_run.fitted, completed_run.vector_source, "genre", numbers)
        log_p = np.concatenate([batch.log_probabilities for batch in completer.batches(test)])
        places = [completer.hidden.names(range(3)).index(genre) for genre in test["genre"].to_pylist()]
        losses[name] = -log_p[np.arange(len(places)), places].mean()
    assert losses["fitted"] < losses["default"]


def test_values_that_training_has_not_seen_are_left_out(completed_run: feat2vec.Run) -> None:
    counts = {name: np.asarray(values.counts).copy() for name, values in completed_run.fitted.values.items()}
    keys = completed_run.fitted.codecs["director"].vocabulary
    assert keys is not None
    counts["director"][:2] = 0  # the most frequent ones
    held_out = films(300, seed=3)
    fitted = fit_completion(completed_run, held_out, counts)
    gone = {str(key) for key in keys.keys.to_pylist()[:2]}
    expected = sum(name is not None and name not in gone for name in held_out["director"].to_pylist())
    assert fitted["director"].values == expected
    assert fit_completion(completed_run, films(15, seed=3)) == {}  # too few to tell anything


def test_training_stores_the_calibration(completed_run: feat2vec.Run, tmp_path: Path) -> None:
    stored = completion_of_run(completed_run)
    assert set(stored) == set(SCHEMA["groups"])
    assert completed_run.completer("genre").calibration == stored["genre"]
    assert calibration.COMPLETION_FILE in completed_run.manifest["parts"]
    files = files_of_completion(fit_completion(completed_run, films(60, seed=4)))
    (tmp_path / calibration.COMPLETION_FILE).write_bytes(files[calibration.COMPLETION_FILE])
    assert read_completion(tmp_path, {})["director"].values > 20
    assert files_of_completion(fit_completion(completed_run, films(9))) == {}


@pytest.mark.parametrize("neighbours", [(), (0.6, 0.1, 0.2, 0.0, 1.0)])
def test_what_is_said_beyond_popularity_is_multiplied_by_the_sureness(neighbours: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    products, evidence = rng.normal(size=(2, 5, 9)), rng.normal(size=(4, 5, 9))  # [groups or ways, rows, candidates]
    log_counts = np.log(rng.integers(1, 50, 9) + 1)

    def log_p(numbers: GroupCalibration) -> Any:
        scores = numbers.weight("a") * products[0] + numbers.weight("b") * products[1] + numbers.popularity * log_counts
        if numbers.neighbours:
            scores = scores * numbers.neighbours[0] + np.tensordot(numbers.neighbours[1:], evidence, 1)
        return log_softmax(scores)

    numbers = GroupCalibration(0.5, {"a": 1.5, "b": -0.5}, 0.1, 0.9, neighbours=neighbours)
    for factor in (1.3, 0.5, 0.05):
        by_hand = log_softmax(log_counts + factor * (log_p(numbers) - log_counts))
        np.testing.assert_allclose(log_p(surer(numbers, factor)), by_hand, atol=1e-3)
    assert surer(numbers, 1.0) == numbers


@pytest.mark.parametrize(("said", "least", "most"), [(0.0, 0.04, 0.2), (0.5, 0.4, 0.6), (1.0, 0.85, 1.15)])
def test_the_sureness_is_how_much_of_what_is_said_is_true(said: float, least: float, most: float) -> None:
    """Values are drawn by popularity and a share of what the fit says; the share is found from rows of two checks."""
    rng = np.random.default_rng(0)
    log_counts = np.log(np.array([400, 80, 30, 9, 2]) + 1.0)
    unseen = []
    for rows in (600, 200):
        evidence = rng.normal(0, 1.5, (rows, 5))
        probabilities = np.exp(log_softmax(log_counts + said * evidence))
        true = np.array([rng.choice(5, p=of_row / of_row.sum()) for of_row in probabilities])
        is_true = np.eye(5, dtype=bool)[true]
        unseen.append(
            Unseen(log_softmax(log_counts + evidence).astype(np.float32), is_true, log_counts.astype(np.float32))
        )
    assert least < sureness(unseen) < most
    losses = [sum(part.slopes(factor).loss for part in unseen) + np.log(factor) ** 2 / 2 for factor in SURENESS]
    assert sureness(unseen) == SURENESS[np.argmin(losses)]


def test_the_loss_of_a_sureness_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(1)
    log_counts = np.log(np.array([0, 400, 30, 2]) + 1.0)
    log_p = log_softmax(np.append(np.full((6, 1), -np.inf), rng.normal(size=(6, 3)), axis=1)).astype(np.float32)
    is_true = np.array([[False, True, False, False], [False, False, True, True]] * 3)
    unseen = Unseen(log_p, is_true, log_counts.astype(np.float32))

    def loss_loop(factor: float) -> float:
        total = 0.0
        for of_row, true in zip(log_p.astype(float).tolist(), is_true.tolist(), strict=True):
            tilted = [factor * p + (1 - factor) * count for p, count in zip(of_row, log_counts.tolist(), strict=True)]
            log_sum = float(np.log(np.exp(tilted).sum()))
            total -= sum(t - log_sum for t, is_one in zip(tilted, true, strict=True) if is_one) / sum(true)
        return total

    for factor in (0.3, 1.0, 1.4):
        loss, first, second = unseen.slopes(factor)
        below, at, above = (loss_loop(factor + step) for step in (-1e-3, 0, 1e-3))
        assert loss == pytest.approx(at, rel=1e-6)
        assert first == pytest.approx((above - below) / 2e-3, rel=1e-4, abs=1e-5)
        assert second == pytest.approx((above - 2 * at + below) / 1e-6, rel=1e-3)
        by_loop = [t - np.log(np.exp(factor * log_p[0, 1:] + (1 - factor) * log_counts[1:]).sum()) for t in (
            factor * log_p[0, 1:] + (1 - factor) * log_counts[1:])]  # fmt: skip
        np.testing.assert_allclose(unseen.log_p(factor)[0, 1:], np.array(by_loop).ravel(), atol=1e-5)


def test_what_is_expected_of_the_numbers_has_a_mean_in_common() -> None:
    rng = np.random.default_rng(0)
    means, default = 1 + rng.normal(0, 0.5, 400_000), 0.75
    weights = means[:, None] + rng.normal(0, 0.5, (400_000, 3))
    powers = means * default + 1 - means + rng.normal(0, 0.25, 400_000)
    covariance = np.cov(np.column_stack([weights, powers]).T)
    np.testing.assert_allclose(np.linalg.inv(ridge_of_numbers(3, default)), covariance, atol=0.01)
    each_of_many = np.linalg.inv(ridge_of_numbers(40, default))
    assert each_of_many[0, 0] - each_of_many[0, 1] == pytest.approx(each_of_many[1, 1] - each_of_many[1, 2])
    assert each_of_many[0, 0] - each_of_many[0, 1] == pytest.approx(0.25 * 4 / 40)


def test_many_groups_that_say_little_are_not_worse_than_popularity() -> None:
    """Forty groups of noise, 80 rows of a skewed column: as they tell nothing, popularity is what is left."""
    rng = np.random.default_rng(0)
    counts = np.array([900, 60, 30, 10])
    of_candidates = rng.normal(0, 0.4, (4, 5))
    true = rng.choice(4, 400, p=counts / counts.sum())
    vectors, log_counts = rng.normal(size=(400, 40, 5)), np.log(counts + 1.0)
    observations = Observations(
        vectors, np.arange(400), of_candidates[true], np.zeros(400), log_counts[true], true, np.ones(400),
        of_candidates, np.zeros(4), log_counts,
    )  # fmt: skip
    numbers = fitted_numbers(observations.take(np.arange(80)), 0.0)
    unseen = observations.take(np.arange(80, 400))
    popular, _ = loss_and_gradient(unseen, np.append(np.zeros(40), 1.0))
    default, _ = loss_and_gradient(unseen, np.append(np.ones(40), 0.0))
    fitted, _ = loss_and_gradient(unseen, numbers)
    assert fitted < popular + 0.25 * (default - popular)
    assert abs(numbers[:-1].mean()) < 0.3
    assert numbers[-1] > 0.7


@pytest.mark.slow
def test_answers_of_a_fit_to_few_rows_are_as_often_right_as_they_say(tmp_path: Path) -> None:
    """Many groups that tell nothing: numbers fitted to some twenty rows find something in them all the same."""
    rng = np.random.default_rng(0)

    def noise(rows: int) -> pa.Table:
        columns = {f"c{i}": [f"v{x}" for x in rng.integers(0, 6, rows)] for i in range(8)}
        return pa.table({"kind": [f"k{x}" for x in rng.integers(0, 2, rows)], **columns})

    schema = {
        "version": 1, "model": {"dim": 16}, "groups": {name: {"column": name} for name in noise(1).column_names},
        "noise": {"negatives": 16, "sharing": "batch"},
        "objective": {"type": "contrastive", "unit": True, "temperature": 0.1},
        "training": {"epochs": 15, "batch_size": 64},
    }  # fmt: skip
    run = train(schema, noise(600), tmp_path / "run", quiet=True)
    completed = run.complete(noise(1000), "kind", n=1)
    said = np.mean([row.values[0][1] for row in completed])
    assert said < 0.58  # 0.5 are right


def test_numbers_of_which_each_is_new_are_fitted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 3, 400)
    table = pa.table({"kind": [f"k{x}" for x in kinds], "size": kinds * 10 + rng.normal(size=400)})
    groups = {"kind": {"column": "kind"}, "size": {"column": "size", "extractor": "numeric"}}
    schema = {"version": 1, "model": {"dim": 4}, "groups": groups, "training": {"epochs": 3}}
    run = short_trainings.train({**schema, "objective": "contrastive"}, table, tmp_path / "run", quiet=True)
    assert completion_of_run(run)["size"].values == 40


def test_of_very_many_groups_those_that_most_rows_have_are_fitted(
    completed_run: feat2vec.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion_calibration, "MOST_FITTED_GROUPS", 2)
    table = films(80, seed=6)
    rare = table.set_column(0, "director", pa.array([None] * 60 + table["director"][60:].to_pylist()))
    assert "director" not in fit_completion(completed_run, rare)
    assert len(fit_completion(completed_run, rare)) == 2


def test_the_file_of_a_run(tmp_path: Path) -> None:
    numbers = GroupCalibration(0.5, {"a": 1.5}, 0.1, 0.9, 40, 1.0, 2.0, Reliability((0.1,), (0.2,), (40,), 0.1))
    path = tmp_path / calibration.COMPLETION_FILE
    assert read_completion(tmp_path, {}) == {}
    path.write_text(completion_text({"b": numbers, "c": GroupCalibration()}))
    assert read_completion(tmp_path, {}) == {"b": numbers, "c": GroupCalibration()}
    for text in (
        "[]",
        "{}",
        '{"format": 2, "groups": {}}',
        path.read_text().replace("1.5", "NaN"),
        '{"format": 1, "groups": 3}',
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=r"completion.json: cannot be read .*; restore the run"):
            read_completion(tmp_path, {})
    assert json.loads(completion_text({}))["groups"] == {}
