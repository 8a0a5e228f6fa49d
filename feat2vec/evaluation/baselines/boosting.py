"""Gradient boosting of trees on histograms, as scikit-learn implements it: for runs that predict a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Floats
from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec
from feat2vec.encode.codecs.numbers import numbers_checked
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.targets import targets_of
from feat2vec.errors import UserError
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics, missing_package
from feat2vec.evaluation.baselines.targets import (
    check_target,
    labels_of,
    metrics_of_numbers,
    metrics_of_probabilities,
    probabilities_of_all_classes,
)
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec, TokensSpec
from feat2vec.schema.options import Group, Schema
from feat2vec.table.numbers import dates_of, days_of, numbers_of
from feat2vec.table.table import Stage, Table, stages
from feat2vec.table.types import is_list, is_text
from feat2vec.table.written_dates import written_dates

CATEGORIES = 254  # that scikit-learn's trees can tell apart, with one for all others
HELD_OUT = 0.1  # of the rows, which say when more trees do not help
TREES_WITHOUT_STOP = 100  # where none can be held out: scikit-learn's default
SEED = 0


class _Features(NamedTuple):
    """The columns of both tables as numbers, NaN where missing."""

    train: Floats  # [train rows, columns]
    test: Floats  # [test rows, columns]
    categorical: list[bool]  # [columns]


def boosting(request: BaselineRequest) -> Metrics:
    """scikit-learn's histogram gradient boosting on the schema's columns.

    Texts and lists are left out. What the run reads as numbers or dates, also from text, is numbers here, too; of a
    column of keys the 254 most frequent are told apart. A tenth of the training rows stops it.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    except ImportError:
        raise missing_package("boosting", "scikit-learn") from None
    check_target(request)
    encoder, objective = request.run.fitted, request.run.schema.objective
    is_regression = not objective.has_classes and not objective.is_binary
    columns = _feature_columns(request.run.schema, request.training_rows)
    if not columns:
        raise UserError("beside boosting: the schema has no column but texts and lists, which its trees do not take")
    train, test = (_read(encoder, table, columns) for table in (request.training_rows, request.test))
    features = _features(train.columns, test.columns, columns)
    method = HistGradientBoostingRegressor if is_regression else HistGradientBoostingClassifier
    can_stop_early = is_regression or _can_be_split(train.targets)
    model = method(
        max_iter=1000 if can_stop_early else TREES_WITHOUT_STOP,
        early_stopping=can_stop_early,
        validation_fraction=HELD_OUT,
        categorical_features=features.categorical,
        random_state=SEED,
    )
    model.fit(features.train, train.targets)
    metrics: Metrics = {"columns": columns, "trees": int(model.n_iter_)}
    if is_regression:
        return metrics_of_numbers(model.predict(features.test), test.targets) | metrics
    classes = 2 if encoder.classes is None else len(encoder.classes.keys)
    probabilities = probabilities_of_all_classes(model.predict_proba(features.test), model.classes_, classes)
    of_target = probabilities[:, 1] if objective.is_binary else probabilities
    return metrics_of_probabilities(objective, of_target, test.targets) | metrics


def _can_be_split(classes: Array) -> bool:
    """Whether a tenth of the rows can be held out with as many of each class as it has: scikit-learn refuses others."""
    counts = np.unique(classes, return_counts=True)[1]
    return bool(counts.min() >= 2 and HELD_OUT * len(classes) >= len(counts))


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


class _Rows(NamedTuple):
    """The rows of a table that have a target."""

    columns: pa.Table
    targets: Array  # [rows] numbers on the scale of scores, or the ids of classes


def _read(encoder: Encoder, table: Table, columns: Sequence[str]) -> _Rows:
    schema, tables, targets = encoder.schema, [], []
    number_groups = _number_groups(schema)
    for stage in stages(table, [*columns, str(schema.target)]):
        labels = labels_of(encoder, targets_of(schema, stage, encoder.classes)[0])
        arrays = []
        for column in columns:
            name = number_groups.get(column)
            if name is None:
                arrays.append(stage.column(column))
            else:
                numbers = _numbers(stage, column, schema.groups[name], encoder.codecs[name])
                arrays.append(pa.chunked_array([pa.array(numbers)]))
        rows = pa.Table.from_arrays(arrays, list(columns))
        tables.append(rows.filter(pa.array(labels.has_target)))
        targets.append(labels.targets)
    return _Rows(pa.concat_tables(tables, promote_options="permissive"), np.concatenate(targets))


def _number_groups(schema: Schema) -> Mapping[str, str]:
    """The group by which the run reads a column as numbers or dates, for each such column."""
    of_columns: dict[str, str] = {}
    for name, group in schema.groups.items():
        spec = group.extractor
        if isinstance(spec, NumbersSpec) or (isinstance(spec, ItemsSpec) and (spec.bins or spec.parts)):
            for column in group.columns:
                of_columns.setdefault(column, name)
    return of_columns


def _numbers(stage: Stage, column: str, group: Group, codec: Codec) -> Floats:
    """A column as the group's numbers, or as days since 1970, as the run reads them: [rows], NaN where missing."""
    spec = group.extractor
    if isinstance(spec, NumbersSpec):
        assert isinstance(codec, NumbersCodec)
        kinds = {scale.column: scale.kind for scale in codec.columns}
        return numbers_checked(stage, column, spec, kinds[column])[0]
    assert isinstance(spec, ItemsSpec)
    assert isinstance(codec, ItemsCodec)
    if spec.bins:
        return numbers_of(stage, column, codec.kind)[0]
    return days_of(dates_of(stage, column) if spec.dates is None else written_dates(stage, column, spec.dates))


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


BOOSTING = Baseline("boosting", "predict", boosting)
