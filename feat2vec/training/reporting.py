"""What a person sees while a run trains: a bar on a terminal, a line for each epoch everywhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import keras
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as ProgressBar

from feat2vec.terminal import printable, shortened
from feat2vec.training.progress import Progress

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

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Show that an epoch begins."""
        del logs
        self.reporter.begin(epoch, self.progress.step)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Show the steps that are complete."""
        del batch, logs
        self.reporter.step(self.progress.step)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
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
