"""`WorkSize`: how many steps the chief hands to a worker at once, and after how many it waits for all workers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHIEF_SHARE = 0.02  # of a worker's time, at most, that the chief takes for it
MOST_STEPS = 64  # of a piece of work
MOST_SECONDS = 0.5  # that a piece of work takes: so much is done again where a worker is lost
WINDOW_STEPS = 64  # of each worker, after which the chief looks at the loss and may write a checkpoint; and
WINDOW_PIECES = 8  # so many pieces of work of each


class WorkSize:
    """The number of steps in a piece of work, by what steps and pieces took until now.

    The chief hands out one piece at a time. Its time for a piece does not depend on the number of steps, so that pieces
    of several steps keep it from being what all workers wait for.

    Args:
        workers: The number of workers.
        steps_at_once: After a multiple of so many steps a training can go on from a checkpoint.
        most_steps: How many steps a piece may have.

    Example:
        >>> size = WorkSize(workers=4, steps_at_once=16)
        >>> size.learn(steps=16, pieces=16, seconds=0.08, chief_seconds=0.032)  # 20 ms a step, 2 ms a piece
        >>> size.steps
        20

    """

    def __init__(self, workers: int, steps_at_once: int, most_steps: int = MOST_STEPS) -> None:
        self.workers, self.steps_at_once, self.most_steps = workers, steps_at_once, most_steps
        self.steps = 1
        self._windows = 0

    @property
    def window(self) -> int:
        """The number of steps after which the chief waits; small ones are the first, by which pieces are measured."""
        if self._windows < 2:
            return self.steps_at_once
        of_worker = max(WINDOW_STEPS, WINDOW_PIECES * self.steps)
        return -(-of_worker * self.workers // self.steps_at_once) * self.steps_at_once

    def next_steps(self, left: int) -> int:
        """The number of steps of the next piece: the last ones of a window are small, so that no worker waits long.

        Args:
            left: The steps that are left of the window.

        """
        if self.workers == 1:
            return min(self.steps, left)
        return max(min(self.steps, left // (2 * self.workers)), 1)

    @contextmanager
    def measured(self, steps: int) -> Iterator[list[object]]:
        """Measure a window, from its first piece until the chief has waited for the last.

        Args:
            steps: The number of its steps.

        Yields:
            A list for its pieces of work.

        """
        start, start_chief, pieces = time.perf_counter(), time.process_time(), list[object]()
        yield pieces
        self._windows += 1
        if self._windows > 1:  # in the first one workers make the function of a step
            seconds, chief_seconds = time.perf_counter() - start, time.process_time() - start_chief
            self.learn(steps, len(pieces), seconds, chief_seconds)

    def learn(self, steps: int, pieces: int, seconds: float, chief_seconds: float) -> None:
        """Choose the size of the next pieces.

        Args:
            steps: The number of steps of a window.
            pieces: The number of its pieces.
            seconds: Its seconds on the clock.
            chief_seconds: The chief's seconds of the processor.

        """
        seconds_of_step = max(seconds * self.workers / steps, 1e-6)  # of one worker
        seconds_of_piece = chief_seconds / pieces
        wanted = math.ceil(self.workers * seconds_of_piece / (CHIEF_SHARE * seconds_of_step))
        self.steps = max(min(wanted, self.most_steps, int(MOST_SECONDS / seconds_of_step)), 1)
