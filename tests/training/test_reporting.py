"""Reporting: lines elsewhere, a bar on a terminal, nothing when quiet."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from feat2vec.sampling.batches import Batches
from feat2vec.training.checkpoint_file import open_checkpoint, write_checkpoint
from feat2vec.training.reporting import Progress, Reporter

LOGS = {"epoch": 1, "loss": 1.25, "val_loss": 1.5, "seconds": 2.0, "rows_per_second": 12345.0}


def report(reporter: Reporter) -> None:
    reporter.begin(0, 0)
    reporter.step(2)
    reporter.end(0, LOGS)
    reporter.close()


def test_a_line_an_epoch() -> None:
    file = io.StringIO()
    report(Reporter(4, 3, file=file))
    (line,) = file.getvalue().splitlines()
    assert line.startswith("epoch 1/3  loss 1.2500  val_loss 1.5000  12,345 rows/s  0:0")
    assert line.endswith(" left")


def test_nothing_when_quiet() -> None:
    file = io.StringIO()
    report(Reporter(4, 3, quiet=True, file=file))
    assert file.getvalue() == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    reporter = Reporter(4, 3, file=file)
    report(reporter)
    assert reporter.bar is not None
    assert "epoch 1/3" in file.getvalue()
    assert "50 %" in file.getvalue() or "0 %" in file.getvalue()


def batches() -> Batches:
    """Ten rows in five steps."""
    return Batches(np.zeros((10, 1), np.int32), {}, 2)


def test_steps_and_rows_are_counted_by_execution() -> None:
    progress = Progress(batches(), began=0.0)
    progress.on_epoch_begin(0)
    progress.on_train_batch_end(1)  # Keras gives the last step of an execution
    assert (progress.step, progress.timed_rows) == (2, 0)  # the first is not timed, as TensorFlow traces in it
    progress.on_train_batch_end(5)
    assert (progress.step, progress.timed_rows) == (5, 6)
    progress.on_epoch_end(0, {"loss": np.float32(0.5), "val_loss": 0.75})
    assert (progress.epoch, progress.step, progress.epoch_seconds) == (1, 0, 0.0)
    (row,) = progress.history
    assert list(row) == ["epoch", "loss", "val_loss", "seconds", "rows_per_second"]
    assert (row["epoch"], row["loss"], row["val_loss"]) == (1, 0.5, 0.75)


def test_a_session_goes_on_within_an_epoch(tmp_path: Path) -> None:
    first = Progress(batches(), began=0.0)
    first.on_epoch_begin(0)
    first.on_train_batch_end(2)
    write_checkpoint(tmp_path / "c.npz", first.facts(), first.arrays())
    resumed = Progress(batches(), began=0.0)
    with open_checkpoint(tmp_path / "c.npz") as checkpoint:
        resumed.restore(checkpoint)
    assert (resumed.epoch, resumed.step) == (0, 3)
    assert resumed.epoch_seconds == pytest.approx(first.epoch_seconds)
    assert resumed.seconds > resumed.earlier_seconds > 0
    resumed.on_epoch_begin(0)
    resumed.on_train_batch_end(0)  # Keras counts from 0 again
    assert resumed.step == 4
    resumed.on_train_batch_end(1)
    resumed.on_epoch_end(0, {"loss": 1.0})
    assert (resumed.epoch, len(resumed.history)) == (1, 1)
