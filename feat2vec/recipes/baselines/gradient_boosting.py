"""Gradient boosting of trees on histograms, as scikit-learn implements it: for runs that predict a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.errors import UserError
from feat2vec.evaluation.metrics import auc, log_loss
from feat2vec.recipes.baselines.base import Baseline, BaselineRequest, Metrics
from feat2vec.schema.extractor_options import TokensSpec
from feat2vec.schema.options import Schema
from feat2vec.table.table import Table, stages
from feat2vec.table.types import is_list, is_text

CATEGORIES = 254  # that scikit-learn's trees can tell apart, with one for all others
SEED = 0
LEAST_PROBABILITY = 1e-15

Targets = Array  # [rows] numbers, or the names of classes


class _Classifier(Protocol):
    """What is used of scikit-learn's classifier after `fit`."""

    classes_: Targets

    def predict_proba(self, features: Floats) -> Floats: ...


class _Features(NamedTuple):
    """The columns of both tables as numbers, NaN where missing."""

    train: Floats  # [train rows, columns]
    test: Floats  # [test rows, columns]
    categorical: list[bool]  # [columns]


def gradient_boosting(request: BaselineRequest) -> Metrics:
    """scikit-learn's histogram gradient boosting on the schema's columns.

    Texts and lists are left out; of a column of keys the 254 most frequent are told apart. A tenth of the training rows
    stops it.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    except ImportError:
        raise UserError("beside gradient_boosting: needs scikit-learn: pip install 'feat2vec[recipes]'") from None
    schema = request.run.schema
    objective = schema.objective
    is_regression = not objective.has_classes and not objective.is_binary
    columns = _feature_columns(schema, request.train)
    target = str(schema.target)
    train_rows = _labelled(_read(request.train, [*columns, target]), target)
    test_rows = _labelled(_read(request.test, [*columns, target]), target)
    features = _features(train_rows, test_rows, columns)
    train_targets = _target_values(train_rows[target], numbers=not objective.has_classes)
    test_targets = _target_values(test_rows[target], numbers=not objective.has_classes)
    if is_regression:  # errors are measured on the link's scale
        train_targets, test_targets = objective.link(train_targets), objective.link(test_targets)
    method = HistGradientBoostingRegressor if is_regression else HistGradientBoostingClassifier
    model = method(
        max_iter=1000,
        early_stopping=True,
        validation_fraction=0.1,
        categorical_features=features.categorical,
        random_state=SEED,
    )
    model.fit(features.train, train_targets)
    metrics: Metrics = {"n": len(test_targets), "columns": columns, "trees": int(model.n_iter_)}
    if is_regression:
        return metrics | _regression_metrics(model.predict(features.test), test_targets)
    if objective.is_binary:
        return metrics | _binary_metrics(model, features.test, test_targets)
    return metrics | _class_metrics(model, features.test, test_targets)


def _regression_metrics(predictions: Floats, targets: Targets) -> Metrics:
    errors = predictions - targets
    return {"rmse": float(np.sqrt(np.square(errors).mean())), "mae": float(np.abs(errors).mean())}


def _binary_metrics(model: _Classifier, features: Floats, targets: Targets) -> Metrics:
    probabilities = model.predict_proba(features)[:, 1]
    probabilities = np.clip(probabilities, LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    scores = np.log(probabilities) - np.log1p(-probabilities)
    return {"log_loss": log_loss(scores, targets), "auc": auc(scores, targets)}


def _class_metrics(model: _Classifier, features: Floats, targets: Targets) -> Metrics:
    """Of the rows whose class the training rows have."""
    is_known: Bools = np.isin(targets, model.classes_)
    true_classes = np.searchsorted(model.classes_, targets[is_known])  # [known rows]
    probabilities = model.predict_proba(features)[is_known]  # [known rows, classes]
    true_probabilities = probabilities[np.arange(len(true_classes)), true_classes]
    loss = -np.log(np.maximum(true_probabilities, LEAST_PROBABILITY)).mean()
    return {
        "n": int(is_known.sum()),
        "accuracy": float((probabilities.argmax(axis=1) == true_classes).mean()),
        "log_loss": float(loss),
    }


def _feature_columns(schema: Schema, train: Table) -> list[str]:
    """The columns of the groups, without texts and lists."""
    columns: list[str] = []
    text_columns: set[str] = set()
    for group in schema.groups.values():
        columns += group.columns
        if isinstance(group.extractor, TokensSpec) or getattr(group.extractor, "split", None):
            text_columns.update(group.columns)
    return [
        column for column in dict.fromkeys(columns) if column not in text_columns and not is_list(train.columns[column])
    ]


def _read(table: Table, columns: Sequence[str]) -> pa.Table:
    tables = []
    for stage in stages(table, columns):
        tables.append(pa.Table.from_arrays([stage.column(name) for name in columns], list(columns)))
    return pa.concat_tables(tables, promote_options="permissive")


def _labelled(rows: pa.Table, target: str) -> pa.Table:
    """The rows that have a target."""
    has_target = pc.is_valid(rows[target])
    if pa.types.is_floating(rows[target].type):
        has_target = pc.and_(has_target, pc.invert(pc.fill_null(pc.is_nan(rows[target]), False)))
    return rows.filter(has_target)


def _target_values(values: pa.ChunkedArray, *, numbers: bool) -> Targets:
    if not numbers:
        return np.asarray(values.cast(pa.string()).to_pylist())
    return np.asarray(values.cast(pa.float64()).to_numpy())


def _features(train_rows: pa.Table, test_rows: pa.Table, columns: Sequence[str]) -> _Features:
    """Numbers as they are; keys as their place among the most frequent."""
    train_columns: list[Floats] = []
    test_columns: list[Floats] = []
    categorical: list[bool] = []
    for column in columns:
        is_categorical = is_text(train_rows[column].type) or pa.types.is_boolean(train_rows[column].type)
        categorical.append(is_categorical)
        known_keys = _most_frequent_keys(train_rows[column]) if is_categorical else None
        train_columns.append(_feature(train_rows[column].combine_chunks(), known_keys))
        test_columns.append(_feature(test_rows[column].combine_chunks(), known_keys))
    return _Features(np.stack(train_columns, axis=1), np.stack(test_columns, axis=1), categorical)


def _most_frequent_keys(values: pa.ChunkedArray) -> pa.StringArray:
    """At most CATEGORIES keys by descending count; of equally frequent ones, in the order of the alphabet."""
    keys = values.cast(pa.string()).combine_chunks()
    key_counts = pc.value_counts(keys.drop_null()).to_pylist()
    key_counts.sort(key=lambda key_count: (-key_count["counts"], key_count["values"]))
    return pa.array([key_count["values"] for key_count in key_counts[:CATEGORIES]], pa.string())


def _feature(values: pa.Array, known_keys: pa.StringArray | None) -> Floats:
    """A column [rows] as numbers, NaN where missing. Keys that are not known share one number."""
    if known_keys is not None:
        keys = values.cast(pa.string())
        key_places = pc.fill_null(pc.index_in(keys, known_keys), CATEGORIES)
        values = pc.if_else(pc.is_valid(keys), key_places, None)
    elif pa.types.is_temporal(values.type):
        values = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    numbers: Floats = pc.fill_null(values.cast(pa.float64(), safe=False), float("nan")).to_numpy()
    return numbers


GRADIENT_BOOSTING = Baseline("gradient_boosting", "predict", gradient_boosting)
