"""Training end to end: what a run holds, the places it may take, what goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import FailedError, UserError
from feat2vec.run import train
from feat2vec.writing import partial_folder
from tests import short_trainings
from tests.commands import feat2vec as feat2vec_here
from tests.training.callbacks import StopAt, StopError
from tests.training.tables import SCHEMA, same, table


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
    printed = capfd.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if line.startswith("epoch")]
    assert len(lines) == 2
    assert all(word in lines[0] for word in ("epoch 1/2", "val_loss", "rows/s", "left"))


def test_quiet_training_prints_nothing_and_needs_no_folder(capfd: pytest.CaptureFixture[str]) -> None:
    run = short_trainings.train(SCHEMA, table(300), quiet=True, settings=["training.epochs=1"])
    assert capfd.readouterr() == ("", "")
    folder = run.folder
    assert folder.exists()
    del run
    assert not folder.exists()


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


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_folder_that_appears_while_training_runs_stays_and_the_run_is_kept(force: bool, tmp_path: Path) -> None:
    out, quick = tmp_path / "run", ["training.epochs=1"]
    with pytest.raises(FailedError, match=r"run: appeared while .*\nthe run is kept in .*resume=True gives it its"):
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
    with pytest.raises(FailedError, match=r"run: holds mine, which feat2vec did not write.*\n.*resume=True gives it"):
        train(SCHEMA, table(100), out, force=True, callbacks=[Appear(out)], **longer)
    (out / "mine").rename(tmp_path / "mine")
    run = train(SCHEMA, table(100), out, resume=True, **longer)
    assert same(run, train(SCHEMA, table(100), **longer))
    assert not (tmp_path / "run.partial").exists()


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_mistake_leaves_nothing_behind(tmp_path: Path) -> None:
    softmax = {**SCHEMA, "groups": {k: v for k, v in SCHEMA["groups"].items() if k != "place"}}
    softmax["objective"] = {"type": "softmax", "target": "place"}
    strange = table(40).set_column(2, "place", pa.array(["nowhere"] * 40))
    for validation_rows, message in (
        (table(40).drop_columns(["place"]), "has no column 'place', which objective.target names"),
        (table(40).drop_columns(["tags"]), "has no column 'tags'"),
        (strange, "no row has a class of 'place' that training has seen"),
    ):
        with pytest.raises(UserError, match=message):
            short_trainings.train(softmax, table(200), tmp_path / "run", validation_rows, quiet=True)
        assert list(tmp_path.iterdir()) == []
    short_trainings.train(softmax, table(200), tmp_path / "run", table(40), settings=["training.epochs=1"], quiet=True)


def test_a_damaged_model_is_an_error_message(tmp_path: Path) -> None:
    run = short_trainings.train(SCHEMA, table(100), tmp_path / "run", settings=["training.epochs=1"], quiet=True)
    path = run.folder / "model.keras"
    content = path.read_bytes()
    for damaged in (content[:1000], content[: len(content) // 2] + bytes(500) + content[len(content) // 2 + 500 :]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model\.keras: is not the file that this run was trained with"):
            _ = feat2vec.load(run.folder).model
    path.unlink()
    with pytest.raises(UserError, match=r"model\.keras: is missing"):
        _ = feat2vec.load(run.folder).model


def test_an_unwritable_folder_is_an_error_message(folder: Path) -> None:
    (folder / "file").write_text("")
    words = ["train", "people.yaml", "--data", "rows.parquet", "--out", "file/run"]
    done = feat2vec_here(*words, folder=folder, code=2)
    assert done.stderr == "file/run: file is a file, not a folder; choose another place\n"
