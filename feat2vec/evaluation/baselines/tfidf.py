"""TF-IDF: the values of the training rows whose keys and words are most like the row's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Floats, Integers
from feat2vec.evaluation.baselines.answered_rows import (
    LARGEST_POPULARITY,
    NEIGHBOURS,
    SIMILARITIES_IN_MEMORY,
    answered_rows,
)
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics, missing_package
from feat2vec.evaluation.baselines.items import ItemColumns
from feat2vec.space.geometry import blocks

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfTransformer

    from feat2vec.evaluation.metrics import ScoresOfRows


class _TrainingRows(NamedTuple):
    """Training rows that have a value of the target."""

    transformer: TfidfTransformer
    vectors: csr_array  # [items, rows]
    answers: csr_array  # [rows, candidates], 1 for a row's values


def tfidf(request: BaselineRequest) -> Metrics:
    """Rank values by the sum of the similarities of the 50 nearest training rows that have them.

    Rows are compared by the cosine of their TF-IDF vectors over the items of the given groups, as the run encodes them,
    numbers in ten bins. Of more than 100,000 training rows so many are drawn. Where neighbours say nothing, the more
    popular value stands before the other.
    """
    from feat2vec.evaluation.queries import given_groups, table_for
    from feat2vec.evaluation.ranking import candidate_counts, ranked

    run, target = request.run, str(request.target)
    given = given_groups(run.fitted, target, request.given)
    counts = candidate_counts(run, target)  # [candidates]
    table_for(run.fitted, target, given, request.training_rows)
    columns = ItemColumns(run.fitted, given)
    learnt = _learnt(request, target, given, columns, len(counts))
    popularity = counts / (counts.sum() + 1) * LARGEST_POPULARITY

    def scores_of_batch(entries: Mapping[str, Array]) -> ScoresOfRows:
        vectors = learnt.transformer.transform(columns.matrix(entries)).tocsr()
        return lambda rows: _scores(vectors[rows], learnt) + popularity

    return ranked(run, request.test, target, given, len(counts), scores_of_batch)


def _learnt(
    request: BaselineRequest, target: str, given: list[str], columns: ItemColumns, candidates: int
) -> _TrainingRows:
    try:
        from scipy import sparse
        from sklearn.feature_extraction.text import TfidfTransformer
    except ImportError:
        raise missing_package("tfidf", "scikit-learn") from None

    item_parts: list[csr_array] = [sparse.csr_array((0, columns.total))]
    answer_parts: list[csr_array] = [sparse.csr_array((0, candidates))]
    for entries, answers in answered_rows(request, target, given, candidates):
        item_parts.append(columns.matrix(entries))
        answer_parts.append(answers)
    items = sparse.vstack(item_parts, format="csr")
    transformer = TfidfTransformer().fit(items)
    vectors = transformer.transform(items).T.tocsr()
    return _TrainingRows(transformer, vectors, sparse.vstack(answer_parts, format="csr"))


def _scores(vectors: csr_array, learnt: _TrainingRows) -> Floats:
    """The sums over the nearest training rows: [rows, candidates]."""
    from scipy import sparse

    training_rows = learnt.vectors.shape[1]
    scores = np.zeros((vectors.shape[0], learnt.answers.shape[1]))
    for block in blocks(vectors.shape[0], max(SIMILARITIES_IN_MEMORY // max(training_rows, 1), 1)):
        similarities = (vectors[block] @ learnt.vectors).tocsr()
        weights = sparse.csr_array(
            (similarities.data * _is_nearest(similarities), similarities.indices, similarities.indptr),
            shape=similarities.shape,
        )
        scores[block] = (weights @ learnt.answers).toarray()
    return scores


def _is_nearest(similarities: csr_array) -> Integers:
    """1 for the stored similarities that are among the highest of their row, ties with the last of them included."""
    is_nearest = np.ones(len(similarities.data), np.int64)
    for begin, end in zip(similarities.indptr[:-1], similarities.indptr[1:], strict=True):
        if end - begin > NEIGHBOURS:
            of_row = similarities.data[begin:end]
            is_nearest[begin:end] = of_row >= np.partition(of_row, -NEIGHBOURS)[-NEIGHBOURS]
    return is_nearest


TFIDF = Baseline("tfidf", "rank", tfidf)
