"""How far probabilities can be trusted: what was said against what was true."""

from __future__ import annotations

import numpy as np

from feat2vec.arrays import Bools, Floats
from feat2vec.space.calibration import Reliability

CLASSES = 10


def reliability_of_answers(probabilities: Floats, is_true: Bools) -> Reliability:
    """The reliability of answers, in ten classes of equally many by their probability.

    Args:
        probabilities: What was said, [answers].
        is_true: Which answers are true, [answers].

    Returns:
        The mean probability and the share of true answers of each class.

    """
    order = np.argsort(probabilities, kind="stable")
    said, true, counts = [], [], []
    for part in np.array_split(order, min(CLASSES, max(len(order), 1))):
        if len(part):
            said.append(float(probabilities[part].mean()))
            true.append(float(is_true[part].mean()))
            counts.append(len(part))
    return _reliability(said, true, counts)


def reliability_of_ranks(ranks: Floats) -> Reliability:
    """The reliability of a number's distribution.

    Args:
        ranks: The probability of smaller numbers than the true one, and half of its own, [rows]. They are spread
            evenly between 0 and 1 if the distribution is right.

    Returns:
        For the quantiles 10 %, 20 %, ... 90 % the share of true numbers below each.

    """
    shares = np.arange(1, CLASSES) / CLASSES
    below = [float((ranks <= share).mean()) for share in shares]
    return _reliability(shares.tolist(), below, [len(ranks)] * len(shares))


def _reliability(said: list[float], true: list[float], counts: list[int]) -> Reliability:
    error = float(np.average(np.abs(np.array(said) - np.array(true)), weights=counts)) if counts else 0.0
    rounded = [tuple(round(number, 6) for number in numbers) for numbers in (said, true)]
    return Reliability(rounded[0], rounded[1], tuple(counts), round(error, 6))
