"""Training end to end: runs, resuming to the same bytes, early stopping, what goes wrong."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import feat2vec
from feat2vec.errors import FailedError, UserError
from feat2vec.evaluation import prediction
from feat2vec.run import train
from feat2vec.training import train as trainer
from feat2vec.training.checkpoint import read_checkpoint, write_checkpoint
from feat2vec.writing import partial_folder
from tests.commands import PROGRAM
from tests.commands import feat2vec as feat2vec_here


def table(rows: int, seed: int = 0) -> pa.Table:
    """Tags and places follow who; a row in nine lacks one of them."""
    rng = np.random.default_rng(seed)
    who = rng.zipf(1.4, rows) % 40
    tags = [[f"t{(w + int(x)) % 30}" for x in rng.integers(0, 3, 1 + w % 3)] for w in who]
    title = [f"word{w % 9} word{w % 7} word{int(x)}" for w, x in zip(who, rng.integers(0, 30, rows), strict=True)]
    columns = {
        "who": [None if i % 9 == 0 else f"w{w}" for i, w in enumerate(who)],
        "tags": [None if i % 9 == 1 else tag for i, tag in enumerate(tags)],
        "place": [f"p{w % 13}" for w in who],
        "title": title,
        "good": (who % 2).astype(np.int64),
    }
    return pa.table(columns)


SCHEMA: dict[str, Any] = {
    "version": 1,
    "name": "people",
    "model": {"dim": 8},
    "groups": {
        "who": {"column": "who"},
        "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
        "place": {"column": "place"},
        "title": {
            "column": "title",
            "extractor": {"type": "text_cnn", "max_tokens": 4, "token_dim": 4, "filters": 4, "dropout": 0.3},
        },
    },
    "noise": {"negatives": 4},
    "training": {"epochs": 4, "batch_size": 64, "group_dropout": 0.2},
}  # fmt: skip
LABELLED = {
    **SCHEMA,
    "objective": {"type": "logistic", "target": "good"},
    "model": {"ranks": [2, 8], "bias": True},
    "training": {"epochs": 4, "batch_size": 64, "interaction_dropout": 0.1, "optimizer": "adam"},
}
AVERAGED = {**SCHEMA, "training": {**SCHEMA["training"], "averaging": 0.6}}
CASES = {"noise": SCHEMA, "labels": LABELLED, "averaged": AVERAGED}


def weights(run: feat2vec.Run) -> list[Any]:
    return [variable.numpy() for variable in run.model.trainable_variables]


def same(run: feat2vec.Run, other: feat2vec.Run) -> bool:
    losses = [[{k: v for k, v in row.items() if k.endswith("loss")} for row in one.history] for one in (run, other)]
    pairs = zip(weights(run), weights(other), strict=True)
    return losses[0] == losses[1] and all(a.tobytes() == b.tobytes() for a, b in pairs)


class StopError(Exception):
    """Stands for a kill."""


class StopAt(keras.callbacks.Callback):
    """Raises after so many executions."""

    def __init__(self, executions: int) -> None:
        super().__init__()
        self.left = executions

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.left -= 1
        if not self.left:
            raise StopError


def test_a_run_is_a_folder_that_says_what_it_holds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = train(SCHEMA, table(400), tmp_path / "run", table(90, 1), settings=["training.epochs=2"])
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {"schema.yaml", "vocabulary", "model.keras", "metrics.json", "history.csv", "manifest.json"}
    assert not partial_folder(run.folder).exists()
    assert run.schema.training.epochs == 2
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics["rows"] == 400
    assert metrics["parameters"] == sum(int(np.prod(v.shape)) for v in run.model.trainable_variables)
    assert metrics["loss"] == run.history[-1]["loss"]
    assert metrics["rows_per_second"] > 0
    assert [row["epoch"] for row in run.history] == [1, 2]
    assert {"loss", "val_loss"} <= set(run.history[0])
    assert {path.stem for path in (run.folder / "vocabulary").iterdir()} == {"who", "tags", "place", "title"}
    assert pq.read_table(run.folder / "vocabulary" / "who.parquet").column_names == ["key", "id", "count", "level"]
    said = capfd.readouterr()
    assert said.out == ""
    lines = [line for line in said.err.splitlines() if line.startswith("epoch")]
    assert len(lines) == 2
    assert all(word in lines[0] for word in ("epoch 1/2", "val_loss", "rows/s", "left"))


def test_quiet_training_prints_nothing_and_needs_no_folder(capfd: pytest.CaptureFixture[str]) -> None:
    run = train(SCHEMA, table(300), quiet=True, settings=["training.epochs=1"])
    assert capfd.readouterr() == ("", "")
    folder = run.folder
    assert folder.exists()
    del run
    assert not folder.exists()


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
    found = [places[i] for i in best.argmax(axis=1)]
    right = [f"p{int(key[1:]) % 13}" == near for key, near in zip(keys, found, strict=True)]
    assert np.mean(right) > 0.9


@pytest.mark.parametrize(
    "case", ["averaged", pytest.param("noise", marks=pytest.mark.slow), pytest.param("labels", marks=pytest.mark.slow)]
)
def test_an_interrupted_run_resumes_to_the_same_bytes(case: str, tmp_path: Path) -> None:
    rows, held = table(500), table(90, 1)
    settings = ["training.checkpoint_minutes=1e-9", "training.batch_size=16"]  # 32 steps, two executions an epoch
    whole = train(CASES[case], rows, tmp_path / "whole", held, settings=settings, quiet=True)
    for executions in (1, 2, 5):
        with pytest.raises(StopError):
            train(
                CASES[case],
                rows,
                tmp_path / "run",
                held,
                settings=settings,
                quiet=True,
                resume=executions > 1,
                callbacks=[StopAt(executions)],
            )
    assert not (tmp_path / "run").exists()
    run = train(CASES[case], rows, tmp_path / "run", held, settings=settings, quiet=True, resume=True)
    assert same(whole, run)
    again = train(CASES[case], rows, tmp_path / "run", held, settings=settings, quiet=True, resume=True)
    assert same(whole, again)


class Halt(keras.callbacks.Callback):
    """Asks for the end of training after so many executions, or at the end of an epoch."""

    def __init__(self, executions: int = 0, epoch: int | None = None) -> None:
        super().__init__()
        self.left, self.epoch = executions, epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.left -= 1
        self.model.stop_training |= self.left == 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.model.stop_training |= epoch == self.epoch


@pytest.mark.parametrize(("halt", "held"), [(Halt(executions=3), None), (Halt(epoch=1), table(90, 1))])
def test_a_users_callback_ends_training_with_the_average(halt: Halt, held: Any) -> None:
    seen = Seen()
    settings = ["training.batch_size=16", "training.patience=0"]  # 32 steps, two executions an epoch
    run = train(AVERAGED, table(500), None, held, quiet=True, callbacks=[halt, seen], settings=settings)
    assert run.metrics["epochs"] == len(run.history) == 2
    for variable, mean in zip(run.model.trainable_variables, seen.epochs[-1], strict=True):
        np.testing.assert_array_equal(variable.numpy(), mean)


class Seen(keras.callbacks.Callback):
    """Keeps the weights at the ends of epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[list[Any]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.epochs.append([variable.numpy() for variable in self.model.trainable_variables])


@pytest.mark.slow
def test_averaging_keeps_the_mean_of_epochs_that_fade() -> None:
    rows, held, seen, means = table(300), table(90, 1), Seen(), Seen()
    plain = ["training.epochs=4", "training.patience=0"]
    train(SCHEMA, rows, validation=held, quiet=True, callbacks=[seen], settings=plain)
    run = train(AVERAGED, rows, validation=held, quiet=True, callbacks=[means], settings=plain)
    for epoch, found in enumerate(means.epochs):
        fading = 0.6 ** np.arange(epoch, -1, -1)
        for of_epochs, mean in zip(zip(*seen.epochs[: epoch + 1], strict=True), found, strict=True):
            np.testing.assert_allclose(mean, np.average(of_epochs, axis=0, weights=fading), atol=1e-6)
    for variable, mean in zip(run.model.trainable_variables, means.epochs[-1], strict=True):
        np.testing.assert_array_equal(variable.numpy(), mean)
    assert not np.allclose(means.epochs[-1][0], seen.epochs[-1][0])


def test_what_is_validated_is_the_average(tmp_path: Path) -> None:
    held = table(90, 1)
    run = train(
        {**LABELLED, "training": {**LABELLED["training"], "averaging": 0.8}},
        table(300),
        tmp_path / "run",
        held,
        quiet=True,
    )
    found = prediction.predict(run, held)
    assert found["log_loss"] == pytest.approx(run.history[run.metrics["kept_epoch"] - 1]["val_loss"], rel=1e-5)


@pytest.mark.slow
def test_another_seed_gives_other_vectors() -> None:
    runs = [train(SCHEMA, table(200), settings=["training.epochs=1", f"training.seed={s}"], quiet=True) for s in (0, 1)]
    assert not same(*runs)


def test_resuming_another_schema_or_other_data_is_refused(tmp_path: Path) -> None:
    quick = ["training.epochs=2", "training.batch_size=512"]
    with pytest.raises(StopError):
        train(SCHEMA, table(300), tmp_path / "run", settings=quick, quiet=True, callbacks=[StopAt(2)])
    with pytest.raises(UserError, match=r"run\.partial: holds a run that was not finished; add --resume"):
        train(SCHEMA, table(300), tmp_path / "run", settings=quick, quiet=True)
    with pytest.raises(UserError, match=r"training\.epochs: 2 before, 3 now"):
        train(SCHEMA, table(300), tmp_path / "run", settings=["training.epochs=3"], resume=True, quiet=True)
    with pytest.raises(UserError, match=r"data\.rows: 300 before, 299 now"):
        train(SCHEMA, table(300)[:299], tmp_path / "run", settings=quick, resume=True, quiet=True)
    other = table(300)
    place = other["place"].to_pylist()
    place[0], place[1] = place[1], place[0]
    swapped = other.set_column(2, "place", pa.array(place))
    with pytest.raises(UserError, match=r"data\.place: \w+ before, \w+ now"):
        train(SCHEMA, swapped, tmp_path / "run", settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match="validation: none before, given now"):
        train(SCHEMA, table(300), tmp_path / "run", table(50), settings=quick, resume=True, quiet=True)
    run = train(SCHEMA, table(300), tmp_path / "run", settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match=r"run: exists already; choose another folder, or add --force"):
        train(SCHEMA, table(300), run.folder, settings=quick, quiet=True)
    with pytest.raises(UserError, match=r"data\.rows: 300 before, 299 now"):
        train(SCHEMA, table(300)[:299], run.folder, settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match=r"validation: none before, given now"):
        train(SCHEMA, table(300), run.folder, table(50), settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match="give one of them"):
        train(SCHEMA, table(300), run.folder, settings=quick, resume=True, force=True, quiet=True)
    train(SCHEMA, table(299), run.folder, settings=quick, force=True, quiet=True)


def test_nothing_that_is_not_the_training_s_own_is_touched(tmp_path: Path) -> None:
    quick: Any = {"settings": ["training.epochs=1"], "quiet": True}
    (tmp_path / "foo.partial").mkdir()
    (tmp_path / "foo.partial" / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("foo.partial")
    tries: tuple[tuple[Any, Any], ...] = (
        ("none.parquet", {}),
        ("none.parquet", {"force": True}),
        (table(50), {"force": True}),
    )
    for data, options in tries:
        with pytest.raises(UserError, match=r"no such file|foo\.partial: is where the run would train"):
            train(SCHEMA, data, tmp_path / "foo", **quick, **options)
    for out, message in (("link", "is a link to foo.partial; feat2vec neither follows"), ("", "names no new folder")):
        every: tuple[Any, ...] = ({}, {"force": True}, {"resume": True})
        for options in every:
            with pytest.raises(UserError, match=message):
                train(SCHEMA, table(50), tmp_path / out if out else "", **quick, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foo.partial", "link"]
    assert (tmp_path / "foo.partial" / "mine").read_text() == "mine"


class Appear(keras.callbacks.Callback):
    """Makes a user's folder while training runs."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.place.mkdir(exist_ok=True)
        (self.place / "mine").write_text("mine")


@pytest.mark.parametrize("force", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_folder_that_appears_while_training_runs_stays_and_the_run_is_kept(force: bool, tmp_path: Path) -> None:
    out, quick = tmp_path / "run", ["training.epochs=1"]
    with pytest.raises(FailedError, match=r"run: appeared while .*\nthe run is kept in .*--resume gives it its name"):
        train(SCHEMA, table(100), out, settings=quick, quiet=True, force=force, callbacks=[Appear(out)])
    assert (out / "mine").read_text() == "mine"
    out.rename(tmp_path / "mine")
    run = train(SCHEMA, table(100), out, settings=quick, quiet=True, resume=True)
    assert same(run, train(SCHEMA, table(100), settings=quick, quiet=True))


@pytest.mark.slow
def test_a_run_that_is_to_be_replaced_and_has_got_a_file_keeps_it_and_the_new_run(tmp_path: Path) -> None:
    out, quick = tmp_path / "run", ["training.epochs=1"]
    train(SCHEMA, table(100), out, settings=quick, quiet=True)
    longer: dict[str, Any] = {"settings": ["training.epochs=2"], "quiet": True}
    with pytest.raises(FailedError, match=r"run: holds mine, which feat2vec did not write.*\n.*--resume gives it its"):
        train(SCHEMA, table(100), out, force=True, callbacks=[Appear(out)], **longer)
    (out / "mine").rename(tmp_path / "mine")
    run = train(SCHEMA, table(100), out, resume=True, **longer)
    assert same(run, train(SCHEMA, table(100), **longer))
    assert not (tmp_path / "run.partial").exists()


def test_two_trainings_of_one_run_do_not_meet(tmp_path: Path) -> None:
    problems: list[str] = []

    class Second(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            del epoch, logs
            for options in ({"resume": True}, {"force": True}, {}):
                code = (
                    "import sys; from feat2vec.errors import UserError\nfrom feat2vec.writing import work_folder\n"
                    "from pathlib import Path\ntry:\n"
                    f"    with work_folder(Path({str(tmp_path / 'run')!r}), **{options!r}): print('held')\n"
                    "except UserError as error: print(error)"
                )
                done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
                problems.append(done.stdout)

    train(SCHEMA, table(100), tmp_path / "run", settings=["training.epochs=1"], quiet=True, callbacks=[Second()])
    assert len(problems) == 3
    assert all(f"another training is at work in it: process {os.getpid()} on" in problem for problem in problems)


@pytest.mark.parametrize("name", ["-ü\n~ a?b%*[c]{SCHEMA_VERSION} #$HOME"])
def test_a_run_of_any_name_lies_in_its_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    quick: Any = {"settings": ["training.epochs=2", "training.checkpoint_minutes=1e-9"], "quiet": True}
    with pytest.raises(StopError):
        train(SCHEMA, table(100), name, callbacks=[StopAt(2)], **quick)
    assert os.listdir() == [f"{name}.partial"]
    train(SCHEMA, table(100), name, resume=True, **quick)
    assert os.listdir() == [name]
    assert os.listdir(tmp_path) == ["place"]


def test_resuming_from_an_altered_checkpoint_is_refused(tmp_path: Path) -> None:
    schema = {"version": 1, "groups": {"who": {"column": "who"}, "place": {"column": "place"}}}
    options: dict[str, Any] = {"settings": ["training.epochs=2", "training.batch_size=512"], "quiet": True}
    rows, path = table(300), tmp_path / "run.partial" / "checkpoint.npz"
    with pytest.raises(StopError):
        train(schema, rows, tmp_path / "run", callbacks=[StopAt(2)], **options)
    facts, arrays = read_checkpoint(path)
    for changed, others, match in (
        ({"epoch": 10**12}, {}, r"was altered or belongs to another training \(`epoch` is no whole number up to 2\)"),
        ({}, {"state 0": np.zeros((9, 9), np.float32)}, r"\(state 0 is float32 \(9, 9\) in place of"),
        ({"schema": 5}, {}, "does not say which schema it was trained with"),
        ({"schema": "- a\n- b"}, {}, "expected keys such as"),
        ({"data": {"rows": "x" * 999}}, {}, r"data\.rows: x{37}\.\.\. before, 300 now"),
        ({"data": None}, {}, "data: none before, given now"),
    ):
        write_checkpoint(path, {**facts, **changed}, {**arrays, **others})
        with pytest.raises(UserError, match=match) as caught:
            train(schema, rows, tmp_path / "run", resume=True, **options)
        lines = str(caught.value).replace(str(tmp_path), "").splitlines()
        assert len(lines) <= 6
        assert all(len(line) <= 200 for line in lines)
    write_checkpoint(path, facts, arrays)
    train(schema, rows, tmp_path / "run", resume=True, **options)


def test_a_mistake_leaves_nothing_behind(tmp_path: Path) -> None:
    softmax = {**SCHEMA, "groups": {k: v for k, v in SCHEMA["groups"].items() if k != "place"}}
    softmax["objective"] = {"type": "softmax", "target": "place"}
    strange = table(40).set_column(2, "place", pa.array(["nowhere"] * 40))
    for held, message in (
        (table(40).drop_columns(["place"]), "has no column 'place', which objective.target names"),
        (table(40).drop_columns(["tags"]), "has no column 'tags'"),
        (strange, "no row has a class of 'place' that training has seen"),
    ):
        with pytest.raises(UserError, match=message):
            train(softmax, table(200), tmp_path / "run", held, quiet=True)
        assert list(tmp_path.iterdir()) == []
    train(softmax, table(200), tmp_path / "run", table(40), settings=["training.epochs=1"], quiet=True)


def test_a_damaged_model_is_an_error_message(tmp_path: Path) -> None:
    run = train(SCHEMA, table(100), tmp_path / "run", settings=["training.epochs=1"], quiet=True)
    path = run.folder / "model.keras"
    content = path.read_bytes()
    for damaged in (content[:1000], content[: len(content) // 2] + bytes(500) + content[len(content) // 2 + 500 :]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model\.keras: is not the file that this run was trained with"):
            _ = feat2vec.load(run.folder).model
    path.unlink()
    with pytest.raises(UserError, match=r"model\.keras: is missing"):
        _ = feat2vec.load(run.folder).model


def test_early_stopping_restores_the_best_weights(tmp_path: Path) -> None:
    settings = ["training.epochs=60", "training.patience=2", "training.optimizer.learning_rate=0.2"]
    schema = {
        **LABELLED,
        "model": {"dim": 8, "bias": True},
        "groups": {"who": {"column": "who"}, "title": {"column": "title"}},
    }
    run = train(schema, table(150), tmp_path / "run", table(100, 1), settings=settings, quiet=True)
    losses = [row["val_loss"] for row in run.history]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 < 60
    assert run.metrics["kept_epoch"] == best + 1
    held = run.fitted.encode(table(100, 1))
    run.model.compile()
    assert run.model.evaluate(run.model.dataset(held, shuffle=False), verbose=0) == pytest.approx(
        losses[best], abs=1e-5
    )
    patient = train(
        schema,
        table(150),
        None,
        table(100, 1),
        settings=[*settings, "training.patience=0", "training.epochs=12"],
        quiet=True,
    )
    assert patient.metrics["kept_epoch"] == 12


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    schema = {**LABELLED, "objective": {"type": "regression", "target": "good"}}
    settings = ["training.optimizer.learning_rate=1e30", "training.checkpoint_minutes=1e-9"]
    with pytest.raises(
        FailedError, match=r"the loss is (nan|inf) at step \d+ \(epoch \d\); the largest weight, .* group '\w+'"
    ):
        train(schema, table(300), tmp_path / "run", settings=settings, quiet=True)
    assert not (tmp_path / "run").exists()


def test_keras_callbacks_see_the_training(tmp_path: Path) -> None:
    seen = keras.callbacks.History()
    board = keras.callbacks.TensorBoard(tmp_path / "board", write_graph=False)
    train(SCHEMA, table(200), None, table(50, 1), settings=["training.epochs=2"], quiet=True, callbacks=[seen, board])
    assert len(seen.history["val_loss"]) == 2
    assert any((tmp_path / "board").rglob("events*"))


# --- the command line -----------------------------------------------------------------------------------------------


def command(folder: Path, *words: str) -> list[str]:
    data = ["--data", str(folder / "rows.parquet"), "--validation", str(folder / "held.parquet")]
    return [*PROGRAM, "train", str(folder / "people.yaml"), *data, *words]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pq.write_table(table(4000), tmp_path / "rows.parquet")
    pq.write_table(table(300, 1), tmp_path / "held.parquet")
    (tmp_path / "people.yaml").write_text(json.dumps(SCHEMA))
    return tmp_path


def stamp(path: Path) -> int:
    """When a file was written, 0 if there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def kill_and_resume(folder: Path, kills: int, seed: int) -> None:
    settings = [
        word
        for key in ("epochs=16", "checkpoint_minutes=1e-9", "batch_size=32")
        for word in ("--set", f"training.{key}")
    ]
    subprocess.run(command(folder, "--out", str(folder / "whole"), "--quiet", *settings), check=True)
    rng, checkpoint = random.Random(seed), folder / "run.partial" / "checkpoint.npz"
    for _ in range(kills):
        process = subprocess.Popen(command(folder, "--out", str(folder / "run"), "--resume", "--quiet", *settings))
        before = seen = stamp(checkpoint)
        left = rng.randrange(9)  # checkpoints to wait for, then a moment; or a moment after the start, for 0
        while left and process.poll() is None:
            if stamp(checkpoint) != seen:
                seen, left = stamp(checkpoint), left - 1
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, 0.05 if seen != before else 5))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was done before it could be killed"
    done = subprocess.run(
        command(folder, "--out", str(folder / "run"), "--resume", *settings), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert same(feat2vec.load(folder / "whole"), feat2vec.load(folder / "run"))


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(folder: Path) -> None:
    kill_and_resume(folder, 2, 1)


@pytest.mark.slow
def test_a_run_killed_ten_times_resumes_to_the_same_bytes(folder: Path) -> None:
    kill_and_resume(folder, 10, 1)


def test_an_unwritable_folder_is_an_error_message(folder: Path) -> None:
    (folder / "file").write_text("")
    words = ["train", "people.yaml", "--data", "rows.parquet", "--out", "file/run"]
    done = feat2vec_here(*words, folder=folder, code=2)
    assert done.stderr == "file/run: file is a file, not a folder; choose another place\n"


def test_many_groups_are_trained_at_once_in_a_graph_that_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"g{i:02}" for i in range(32)]
    table = pa.table({name: ["x", "y", "z", "x"] for name in names})
    schema = {"version": 1, "groups": {name: {"column": name} for name in names}, "training": {"epochs": 1}}
    seen: list[tuple[bool, bool]] = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            options = tf.config.optimizer.get_experimental_options()
            seen.append((hasattr(self.model, "flat_values"), options.get("disable_meta_optimizer", False)))

    monkeypatch.setattr(trainer, "FEW_STEPS", 0)
    train(schema, table, quiet=True, callbacks=[Look()])
    monkeypatch.setattr(trainer, "MOST_APART", 32)
    monkeypatch.setattr(trainer, "SHORT", 3)
    train(schema, table, quiet=True, callbacks=[Look()])
    assert seen == [(True, True), (True, False)]
    assert not tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [False, True])
def test_a_few_steps_of_many_groups_make_no_graph_and_the_same_file(
    labelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{i:02}" for i in range(32)]
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.choice(list("abcde"), 24) for name in names} | {"y": [0, 1] * 12})
    schema: dict[str, Any] = {
        "version": 1, "groups": {name: {"column": name} for name in names},
        "training": {"epochs": 2, "batch_size": 8, "l2": 0.01, "averaging": 0.5},
    }  # fmt: skip
    if labelled:
        schema["objective"] = {"type": "logistic", "target": "y"}
    seen: list[bool] = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            seen.append(self.model.run_eagerly)

    for name, few in (("eager", trainer.FEW_STEPS), ("graph", 11)):  # two epochs of three steps, and as many held out
        monkeypatch.setattr(trainer, "FEW_STEPS", few)
        train(schema, table, tmp_path / name, validation=table, quiet=True, callbacks=[Look()])
    assert seen == [True, False]
    assert (tmp_path / "eager" / "model.keras").read_bytes() == (tmp_path / "graph" / "model.keras").read_bytes()
