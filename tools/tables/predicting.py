"""The peers that predict labels: each learns the labelled training rows, as scikit-learn's models come."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tables.completing import sampled_rows
from tables.encoding import Counts, Encoded, Floats
from tables.questions import PredictQuestion

MOST_CATEGORIES = 254  # of a column; the rarer ones are one more
LIST_ITEMS = 30  # of a list, as columns
TEXT_COMPONENTS = 30
MLP_COMPONENTS = 100
LINEAR_ROWS = 100_000  # that classes are learnt from
MLP_ROWS = 100_000

Answer = Callable[[Encoded, PredictQuestion, int, list[str]], Floats]


def constant(encoded: Encoded, question: PredictQuestion, seed: int, notes: list[str]) -> Floats:  # noqa: ARG001
    """The mean of the training labels, or the share of each class."""
    rows = len(question.test_rows)
    if question.kind == "category":
        shares = np.bincount(question.train_labels.astype(int), minlength=len(question.classes)) + 1e-6
        return np.broadcast_to(shares / shares.sum(), (rows, len(shares)))
    return np.full(rows, question.train_labels.mean())


def boosting(encoded: Encoded, question: PredictQuestion, seed: int, notes: list[str]) -> Floats:  # noqa: ARG001
    """scikit-learn's HistGradientBoosting as it comes: keys as categories, the main items of lists, text by an SVD."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    columns = [_boosting_columns(encoded, name, seed) for name in encoded]
    train, test = (np.concatenate([column[i] for column in columns], axis=1) for i in (0, 1))
    categorical = np.concatenate([np.full(column[0].shape[1], column[2]) for column in columns])
    make = HistGradientBoostingRegressor if question.kind == "number" else HistGradientBoostingClassifier
    model = make(categorical_features=categorical, random_state=seed)
    return _fitted_answers(model, question, train, test)


def _boosting_columns(encoded: Encoded, name: str, seed: int) -> tuple[Floats, Floats, bool]:
    """A group's columns in the training and test rows, and whether they are categories."""
    group = encoded[name]
    if group.group.kind == "key":
        rows_of_item = np.asarray(group.train.sum(axis=0)).ravel()
        code = np.minimum(np.argsort(np.argsort(-rows_of_item, kind="stable")), MOST_CATEGORIES)  # [items]
        return _codes(group.train, code), _codes(group.test, code), True
    if group.group.kind == "list":
        most = np.argsort(-np.asarray(group.train.sum(axis=0)).ravel(), kind="stable")[:LIST_ITEMS]
        train, test = (
            np.concatenate([items[:, most].toarray(), np.asarray(items.sum(axis=1))], axis=1)
            for items in (group.train, group.test)
        )
        return train, test, False
    if group.group.kind == "text":
        return (*reduced(*_tfidf(group.train, group.test), TEXT_COMPONENTS, seed), False)
    return group.train_numbers, group.test_numbers, False


def _codes(items: Counts, code: Any) -> Floats:
    """The code of each row's only item [rows, 1], NaN where there is none."""
    codes = np.full(items.shape[0], np.nan)
    present = np.diff(items.indptr) > 0
    codes[present] = code[items.indices[items.indptr[:-1][present]]]
    return codes[:, None]


def linear(encoded: Encoded, question: PredictQuestion, seed: int, notes: list[str]) -> Floats:
    """Ridge or logistic regression on one-hot keys and items, TF-IDF of texts and standardised numbers."""
    from sklearn.linear_model import LogisticRegression, Ridge

    train, test = sparse_features(encoded)
    if question.kind == "number":
        return _fitted_answers(Ridge(solver="sparse_cg", random_state=seed), question, train, test)
    rows = sampled_rows(len(question.train_rows), LINEAR_ROWS, seed, notes)
    model = LogisticRegression(max_iter=200)
    return _fitted_answers(model, question, train, test, rows)


def mlp(encoded: Encoded, question: PredictQuestion, seed: int, notes: list[str]) -> Floats:
    """scikit-learn's MLP with early stopping, on the linear models' features reduced by an SVD."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from threadpoolctl import threadpool_limits

    train, test = reduced(*sparse_features(encoded), MLP_COMPONENTS, seed)
    scale = train.std(axis=0).max() + 1e-12
    rows = sampled_rows(len(question.train_rows), MLP_ROWS, seed, notes)
    # A validation part of few rows may lack a class, which scikit-learn refuses.
    early = len(rows) >= 1000 and (
        question.kind == "number" or np.unique(question.train_labels[rows], return_counts=True)[1].min() > 1
    )
    make = MLPRegressor if question.kind == "number" else MLPClassifier
    model = make(early_stopping=early, random_state=seed, max_iter=100)
    with threadpool_limits(1):  # threads gain nothing for batches of 200 rows
        return _fitted_answers(model, question, train / scale, test / scale, rows)


def sparse_features(encoded: Encoded) -> tuple[Counts, Counts]:
    """One-hot keys and items, TF-IDF of texts, and standardised numbers, whose missing values are marked."""
    from scipy import sparse

    parts = []
    for group in encoded.values():
        if group.group.kind == "text":
            parts.append(_tfidf(group.train, group.test))
        elif group.group.kind in ("key", "list"):
            parts.append((group.train, group.test))
        else:
            numbers = _standardised(group.train_numbers, group.test_numbers)
            parts.append(tuple(sparse.csr_matrix(part) for part in numbers))
    train, test = (sparse.hstack([part[i] for part in parts], format="csr") for i in (0, 1))
    return train, test


def _tfidf(train: Counts, test: Counts) -> tuple[Counts, Counts]:
    from sklearn.feature_extraction.text import TfidfTransformer

    tfidf = TfidfTransformer(sublinear_tf=True).fit(train)
    return tfidf.transform(train), tfidf.transform(test)


def _standardised(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Numbers with mean 0 and deviation 1, beside which stands whether they were missing."""
    present = ~np.isnan(train)
    total = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, train, 0).sum(axis=0) / total
    deviation = np.sqrt(np.where(present, np.square(train - mean), 0).sum(axis=0) / total)
    deviation[deviation == 0] = 1
    scaled = (
        np.concatenate([np.nan_to_num((part - mean) / deviation), np.isnan(part)], axis=1) for part in (train, test)
    )
    first, second = scaled
    return first, second


def reduced(train: Counts, test: Counts, components: int, seed: int) -> tuple[Floats, Floats]:
    """Truncated singular vectors of features."""
    from sklearn.decomposition import TruncatedSVD

    components = min(components, train.shape[1] - 1, train.shape[0] - 1)
    if components < 1:
        return np.asarray(train.toarray()), np.asarray(test.toarray())
    svd = TruncatedSVD(components, random_state=seed).fit(train)
    return np.asarray(svd.transform(train)), np.asarray(svd.transform(test))


def _fitted_answers(model: Any, question: PredictQuestion, train: Any, test: Any, rows: Any = None) -> Floats:
    """Fit a model to the labelled rows, or some of them, and answer for the test rows.

    `train` has the labelled rows alone, `test` all that are asked for.
    """
    labels = question.train_labels
    if rows is not None:
        train, labels = train[rows], labels[rows]
    if question.kind == "number":
        shift, scale = labels.mean(), labels.std() or 1.0
        standardised = _fitted(model, train, (labels - shift) / scale).predict(test)
        return np.asarray(standardised * scale + shift, np.float64)
    if len(np.unique(labels)) == 1:
        probabilities, seen = np.ones((test.shape[0], 1)), np.unique(labels).astype(int)
    else:
        probabilities = _fitted(model, train, labels.astype(int)).predict_proba(test)
        seen = model.classes_
    if question.kind == "yes/no":
        return np.asarray(probabilities[:, -1] if seen[-1] == 1 else 1 - probabilities[:, -1])
    answers = np.zeros((test.shape[0], len(question.classes)))
    answers[:, seen] = probabilities
    return answers


def _fitted(model: Any, features: Any, labels: Floats) -> Any:
    """The model after its training; one that has not converged counts as it is."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features, labels)


PREDICT_PEERS: dict[str, Answer] = {
    "constant": constant,
    "boosting": boosting,
    "linear": linear,
    "mlp": mlp,
}
