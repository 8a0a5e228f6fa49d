"""Rows without a target against drawn values: how probable each level of a model finds what is true."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Floats, Integers
from feat2vec.encode.encoder import Encoded
from feat2vec.model.candidate_scores import score_candidates, sum_context
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.schema_noise import make_noise
from feat2vec.sampling.batches import value_tables
from feat2vec.sampling.joint_values import joint_values
from feat2vec.sampling.noise import Draw, Unit
from feat2vec.schema.objectives import Noisy
from feat2vec.training.run_folder import TrainedRun

MOST_ROWS, ROWS_AT_ONCE = 2_000, 256


class NoiseOdds(NamedTuple):
    """Log odds of what is true, in each decision of the noise loss.

    Args:
        levels: Those of each level, [decisions].
        rows: How many rows the decisions are of.

    """

    levels: list[Floats]
    rows: int


def noise_odds(run: TrainedRun, data: object, most_rows: int = MOST_ROWS) -> NoiseOdds | None:
    """The odds that each level of a run gives to rows and to values drawn in their place.

    The noise is that of training, but for the tuples of joint groups, which are those of the rows given.

    Args:
        run: A run without a target.
        data: Rows.
        most_rows: Of more rows as many are chosen at random.

    Returns:
        The odds; None if the loss is not made of decisions, or lists are told from noise item by item.

    Raises:
        UserError: The rows cannot be read, or have one value each.

    Example:
        >>> odds = noise_odds(run, films)
        >>> len(odds.levels), odds.rows
        (1, 60)

    """
    model = run.model
    if model.groups_by_item:
        return None
    encoded = run.fitted.encode(data)
    joints = [
        joint_values(encoded.rows, [model.groups.index(name) for name in names], left_out=encoded.left_out)
        for names in run.schema.noise.joint
    ]
    counts = [_training_counts(encoded, run.fitted.values[name].counts, name) for name in model.groups]
    noise = make_noise(run.schema, model.groups, model.params(), counts, joints)
    tables = [tf.constant(table) for table in value_tables(encoded)]
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(len(encoded))[:most_rows])
    ids = np.asarray(encoded.rows[chosen])  # [rows, groups]
    ids = np.concatenate([ids, *(joint.ids(ids)[:, None] for joint in joints)], axis=1)  # [rows, columns]
    parts: list[list[Floats]] = []  # of each slice of a batch, of each level
    rows = 0
    for step, start in enumerate(range(0, len(ids), ROWS_AT_ONCE)):
        draws = noise.sample(tf.constant(ids[start : start + ROWS_AT_ONCE]), (0, step))
        for unit, draw in zip(noise.units, draws, strict=True):
            present = np.flatnonzero(draw.present.numpy())
            levels = odds_of_unit(model, unit, draw, tables)
            if levels is None:
                return None
            rows += len(present)
            parts.append([level[present].ravel() for level in levels])
    return NoiseOdds([np.concatenate(of_level) for of_level in zip(*parts, strict=True)], rows)


def _training_counts(encoded: Encoded, counts: Integers, name: str) -> Integers:
    """How often the training rows have each value; values that they do not have follow, and are never drawn."""
    more = len(encoded.values[name].entries) - len(counts)
    return np.concatenate([np.asarray(counts), np.zeros(more, counts.dtype)])


def odds_of_unit(model: Feat2Vec, unit: Unit, draw: Draw, tables: list[tf.Tensor]) -> list[Floats] | None:
    """The odds of the rows of one unit of the noise.

    Args:
        model: The model.
        unit: The unit.
        draw: The rows and their negatives.
        tables: Of each group the entries of value id v in row v + 1, [values + 1, width].

    Returns:
        The odds at each level, [rows, decisions]; None if the loss is not made of decisions.

    """
    schema, objective = model.schema, model.schema.objective
    rows = [  # of each group, [rows, D_k] at each level
        model.extract_group(g, tf.gather(table, draw.rows[:, g] + 1), training=False) for g, table in enumerate(tables)
    ]
    negatives = [
        model.extract_group(g, tf.gather(tables[g], tf.reshape(values, [-1]) + 1), training=False)
        for g, values in zip(unit.groups, draw.values, strict=True)
    ]
    outside_unit = tf.constant([[float(g not in unit.groups) for g in range(len(rows))]], model.compute_dtype)
    keep = tf.tile(outside_unit, [tf.shape(draw.rows)[0], 1])  # [rows, groups]
    context = sum_context(schema, rows, keep, model.bias_or_zero())
    of_rows = score_candidates(schema, context, [rows[g] for g in unit.groups], (-1, 1)).scores
    of_negatives = score_candidates(schema, context, negatives, tf.shape(draw.values[0])).scores
    offset = model.offsets[unit.groups[0]] if objective.has_offsets else 0.0
    log_q, levels = Noisy(draw.log_q_positive, draw.log_q), []
    for positives, drawn in zip(of_rows, of_negatives, strict=True):
        odds = objective.odds_of_truth(Noisy(positives[:, 0], drawn), log_q, draw.hits, offset)
        if odds is None:
            return None
        levels.append(np.asarray(odds, np.float64))
    return levels
