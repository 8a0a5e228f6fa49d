"""Pointwise mutual information (PMI), factorised (Levy and Goldberg, 2014).

Skip-gram with k negatives has its minimum where each score is PMI(word, context) - log k, if there are dimensions for
it. This peer computes that matrix of the same rows, and factorises what is above 0 of it by its singular values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Floats
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.targets import targets_of
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.errors import UserError, suggest
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics
from feat2vec.evaluation.baselines.items import ItemColumns
from feat2vec.space.geometry import dense
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from feat2vec.schema.options import Schema

SEED = 0
WEIGHTING = 0.5  # the power of the singular values in each factor


def pmi_svd(request: BaselineRequest) -> Metrics:
    """The left factor of the shifted positive PMI of the target's keys with the other groups' items.

    Items are the keys and words of the other groups, their numbers in ten bins, and the classes of a softmax objective.
    A row counts once, or as often as its target says (`glove`), or by its label (`logistic`), times its weight. The
    power of the items' counts is that of the run's noise, and so is the shift, log k; as a shift leaves little of a
    small table, the matrix without one (k = 1) is measured, too, and the better of the two is told.
    """
    from feat2vec.evaluation.key_pairs import pair_similarities

    schema, target = request.run.schema, str(request.target)
    codec = request.run.fitted.codecs[target]
    if not isinstance(codec, ItemsCodec):
        raise UserError(f"beside pmi_svd: the group {target!r} has no keys; choose a group of keys or words")
    keys, counts = codec.vocabulary.keys.to_pylist(), pair_counts(request, target)
    has_negatives = schema.objective.needs_noise or request.fake_centres is not None
    measured: list[Metrics] = []
    for negatives in sorted({1, request.negatives if has_negatives else 1}):
        matrix = shifted_positive_pmi(counts, negatives, schema.noise.alpha_values)
        metrics = pair_similarities(request.test, _KeyVectors(keys, factors(matrix, schema.model.dim).left))
        measured.append({**metrics, "negatives": negatives})
    return max(measured, key=lambda metrics: -2.0 if metrics["spearman"] is None else metrics["spearman"])


def shifted_positive_pmi(counts: csr_array, negatives: int, alpha: float) -> csr_array:
    """Return max(log(p(w, c) / (p(w) q(c))) - log k, 0), with q(c) in proportion to the count of c to the power alpha.

    Args:
        counts: How often each key w has each item c beside it, [keys, items].
        negatives: k.
        alpha: The power of the items' counts; 1 gives PMI.

    Returns:
        The matrix, [keys, items], with no entry where it is 0.

    """
    from scipy import sparse

    pairs = counts.tocoo()
    key_counts = np.asarray(counts.sum(axis=1), np.float64)  # [keys]
    noise = np.asarray(counts.sum(axis=0), np.float64) ** alpha  # [items]
    noise /= max(noise.sum(), np.finfo(float).tiny)
    is_counted = pairs.data > 0
    keys, items = pairs.row[is_counted], pairs.col[is_counted]
    shifted = np.log(pairs.data[is_counted] / (key_counts[keys] * noise[items])) - np.log(negatives)
    is_positive = shifted > 0
    return sparse.csr_array(
        (shifted[is_positive], (keys[is_positive], items[is_positive])), shape=counts.shape, dtype=np.float64
    )


class Factors(NamedTuple):
    """Two factors of a matrix, whose product is the nearest of their rank to it, in squared error."""

    left: Floats  # [keys, dim]
    right: Floats  # [items, dim]


def factors(matrix: csr_array, dim: int) -> Factors:
    """Return U S^1/2 and V S^1/2 of the `dim` largest singular values S of a matrix U S V'.

    Args:
        matrix: The matrix, [keys, items].
        dim: The dimensions; where the matrix has a shorter side, they are as many.

    Returns:
        The factors.

    """
    from scipy.sparse.linalg import svds

    shorter_side = min(matrix.shape)
    if not matrix.nnz:
        return Factors(np.zeros((matrix.shape[0], 1)), np.zeros((matrix.shape[1], 1)))
    if dim >= shorter_side:  # all of them, which ARPACK cannot
        left, values, right = np.linalg.svd(matrix.toarray(), full_matrices=False)
    else:
        start = np.random.default_rng(SEED).normal(size=shorter_side)
        left, values, right = svds(matrix, k=dim, v0=start)
    weights = np.maximum(values, 0) ** WEIGHTING
    return Factors(left * weights, right.T * weights)


def pair_counts(request: BaselineRequest, target: str) -> csr_array:
    """How often each key of the target stands beside each item of the other groups in the training rows.

    Args:
        request: The run and its training rows.
        target: A group of keys.

    Returns:
        The counts, [keys, items].

    Raises:
        UserError: The training rows lack the schema's target.

    """
    from scipy import sparse

    encoder, schema, table = request.run.fitted, request.run.schema, request.training_rows
    objective = schema.objective
    needs_target = objective.has_classes or objective.has_counts or objective.is_binary
    has_target = schema.target in table.columns
    if needs_target and not has_target and objective.implicit_group is None:
        near = suggest(str(schema.target), table.columns)
        raise UserError(f"{table.name}: has no column {schema.target!r}, the target{near}")
    key_columns = ItemColumns(encoder, [target])
    item_columns = ItemColumns(encoder, [name for name in schema.groups if name != target])
    classes = encoder.classes if objective.has_classes else None
    total = item_columns.total + (0 if classes is None else len(classes.keys))
    counts = sparse.csr_array((key_columns.total, total))
    label_columns = [column for column in (schema.target, schema.weight) if column in table.columns]
    for stage, entries in encoder.staged(table, [str(column) for column in label_columns]):
        dense_entries = {name: dense(group_entries) for name, group_entries in entries.items()}
        weights, class_ids = _weights_and_classes(schema, stage, classes, label_columns)
        keys, items = key_columns.matrix(dense_entries), item_columns.matrix(dense_entries)
        if classes is not None:
            items = sparse.hstack([items, _one_hot(class_ids, len(classes.keys))], format="csr")
        counts = counts + (keys.multiply(weights[:, None]).T @ items).tocsr()
    return counts


def _weights_and_classes(
    schema: Schema, stage: Stage, classes: Vocabulary | None, columns: Sequence[str | None]
) -> tuple[Floats, Array]:
    """How often each row counts, [rows], and its class, -1 for none, [rows]."""
    objective = schema.objective
    weights, class_ids = np.ones(stage.rows), np.full(stage.rows, -1)
    if schema.target is not None and schema.target in columns:
        targets, is_missing = targets_of(schema, stage, classes)
        if objective.has_classes:
            class_ids = targets
        elif objective.has_counts or objective.is_binary:
            weights = np.where(is_missing, 0.0, targets).astype(np.float64)
    if schema.weight is not None and schema.weight in columns:
        weights = weights * np.nan_to_num(numbers_of(stage, schema.weight)[0])
    return weights, class_ids


def _one_hot(class_ids: Array, classes: int) -> csr_array:
    """[rows, classes], 1 for each row's class."""
    from scipy import sparse

    (rows,) = np.nonzero(class_ids >= 0)
    return sparse.csr_array((np.ones(len(rows)), (rows, class_ids[rows])), shape=(len(class_ids), classes))


class _KeyVectors:
    """Vectors by key; the similarity of a vector of zeros is 0."""

    def __init__(self, keys: Sequence[str], vectors: Floats) -> None:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # [keys, 1]
        self.units = vectors / np.where(lengths > 0, lengths, 1)  # [keys, dim]
        self.rows = {str(key): row for row, key in enumerate(keys)}

    def __contains__(self, key: object) -> bool:
        return key in self.rows

    def similarity(self, first: str, second: str) -> float:
        """The cosine of two keys' vectors."""
        return float(self.units[self.rows[first]] @ self.units[self.rows[second]])


PMI_SVD = Baseline("pmi_svd", "pairs", pmi_svd)
