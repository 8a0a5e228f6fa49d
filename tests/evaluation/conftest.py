"""A run of films, which several files share."""

from __future__ import annotations

import pytest

import feat2vec
from tests.evaluation.tables import MODELS, SCHEMA, films, people, people_schema
from tests.short_trainings import train


@pytest.fixture(scope="package", params=[pytest.param("fm", marks=pytest.mark.slow), "rafm"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {**SCHEMA, "model": {"dim": 6} if request.param == "fm" else {"ranks": [2, 6]}}
    return train(schema, films(400, 0), tmp_path_factory.mktemp("runs") / "run", quiet=True)


@pytest.fixture(
    scope="package", params=[pytest.param(name, marks=() if name == "rafm" else pytest.mark.slow) for name in MODELS]
)
def people_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return train(people_schema(request.param), people(), tmp_path_factory.mktemp("runs") / "run", quiet=True)
