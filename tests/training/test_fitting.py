"""A model is fitted to rows: it finds what was planted, and the user's callbacks see it."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import feat2vec
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.run import train
from feat2vec.training import fitting
from tests import short_trainings
from tests.training.tables import SCHEMA, same, table


@pytest.mark.slow
def test_the_planted_structure_is_found() -> None:
    run = train(
        SCHEMA,
        table(3000),
        settings=["training.epochs=20", "objective=contrastive", "noise={sharing: batch, negatives: 32}"],
        quiet=True,
    )
    vocabularies = [run.fitted.codecs[name].vocabulary for name in ("who", "place")]
    assert all(vocabulary is not None for vocabulary in vocabularies)
    who, place = (run.model.extractors[i].tables[0].numpy()[1:] for i in (0, 2))
    keys, places = ([str(key) for key in vocabulary.keys.to_pylist()] for vocabulary in vocabularies if vocabulary)
    best = (who / np.linalg.norm(who, axis=1, keepdims=True)) @ (place / np.linalg.norm(place, axis=1, keepdims=True)).T
    nearest_places = [places[i] for i in best.argmax(axis=1)]
    is_right = [f"p{int(key[1:]) % 13}" == place for key, place in zip(keys, nearest_places, strict=True)]
    assert np.mean(is_right) > 0.9


@pytest.mark.slow
def test_another_seed_gives_other_vectors() -> None:
    runs = [train(SCHEMA, table(200), settings=["training.epochs=1", f"training.seed={s}"], quiet=True) for s in (0, 1)]
    assert not same(*runs)


def test_keras_callbacks_see_the_training(tmp_path: Path) -> None:
    seen = keras.callbacks.History()
    board = keras.callbacks.TensorBoard(tmp_path / "board", write_graph=False)
    train(SCHEMA, table(200), None, table(50, 1), settings=["training.epochs=2"], quiet=True, callbacks=[seen, board])
    assert len(seen.history["val_loss"]) == 2
    assert any((tmp_path / "board").rglob("events*"))


@pytest.mark.slow
def test_slots_are_freed_before_the_run_is_written(tmp_path: Path) -> None:
    """The run holds none, and what writing it takes is not needed at the same time."""
    seen: list[keras.Model] = []
    slots: list[weakref.ref[Any]] = []

    class Keep(keras.callbacks.Callback):
        def on_train_end(self, logs: Any = None) -> None:
            del logs
            seen.append(self.model)
            slots.extend(weakref.ref(variable) for variable in self.model.optimizer.variables[2:])

    settings = ["training.epochs=1", "training.checkpoint_minutes=60"]
    train(SCHEMA, table(200), tmp_path / "run", settings=settings, quiet=True, callbacks=[Keep()])
    (model,) = seen
    assert slots
    assert not any(reference() is not None for reference in slots)
    assert int(model.optimizer.iterations) > 0


def test_rows_with_a_loss_of_their_own_are_measured_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is the same; rows that share noise stay as many as in training."""
    labelled = {
        "version": 1, "model": {"dim": 4}, "groups": {"who": {"column": "who"}, "place": {"column": "place"}},
        "objective": {"type": "regression", "target": "good"}, "training": {"epochs": 1, "batch_size": 8},
    }  # fmt: skip
    rows, held_out = table(60), table(40, 1)
    losses = []
    for most in (fitting.MOST_ROWS_AT_ONCE, 8):
        monkeypatch.setattr(fitting, "MOST_ROWS_AT_ONCE", most)
        run = short_trainings.train(labelled, rows, None, held_out, quiet=True)
        assert fitting.rows_of_validation(run.model) == max(most, 8)
        losses.append(run.history[0]["val_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    unlabelled = Feat2Vec.from_encoder(feat2vec.fit({**SCHEMA, "training": {"batch_size": 8}}, rows).encoder)
    unlabelled.learn_from(feat2vec.fit({**SCHEMA, "training": {"batch_size": 8}}, rows))
    assert fitting.rows_of_validation(unlabelled) == 8
