"""How far a training has come: epochs, steps, seconds and the history, over all sessions until it is complete."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import SupportsFloat, TextIO

import keras
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as ProgressBar

from feat2vec.sampling.batches import Batches
from feat2vec.terminal import printable, shortened
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed


class Progress(keras.callbacks.Callback):
    """Counts epochs, steps and seconds, and keeps the history.

    Keras counts the batches of one call of `fit`. A training that is resumed within an epoch calls `fit` twice, and
    goes on from the counts in its checkpoint. Callbacks that read the counts stand behind this one.

    Args:
        batches: The training batches.
        began: The `time.perf_counter()` when this session began.

    """

    def __init__(self, batches: Batches, began: float) -> None:
        super().__init__()
        self.batches, self.began = batches, began
        self.epoch = 0  # epochs that are complete
        self.step = 0  # steps of the next epoch that are complete
        self.history: list[dict[str, float]] = []
        self.epoch_seconds = 0.0  # of the next epoch, in training alone
        # Speed is measured without the first execution of each session, in which TensorFlow traces the step.
        self.timed_seconds, self.timed_rows = 0.0, 0
        self.earlier_seconds = 0.0  # of sessions that were killed
        self._first_step = 0
        self._is_traced = False
        self._clock = 0.0

    @property
    def row_count(self) -> int:
        """The number of rows of an epoch."""
        return self.batches.row_count

    @property
    def seconds(self) -> float:
        """Seconds of all sessions until now."""
        return self.earlier_seconds + time.perf_counter() - self.began

    @property
    def rows_per_second(self) -> float:
        """The speed of training; that of the last epoch if there was no more than one execution."""
        if self.timed_rows:
            return round(self.timed_rows / self.timed_seconds)
        return self.history[-1]["rows_per_second"]

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Remember at which step the epoch goes on."""
        del epoch, logs
        self._first_step = self.step
        self.restart_clock()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Count the steps of an execution, and their time."""
        del logs
        step_before, self.step = self.step, min(self._first_step + batch + 1, self.batches.steps)
        rows = self.batches.bounds(self.step) - self.batches.bounds(step_before)
        seconds = time.perf_counter() - self._clock
        self.epoch_seconds += seconds
        if self._is_traced:
            self.timed_seconds += seconds
            self.timed_rows += rows
        self._is_traced = True
        self.restart_clock()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Add the epoch to the history."""
        losses = {key: float(value) for key, value in (logs or {}).items()}
        speed = round(self.row_count / self.epoch_seconds)
        self.history.append(
            {"epoch": epoch + 1, **losses, "seconds": round(self.epoch_seconds, 3), "rows_per_second": speed}
        )
        self.epoch, self.step, self.epoch_seconds = epoch + 1, 0, 0.0

    def restart_clock(self) -> None:
        """Count the time from now on as training. What was done since the last step was something else."""
        self._clock = time.perf_counter()

    # --- checkpoints: see `checkpointing.Resumable` -----------------------------------------------------------------

    def facts(self) -> dict[str, object]:
        """The counts, for a checkpoint."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "history": self.history,
            "seconds_of_epoch": self.epoch_seconds,
            "timed": [self.timed_seconds, self.timed_rows],
            "seconds_before": self.seconds,
        }

    def arrays(self) -> dict[str, Streamed]:
        """None."""
        return {}

    def restore(self, checkpoint: CheckpointReader) -> None:
        """Go on from the counts in a checkpoint."""
        facts = checkpoint.facts
        self.epoch, self.step, self.history = facts["epoch"], facts["step"], facts["history"]
        self.epoch_seconds = facts["seconds_of_epoch"]
        self.timed_seconds, self.timed_rows = facts["timed"]
        self.earlier_seconds = facts["seconds_before"]


NOT_LOSSES = ("epoch", "seconds", "rows_per_second")  # keys of the history that a line shows otherwise, or not


class Reporter:
    """Prints a line for each epoch to standard error, with a bar below the lines on a terminal.

    Args:
        steps: The number of steps of an epoch.
        epochs: The number of epochs.
        quiet: Print nothing.
        file: Where to print instead of standard error.

    """

    def __init__(self, steps: int, epochs: int, *, quiet: bool = False, file: TextIO | None = None) -> None:
        self.steps, self.epochs = steps, epochs
        self.console = Console(file=file or sys.stderr, highlight=False, soft_wrap=True, quiet=quiet, emoji=False)
        self.bar: ProgressBar | None = None
        self._session_start: float | None = None
        self._session_epochs = 0.0  # epochs, and shares of them, that this session has done
        self._first_step = 0

    def begin(self, epoch: int, step: int) -> None:
        """Show that an epoch begins, or goes on at a step."""
        self._first_step = step
        if self._session_start is None:
            self._session_start = time.perf_counter()
            if self.console.is_terminal and not self.console.quiet:
                columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
                self.bar = ProgressBar(*columns, console=self.console, transient=True)
                self.task = self.bar.add_task("", total=self.steps)
                self.bar.start()
        if self.bar is not None:
            self.bar.update(self.task, description=f"epoch {epoch + 1}/{self.epochs}", completed=step)

    def step(self, step: int) -> None:
        """Show how many steps of the epoch are complete."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def end(self, epoch: int, history_row: Mapping[str, float]) -> None:
        """Print the line of an epoch that is complete."""
        assert self._session_start is not None
        self._session_epochs += 1 - self._first_step / self.steps
        seconds_per_epoch = (time.perf_counter() - self._session_start) / self._session_epochs
        seconds_left = seconds_per_epoch * (self.epochs - epoch - 1)
        losses = "  ".join(f"{key} {value:.4f}" for key, value in history_row.items() if key not in NOT_LOSSES)
        speed = f"{history_row['rows_per_second']:,.0f} rows/s"
        line = f"epoch {epoch + 1}/{self.epochs}  {losses}  {speed}  {clock(seconds_left)} left"
        self.console.print(line, markup=False)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()

    def say(self, text: str) -> None:
        """Print lines."""
        for line in text.split("\n"):
            self.console.print(shortened(printable(line)), markup=False)


class Reporting(keras.callbacks.Callback):
    """Tells a `Reporter` of each step and epoch. It stands behind `Progress`, whose counts it shows.

    Args:
        reporter: What prints.
        progress: What counts.

    """

    def __init__(self, reporter: Reporter, progress: Progress) -> None:
        super().__init__()
        self.reporter, self.progress = reporter, progress

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Show that an epoch begins."""
        del logs
        self.reporter.begin(epoch, self.progress.step)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Show the steps that are complete."""
        del batch, logs
        self.reporter.step(self.progress.step)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Print the epoch's line."""
        del logs
        self.reporter.end(epoch, self.progress.history[-1])


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(75.2), clock(3725)
    ('1:16', '1:02:05')
    """
    total = math.ceil(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"
