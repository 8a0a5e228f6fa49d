"""The list of baselines: recipes take their names and tasks from it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.evaluation.options import METRICS
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.recipes.baselines import BASELINES, BaselineName
from feat2vec.recipes.baselines.base import BaselineRequest
from feat2vec.run import Run
from feat2vec.table.table import open_table


def test_recipes_know_every_baseline_by_its_name() -> None:
    assert get_args(BaselineName) == tuple(BASELINES)
    for name, baseline in BASELINES.items():
        assert baseline.name == name


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_for_a_task(name: str) -> None:
    assert BASELINES[name].task in METRICS


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_gradient_boosting_leaves_rows_without_a_target_out(missing: float | None) -> None:
    size = np.random.default_rng(0).normal(size=120)
    price = [missing if i % 4 == 0 else 2 * value for i, value in enumerate(size.tolist())]
    rows = pa.table({"size": size, "price": pa.array(price, pa.float64(), from_pandas=False)})
    labelled = rows.take(pa.array([i for i in range(120) if i % 4]))
    schema = {
        "version": 1, "groups": {"size": {"column": "size", "extractor": "numeric"}},
        "objective": {"type": "regression", "target": "price"},
    }  # fmt: skip
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, rows).encoder))
    of_all, of_labelled = (
        BASELINES["gradient_boosting"].measure(BaselineRequest(run, open_table(table), open_table(table)))
        for table in (rows, labelled)
    )
    assert of_all == of_labelled
    assert of_all["n"] == 90
