"""A linear model: ridge or logistic regression on keys, words and standardised numbers, as scikit-learn has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.encode.encoder import Encoder
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics, missing_package
from feat2vec.evaluation.baselines.features import Features, groups_of_items, numbers_of_entries
from feat2vec.evaluation.baselines.items import ItemColumns, sampled_rows
from feat2vec.evaluation.baselines.targets import (
    check_target,
    labelled_stages,
    metrics_of_numbers,
    metrics_of_probabilities,
    probabilities_of_all_classes,
)
from feat2vec.table.table import Table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FeatureMatrix: TypeAlias = "csr_array | Floats"  # [rows, features]
Project: TypeAlias = Callable[["csr_array", "csr_array"], "tuple[Floats, Floats]"]
ITERATIONS = 200  # at most, of a logistic regression
SEED = 0


class _Rows(NamedTuple):
    """Rows as features, and their targets."""

    items: csr_array  # [rows, items]
    numbers: Floats  # [rows, numbers], NaN where missing
    targets: Array  # [rows]


def linear(request: BaselineRequest) -> Metrics:
    """Ridge or logistic regression on what the run encodes: TF-IDF of keys and words, and numbers.

    Of more than 100,000 training rows so many are drawn.
    """
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise missing_package("linear", "scikit-learn") from None
    return measured_linearly(request)


def measured_linearly(request: BaselineRequest, project: Project | None = None) -> Metrics:
    """Measure a linear model on features of rows, or on what is made of them.

    Args:
        request: What to learn from, and the rows to measure on.
        project: Makes of the features of training rows and of other rows what the model sees of both.

    Returns:
        The metrics of the task `predict`.

    """
    check_target(request)
    encoder, objective = request.run.fitted, request.run.schema.objective
    columns = ItemColumns(encoder, groups_of_items(encoder))
    train = _rows(encoder, columns, request.training_rows, sampled_rows(request.training_rows))
    test = _rows(encoder, columns, request.test, None)
    features = Features.of_training_rows(train.items, train.numbers)
    train_features: FeatureMatrix = features.matrix(train.items, train.numbers)
    test_features: FeatureMatrix = features.matrix(test.items, test.numbers)
    if project is not None:
        train_features, test_features = project(train_features, test_features)
    if not objective.has_classes and not objective.is_binary:
        return metrics_of_numbers(_predictions(train_features, train.targets, test_features), test.targets)
    probabilities = _probabilities(train_features, train.targets, test_features)
    classes = 2 if encoder.classes is None else len(encoder.classes.keys)
    known_classes = np.unique(train.targets)
    of_all = probabilities_of_all_classes(probabilities, known_classes, classes)
    return metrics_of_probabilities(objective, of_all[:, 1] if objective.is_binary else of_all, test.targets)


def _rows(encoder: Encoder, columns: ItemColumns, table: Table, is_sampled: Bools | None) -> _Rows:
    from scipy import sparse

    item_parts: list[csr_array] = []
    number_parts: list[Floats] = []
    target_parts: list[Array] = []
    first_row = 0
    for entries, labels in labelled_stages(encoder, table):
        rows = len(labels.has_target)
        is_kept = labels.has_target
        if is_sampled is not None:
            is_kept = is_kept & is_sampled[first_row : first_row + rows]
        kept_entries = {name: group_entries[is_kept] for name, group_entries in entries.items()}
        item_parts.append(columns.matrix(kept_entries))
        number_parts.append(numbers_of_entries(encoder, kept_entries))
        target_parts.append(labels.targets[is_kept[labels.has_target]])
        first_row += rows
    items = sparse.vstack(item_parts, format="csr")
    return _Rows(items, np.concatenate(number_parts), np.concatenate(target_parts))


def _predictions(train_features: FeatureMatrix, targets: Array, test_features: FeatureMatrix) -> Floats:
    from sklearn.linear_model import Ridge

    mean, deviation = targets.mean(dtype=np.float64), targets.std(dtype=np.float64) or 1.0
    model = Ridge(solver="sparse_cg", random_state=SEED).fit(train_features, (targets - mean) / deviation)
    predictions: Floats = model.predict(test_features) * deviation + mean
    return predictions


def _probabilities(train_features: FeatureMatrix, targets: Array, test_features: FeatureMatrix) -> Floats:
    """Those of each class of the training rows: [rows, classes]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(targets)) == 1:
        return np.ones((test_features.shape[0], 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it counts as it is
        model = LogisticRegression(max_iter=ITERATIONS).fit(train_features, targets.astype(int))
    probabilities: Floats = model.predict_proba(test_features)
    return probabilities


LINEAR = Baseline("linear", "predict", linear)
