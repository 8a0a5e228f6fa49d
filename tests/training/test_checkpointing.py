"""Checkpoints of a training: a killed one resumes to the same bytes, and other checkpoints are refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.run import train
from feat2vec.training import checkpoint_file, checkpoint_writer
from feat2vec.training.checkpoint_file import read_checkpoint, write_checkpoint
from tests.commands import PROGRAM
from tests.training.callbacks import StopAt, StopError
from tests.training.tables import CASES, SCHEMA, same, table

EACH_EXECUTION = ["training.checkpoint_minutes=1e-9", "training.batch_size=16"]  # of 16 steps a checkpoint


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "averaged",
        "normal",
        pytest.param("noise", marks=pytest.mark.slow),
        pytest.param("labels", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_resumes_to_the_same_bytes(case: str, tmp_path: Path) -> None:
    rows, validation_rows = table(500), table(90, 1)
    settings = EACH_EXECUTION
    uninterrupted = train(CASES[case], rows, tmp_path / "whole", validation_rows, settings=settings, quiet=True)
    for executions in (1, 2, 5):
        with pytest.raises(StopError):
            train(
                CASES[case],
                rows,
                tmp_path / "run",
                validation_rows,
                settings=settings,
                quiet=True,
                resume=executions > 1,
                callbacks=[StopAt(executions)],
            )
    assert not (tmp_path / "run").exists()
    run = train(CASES[case], rows, tmp_path / "run", validation_rows, settings=settings, quiet=True, resume=True)
    assert same(uninterrupted, run)
    again = train(CASES[case], rows, tmp_path / "run", validation_rows, settings=settings, quiet=True, resume=True)
    assert same(uninterrupted, again)


@pytest.mark.slow
def test_a_run_resumes_to_the_same_bytes_from_what_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of checkpoints that hold averages and best weights, too."""
    schema = {**CASES["averaged"], "groups": {name: SCHEMA["groups"][name] for name in ("who", "tags")}}
    rows = table(300)
    options: dict[str, Any] = {"quiet": True, "settings": [*EACH_EXECUTION, "training.epochs=3"]}
    uninterrupted = train(schema, rows, tmp_path / "whole", rows[:50], **options)
    for name, least in (("LEAST_WHOLE_BYTES", 1), ("MOST_CHANGED", 9)):
        monkeypatch.setattr(checkpoint_writer, name, least)
    monkeypatch.setattr(checkpoint_file, "LEAST_COMPARED_BYTES", 1)
    for executions in (3, 2):
        stop = StopAt(executions)
        with pytest.raises(StopError):
            train(schema, rows, tmp_path / "run", rows[:50], resume=executions == 2, callbacks=[stop], **options)
        assert (tmp_path / "run.partial" / "checkpoint.npz.changes").exists()
    run = train(schema, rows, tmp_path / "run", rows[:50], resume=True, **options)
    assert same(uninterrupted, run)
    assert not (tmp_path / "run.partial").exists()


@pytest.mark.slow
def test_resuming_another_schema_or_other_data_is_refused(tmp_path: Path) -> None:
    quick = ["training.epochs=2", "training.batch_size=512"]
    with pytest.raises(StopError):
        train(SCHEMA, table(300), tmp_path / "run", settings=quick, quiet=True, callbacks=[StopAt(2)])
    with pytest.raises(UserError, match=r"run\.partial: holds a run that was not finished; add resume=True"):
        train(SCHEMA, table(300), tmp_path / "run", settings=quick, quiet=True)
    with pytest.raises(UserError, match=r"training\.epochs: 2 before, 3 now"):
        train(SCHEMA, table(300), tmp_path / "run", settings=["training.epochs=3"], resume=True, quiet=True)
    with pytest.raises(UserError, match=r"data\.rows: 300 before, 299 now"):
        train(SCHEMA, table(300)[:299], tmp_path / "run", settings=quick, resume=True, quiet=True)
    rows = table(300)
    place = rows["place"].to_pylist()
    place[0], place[1] = place[1], place[0]
    swapped = rows.set_column(2, "place", pa.array(place))
    with pytest.raises(UserError, match=r"data\.place: \w+ before, \w+ now"):
        train(SCHEMA, swapped, tmp_path / "run", settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match="validation: none before, given now"):
        train(SCHEMA, table(300), tmp_path / "run", table(50), settings=quick, resume=True, quiet=True)
    run = train(SCHEMA, table(300), tmp_path / "run", settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match=r"run: exists already; choose another folder, or add force=True"):
        train(SCHEMA, table(300), run.folder, settings=quick, quiet=True)
    with pytest.raises(UserError, match=r"data\.rows: 300 before, 299 now"):
        train(SCHEMA, table(300)[:299], run.folder, settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match=r"validation: none before, given now"):
        train(SCHEMA, table(300), run.folder, table(50), settings=quick, resume=True, quiet=True)
    with pytest.raises(UserError, match="give one of them"):
        train(SCHEMA, table(300), run.folder, settings=quick, resume=True, force=True, quiet=True)
    train(SCHEMA, table(299), run.folder, settings=quick, force=True, quiet=True)


@pytest.mark.slow
def test_resuming_from_an_altered_checkpoint_is_refused(tmp_path: Path) -> None:
    schema = {"version": 1, "groups": {"who": {"column": "who"}, "place": {"column": "place"}}}
    options: dict[str, Any] = {"settings": ["training.epochs=2", "training.batch_size=512"], "quiet": True}
    rows, path = table(300), tmp_path / "run.partial" / "checkpoint.npz"
    with pytest.raises(StopError):
        train(schema, rows, tmp_path / "run", callbacks=[StopAt(2)], **options)
    facts, arrays = read_checkpoint(path)
    [counter] = [name for name, array in arrays.items() if array.dtype == np.int64]
    for changed_facts, changed_arrays, match in (
        ({"epoch": 10**12}, {}, r"was altered or belongs to another training \(`epoch` is no whole number up to 2\)"),
        ({}, {"state 0": np.zeros((9, 9), np.float32)}, r"\(state 0 is float32 \(9, 9\) in place of"),
        ({}, {counter: np.array(2**63 - 1)}, r"\(state \d counts other steps than `epoch` and `step`\)"),
        ({"schema": 5}, {}, "does not say which schema it was trained with"),
        ({"schema": "- a\n- b"}, {}, "expected keys such as"),
        ({"data": {"rows": "x" * 999}}, {}, r"data\.rows: x{37}\.\.\. before, 300 now"),
        ({"data": None}, {}, "data: none before, given now"),
    ):
        write_checkpoint(path, {**facts, **changed_facts}, {**arrays, **changed_arrays})
        with pytest.raises(UserError, match=match) as caught:
            train(schema, rows, tmp_path / "run", resume=True, **options)
        lines = str(caught.value).replace(str(tmp_path), "").splitlines()
        assert len(lines) <= 6
        assert all(len(line) <= 200 for line in lines)
    write_checkpoint(path, facts, arrays)
    train(schema, rows, tmp_path / "run", resume=True, **options)


# --- kills ----------------------------------------------------------------------------------------------------------


def command(folder: Path, *words: str) -> list[str]:
    data = ["--data", str(folder / "rows.parquet"), "--validation", str(folder / "held.parquet")]
    return [*PROGRAM, "train", str(folder / "people.yaml"), *data, *words]


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
