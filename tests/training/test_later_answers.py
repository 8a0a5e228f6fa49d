"""Answers for rows of a time that training has not seen have a temperature of their own, wherever they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.pages.report import page
from feat2vec.space.predict import Predictor
from tests.short_trainings import finetune, train

YEARS, SHOPS = 20, 12


def sales(rows: int, first_year: int, last_year: int, seed: int = 0) -> pa.Table:
    """A shop says in every year of training what is sold, and nothing later; then more is sold, too."""
    rng = np.random.default_rng(seed)
    shop, year = rng.integers(0, SHOPS, rows), rng.integers(first_year, last_year + 1, rows)
    is_known = year < YEARS - 4
    chance = np.where(is_known, np.where(shop % 2, 0.95, 0.05), 0.8)
    good = (rng.random(rows) < chance).astype(np.int64)
    price = np.where(is_known, good, rng.integers(0, 2, rows)) * 3.0 + 1
    return pa.table({"shop": shop.astype(str), "year": year + 2000, "good": good, "price": price})


def schema(year: Any, objective: dict[str, Any], head: Any = None) -> dict[str, Any]:
    groups = {"shop": {"column": "shop"}, "year": {"column": "year", "extractor": year}}
    training = {"epochs": 12, "batch_size": 256, "time": "year", "optimizer": {"type": "adam", "learning_rate": 0.05}}
    made = {"version": 1, "model": {"dim": 4}, "groups": groups, "objective": objective, "training": training}
    return made if head is None else {**made, "head": head}


NUMBERS = {"type": "numeric", "scale": "quantile", "pieces": 4}
LOGISTIC = {"type": "logistic", "target": "good"}
NETWORK = {"type": "mlp", "hidden": [8], "inputs": ["vectors"], "pairs": False}
CASES = {
    "lookups": ("lookup", LOGISTIC, None),
    "network": (NUMBERS, LOGISTIC, NETWORK),
    "numbers": (NUMBERS, {"type": "regression", "target": "price"}, NETWORK),
    "classes": ("lookup", {"type": "softmax", "target": "good"}, NETWORK),
}


FACTS = {"name": "sales", "objective": "logistic", "seed": 0, "history": [], "groups": {}}  # of a report


@pytest.mark.parametrize("case", CASES)
def test_answers_of_new_times_have_a_temperature_of_their_own(case: str) -> None:
    year, objective, head = CASES[case]
    run = train(schema(year, objective, head), sales(2500, 0, YEARS - 1), quiet=True)
    assert abs(run.metrics["temperature_later"] - run.metrics["temperature"]) > 0.01
    rows = pa.concat_tables([sales(30, 0, 9), sales(40, YEARS, YEARS + 5)])
    model, is_later = run.model, np.arange(70) >= 30

    def answers(source: Any) -> np.ndarray:
        batches = Predictor(run.fitted, source).batches(rows)
        return np.concatenate([np.asarray(batch.scores, np.float64) for batch in batches])

    from_file = answers(run.vector_source)  # without TensorFlow for lookups
    np.testing.assert_allclose(from_file, answers(model), atol=1e-5)
    scale, of_later = model.answer_scale_value(), model.later_scale_value()
    assert of_later.temperature == pytest.approx(run.metrics["temperature_later"], abs=1e-5)
    model.later_scale.assign([1.0, of_later.last])
    model.answer_scale.assign(scale._replace(temperature=1.0))
    scores = (answers(model) - scale.shift) / scale.unit
    factor = np.where(is_later, of_later.temperature, scale.temperature)
    if case == "classes":
        factor = factor[:, None]
    expected = np.clip(scale.shift + scale.unit * factor * scores, scale.low, scale.high)
    is_inside = (answers(model) > scale.low) & (answers(model) < scale.high)  # where no range has cut the score off
    np.testing.assert_allclose(from_file[is_inside], expected[is_inside], atol=1e-4)
    assert is_inside.sum() > 20
    facts = {**FACTS, "time": "year", "metrics": run.metrics}
    assert f"scores count {of_later.temperature:.3g} times, in others {scale.temperature:.3g} times" in page(facts)
    assert "scores count" not in page({**facts, "time": None})


@pytest.mark.slow
def test_what_is_learnt_from_the_vectors_of_a_run_is_less_sure_of_later_rows() -> None:
    rows = sales(1000, 0, YEARS - 1)
    groups = {"shop": {"column": "shop"}, "year": {"column": "year"}}
    training = {"epochs": 1, "batch_size": 500, "time": "year", "neighbours": 0}
    unlabelled = {"version": 1, "model": {"dim": 4}, "groups": groups, "training": training}
    run = train({**unlabelled, "objective": {"type": "contrastive"}}, rows.select(["shop", "year"]), quiet=True)
    settings = [
        "training.epochs=6", "training.batch_size=250", "training.optimizer.learning_rate=0.05", "head.hidden=[8]",
    ]  # fmt: skip
    tuned = finetune(run, rows, "good", settings=settings, quiet=True)
    assert tuned.schema.training.time == "year"
    assert tuned.from_scratch is not None
    assert tuned.from_scratch.schema.training.time == "year"
    assert "loss_of_both" in tuned.metrics  # of the rows that neither has learnt
    for learnt in (tuned, tuned.from_scratch):
        assert learnt.metrics["temperature_later"] < 0.8 * learnt.metrics["temperature"]
    rows = sales(60, 3, 9)
    asked = pa.concat_tables([rows, rows.set_column(1, "year", pa.array([2000 + YEARS] * 60))])
    scores = np.abs(tuned.predict(asked)["score"])
    assert scores[60:].mean() < 0.8 * scores[:60].mean()
