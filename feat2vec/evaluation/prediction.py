"""The task `predict`: how far predictions are from the target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.encode.targets import no_target, targets_of
from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.metrics import PREDICTION_METRICS
from feat2vec.space.mixture import predictor_of
from feat2vec.table.table import open_table
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject


def predict(run: TrainedRun, data: object, level: int | None = None) -> JsonObject:
    """How far the predictions for rows are from their target.

    The metrics are the objective's. Logistic: log loss and AUC. Regression: RMSE and MAE, for glove of log N. Softmax:
    accuracy and log loss, over the rows whose class training has seen. Rows without a target are counted and left out.

    Args:
        run: A run with a target.
        data: Rows with the target's column.
        level: In a model with `ranks`, the submodel to predict by.

    Returns:
        The metrics, and how many rows they are of.

    Raises:
        UserError: The run has no target, or no row of the table has one.

    """
    measured = scores_and_targets(run, data, level)
    facts: JsonObject = {"task": "predict", "n": len(measured.targets)}
    if measured.missing:
        facts["skipped_missing"] = measured.missing
    objective = run.schema.objective
    if objective.has_classes:
        facts["skipped_unseen"] = measured.unseen
    targets = objective.link(measured.targets)
    return facts | {name: PREDICTION_METRICS[name](measured.scores, targets) for name in objective.metrics}


class ScoresAndTargets(NamedTuple):
    """The rows of a table that have a target.

    Args:
        scores: Their scores, [rows] or [rows, classes].
        targets: Their targets, [rows].
        missing: How many other rows have none.
        unseen: How many other rows have a class that training has not seen.

    """

    scores: Floats
    targets: Array
    missing: int
    unseen: int


def scores_and_targets(run: TrainedRun, data: object, level: int | None = None) -> ScoresAndTargets:
    """The scores of rows, and what they are to say.

    Args:
        run: A run with a target.
        data: Rows with the target's column.
        level: In a model with `ranks`, the submodel that scores.

    Returns:
        The rows that have a target.

    Raises:
        UserError: The run has no target, or no row of the table has one.

    """
    schema, table = run.schema, open_table(data)
    if schema.target is None:
        remedy = "`--task rank` and `--task nearest` measure it"
        raise UserError(f"--task predict: the objective {schema.objective.type} has no target to predict; {remedy}")
    if schema.target not in table.columns:
        near = suggest(schema.target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"{table.name}: has no column {schema.target!r}, the target{near}")
    score_parts: list[Array] = []
    target_parts: list[Array] = []
    missing_parts: list[Bools] = []
    for part in predictor_of(run, level).batches(table, (schema.target,)):
        score_parts.append(part.scores)
        if part.rows.start == 0:  # a stage begins
            stage_targets, is_missing = targets_of(schema, part.stage, run.fitted.classes)
            target_parts.append(stage_targets)
            missing_parts.append(is_missing)
    scores, targets = np.concatenate(score_parts).astype(np.float64), np.concatenate(target_parts)
    has_target = ~np.concatenate(missing_parts)
    if not has_target.any():
        raise no_target(table.name, schema.target)
    scores, targets = scores[has_target], targets[has_target]
    seen = targets >= 0 if schema.objective.has_classes else np.ones(len(targets), np.bool_)  # -1: no class of training
    return ScoresAndTargets(scores[seen], targets[seen], int((~has_target).sum()), int((~seen).sum()))
