"""The targets of rows, and the metrics of predictions for them, as the task `predict` has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.targets import targets_of
from feat2vec.errors import UserError, suggest
from feat2vec.evaluation.baselines.base import BaselineRequest, Metrics
from feat2vec.evaluation.metrics import accuracy, auc, log_loss, mae, rmse
from feat2vec.schema.objectives.base import ObjectiveSpec
from feat2vec.space.geometry import dense
from feat2vec.table.table import Table, stages

LEAST_PROBABILITY = 1e-15


class LabelledRows(NamedTuple):
    """The targets of consecutive rows of a stage, and which of the rows have one."""

    targets: Array  # [rows with a target], on the scale of the objective's scores; class ids
    has_target: Bools  # [rows]


def check_target(request: BaselineRequest) -> None:
    """Raise unless the schema has a target, and the training rows its column."""
    target, table = request.run.schema.target, request.training_rows
    if target is None:
        raise UserError("--task predict: the run has no target to predict")
    if target not in table.columns:
        raise UserError(f"{table.name}: has no column {target!r}, the target{suggest(target, table.columns)}")


def labels_of(encoder: Encoder, target_values: Array) -> LabelledRows:
    """The targets that `targets_of` gives, without rows that have none or a class that training has not seen."""
    objective = encoder.schema.objective
    has_target: Bools = target_values >= 0 if objective.has_classes else ~np.isnan(target_values)
    return LabelledRows(objective.link(target_values[has_target]), has_target)


def all_targets(encoder: Encoder, table: Table) -> Array:
    """The targets of all rows that have one."""
    parts: list[Array] = []
    for stage in stages(table, [str(encoder.schema.target)]):
        parts.append(labels_of(encoder, targets_of(encoder.schema, stage, encoder.classes)[0]).targets)
    return np.concatenate(parts)


def labelled_stages(encoder: Encoder, table: Table) -> Iterator[tuple[dict[str, Array], LabelledRows]]:
    """The entries of each stage's rows, [rows, width] of each group, and the rows' targets."""
    for stage, entries in encoder.staged(table, (str(encoder.schema.target),)):
        labels = labels_of(encoder, targets_of(encoder.schema, stage, encoder.classes)[0])
        yield {name: dense(group_entries) for name, group_entries in entries.items()}, labels


def metrics_of_numbers(predictions: Floats, targets: Array) -> Metrics:
    """The metrics of a regression."""
    return {"n": len(targets), "rmse": rmse(predictions, targets), "mae": mae(predictions, targets)}


def metrics_of_probabilities(objective: ObjectiveSpec, probabilities: Floats, targets: Array) -> Metrics:
    """The metrics of probabilities: [rows] of a 1 for a logistic objective, else [rows, classes]."""
    probabilities = np.clip(probabilities, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    if objective.is_binary:
        scores = np.log(probabilities) - np.log1p(-probabilities)
        return {"n": len(targets), "log_loss": log_loss(scores, targets), "auc": auc(scores, targets)}
    scores = np.log(probabilities)
    return {"n": len(targets), "accuracy": accuracy(scores, targets), "log_loss": log_loss(scores, targets)}


def probabilities_of_all_classes(probabilities: Floats, known_classes: Array, classes: int) -> Floats:
    """Probabilities [rows, known classes] as [rows, classes]; a class that no training row has gets none."""
    of_all = np.zeros((len(probabilities), classes))
    of_all[:, known_classes.astype(int)] = probabilities
    return of_all
