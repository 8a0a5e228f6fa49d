"""A constant: the mean of the training targets, or the share of each class, for every row."""

from __future__ import annotations

import numpy as np

from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics
from feat2vec.evaluation.baselines.targets import (
    all_targets,
    check_target,
    metrics_of_numbers,
    metrics_of_probabilities,
)


def constant(request: BaselineRequest) -> Metrics:
    """Predict the same for every row: the mean, or the share of each class with one row more for each."""
    check_target(request)
    encoder, objective = request.run.fitted, request.run.schema.objective
    train_targets, targets = all_targets(encoder, request.training_rows), all_targets(encoder, request.test)
    if objective.has_classes:
        assert encoder.classes is not None
        counts = np.bincount(train_targets, minlength=len(encoder.classes.keys)) + 1.0
        shares = np.broadcast_to(counts / counts.sum(), (len(targets), len(counts)))
        return metrics_of_probabilities(objective, shares, targets)
    mean = float(train_targets.mean(dtype=np.float64)) if len(train_targets) else 0.0
    predictions = np.full(len(targets), mean)
    if objective.is_binary:
        return metrics_of_probabilities(objective, predictions, targets)
    return metrics_of_numbers(predictions, targets)


CONSTANT = Baseline("constant", "predict", constant)
