"""A linear model: ridge or logistic regression on keys, words and standardised numbers, as scikit-learn has them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics, missing_package
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
    check_target(request)
    encoder, objective = request.run.fitted, request.run.schema.objective
    columns = ItemColumns(encoder, [name for name, codec in encoder.codecs.items() if isinstance(codec, ItemsCodec)])
    train = _rows(encoder, columns, request.training_rows, sampled_rows(request.training_rows))
    test = _rows(encoder, columns, request.test, None)
    train_features, test_features = _features(train, test)
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
        number_parts.append(_numbers(encoder, kept_entries))
        target_parts.append(labels.targets[is_kept[labels.has_target]])
        first_row += rows
    items = sparse.vstack(item_parts, format="csr")
    return _Rows(items, np.concatenate(number_parts), np.concatenate(target_parts))


def _numbers(encoder: Encoder, entries: Mapping[str, Array]) -> Floats:
    """The numbers of rows as the table has them, and vectors: [rows, numbers]."""
    rows = len(next(iter(entries.values())))
    parts: list[Array] = [np.zeros((rows, 0))]
    for name, group_entries in entries.items():
        codec = encoder.codecs[name]
        if isinstance(codec, NumbersCodec):
            parts.append(codec.numbers(group_entries))
        elif group_entries.dtype == np.float32:
            parts.append(group_entries)
    return np.concatenate(parts, axis=1).astype(np.float64)


def _features(train: _Rows, test: _Rows) -> tuple[csr_array, csr_array]:
    """TF-IDF of items, and numbers with mean 0 and deviation 1, beside which stands whether they were missing."""
    from scipy import sparse
    from sklearn.feature_extraction.text import TfidfTransformer

    transformer = TfidfTransformer(sublinear_tf=True).fit(train.items) if train.items.shape[1] else None
    is_present = ~np.isnan(train.numbers)
    present_rows = np.maximum(is_present.sum(axis=0), 1)
    mean = np.where(is_present, train.numbers, 0).sum(axis=0) / present_rows
    deviation = np.sqrt(np.where(is_present, np.square(train.numbers - mean), 0).sum(axis=0) / present_rows)
    deviation[deviation == 0] = 1
    features = []
    for rows in (train, test):
        scaled = np.nan_to_num((rows.numbers - mean) / deviation)
        parts = [sparse.csr_array(np.concatenate([scaled, np.isnan(rows.numbers)], axis=1))]
        if transformer is not None:
            parts.append(transformer.transform(rows.items))
        features.append(sparse.hstack(parts, format="csr"))
    return features[0], features[1]


def _predictions(train_features: csr_array, targets: Array, test_features: csr_array) -> Floats:
    from sklearn.linear_model import Ridge

    mean, deviation = targets.mean(dtype=np.float64), targets.std(dtype=np.float64) or 1.0
    model = Ridge(solver="sparse_cg", random_state=SEED).fit(train_features, (targets - mean) / deviation)
    predictions: Floats = model.predict(test_features) * deviation + mean
    return predictions


def _probabilities(train_features: csr_array, targets: Array, test_features: csr_array) -> Floats:
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
