"""Principal component analysis: rows compared, or predicted from, by their principal components alone.

A linear autoencoder has the same optimum. It stands for what a table's vectors are without learning what is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Floats
from feat2vec.evaluation.baselines.answered_rows import (
    LARGEST_POPULARITY,
    NEIGHBOURS,
    SIMILARITIES_IN_MEMORY,
    answered_rows,
)
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics, missing_package
from feat2vec.evaluation.baselines.features import Features, groups_of_items, numbers_of_entries
from feat2vec.evaluation.baselines.items import ItemColumns
from feat2vec.evaluation.baselines.linear import measured_linearly
from feat2vec.space.geometry import blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from feat2vec.evaluation.metrics import ScoresOfRows

MOST_DENSE = 1000  # features whose covariance is decomposed as a whole
SEED = 0


class Projection(NamedTuple):
    """A map of features to principal components."""

    mean: Floats  # [features]
    axes: Floats  # [features, components]

    def components(self, features: csr_array) -> Floats:
        """The components of rows, [rows, components]."""
        components: Floats = features @ self.axes - self.mean @ self.axes
        return components


class _TrainingRows(NamedTuple):
    """Training rows that have a value of the target."""

    columns: ItemColumns
    features: Features
    projection: Projection
    vectors: Floats  # their components, of length 1, [rows, components]
    answers: csr_array  # [rows, candidates], 1 for a row's values


def pca(request: BaselineRequest) -> Metrics:
    """Rank values by the sum of the similarities of the 50 nearest training rows that have them.

    Rows are compared by the cosine of their principal components, as many as the run has dimensions, over TF-IDF of
    keys and words, standardised numbers, and vectors. Of more than 100,000 training rows so many are drawn. Where
    neighbours say nothing, the more popular value stands before the other.
    """
    from feat2vec.evaluation.queries import given_groups, table_for
    from feat2vec.evaluation.ranking import candidate_counts, ranked

    _require_sklearn("pca")
    run, target = request.run, str(request.target)
    given = given_groups(run.fitted, target, request.given)
    counts = candidate_counts(run, target)  # [candidates]
    table_for(run.fitted, target, given, request.training_rows)
    learnt = _learnt(request, target, given, len(counts))
    popularity = counts / (counts.sum() + 1) * LARGEST_POPULARITY

    def scores_of_batch(entries: Mapping[str, Array]) -> ScoresOfRows:
        features = learnt.features.matrix(learnt.columns.matrix(entries), numbers_of_entries(run.fitted, entries))
        vectors = _of_length_one(learnt.projection.components(features))
        return lambda rows: _scores(vectors[rows], learnt) + popularity

    return ranked(run, request.test, target, given, len(counts), scores_of_batch)


def pca_linear(request: BaselineRequest) -> Metrics:
    """The linear model of `linear` on the principal components of its features, as many as the run has dimensions."""
    _require_sklearn("pca_linear")
    dim = _dim(request)

    def project(train_features: csr_array, test_features: csr_array) -> tuple[Floats, Floats]:
        projection = fit_projection(train_features, dim)
        return projection.components(train_features), projection.components(test_features)

    return measured_linearly(request, project)


def _require_sklearn(name: str) -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise missing_package(name, "scikit-learn") from None


def _dim(request: BaselineRequest) -> int:
    return max(request.run.schema.model.levels.ranks)


def fit_projection(features: csr_array, most: int) -> Projection:
    """Return the principal components of features, as scikit-learn finds them; sparse features are not made dense.

    Args:
        features: Of training rows, [rows, features].
        most: The most components.

    """
    from sklearn import decomposition

    rows, width = features.shape
    is_dense = width <= MOST_DENSE
    count = min(most, rows, width) if is_dense else min(most, rows - 1, width - 1)
    if count < 1:
        return Projection(np.zeros(width), np.zeros((width, 0)))
    solver = "covariance_eigh" if is_dense else "arpack"
    fitted = decomposition.PCA(count, svd_solver=solver, random_state=SEED).fit(features)
    return Projection(fitted.mean_, fitted.components_.T)


def _learnt(request: BaselineRequest, target: str, given: list[str], candidates: int) -> _TrainingRows:
    from scipy import sparse

    encoder = request.run.fitted
    columns = ItemColumns(encoder, [name for name in groups_of_items(encoder) if name in given])
    item_parts: list[csr_array] = [sparse.csr_array((0, columns.total))]
    number_parts: list[Floats] = []
    answer_parts: list[csr_array] = [sparse.csr_array((0, candidates))]
    for entries, answers in answered_rows(request, target, given, candidates):
        item_parts.append(columns.matrix(entries))
        number_parts.append(numbers_of_entries(encoder, entries))
        answer_parts.append(answers)
    items = sparse.vstack(item_parts, format="csr")
    numbers = np.concatenate(number_parts)
    features = Features.of_training_rows(items, numbers)
    matrix = features.matrix(items, numbers)
    projection = fit_projection(matrix, _dim(request))
    vectors = _of_length_one(projection.components(matrix))
    return _TrainingRows(columns, features, projection, vectors, sparse.vstack(answer_parts, format="csr"))


def _of_length_one(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit_vectors: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit_vectors


def _scores(vectors: Floats, learnt: _TrainingRows) -> Floats:
    """The sums over the nearest training rows: [rows, candidates]. Rows that point away count as far."""
    from scipy import sparse

    training_rows = len(learnt.vectors)
    nearest = min(NEIGHBOURS, training_rows)
    scores = np.zeros((len(vectors), learnt.answers.shape[1]))
    for block in blocks(len(vectors), max(SIMILARITIES_IN_MEMORY // max(training_rows, 1), 1)):
        similarities = vectors[block] @ learnt.vectors.T  # [rows of the block, training rows]
        places = np.argpartition(-similarities, nearest - 1, axis=1)[:, :nearest]
        values = np.maximum(np.take_along_axis(similarities, places, 1), 0)
        starts = np.arange(len(similarities) + 1) * nearest
        weights = sparse.csr_array((values.ravel(), places.ravel(), starts), shape=similarities.shape)
        scores[block] = (weights @ learnt.answers).toarray()
    return scores


PCA = Baseline("pca", "rank", pca)
PCA_LINEAR = Baseline("pca_linear", "predict", pca_linear)
