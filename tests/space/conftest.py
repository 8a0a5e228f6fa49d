"""Runs that several files share: one for each kind of levels, all but one only in slow tests."""

from __future__ import annotations

import pytest

import feat2vec
from feat2vec.run import train as train_with_graph
from tests.short_trainings import train
from tests.space import completed_films, keras_tables, tables


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=() if name == "rafm" else pytest.mark.slow) for name in tables.MODELS],
)
def vectors_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {
        "version": 1, "id": "name", "model": tables.MODELS[request.param], "groups": tables.GROUPS,
        "training": {"validation": 0,
                     "epochs": 1, "batch_size": 100, "optimizer": {"type": "adam", "learning_rate": 0.05}},
    }  # fmt: skip
    out = tmp_path_factory.mktemp("runs") / "run"
    return feat2vec.load(train(schema, tables.table(), out, quiet=True).folder)


@pytest.fixture(
    scope="session",
    params=[pytest.param(name, marks=() if name == "fm" else pytest.mark.slow) for name in keras_tables.MODELS],
)
def keras_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {
        "version": 1,
        "model": keras_tables.MODELS[request.param],
        "groups": keras_tables.GROUPS,
        "training": {"validation": 0, "epochs": 1},
    }
    return train(schema, keras_tables.table(300, 0), tmp_path_factory.mktemp("runs") / "run", quiet=True)


@pytest.fixture(scope="session")
def completed_run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    """A run of lookups whose rows can be completed, of some hundred steps."""
    schema, out = completed_films.SCHEMA, tmp_path_factory.mktemp("runs") / "films"
    return feat2vec.load(train_with_graph(schema, completed_films.films(), out, quiet=True).folder)
