"""What a person sees while a run trains: a bar on a terminal, a line an epoch everywhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from feat2vec.terminal import printable, shortened


class Reporter:
    """Prints a line an epoch to standard error, with a bar below the lines on a terminal."""

    def __init__(self, steps: int, epochs: int, *, quiet: bool = False, file: TextIO | None = None) -> None:
        self.steps, self.epochs = steps, epochs
        self.console = Console(file=file or sys.stderr, highlight=False, soft_wrap=True, quiet=quiet, emoji=False)
        self.bar: Progress | None = None
        self.began = self.done = 0.0  # when this session began, and how many epochs it has done
        self.start_of_epoch = 0.0

    def begin(self, epoch: int, step: int) -> None:
        """An epoch begins, or goes on at a step."""
        self.start_of_epoch = time.perf_counter()
        self.first_step = step
        if not self.began:
            self.began = self.start_of_epoch
            if self.console.is_terminal and not self.console.quiet:
                text = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %")
                self.bar = Progress(*text, console=self.console, transient=True)
                self.task = self.bar.add_task("", total=self.steps)
                self.bar.start()
        if self.bar is not None:
            self.bar.update(self.task, description=f"epoch {epoch + 1}/{self.epochs}", completed=step)

    def step(self, step: int) -> None:
        """Steps of the epoch are done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def end(self, epoch: int, logs: Mapping[str, Any]) -> None:
        """An epoch is done."""
        now = time.perf_counter()
        self.done += 1 - self.first_step / self.steps
        left = (now - self.began) / self.done * (self.epochs - epoch - 1)
        numbers = "  ".join(
            f"{key} {value:.4f}" for key, value in logs.items() if key not in ("epoch", "seconds", "rows_per_second")
        )
        speed = f"{logs['rows_per_second']:,.0f} rows/s"
        self.console.print(f"epoch {epoch + 1}/{self.epochs}  {numbers}  {speed}  {clock(left)} left", markup=False)

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()

    def say(self, text: str) -> None:
        """Print lines."""
        for line in text.split("\n"):
            self.console.print(shortened(printable(line)), markup=False)


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    >>> clock(75.2), clock(3725)
    ('1:16', '1:02:05')
    """
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
