"""The task `predict`: how far predictions are from the target."""

from __future__ import annotations

from typing import Any

import numpy as np

from feat2vec.encode.entry_tables import Array
from feat2vec.encode.targets import target_of
from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.metrics import auc, log_loss
from feat2vec.schema.options import Glove, Logistic, Softmax
from feat2vec.space.predict import Predictor, softmax
from feat2vec.table.table import open_table
from feat2vec.training.run_folder import TrainedRun


def predict(run: TrainedRun, data: object, level: int | None = None) -> dict[str, Any]:
    """How far the predictions for rows are from their target.

    logistic: log loss and AUC. regression: RMSE and MAE, for glove of log N. softmax: accuracy and log loss, over the
    rows whose class training has seen.

    Args:
        run: A run with a target.
        data: Rows with the target's column.
        level: In a model with `ranks`, the submodel to predict by.

    Returns:
        The metrics, and how many rows they are of.

    Raises:
        UserError: The run has no target, or the table lacks its column.

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
    for part in Predictor(run.fitted, run.model, level).parts(table, (schema.target,)):
        score_parts.append(part.scores)
        if part.rows.start == 0:  # a stage begins
            target_parts.append(target_of(schema, part.stage, run.fitted.classes))
    scores, targets = np.concatenate(score_parts).astype(np.float64), np.concatenate(target_parts)
    facts: dict[str, Any] = {"task": "predict", "n": len(targets)}
    match schema.objective:
        case Logistic():
            return facts | {"log_loss": log_loss(scores, targets), "auc": auc(scores, targets)}
        case Softmax():
            return facts | _of_classes(scores, targets)
    errors = scores - (np.log(targets) if isinstance(schema.objective, Glove) else targets)
    return facts | {"rmse": float(np.sqrt(np.square(errors).mean())), "mae": float(np.abs(errors).mean())}


def _of_classes(scores: Array, targets: Array) -> dict[str, Any]:
    """Accuracy and log loss of scores [rows, classes]; a target of -1 is a class that training has not seen."""
    seen = targets >= 0
    scores, targets = scores[seen], targets[seen]
    counts = {"n": len(targets), "skipped_unseen": int((~seen).sum())}
    if not len(targets):
        return counts | {"accuracy": None, "log_loss": None}
    log_probabilities = np.take_along_axis(np.log(softmax(scores)), targets[:, None], axis=1)
    accuracy = float((scores.argmax(axis=1) == targets).mean())
    return counts | {"accuracy": accuracy, "log_loss": float(-log_probabilities.mean())}
