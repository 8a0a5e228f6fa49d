"""A training that splits rows off chooses its epoch by them, and learns from all rows again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.schema.reading import read_schema
from feat2vec.space.predict import Predictor
from feat2vec.training import held_out
from feat2vec.training.chosen_model import Additions, ChosenModel
from feat2vec.training.train import TrainingRequest, train_into
from tests.short_trainings import finetune, train
from tests.training.callbacks import StopAt, StopError
from tests.training.tables import same, table, weights

SCHEMA: dict[str, Any] = {
    "version": 1, "model": {"dim": 4}, "groups": {name: {"column": name} for name in ("who", "place")},
    "objective": {"type": "logistic", "target": "good"},
    "training": {"epochs": 12, "batch_size": 64, "patience": 2, "optimizer": {"type": "adam", "learning_rate": 0.1}},
}  # fmt: skip
ROWS = 260


def noisy(rows: int, seed: int = 0) -> pa.Table:
    """Labels that are partly chance, so that the loss of other rows rises again."""
    labelled = table(rows, seed).select(["who", "place", "good"])
    is_turned = np.random.default_rng(seed).random(rows) < 0.3
    good = np.where(is_turned, 1 - labelled["good"].to_numpy(), labelled["good"].to_numpy())
    return labelled.set_column(2, "good", pa.array(good)).append_column("row", pa.array(np.arange(rows)))


class StopAfter(keras.callbacks.Callback):
    """Ends a training after so many epochs, whose learning rate falls as if there were more."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.model.stop_training = epoch + 1 >= self.epochs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return train(SCHEMA, noisy(ROWS), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def test_the_run_has_learnt_from_all_rows_for_as_many_epochs_as_were_kept(whole: feat2vec.Run) -> None:
    metrics = whole.metrics
    losses = [row["val_loss"] for row in whole.history]
    best = int(np.argmin(losses))
    assert len(losses) == metrics["epochs"] == best + 3 < 12  # patience
    assert metrics["kept_epoch"] == metrics["refit_epochs"] == best + 1
    assert (metrics["rows"], metrics["held_out"], metrics["held_out_loss"]) == (ROWS, 26, losses[best])
    expected = train(
        SCHEMA, noisy(ROWS), settings=["training.validation=0"], quiet=True, callbacks=[StopAfter(best + 1)]
    )
    assert all(a.tobytes() == b.tobytes() for a, b in zip(weights(whole), weights(expected), strict=True))
    assert metrics["refit_loss"] == expected.metrics["loss"]


def test_it_says_what_was_held_out_and_which_epoch_was_kept(capfd: pytest.CaptureFixture[str]) -> None:
    without_target = noisy(ROWS).set_column(2, "good", pa.array([None, None, *noisy(ROWS)["good"].to_pylist()[2:]]))
    run = train(SCHEMA, without_target, settings=["training.epochs=1", "training.refit=false"])
    lines = capfd.readouterr().err.splitlines()
    assert "2 rows without good are left out" in lines
    assert "232 rows to learn from, 26 held out to choose the epoch by their loss" in lines
    assert f"kept epoch 1 of 1, loss {run.metrics['held_out_loss']:.4g} on 26 held-out rows" in lines
    assert (run.metrics["rows"], run.metrics["without_target"]) == (232, 2)
    assert "refit_epochs" not in run.metrics


@pytest.mark.slow
def test_large_tables_are_not_learnt_again_and_small_ones_say_that_none_are_held_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(held_out, "MOST_REFITTED", ROWS - 1)
    run = train(SCHEMA, noisy(ROWS), settings=["training.epochs=1"], quiet=True)
    assert (run.metrics["rows"], "refit_epochs" in run.metrics) == (234, False)
    train(SCHEMA, noisy(60), settings=["training.epochs=1"])
    said = capfd.readouterr().err
    assert "no rows are held out to choose the epoch by: 60 are fewer than 200" in said
    with pytest.raises(UserError, match="no row has a value of 'good', the target; give rows that have one"):
        train(SCHEMA, noisy(60).set_column(2, "good", pa.nulls(60, pa.int64())), quiet=True)


@pytest.mark.slow
def test_a_run_killed_in_either_training_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    settings = ["training.checkpoint_minutes=1e-9", "training.batch_size=8"]  # executions: two an epoch, then three
    expected = train(SCHEMA, noisy(ROWS), tmp_path / "whole", settings=settings, quiet=True)
    first = 2 * int(expected.metrics["epochs"])  # executions of the first training
    has_refitted: list[bool] = []
    for executions in (3, first - 3 + 1, 1):
        with pytest.raises(StopError):
            train(
                SCHEMA,
                noisy(ROWS),
                tmp_path / "run",
                settings=settings,
                quiet=True,
                resume=bool(has_refitted),
                callbacks=[StopAt(executions)],
            )
        has_refitted.append((tmp_path / "run.partial" / "refit.npz").exists())
    assert has_refitted == [False, True, True]
    run = train(SCHEMA, noisy(ROWS), tmp_path / "run", settings=settings, quiet=True, resume=True)
    assert same(run, expected)
    assert not (tmp_path / "run.partial").exists()
    with pytest.raises(UserError, match=r"training\.refit: True before, False now"):
        train(
            SCHEMA,
            noisy(ROWS),
            tmp_path / "run",
            settings=[*settings, "training.refit=false"],
            quiet=True,
            resume=True,
        )


GOING_ON = ["training.refit=continue", "training.patience=0", "training.epochs=8"]


@pytest.mark.slow
def test_a_training_that_goes_on_learns_the_held_out_rows_from_the_chosen_weights(tmp_path: Path) -> None:
    held_out = pa.array([f"only in {i}" for i in range(ROWS)])
    rows = noisy(ROWS).set_column(0, "who", held_out)
    stopped = train(SCHEMA, rows, settings=[*GOING_ON, "training.refit=false"], quiet=True)
    run = train(SCHEMA, rows, tmp_path / "run", settings=GOING_ON, quiet=True)
    assert run.metrics["refit_epochs"] == 2
    assert (run.metrics["rows"], run.metrics["held_out"]) == (ROWS, 26)
    assert run.metrics["held_out_loss"] == stopped.metrics["held_out_loss"]  # of the same model
    before, after = stopped.vectors("who"), run.vectors("who")
    moved = np.array([np.abs(before[key] - after[key]).sum() for key in held_out.to_pylist()])
    assert (moved > 0).all()
    places = {name: np.abs(stopped.vectors("place")[name]).max() for name in stopped.vectors("place").index_to_key}
    for name, largest in places.items():  # they begin where the first training ended
        assert np.abs(run.vectors("place")[name] - stopped.vectors("place")[name]).max() < largest


def test_going_on_is_refused_where_another_epoch_than_the_last_one_is_kept() -> None:
    with pytest.raises(UserError, match=r"training\.refit: continue goes on from the last epoch; .*add `patience: 0`"):
        train(SCHEMA, noisy(ROWS), settings=["training.refit=continue"], quiet=True)


@pytest.mark.slow
def test_a_training_that_goes_on_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    settings = [*GOING_ON, "training.checkpoint_minutes=1e-9", "training.batch_size=8"]
    expected = train(SCHEMA, noisy(ROWS), tmp_path / "whole", settings=settings, quiet=True)
    for i, executions in enumerate((3, 2 * 8 - 3 + 1, 1)):
        with pytest.raises(StopError):
            train(
                SCHEMA, noisy(ROWS), tmp_path / "run", settings=settings, quiet=True, resume=i > 0,
                callbacks=[StopAt(executions)],
            )  # fmt: skip
    assert (tmp_path / "run.partial" / "refit.npz").exists()
    run = train(SCHEMA, noisy(ROWS), tmp_path / "run", settings=settings, quiet=True, resume=True)
    assert same(run, expected)


@pytest.mark.slow
def test_functions_measure_the_chosen_model_on_rows_that_it_has_not_learnt(tmp_path: Path) -> None:
    seen: list[ChosenModel] = []

    def measure(chosen: ChosenModel) -> Additions:
        seen.append(chosen)
        scores = Predictor(chosen.run.fitted, chosen.run.model).predict(chosen.held_out)["score"]
        return Additions({"mean_score": float(np.mean(scores)), "weak": "director"}, {"more.json": b"{}"}, ["a line"])

    request = TrainingRequest(
        read_schema({**SCHEMA, "id": "row"}, settings=["training.epochs=2"]), quiet=True, on_chosen=(measure,)
    )
    train_into(tmp_path / "run", request, noisy(ROWS))
    run = feat2vec.load(tmp_path / "run")
    assert (run.folder / "more.json").read_bytes() == b"{}"
    assert "more.json" in json.loads((run.folder / "manifest.json").read_text())["parts"]
    assert run.metrics["weak"] == "director"
    (chosen,) = seen
    rows, held_out, learnt = noisy(ROWS), chosen.held_out["row"].to_pylist(), chosen.training_rows(10_000)
    assert len(held_out) == run.metrics["held_out"] == 26
    assert held_out == sorted(held_out)
    assert sorted([*held_out, *learnt["row"].to_pylist()]) == list(range(ROWS))
    assert chosen.held_out.select(["who", "good"]).equals(rows.select(["who", "good"]).take(pa.array(held_out)))
    few = chosen.training_rows(7)["row"].to_pylist()
    assert len(few) == 7
    assert not set(few) & set(held_out)
    keys = chosen.run.fitted.decode("who", chosen.run.fitted.values["who"].entries)
    counts = {key[0]: int(count) for key, count in zip(keys, chosen.counts["who"], strict=True)}
    expected = learnt["who"].drop_null().value_counts().to_pylist()
    assert {key: count for key, count in counts.items() if count} == {row["values"]: row["counts"] for row in expected}


@pytest.mark.slow
def test_functions_measure_validation_rows_too_and_nothing_where_there_are_none(tmp_path: Path) -> None:
    seen: list[pa.Table] = []

    def look(chosen: ChosenModel) -> Additions:
        seen.append(chosen.held_out)
        return Additions()

    request = TrainingRequest(
        read_schema(SCHEMA, settings=["training.epochs=1"]), noisy(40, 1), quiet=True, on_chosen=(look,)
    )
    train_into(tmp_path / "run", request, noisy(ROWS))
    assert [rows.equals(noisy(40, 1).select(rows.column_names)) for rows in seen] == [True]
    alone = TrainingRequest(read_schema(SCHEMA, settings=["training.epochs=1"]), quiet=True, on_chosen=(look,))
    train_into(tmp_path / "small", alone, noisy(60))
    assert len(seen) == 1


@pytest.mark.slow
def test_a_table_that_can_be_read_once_is_trained_on_and_not_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(chosen: ChosenModel) -> Additions:
        raise AssertionError(chosen)

    reader = noisy(ROWS).to_reader()
    request = TrainingRequest(read_schema(SCHEMA, settings=["training.epochs=1"]), on_chosen=(refuse,))
    train_into(tmp_path / "run", request, reader)
    assert "nothing is measured on held-out rows" in capfd.readouterr().err


@pytest.mark.slow
def test_fine_tuning_holds_rows_out_too(whole: feat2vec.Run) -> None:
    tuned = finetune(whole, noisy(ROWS, 1), "row", settings=["training.epochs=2"], quiet=True)
    assert tuned.metrics["held_out"] == 26
    assert tuned.metrics["rows"] == ROWS
    assert tuned.metrics["refit_epochs"] == tuned.metrics["kept_epoch"]


@pytest.mark.slow
def test_held_out_rows_of_a_csv_are_text_as_the_file_is(tmp_path: Path) -> None:
    lines = [f"p{i % 9},{i % 40 / 10}" for i in range(420)]
    (tmp_path / "rows.csv").write_text("\n".join(["place,height", *lines]), encoding="utf-8")
    groups = {"place": {"column": "place"}, "height": {"column": "height", "extractor": "numeric"}}
    schema = {"version": 1, "model": {"dim": 2}, "groups": groups, "training": {"epochs": 1}}
    run = train(schema, str(tmp_path / "rows.csv"), tmp_path / "run", quiet=True)
    assert {"completion.json", "held_out.json"} <= {path.name for path in run.folder.iterdir()}


@pytest.mark.slow
def test_validation_rows_without_a_target_are_not_measured() -> None:
    held = noisy(50, 2)
    good = [None if i % 3 == 0 else value for i, value in enumerate(held["good"].to_pylist())]
    partly = held.set_column(2, "good", pa.array(good, pa.int64()))
    labelled = held.take(pa.array([i for i in range(50) if i % 3]))
    settings = ["training.epochs=1"]
    runs = [train(SCHEMA, noisy(60), None, rows, settings=settings, quiet=True) for rows in (partly, labelled)]
    assert runs[0].history[0]["val_loss"] == pytest.approx(runs[1].history[0]["val_loss"], rel=1e-6)
    with pytest.raises(UserError, match="no row has a value of 'good'"):
        train(SCHEMA, noisy(60), None, held.set_column(2, "good", pa.nulls(50, pa.int64())), quiet=True)
