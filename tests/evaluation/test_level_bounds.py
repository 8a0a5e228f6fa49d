"""Theorem S1, proposition S3 and lemmas S4 and S5 of the RaFM paper as properties, and what a run's levels cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feat2vec
from feat2vec.evaluation.level_bounds import (
    LevelLoss,
    Truth,
    binary_divergence,
    level_bounds,
    log_loss_bounds,
    quasi_triangle_constant,
    rmse_bounds,
    truth_of_odds,
    truth_of_scores,
)
from feat2vec.evaluation.noise_odds import noise_odds, odds_of_unit
from feat2vec.evaluation.prediction import predict
from feat2vec.schema.objectives import OBJECTIVES, Logistic, Noisy, Softmax, self_supervised
from tests import reference
from tests.model.test_theory import TABLE, Target, model_and_rows, rescored, row_ids
from tests.short_trainings import train

PROPERTY = settings(deadline=None, max_examples=80, derandomize=True)
probabilities = st.floats(1e-9, 1 - 1e-9)
deltas = st.floats(1e-3, 20).map(lambda excess: 1 + excess)


@pytest.fixture
def _float64() -> Iterator[None]:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(policy)


# --- the quasi-triangle inequality of log losses --------------------------------------------------------------------


@PROPERTY
@given(probabilities, probabilities, deltas)
def test_lemma_s4(theta: float, other: float, delta: float) -> None:
    """C is above 0 and falls with theta."""
    low, high = sorted((theta, other))
    constants = quasi_triangle_constant([low, high], delta)
    assert (constants > 0).all()
    assert constants[1] <= constants[0] * (1 + 1e-9)
    if 1e-3 < low < 0.999:
        assert constants[0] == pytest.approx(reference.quasi_triangle_constant(low, delta), rel=1e-6)


def test_the_constant_at_its_ends() -> None:
    assert quasi_triangle_constant(1.0, 3.0) == pytest.approx(1)
    assert quasi_triangle_constant(1e-12, 2.0) > 1e11
    assert quasi_triangle_constant(0.5, 1 + 1e-6) > 1e5


@PROPERTY
@given(probabilities, probabilities, deltas)
def test_lemma_s5(first: float, second: float, delta: float) -> None:
    """log(y1 / y2) <= C_{y1,delta} KL(y1 || y2) + log delta."""
    constant = float(quasi_triangle_constant(first, delta))
    bound = constant * reference.divergence(first, second) + math.log(delta)
    assert math.log(first / second) <= bound + 1e-9 * (1 + abs(bound))


@PROPERTY
@given(probabilities, probabilities, deltas, st.integers(0, 1), st.floats(0.01, 1))
def test_proposition_s3(first: float, second: float, delta: float, y: int, part: float) -> None:
    """L(y2, y) <= L(y1, y) + C_{theta,delta} KL(y1 || y2) + log delta for each theta up to what y1 gives to y."""
    theta = part * (first if y else 1 - first)
    step = float(quasi_triangle_constant(theta, delta)) * reference.divergence(first, second) + math.log(delta)
    assert reference.log_loss(second, y) <= reference.log_loss(first, y) + step + 1e-9 * (1 + step)


def test_equation_s4_is_misprinted() -> None:
    """With the arguments of KL as S4 has them, or theta above what y1 gives to y, there are counterexamples."""
    first, second, delta = 0.9, 1e-30, 2.0
    constant = float(quasi_triangle_constant(first, delta))
    swapped = reference.log_loss(first, 1) + constant * reference.divergence(second, first) + math.log(delta)
    assert reference.log_loss(second, 1) > 10 * swapped
    low, below = 0.01, 0.001
    too_large = float(quasi_triangle_constant(0.99, 1.5)) * reference.divergence(low, below) + math.log(1.5)
    assert reference.log_loss(below, 1) > reference.log_loss(low, 1) + too_large
    with pytest.raises(ValueError, match=r"math domain error|expected a positive"):
        math.log((1 - 0.6) / (1 - 0.6 * 2))  # theta delta for theta / delta


# --- theorem S1 -----------------------------------------------------------------------------------------------------


def level_scores(seed: int, m: int, rows: int = 30) -> list[np.ndarray]:
    """B_{1,1} .. B_{1,m} of random rows."""
    items = reference.random_rows(np.random.default_rng(seed), rows, 3, [2, 3, 5][:m], present=0.9)
    return [np.array([reference.b(row, 1, p) for row in items]) for p in range(1, m + 1)]


def holds(levels: Sequence[LevelLoss]) -> bool:
    return all(level.loss <= level.row_by_row + 1e-9 and level.loss <= level.bound + 1e-9 for level in levels)


@pytest.mark.parametrize("m", [2, 3])
def test_theorem_s1_of_square_losses(m: int) -> None:
    for seed in range(20):
        scores = level_scores(seed, m)
        targets = scores[-1] + np.random.default_rng(seed).normal(size=30)
        levels = rmse_bounds(scores, targets)
        assert [level.level for level in levels] == list(range(1, m + 1))
        assert holds(levels)
        for k, level in enumerate(levels):
            assert level.loss == pytest.approx(math.sqrt(sum((scores[k] - targets) ** 2) / 30))
            steps = [math.sqrt(sum((low - high) ** 2) / 30) for low, high in itertools.pairwise(scores[k:])]
            assert level.bound == level.row_by_row == pytest.approx(levels[-1].loss + sum(steps))


@pytest.mark.parametrize("m", [2, 3])
def test_theorem_s1_of_log_losses(m: int) -> None:
    tighter = 0
    for seed in range(10):
        scores, labels = level_scores(seed, m), np.random.default_rng(seed).integers(2, size=30)
        levels = log_loss_bounds([truth_of_scores(Logistic(target="y"), level, labels) for level in scores])
        assert holds(levels)
        p = [[reference.sigmoid(score) for score in level] for level in scores]
        for k, level in enumerate(levels):
            of_rows = [reference.log_loss(q, y) for q, y in zip(p[k], labels, strict=True)]
            assert level.loss == pytest.approx(np.mean(of_rows), rel=1e-9)
            tighter += level.row_by_row < level.bound
        theta = min(q if y else 1 - q for q, y in zip(p[-1], labels, strict=True))
        mean = np.mean([reference.divergence(high, low) for high, low in zip(p[-1], p[-2], strict=True)])
        deltas_of_test = np.exp(np.logspace(-3, 2.4, 400))
        steps = [reference.quasi_triangle_constant(theta, d) * mean + math.log(d) for d in deltas_of_test]
        assert levels[-2].bound <= levels[-1].loss + min(steps) * 1.02  # the best delta, as nearly as ours are dense
        assert levels[-2].bound >= levels[-1].loss + min(steps) * 0.98
    assert tighter >= 8


def test_a_bound_with_the_arguments_of_kl_the_other_way_round_fails() -> None:
    """As equation S4 prints it; of the same numbers the right one holds."""
    low, high = truth_of_odds(np.full(4, -60.0)), truth_of_odds(np.full(4, 2.0))
    assert holds(log_loss_bounds([low, high]))
    constants = quasi_triangle_constant(np.exp(high.log_true), 2.0)
    swapped = constants * binary_divergence(low.log_true, low.log_false, high.log_true, high.log_false)
    assert -low.log_true.mean() > -high.log_true.mean() + swapped.mean() + math.log(2)


def test_classes_and_decisions() -> None:
    """Of classes the truth is one of two: S3 holds for the probability of a row's class. A row may have decisions."""
    rng = np.random.default_rng(0)
    scores, classes = [rng.normal(scale=3, size=(40, 4)) for _ in range(3)], rng.integers(4, size=40)
    truths = [truth_of_scores(Softmax(target="y"), level, classes) for level in scores]
    for truth, level in zip(truths, scores, strict=True):
        logs = [reference.log_shares(row.tolist()) for row in level]
        np.testing.assert_allclose(truth.log_true, [row[c] for row, c in zip(logs, classes, strict=True)], rtol=1e-9)
        np.testing.assert_allclose(np.exp(truth.log_true) + np.exp(truth.log_false), 1, rtol=1e-12)
    levels = log_loss_bounds(truths)
    assert holds(levels)
    several = log_loss_bounds(truths, decisions_per_row=3)
    np.testing.assert_allclose([level[1:] for level in several], 3 * np.array([level[1:] for level in levels]))


def test_levels_that_are_alike_or_certain_have_plain_numbers() -> None:
    same = truth_of_odds(np.array([1.0, 800.0, -3.0]))
    levels = log_loss_bounds([same, same, same])
    assert levels[0].loss == levels[0].bound == levels[0].row_by_row
    certain = Truth(np.array([0.0]), np.array([-np.inf]))
    assert log_loss_bounds([truth_of_odds(np.array([2.0])), certain])[0].bound < math.inf
    assert holds(log_loss_bounds([truth_of_odds(np.array([-700.0])), truth_of_odds(np.array([-720.0]))]))


# --- a run ----------------------------------------------------------------------------------------------------------


def visits(rows: int = 160) -> pa.Table:
    rng = np.random.default_rng(0)
    who, where = np.minimum(rng.zipf(1.5, rows), 30), np.minimum(rng.zipf(1.7, rows), 20)
    return pa.table(
        {
            "who": [f"w{w}" for w in who],
            "where": [None if i % 9 == 0 else f"p{p}" for i, p in enumerate(where)],
            "tags": [[f"t{t}" for t in np.minimum(rng.zipf(1.6, 1 + i % 3), 9)] for i in range(rows)],
            "score": (who % 5 + where % 3).astype(float),
            "liked": (who + where) % 2,
            "kind": [f"k{k}" for k in (who * where) % 3],
        }
    )


def run_of(folder: Any, objective: dict[str, Any], **model: Any) -> feat2vec.Run:
    schema = {
        "version": 1,
        "model": {"ranks": [2, 4, 8], "bias": True, **model},
        "groups": {
            "who": {"column": "who"},
            "where": {"column": "where"},
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
        },
        "objective": objective,
        "training": {"validation": 0, "epochs": 2, "batch_size": 40},
    }
    return train(schema, visits(), folder / "run", quiet=True)


@pytest.fixture(scope="module")
def scored_run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return run_of(tmp_path_factory.mktemp("runs"), {"type": "regression", "target": "score"})


def test_what_levels_cost(scored_run: feat2vec.Run) -> None:
    """Corollary 4 from the table itself: sum_k D_k n(F_k), with the level of each value by its count."""
    found = level_bounds(scored_run)
    assert (found.losses, found.measure, found.rows) == ((), None, 0)
    columns = {name: visits()[name].to_pylist() for name in ("who", "where", "tags")}
    bags = {name: [v if isinstance(v, list) else [] if v is None else [v] for v in columns[name]] for name in columns}
    occurrences = {name: [key for bag in bags[name] for key in bag] for name in bags}
    levels = scored_run.schema.model.levels
    for k, cost in enumerate(found.costs, start=1):
        reaching = {name: {key for key in set(keys) if levels.of_counts([keys.count(key)])[0] >= k}
                    for name, keys in occurrences.items()}  # fmt: skip
        assert cost.values == sum(map(len, reaching.values()))
        n = sum(sum(key in reaching[name] for key in keys) for name, keys in occurrences.items()) / 160
        assert cost.occurrences == pytest.approx(n)
        assert cost.multiplications == pytest.approx(cost.rank * n)
        assert cost.weights == cost.rank * (cost.values + 3 * (k == 1))  # each group has a row for unseen keys
    assert found.fm_multiplications == pytest.approx(8 * found.costs[0].occurrences)
    assert [cost.values for cost in found.costs] == sorted((cost.values for cost in found.costs), reverse=True)


def check_losses(run: feat2vec.Run, metric: str, measure: str) -> None:
    """The losses are those of `evaluate --level`, and none is above its bound."""
    found = level_bounds(run, visits())
    assert (found.rows, found.measure, len(found.losses)) == (160, measure, 3)
    assert holds(found.losses)
    for loss in found.losses:
        assert loss.loss == pytest.approx(predict(run, visits(), loss.level)[metric], rel=1e-5)


@pytest.mark.usefixtures("no_graphs")
def test_what_levels_lose(scored_run: feat2vec.Run) -> None:
    check_losses(scored_run, "rmse", "RMSE")


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("objective", [{"type": "logistic", "target": "liked"}, {"type": "softmax", "target": "kind"}])
def test_what_levels_of_labels_lose(tmp_path: Any, objective: dict[str, Any]) -> None:
    check_losses(run_of(tmp_path, objective), "log_loss", "log loss")


@pytest.mark.slow
def test_truncated_levels_cost_but_are_no_models(tmp_path: Any) -> None:
    run = run_of(tmp_path, {"type": "regression", "target": "score"}, level_sharing="truncate")
    found = level_bounds(run, visits())
    assert found.losses == ()
    for cost, added in zip(found.costs, [2, 2, 4], strict=True):
        assert cost.multiplications == pytest.approx(added * cost.occurrences)


@pytest.mark.slow
@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("objective", ["nce", "contrastive"])
def test_levels_without_a_target(tmp_path: Any, objective: str) -> None:
    run = run_of(tmp_path, {"type": objective})
    found = level_bounds(run, visits())
    assert (found.measure, len(found.losses)) == (f"{objective} loss", 3)
    assert holds(found.losses)
    assert found.rows < 160  # rows of the group that is missing in some are left out
    odds = noise_odds(run, visits(), most_rows=40)
    assert odds is not None
    assert odds.rows <= 40
    assert len(odds.levels[0]) == odds.rows * (1 if objective == "contrastive" else 6)
    run.model.groups_by_item = (2,)  # as with `noise.lists: items`
    assert level_bounds(run, visits())[1:] == (found.fm_multiplications, None, 0, ())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["nce", "negative_sampling", "contrastive"])
@pytest.mark.usefixtures("_float64")
def test_the_odds_of_levels_are_those_of_rows_that_are_scored_whole(name: str) -> None:
    """Of each unit: the loss that they add up to is the objective's, of scores of rows with each negative in place."""
    model, encoded = model_and_rows(TABLE, f"type: {name}", "ranks: [1, 4], bias: true", "negatives: 3")
    ids, rng = row_ids(model, encoded), np.random.default_rng(0)
    for u, unit in enumerate(model.noise.units):
        target = Target(model, encoded, u)
        index = rng.choice(len(target.log_q), (len(ids), 3), p=np.exp(target.log_q))
        draw = target.draw(ids, index)
        levels = odds_of_unit(model, unit, draw, model.value_tables)
        assert levels is not None
        offset = model.offsets[unit.groups[0]] if name == "nce" else 0.0
        log_q = Noisy(draw.log_q_positive, draw.log_q)
        for odds, scores in zip(levels, rescored(model, target, ids, index), strict=True):
            noisy = Noisy(scores[:, 0], scores[:, 1:])
            losses = self_supervised(model.schema.objective, noisy, log_q, draw.hits, offset)
            np.testing.assert_allclose(np.logaddexp(0, -odds).sum(axis=1), losses, rtol=1e-9)


@pytest.mark.parametrize("correction", [True, False])
@pytest.mark.parametrize("name", ["nce", "negative_sampling", "contrastive"])
def test_the_odds_of_the_truth_add_up_to_the_loss(name: str, correction: bool) -> None:
    options: dict[str, Any] = {"correction": correction, "temperature": 0.7} if name == "contrastive" else {}
    objective = OBJECTIVES[name](**options)
    rng = np.random.default_rng(0)
    scores, log_q = (Noisy(rng.normal(size=6), rng.normal(size=(6, 4))) for _ in range(2))
    hits = rng.random((6, 4)) < 0.2
    odds = np.asarray(objective.odds_of_truth(scores, log_q, hits, 0.3))
    loss = np.logaddexp(0, -odds).sum(axis=1)
    np.testing.assert_allclose(loss, np.asarray(self_supervised(objective, scores, log_q, hits, 0.3)), rtol=1e-9)


def test_an_objective_of_ones_own_has_no_odds() -> None:
    class Margin(feat2vec.objectives.NoiseObjective):
        type: str = "margin"

    nothing = Noisy(np.zeros(1), np.zeros((1, 1)))
    assert Margin().odds_of_truth(nothing, nothing, np.zeros((1, 1), bool), 0.0) is None
