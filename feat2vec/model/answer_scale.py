"""From the scores of a model to its answers: the unit of the labels, and a temperature.

A model learns numbers in units of their deviation from their mean, so that a rate of learning means the same for prices
and for marks. What it answers is in the labels' own unit, within what training has seen:

    answer = shift + unit * temperature * score, at least `low` and at most `high`

Probabilities have shift 0 and unit 1. A temperature below 1 makes answers more cautious; it is fitted to rows that were
held out (`training/calibration.py`). Rows of a time that training has not seen (`training.time`) have one of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Float32s

LIMIT = float(np.finfo(np.float32).max)
BLOCK_ROWS = 1 << 20
LARGEST_SQUARE = 1e30  # of a unit: losses in the labels' unit are numbers of 32 bits


class AnswerScale(NamedTuple):
    """The numbers of a model's weight `answer_scale`, in their order.

    Args:
        shift: The answer for the score 0.
        unit: How much a score of 1 adds to it.
        low: The lowest answer.
        high: The highest answer.
        temperature: A factor of the scores.

    """

    shift: float = 0.0
    unit: float = 1.0
    low: float = -LIMIT
    high: float = LIMIT
    temperature: float = 1.0

    @property
    def is_plain(self) -> bool:
        """Whether answers are the scores themselves."""
        return self == AnswerScale()

    @property
    def factor(self) -> float:
        """How much a score of 1 adds to the answer, calibrated."""
        return self.unit * self.temperature

    def apply(self, scores: Float32s) -> Float32s:
        """Answers from scores of any shape."""
        if self.is_plain:
            return scores
        answers = np.clip(self.shift + self.factor * scores.astype(np.float64), self.low, self.high)
        return answers.astype(np.float32)

    @classmethod
    def of_numbers(cls, numbers: Array) -> AnswerScale:
        """The scale of labels that are numbers [rows], which may be larger than memory: mean, deviation and range."""
        total = sum(float(block.sum()) for block in _blocks(numbers))
        mean = total / len(numbers)
        squares = sum(float(np.square(block - mean).sum()) for block in _blocks(numbers))
        low = min(float(block.min()) for block in _blocks(numbers))
        high = max(float(block.max()) for block in _blocks(numbers))
        deviation = float(np.sqrt(squares / len(numbers)))
        # The deviation of equal numbers may differ from 0 in its last bits.
        return cls(mean, deviation if low < high and deviation > 0 else 1.0, low, high)


class LaterScale(NamedTuple):
    """The numbers of a model's weight `later_scale`, in their order: for rows of a time that training has not seen.

    Args:
        temperature: The factor of their scores.
        last: The number of the group `training.time` that theirs exceed, if it holds numbers.

    """

    temperature: float = 1.0
    last: float = LIMIT

    def applied_to(self, scale: AnswerScale) -> AnswerScale:
        """The scale of such rows' answers, given that of all others."""
        return scale._replace(temperature=self.temperature)


def _blocks(numbers: Array) -> Iterator[Array]:
    """The numbers as float64, some at a time."""
    for begin in range(0, len(numbers), BLOCK_ROWS):
        yield np.asarray(numbers[begin : begin + BLOCK_ROWS], np.float64)
