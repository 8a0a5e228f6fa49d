"""The peers that complete rows: each learns a table's training rows and scores all values of a hidden group.

A peer is made from the encoded rows and a seed; `scores_of(question)` gives a function from test rows to their scores
[rows, values]. What it does with fewer rows or epochs than it should, because they are many, is in its `notes`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from tables.encoding import Counts, Encoded, Floats, Ints
from tables.questions import CompleteQuestion, ScoresOfRows
from tables.spec import UnavailableError

NEIGHBOURS = 50
NEIGHBOUR_ROWS = 100_000  # that neighbours are looked for among
DIM = 50
EPOCHS = (20, 100)  # of gensim and LightFM: of a large table, and of a small one
EPOCH_ROWS = 2_000_000  # in all epochs, from which the number of epochs between these follows
GENSIM_WORDS = 30  # of a text
SKIPGRAM_PAIRS = 120_000_000  # that are learnt at most, in all epochs
CBOW_SUMS = 600_000_000  # vectors that are added up or multiplied at most, in all epochs
LIGHTFM_ITEMS = 60_000_000  # interactions times features that are learnt at most, in all epochs
THREADS = int(os.environ.get("OMP_NUM_THREADS", "2"))  # of two processes side by side each has one


class CompletePeer(Protocol):
    """Scores the values of hidden groups."""

    notes: list[str]

    def scores_of(self, question: CompleteQuestion) -> ScoresOfRows:
        """A function from test rows to the scores of all values."""


def sampled_rows(rows: int, most: int, seed: int, notes: list[str]) -> Ints:
    """All rows, or `most` of them, which is noted."""
    if rows <= most:
        return np.arange(rows)
    note = f"{most} of {rows} training rows"
    if note not in notes:
        notes.append(note)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


class Popularity:
    """A value's share of the training rows."""

    def __init__(self, encoded: Encoded, seed: int) -> None:  # noqa: ARG002
        self.notes: list[str] = []

    def scores_of(self, question: CompleteQuestion) -> ScoresOfRows:
        """The same scores for each row."""
        return lambda rows: np.broadcast_to(question.counts, (len(rows), len(question.counts)))


class NearestRows:
    """The values of the 50 training rows with the most similar TF-IDF vectors, summed by similarity.

    Where these rows say nothing, the more popular value is before the other.
    """

    def __init__(self, encoded: Encoded, seed: int) -> None:
        self.encoded, self.seed = encoded, seed
        self.notes: list[str] = []

    def scores_of(self, question: CompleteQuestion) -> ScoresOfRows:
        """Vectors of the given groups, and sums over neighbours."""
        from scipy import sparse
        from sklearn.feature_extraction.text import TfidfTransformer

        given = [self.encoded[name] for name in question.given]
        train_counts = sparse.hstack([group.train for group in given], format="csr")
        test_counts = sparse.hstack([group.test for group in given], format="csr")
        answers = self.encoded[question.column].train
        has_answer = np.flatnonzero(np.diff(answers.indptr))
        rows = has_answer[sampled_rows(len(has_answer), NEIGHBOUR_ROWS, self.seed, self.notes)]
        tfidf = TfidfTransformer().fit(train_counts)
        train_vectors = tfidf.transform(train_counts[rows]).T.tocsr()  # [items, training rows]
        test_vectors = tfidf.transform(test_counts).tocsr()
        answers = (answers[rows] > 0).astype(np.float64)
        popularity = question.counts / (question.counts.sum() + 1) * 1e-6

        def scores(test_rows: Ints) -> Floats:
            weights = _nearest(test_vectors[test_rows], train_vectors)
            return np.asarray((weights @ answers).toarray() + popularity)

        return scores


def _nearest(vectors: Counts, others: Counts) -> Counts:
    """The similarity of each row's nearest other rows [rows, others], 0 for the rest."""
    from scipy import sparse

    parts = []
    at_once = max(32_000_000 // others.shape[1], 1)
    for begin in range(0, vectors.shape[0], at_once):
        similarities = (vectors[begin : begin + at_once] @ others).toarray()
        if similarities.shape[1] > NEIGHBOURS:
            bound = np.partition(similarities, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS]
            similarities[similarities < bound[:, None]] = 0  # more than 50 if the last ones tie
        parts.append(sparse.csr_matrix(similarities))
    return sparse.vstack(parts, format="csr")


class WordVectors:
    """gensim's Word2Vec on rows as documents: the mean of the given items' input vectors times output vectors."""

    def __init__(self, encoded: Encoded, seed: int, *, skipgram: bool) -> None:
        try:
            from gensim.models import Word2Vec
        except ImportError as error:
            raise UnavailableError("gensim is not installed") from error
        self.encoded = encoded
        self.notes: list[str] = []
        documents = self._documents(seed)
        lengths = np.array([len(document) for document in documents], np.float64)
        work = float((lengths * (lengths if skipgram else lengths + 12)).sum())
        budget = SKIPGRAM_PAIRS if skipgram else CBOW_SUMS
        wanted = int(np.clip(EPOCH_ROWS / len(documents), *EPOCHS))
        epochs = int(np.clip(budget / max(work, 1), 1, wanted))
        if epochs < wanted:
            self.notes.append(f"{epochs} epochs instead of {wanted}")
        self.model = Word2Vec(
            documents, vector_size=DIM, window=int(lengths.max(initial=1)), shrink_windows=False, min_count=1,
            sg=int(skipgram), cbow_mean=1, negative=5, sample=0, epochs=epochs, workers=THREADS, seed=seed + 1,
        )  # fmt: skip

    def _documents(self, seed: int) -> list[list[str]]:
        """The training rows as lists of items, each behind its group's name."""
        total = next(iter(self.encoded.values())).train.shape[0]
        documents: list[list[str]] = [[] for _ in range(total)]
        rng = np.random.default_rng(seed)
        for column, group in self.encoded.items():
            names = [f"{column}={name}" for name in group.names]
            counts = group.train
            for row in range(total):
                items = counts.indices[counts.indptr[row] : counts.indptr[row + 1]]
                if group.group.kind == "text" and len(items) > GENSIM_WORDS:
                    items = rng.choice(items, GENSIM_WORDS, replace=False)
                documents[row] += [names[item] for item in items]
        return documents

    def scores_of(self, question: CompleteQuestion) -> ScoresOfRows:
        """In . out."""
        keyed = self.model.wv
        places = [keyed.key_to_index.get(f"{question.column}={name}", -1) for name in question.values]
        outputs = self.model.syn1neg[places]  # [values, dim]
        outputs[np.array(places) < 0] = 0
        queries = sum(
            self.encoded[name].test @ _rows_of(keyed, name, self.encoded[name].names) for name in question.given
        )
        items = sum(np.asarray(self.encoded[name].test.sum(axis=1)) for name in question.given)
        queries = np.asarray(queries) / np.maximum(items, 1)
        return lambda rows: queries[rows] @ outputs.T


def _rows_of(keyed: Any, column: str, names: Sequence[str]) -> Floats:
    """The input vectors of a group's items [items, dim]; those that no document holds are 0."""
    places = np.array([keyed.key_to_index.get(f"{column}={name}", -1) for name in names], int)
    vectors = np.zeros((len(names), keyed.vector_size), np.float32)
    vectors[places >= 0] = keyed.vectors[places[places >= 0]]
    return vectors


class Factorization:
    """LightFM with the WARP loss: a training row is a user whose features are its given items."""

    def __init__(self, encoded: Encoded, seed: int) -> None:
        try:
            import lightfm  # noqa: F401
        except ImportError as error:
            raise UnavailableError("lightfm-next is not installed") from error
        self.encoded, self.seed = encoded, seed
        self.notes: list[str] = []

    def scores_of(self, question: CompleteQuestion) -> ScoresOfRows:
        """A model for the question: the other groups as features, each row's sum to 1."""
        from lightfm import LightFM
        from scipy import sparse
        from sklearn.preprocessing import normalize

        given = [self.encoded[name] for name in question.given]
        train_items, test_items = (
            normalize(sparse.hstack(parts, format="csr").astype(np.float32), "l1")
            for parts in ([group.train for group in given], [group.test for group in given])
        )
        answers = (self.encoded[question.column].train > 0).astype(np.float32)
        # The features are gathered once an interaction: these, times epochs, are what a training costs.
        items_of_row = np.diff(train_items.indptr) + 1
        work_of_row = np.diff(answers.indptr) * items_of_row
        useful = np.flatnonzero(work_of_row)
        wanted = int(np.clip(EPOCH_ROWS / len(useful), *EPOCHS))
        epochs = int(np.clip(LIGHTFM_ITEMS / max(work_of_row.sum(), 1), 5, wanted))
        most = int(LIGHTFM_ITEMS / (epochs * work_of_row[useful].mean()))
        rows = useful[sampled_rows(len(useful), most, self.seed, self.notes)]
        if epochs < wanted:
            self.notes.append(f"{question.column}: {epochs} epochs instead of {wanted}")
        model = LightFM(no_components=DIM, loss="warp", random_state=self.seed)
        model.fit(answers[rows].tocoo(), user_features=train_items[rows], epochs=epochs, num_threads=THREADS)
        queries = test_items @ model.user_embeddings  # [test rows, dim]
        return lambda rows: queries[rows] @ model.item_embeddings.T + model.item_biases


COMPLETE_PEERS: dict[str, Callable[[Encoded, int], CompletePeer]] = {
    "popularity": Popularity,
    "tfidf": NearestRows,
    "skipgram": lambda encoded, seed: WordVectors(encoded, seed, skipgram=True),
    "cbow": lambda encoded, seed: WordVectors(encoded, seed, skipgram=False),
    "lightfm": Factorization,
}
