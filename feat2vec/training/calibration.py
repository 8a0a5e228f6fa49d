"""How sure answers may be: a factor of the scores, which rows that training has not learnt from decide.

A network that fits its training rows well is surer of new rows than it may be. One number, the temperature, makes up
for it (Guo et al., 2017): scores are multiplied by it before they become probabilities. Of numbers it is the share of
the distance from the mean that is kept, so that predictions that tell nothing become the mean.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from feat2vec.arrays import Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.time_order import last_number
from feat2vec.model.answer_scale import LIMIT, LaterScale
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.tracing import without_retracing_warnings
from feat2vec.sampling.batches import Batches
from feat2vec.schema.training_options import Mlp

FEWEST_ROWS, MOST_ROWS = 50, 20_000  # fewer tell too little, more tell nothing else
EXPECTED, SPREAD = 0.6, 0.3  # of networks: the temperature, and the deviation of its logarithm
COLDEST, WARMEST = 0.05, 2.0  # temperatures
GOLDEN = (np.sqrt(5) - 1) / 2
ROUNDS = 40  # of the search: its bracket becomes 4e-9 as wide


def fitted_temperature(model: Feat2Vec, batches: Batches) -> float | None:
    """The temperature of a model's answers, fitted to rows that it has not learnt from.

    Args:
        model: A trained model.
        batches: The rows, with their labels.

    Returns:
        The temperature; None if there are no labels, or too few for one without a network.

    """
    if not model.has_calibration:
        return None
    scores, labels = _scores_and_labels(model, batches)
    objective = model.schema.objective
    is_expected = not objective.standardizes and isinstance(model.schema.head, Mlp)
    if len(labels) < (1 if is_expected else FEWEST_ROWS):
        return None
    if objective.standardizes:
        return share_to_keep(scores, labels)
    loss = class_loss if objective.has_classes else binary_loss
    return likely_temperature(lambda factor: loss(scores * factor, labels), len(labels))


def temperature_of_new_times(temperature: float, of_last_rows: float) -> float:
    """The temperature of rows of a time that training has not seen.

    What the last rows say is half believed: the next ones may be as the last ones, or as all before.

    Args:
        temperature: That of rows of any time.
        of_last_rows: What fits the last rows best, by a model that has not learnt from them.

    >>> temperature_of_new_times(1.0, 0.25)
    0.5

    """
    return float(np.sqrt(temperature * of_last_rows))


def likely_temperature(loss: Callable[[float], float], rows: int) -> float:
    """The temperature with the least loss; of few rows the most probable one, given what is seen of other tables.

    A network that few labels have taught is mostly too sure: the logarithm of its temperature is expected to be normal.

    Args:
        loss: The mean log loss at a temperature.
        rows: The rows that it is the mean of.

    """
    if rows >= FEWEST_ROWS:
        return coolest(loss)
    return coolest(lambda factor: loss(factor) + np.square(np.log(factor / EXPECTED) / SPREAD) / (2 * rows))


def take_temperatures(model: Feat2Vec, temperature: float, of_later: float, encoder: Encoder) -> None:
    """Give a model the temperatures of its answers, such as those of one that was trained alike on fewer rows.

    Args:
        model: The model.
        temperature: That of its answers.
        of_later: That of rows of a time that training has not seen.
        encoder: The encoder, which knows the times of training.

    """
    model.answer_scale.assign(model.answer_scale_value()._replace(temperature=temperature))
    time = model.schema.training.time
    if time is not None:
        model.later_scale.assign(LaterScale(of_later, min(last_number(encoder, time), LIMIT)))


def _scores_and_labels(model: Feat2Vec, batches: Batches) -> tuple[Floats, Floats]:
    """The scores [rows] or [rows, classes] and the labels [rows], as the loss has them, of rows that have a label."""
    import tensorflow as tf

    scores_of = tf.function(model.scores_of_batch, reduce_retracing=True, autograph=False)
    score_parts, label_parts = [], []
    with without_retracing_warnings():
        for arrays in batches.arrays():
            inputs, labels, *_ = batches.with_entries(*arrays)
            score_parts.append(scores_of(inputs).numpy())
            label_parts.append(np.asarray(model.standardized(labels)))
            if sum(map(len, label_parts)) >= MOST_ROWS:
                break
    scores, labels = (np.concatenate(parts).astype(np.float64) for parts in (score_parts, label_parts))
    has_label = labels >= 0 if model.schema.objective.has_classes else np.ones(len(labels), np.bool_)
    return scores[has_label], labels[has_label]


def share_to_keep(scores: Floats, labels: Floats) -> float:
    """The factor of scores, from 0 to 1, that brings them nearest to the labels, by least squares."""
    squares = float(np.square(scores).sum())
    if squares == 0:
        return 1.0
    return float(np.clip(scores @ labels / squares, 0, 1))


def binary_loss(scores: Floats, labels: Floats) -> float:
    """The mean log loss of scores [rows] of labels that are 0 or 1."""
    return float(np.mean(np.logaddexp(0, scores) - labels * scores))


def class_loss(scores: Floats, labels: Floats) -> float:
    """The mean log loss of scores [rows, classes]."""
    largest = scores.max(axis=1)
    log_total = largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1))
    return float(np.mean(log_total - scores[np.arange(len(scores)), labels.astype(np.int64)]))


def coolest(loss: Callable[[float], float]) -> float:
    """The temperature with the least loss, by golden sections of its logarithm: log losses are convex in a factor."""
    low, high = np.log(COLDEST), np.log(WARMEST)
    for _ in range(ROUNDS):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        if loss(float(np.exp(left))) <= loss(float(np.exp(right))):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))
