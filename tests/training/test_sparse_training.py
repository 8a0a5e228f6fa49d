"""Trainings that leave weights out: what remains is told, is what the run predicts by, and survives a kill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.remaining import leaves_weights_out
from feat2vec.model.vector_model import vector_weights
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import open_table
from feat2vec.training.fine_tuning import schema_of
from tests import short_trainings
from tests.training.callbacks import StopAt, StopError
from tests.training.tables import SCHEMA, same, table

COUNT = 10
SPARSE: dict[str, Any] = {
    "version": 1,
    "groups": {name: SCHEMA["groups"][name] for name in ("who", "tags", "place")},
    "objective": {"type": "logistic", "target": "good"},
    "model": {"dim": 4, "bias": True, "activation": {"count": COUNT, "linear": True}},
    "training": {
        "validation": 0,
        "epochs": 3,
        "batch_size": 60,
        "optimizer": {"type": "ftrl", "learning_rate": 0.5, "l1": 3.0, "l2": 0.5},
    },
}
MOMENTUM: dict[str, Any] = {"type": "sgd", "learning_rate": 0.5, "momentum": 0.9, "nesterov": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return short_trainings.train(SPARSE, table(300), tmp_path_factory.mktemp("sparse") / "run", quiet=True)


@pytest.fixture
def tables(run: feat2vec.Run) -> dict[str, tuple[Any, Any, Any]]:
    """Of each lookup the counts of its keys, their linear terms and the rows of its table."""
    groups = {}
    for name in ("who", "tags", "place"):
        extractor, vocabulary = run.model.extractors[run.model.groups.index(name)], run.fitted.codecs[name].vocabulary
        assert vocabulary is not None
        terms, vectors = extractor.linear.numpy()[1:, 0], extractor.tables[0].numpy()[1:]
        groups[name] = (np.asarray(vocabulary.counts), terms, vectors)
    return groups


def test_only_keys_of_enough_rows_with_a_linear_term_have_a_vector(
    run: feat2vec.Run, tables: dict[str, tuple[Any, Any, Any]]
) -> None:
    left_out = 0
    for name, (counts, terms, vectors) in tables.items():
        enough = int((counts >= COUNT).sum())
        assert len(vectors) == enough
        has_vector = np.any(vectors != 0, axis=1)
        np.testing.assert_array_equal(has_vector, terms[:enough] != 0)
        left_out += len(counts) - int(has_vector.sum())
        seen = run.vectors(name)
        assert seen.vectors.shape == (len(counts), 4)
        np.testing.assert_array_equal(seen.vectors[:enough], vectors)
        assert not seen.vectors[enough:].any()
        assert any(terms == 0)
        assert any(terms != 0)
    assert left_out > 10


def test_what_remains_is_in_the_metrics_and_said(
    run: feat2vec.Run, tables: dict[str, tuple[Any, Any, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics["keys"] == sum(len(counts) for counts, _, _ in tables.values())
    assert metrics["keys_with_vector"] == sum(int(np.any(v != 0, axis=1).sum()) for _, _, v in tables.values())
    assert metrics["keys_with_linear_term"] == sum(np.count_nonzero(terms) for _, terms, _ in tables.values())
    weights = run.model.trainable_variables
    assert metrics["parameters"] == sum(int(np.prod(weight.shape)) for weight in weights)
    assert metrics["remaining_parameters"] == sum(np.count_nonzero(weight.numpy()) for weight in weights)
    assert metrics["remaining_parameters"] < metrics["parameters"]
    short_trainings.train(SPARSE, table(120), settings=["training.epochs=1"])
    last_line = capfd.readouterr().err.splitlines()[-1]
    assert "weights are not zero: of" in last_line
    assert "have a vector" in last_line
    plain = read_schema({**SPARSE, "model": {"dim": 4}, "training": {}})
    assert not leaves_weights_out(Feat2Vec.from_encoder(replace(run.fitted, schema=plain)))


def test_a_run_that_is_read_predicts_what_the_model_does(run: feat2vec.Run) -> None:
    rows = table(80, 7)  # some of whose keys are new
    loaded = feat2vec.load(run.folder)
    by_numpy, vectors = loaded.predict(rows)["score"], loaded.embed(rows)
    assert "model" not in loaded.__dict__  # which was not needed
    by_the_model = feat2vec.load(run.folder)
    assert isinstance(by_the_model.model, Feat2Vec)
    np.testing.assert_allclose(by_numpy, by_the_model.predict(rows)["score"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(vectors, by_the_model.embed(rows), rtol=1e-4, atol=1e-5)
    assert np.std(by_numpy) > 0.1


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(SPARSE["training"]["optimizer"], id="ftrl", marks=pytest.mark.slow),
        pytest.param(MOMENTUM, id="sgd", marks=pytest.mark.slow),
    ],
)
def test_a_sparse_training_that_stops_resumes_to_the_same_bytes(optimizer: dict[str, Any], tmp_path: Path) -> None:
    schema = {**SPARSE, "training": {**SPARSE["training"], "optimizer": optimizer, "averaging": 0.5}}
    options: dict[str, Any] = {"settings": ["training.checkpoint_minutes=1e-9"], "quiet": True}
    uninterrupted = short_trainings.train(schema, table(240), tmp_path / "whole", **options)
    with pytest.raises(StopError):
        short_trainings.train(schema, table(240), tmp_path / "run", callbacks=[StopAt(2)], **options)
    resumed = short_trainings.train(schema, table(240), tmp_path / "run", resume=True, **options)
    assert same(uninterrupted, resumed)
    assert (tmp_path / "run" / "model.keras").read_bytes() == (tmp_path / "whole" / "model.keras").read_bytes()


def test_a_training_on_its_vectors_has_the_same_keys_active(run: feat2vec.Run) -> None:
    rows = open_table(table(60, 3))
    for target, has_terms in (("good", True), ("place", False)):
        schema = schema_of(run.schema, rows, target, head="fm")
        assert schema.model.activation is not None
        assert (schema.model.activation.count, schema.model.activation.linear) == (COUNT, False)
        assert schema.model.bias == has_terms
    all_active = read_schema({**SPARSE, "model": {**SPARSE["model"], "activation": {"count": COUNT}}})
    tuned = Feat2Vec.from_encoder(replace(run.fitted, schema=all_active))
    tuned.start_from(run.model, freeze=True)
    for extractor, before in zip(tuned.extractors, run.model.extractors, strict=True):
        for weight, expected in zip(vector_weights(extractor), vector_weights(before), strict=True):
            np.testing.assert_array_equal(weight.numpy(), expected.numpy())
    with pytest.raises(
        UserError, match=r"--set model.activation: the run's keys with a vector have 10 rows; received 5"
    ):
        schema_of(run.schema, rows, "good", head="fm", settings=["model.activation.count=5"])
