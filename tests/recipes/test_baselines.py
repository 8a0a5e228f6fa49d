"""The list of baselines: recipes take their names and tasks from it."""

from __future__ import annotations

from typing import get_args

import pytest

from feat2vec.evaluation.options import METRICS
from feat2vec.recipes.baselines import BASELINES, BaselineName


def test_recipes_know_every_baseline_by_its_name() -> None:
    assert get_args(BaselineName) == tuple(BASELINES)
    for name, baseline in BASELINES.items():
        assert baseline.name == name


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_for_a_task(name: str) -> None:
    assert BASELINES[name].task in METRICS
