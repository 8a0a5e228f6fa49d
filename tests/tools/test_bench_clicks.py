"""The click log, and what it says of models with and without vectors."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("bench_clicks")


def test_the_auc_is_that_of_all_pairs(bench: ModuleType) -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 60), rng.integers(0, 9, 60) / 8
    clicks, others = scores[labels == 1], scores[labels == 0]
    pairs = [1.0 if click > other else 0.5 * (click == other) for click in clicks for other in others]
    assert bench.auc(labels, scores) == pytest.approx(np.mean(pairs))


def test_most_keys_of_the_log_are_rare(bench: ModuleType) -> None:
    table, score = bench.click_log(20_000, 50_000)
    counts = np.array([row["counts"] for row in table["user"].value_counts().to_pylist()])
    assert len(counts) > 4000
    assert np.median(counts) <= 2
    assert bench.auc(table["click"].to_numpy(), score) > 0.7
    assert table.equals(bench.click_log(20_000, 50_000)[0])


@pytest.mark.slow
def test_vectors_of_frequent_keys_are_nearly_as_good_and_far_fewer(bench: ModuleType) -> None:
    facts = bench.measure(rows=100_000, features=50_000, epochs=3, l1=1.0, count=10)
    linear, whole, adaptive = facts["LR"], facts["FM 8"], facts["FM 8, adaptive memory"]
    assert linear["auc"] + 0.01 < whole["auc"] < facts["auc of the hidden score"]
    assert adaptive["auc"] > whole["auc"] - 0.01
    assert adaptive["held"] < 0.5 * whole["held"]
    assert facts["RaFM [2, 4, 8]"]["held"] < whole["held"]
