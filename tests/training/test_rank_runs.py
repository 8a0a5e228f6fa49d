"""Runs of LR, MRMA and models whose levels are given: trained, read back, and asked for what they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.run_comparison import compare_runs
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.training.fingerprints import refuse_other_origin
from tests.short_trainings import finetune, train

ROWS = 240
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"pairs": False},
    "whole models": {"ranks": [2, 3], "level_sharing": "all", "bias": True},
    "counts": {"ranks": [2, 4], "bias": True, "levels": {"counts": [12]}},
    "columns": {"ranks": [2, 4], "bias": True, "levels": {"columns": {"film": "depth"}}},
}


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    users, films = rng.integers(0, 9, ROWS), rng.zipf(1.6, ROWS) % 20
    return pa.table(
        {
            "user": [f"u{u}" for u in users],
            "film": [f"f{f}" for f in films],
            "depth": (1 + (films % 3 == 2)).astype(np.int64),
            "like": ((users + films) % 2).astype(np.int64),
            "stars": (films % 5).astype(np.float64),
        }
    )


def schema(name: str) -> dict[str, Any]:
    return {
        "version": 1,
        "model": MODELS[name],
        "groups": {"user": {"column": "user"}, "film": {"column": "film"}},
        "objective": {"type": "logistic", "target": "like"},
        "training": {"epochs": 2, "batch_size": 64, "validation": 0, "dependent_rate": 0.05}
        if name in ("counts", "columns")
        else {"epochs": 2, "batch_size": 64, "validation": 0},
    }


@pytest.fixture(scope="module", params=MODELS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, feat2vec.Run]:
    out = tmp_path_factory.mktemp("runs") / "run"
    train(schema(request.param), table(), out, quiet=True)
    return request.param, feat2vec.load(out)


def test_predictions_from_the_file_are_those_of_the_model(run: tuple[str, feat2vec.Run]) -> None:
    name, trained = run
    rows = table()
    predicted = trained.predict(rows)["score"]  # by NumPy, from the model's file
    model: Feat2Vec = trained.model
    encoded = trained.fitted.encode(rows)
    entries = {}
    for g, group in enumerate(model.groups):
        entries[group] = np.asarray(encoded.values[group].entries)[encoded.rows[:, g]]
    np.testing.assert_allclose(predicted, model(entries), rtol=1e-4, atol=1e-5)
    assert trained.metrics["epochs"] == 2
    vocabulary = trained.fitted.codecs["film"].vocabulary
    assert vocabulary is not None
    levels = vocabulary.levels_in(trained.schema.model.levels)
    if name == "columns":
        keys = vocabulary.keys.to_pylist()
        assert {key: int(k) for key, k in zip(keys, levels, strict=True)} == {
            key: 1 + (int(key[1:]) % 3 == 2) for key in keys
        }
    if name == "counts":
        assert levels.tolist() == (1 + (vocabulary.counts >= 12)).tolist()


@pytest.mark.thinned(2)
def test_a_linear_model_has_no_vectors_and_others_have(run: tuple[str, feat2vec.Run], tmp_path: Path) -> None:
    name, trained = run
    if name != "linear":
        dims = trained.vectors("film").vector_size
        assert dims == {"whole models": 5, "counts": 2, "columns": 2}[name]
        return
    message = "the run has no vectors: with `pairs: false` its schema leaves a bias and linear terms to predict"
    for ask in (
        lambda: trained.vectors("film"),
        lambda: trained.embed(table()),
        lambda: trained.export("parquet", tmp_path / "export"),
        lambda: trained.row_vectors(table()),
        lambda: trained.fold_in(table(), "film"),
    ):
        with pytest.raises(UserError, match=message):
            ask()
    with pytest.raises(UserError, match="the run has no vectors to learn from, as its schema has `pairs: false`"):
        finetune(trained, table(), "stars", tmp_path / "tuned", quiet=True)
    assert trained.report(tmp_path / "report.html")["groups"] == {}  # its losses are there all the same
    assert "Training" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert compare_runs(trained, trained)["neighbours"] == {}


def test_vectors_of_whole_models_are_learnt_from(run: tuple[str, feat2vec.Run], tmp_path: Path) -> None:
    name, trained = run
    if name not in ("whole models", "columns"):
        return  # it has levels as other models have, or no vectors
    settings = ["training.epochs=1", "training.validation=0"]
    tuned = finetune(trained, table(), "stars", tmp_path / "tuned", head="fm", settings=settings, quiet=True)
    assert tuned.schema.model.dim == 5 if name == "whole models" else tuned.schema.model.ranks == (2, 4)
    assert feat2vec.load(tmp_path / "tuned").predict(table())["prediction"].shape == (ROWS,)


def test_a_checkpoint_of_before_the_options_is_gone_on_with(tmp_path: Path) -> None:
    text = feat2vec.read_schema(schema("counts")).resolved()
    of_before = "".join(
        line for line in text.splitlines(keepends=True) if "dependent_rate" not in line and "  pairs" not in line
    )
    assert of_before != text
    facts = {"data": 1, "validation": None, "start": None}
    with pytest.raises(UserError, match=r"training\.dependent_rate: none before, 0\.05 now"):
        refuse_other_origin(tmp_path, {**facts, "schema": of_before}, {**facts, "schema": text})
    plain = feat2vec.read_schema(schema("whole models")).resolved()
    before = "".join(
        line for line in plain.splitlines(keepends=True) if "dependent_rate" not in line and "  pairs" not in line
    )
    assert before != plain
    refuse_other_origin(tmp_path, {**facts, "schema": before}, {**facts, "schema": plain})
