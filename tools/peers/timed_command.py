"""Runs a command, and measures the whole of it and the training in it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

FEAT2VEC = [sys.executable, "-c", "from feat2vec.cli import main; main()"]
OURS = r"epoch (\d+)/\d+  "  # the line that `feat2vec train` prints after an epoch
PEERS = r"epoch (\d+)/\d+$"  # the line that the commands of this folder print after an epoch, or after the last alone

COLOURS = re.compile(r"\x1b\[[\d;]*m")  # of a terminal's text


@dataclass(frozen=True)
class Line:
    """A line that a command has printed.

    Args:
        text: The line, without colours.
        seconds: Seconds from the start of the command to the line.
        cpu_seconds: CPU-seconds of all its threads until then.

    """

    text: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class TimedCommand:
    """What a command has printed, and when.

    Args:
        seconds: Seconds from the start of the command to its exit.
        lines: Its lines.
        epoch: A regular expression which the lines that end an epoch match; group 1 is the epoch, counted from 1.

    """

    seconds: float
    lines: tuple[Line, ...]
    epoch: str

    @property
    def epoch_ends(self) -> dict[int, Line]:
        """The line that ends each epoch; of a training that begins a second time, those of the first."""
        ends: dict[int, Line] = {}
        for line in self._ends:
            match = re.match(self.epoch, line.text)
            assert match is not None
            ends.setdefault(int(match[1]), line)
        return ends

    @property
    def _ends(self) -> list[Line]:
        """The lines that end an epoch."""
        return [line for line in self.lines if re.match(self.epoch, line.text)]

    @property
    def training_cpu_seconds(self) -> float:
        """CPU-seconds from the last line before the first epoch's to the last epoch's.

        What is compiled for the first step counts, what is measured between epochs and what is fitted between two
        trainings as well; imports, reading the table and writing what was learnt do not.
        """
        first, last = self._ends[0], self._ends[-1]
        return last.cpu_seconds - self.lines[self.lines.index(first) - 1].cpu_seconds

    def facts(self) -> dict[str, float]:
        """What the benchmarks print."""
        return {"seconds": round(self.seconds, 2), "training_cpu_seconds": round(self.training_cpu_seconds, 2)}


def timed(command: Sequence[str], epoch: str) -> TimedCommand:
    """Run a command, and note when it prints each line.

    Args:
        command: The program and its arguments.
        epoch: See `TimedCommand`.

    Raises:
        SystemExit: The command failed.

    """
    import psutil

    lines: list[Line] = []
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        measured = psutil.Process(process.pid)
        for text in process.stdout:
            cpu = measured.cpu_times()
            seconds = time.perf_counter() - start
            lines.append(Line(COLOURS.sub("", text.rstrip("\n")), seconds, cpu.user + cpu.system))
    seconds = time.perf_counter() - start
    if process.returncode:
        printed = "\n".join(line.text for line in lines)
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {printed[-2000:]}")
    return TimedCommand(seconds, tuple(lines), epoch)


def first_epoch_within(losses: Sequence[float], bound: float) -> int | None:
    """The first epoch, counted from 1, whose loss is at most `bound`; None if there is none.

    >>> first_epoch_within([0.3, 0.2, 0.1], 0.2)
    2
    """
    return next((epoch for epoch, loss in enumerate(losses, 1) if loss <= bound), None)


def is_installed(module: str, package: str) -> bool:
    """Whether a peer can be imported; if not, say which package to install."""
    found = importlib.util.find_spec(module) is not None
    if not found:
        print(f"{module} is left out: it is not installed; pip install {package}", file=sys.stderr)
    return found
