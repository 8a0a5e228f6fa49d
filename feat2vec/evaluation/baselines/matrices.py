"""`svd`, `als` and `soft_impute`: matrix completion of a table of (row, column, number), for runs that predict it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Bools, Floats, Int64s
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.targets import targets_of
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics
from feat2vec.evaluation.baselines.items import sampled_rows
from feat2vec.evaluation.baselines.targets import check_target, labels_of, metrics_of_numbers
from feat2vec.evaluation.matrix_completion import MethodName, complete_matrix, known_entries
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Schema
from feat2vec.space.geometry import dense
from feat2vec.table.table import Table

MOST_ENTRIES = 2_000_000  # of training rows that a matrix is completed from; of more, so many are drawn


class _Places(NamedTuple):
    """The rows of a table that have a target, as places of a matrix."""

    rows: Int64s  # [rows], -1 for what training has not seen
    columns: Int64s  # [rows]
    numbers: Floats  # [rows], the target on the scale of scores


def problem_of_matrix(schema: Schema, matrix: Sequence[str] | None) -> str | None:
    """Why the groups are not the rows and columns of a matrix of numbers; None if they are.

    Args:
        schema: That of the run.
        matrix: Two groups; None for the first two lookup groups that have one key a row.

    """
    objective = schema.objective
    if schema.target is None or objective.has_classes or objective.is_binary:
        return f"svd, als and soft_impute complete a matrix of numbers; the objective {objective.type} predicts none"
    if matrix is None:
        single = _groups_of_one_key(schema)
        if len(single) < 2:
            known = f"the only one is {single[0]}" if single else "there is none"
            return f"a matrix needs two lookup groups of one key a row, for its rows and columns; {known}"
        return None
    if len(matrix) != 2 or matrix[0] == matrix[1]:
        return f"expected two groups, that of the rows and that of the columns; received {listed(matrix)}"
    for name in matrix:
        if name not in schema.groups:
            return f"there is no group {name!r}{suggest(name, schema.groups) or f'; there are {listed(schema.groups)}'}"
        if name not in _groups_of_one_key(schema):
            return f"{name!r} is no lookup group of one key a row, which rows and columns of a matrix have to be"
    return None


def _groups_of_one_key(schema: Schema) -> list[str]:
    """The lookup groups of which a row has one key at most."""
    names = []
    for name, group in schema.groups.items():
        if isinstance(group.extractor, ItemsSpec) and not group.extractor.bag:
            names.append(name)
    return names


def matrix_groups(schema: Schema, matrix: Sequence[str] | None) -> tuple[str, str]:
    """The groups that are the rows and the columns of the matrix; `UserError` if there are none."""
    problem = problem_of_matrix(schema, matrix)
    if problem is not None:
        raise UserError(f"--{'beside' if matrix is None else 'matrix'}: {problem}")
    row_group, column_group = _groups_of_one_key(schema)[:2] if matrix is None else matrix
    return row_group, column_group


def completed(method: MethodName, request: BaselineRequest) -> Metrics:
    """Complete the matrix of the training rows, and read the test rows' numbers from it.

    Biases of rows and columns come first. The rank, the shrinkage and how long it is iterated are those that are best
    on a tenth of the training rows. Of more than 2,000,000 training rows so many are drawn. A row or column that
    training has not seen has the number that the other one's bias says.
    """
    encoder = request.run.fitted
    groups = matrix_groups(request.run.schema, request.matrix)
    check_target(request)
    train = _places(encoder, request.training_rows, groups, sampled_rows(request.training_rows, MOST_ENTRIES))
    test = _places(encoder, request.test, groups, None)
    is_known = (train.rows >= 0) & (train.columns >= 0)
    if not is_known.any():
        raise UserError(f"{request.training_rows.name}: no row has {groups[0]}, {groups[1]} and the target")
    shape = (_size(encoder, groups[0]), _size(encoder, groups[1]))
    numbers = train.numbers[is_known]
    entries = known_entries(train.rows[is_known], train.columns[is_known], numbers, shape)
    matrix = complete_matrix(method, entries)
    predictions = np.clip(matrix.at(test.rows, test.columns), numbers.min(), numbers.max())
    chosen: Metrics = {"rank": matrix.factors.rank, "steps": matrix.chosen.steps}
    if method != "svd":
        chosen["shrinkage"] = matrix.chosen.setting.shrinkage
    return metrics_of_numbers(predictions, test.numbers) | {"matrix": list(groups), **chosen}


def _places(encoder: Encoder, table: Table, groups: tuple[str, str], is_sampled: Bools | None) -> _Places:
    """Where the rows of a table that have a target are in the matrix."""
    parts: list[list[Int64s]] = [[], []]
    numbers: list[Floats] = []
    first_row = 0
    for stage, entries in encoder.only(groups).staged(table, (str(encoder.schema.target),)):
        labels = labels_of(encoder, targets_of(encoder.schema, stage, encoder.classes)[0])
        is_kept = np.ones(stage.rows, np.bool_)
        if is_sampled is not None:
            is_kept = is_sampled[first_row : first_row + stage.rows]
        for name, part in zip(groups, parts, strict=True):
            keys = dense(entries[name])[labels.has_target & is_kept, 0].astype(np.int64) - FIRST
            part.append(np.maximum(keys, -1))
        numbers.append(labels.targets[is_kept[labels.has_target]].astype(np.float64))
        first_row += stage.rows
    return _Places(np.concatenate(parts[0]), np.concatenate(parts[1]), np.concatenate(numbers))


def _size(encoder: Encoder, group: str) -> int:
    vocabulary = encoder.codecs[group].vocabulary
    assert vocabulary is not None
    return len(vocabulary.keys)


def _baseline(method: MethodName) -> Baseline:
    measure: Callable[[BaselineRequest], Metrics] = partial(completed, method)
    return Baseline(method, "predict", measure, completes_matrix=True)


SVD, ALS, SOFT_IMPUTE = _baseline("svd"), _baseline("als"), _baseline("soft_impute")
