"""The peers of word vectors: a factorised PMI against loops and Eckart and Young, and what word2vec is asked for."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from scipy import sparse

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.baselines import BASELINES, BaselineRequest
from feat2vec.evaluation.baselines.pmi_svd import factors, pair_counts, shifted_positive_pmi
from feat2vec.evaluation.beside import evaluate_beside
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.run import Run
from feat2vec.table.table import open_table
from tests import reference

COUNTS = np.array([[6, 1, 0, 2], [0, 4, 2, 0], [2, 0, 9, 1]])  # [words, contexts]
GROUPS: dict[str, Any] = {"word": {"column": "word"}, "context": {"column": "context"}}
JUDGED = pa.table({"a": ["w0", "w0", "w1", "w0"], "b": ["w1", "w2", "w2", "new"], "n": [1.0, 3.0, 2.0, 4.0]})


def pairs_of(counts: npt.NDArray[Any], *, each_once: bool = False) -> pa.Table:
    """Rows of a pair each, as many as it counts, or one with its count."""
    times = (counts > 0).astype(int) if each_once else counts
    words, contexts = (np.repeat(side.ravel(), times.ravel()) for side in np.indices(counts.shape))
    names = {"word": [f"w{w}" for w in words], "context": [f"c{c}" for c in contexts]}
    return pa.table({**names, **({"count": counts[words, contexts]} if each_once else {})})


def labelled(counts: npt.NDArray[Any], *, each_once: bool = False) -> pa.Table:
    """The pairs with the label 1, and as many others with the label 0."""
    true, false = (pairs_of(part, each_once=each_once) for part in (counts, counts[::-1]))
    parts = [part.append_column("label", pa.array([label] * len(part))) for part, label in ((true, 1), (false, 0))]
    return pa.concat_tables(parts)


def request_for(table: pa.Table, options: dict[str, Any], groups: dict[str, Any] = GROUPS) -> BaselineRequest:
    """Of a run that was not trained."""
    schema = {"version": 1, "groups": groups, "model": {"dim": 2}, **options}
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, table).encoder))
    return BaselineRequest(run, open_table(table), open_table(JUDGED), "word")


SKIP_GRAM: dict[str, Any] = {"objective": "negative_sampling", "noise": {"negatives": 1, "alpha_values": 1.0}}
CASES: dict[str, tuple[pa.Table, dict[str, Any], list[str]]] = {
    "negatives": (pairs_of(COUNTS), SKIP_GRAM, ["word", "context"]),
    "glove": (
        pairs_of(COUNTS, each_once=True), {"objective": {"type": "glove", "target": "count"}}, ["word", "context"],
    ),
    "labels": (labelled(COUNTS), {"objective": {"type": "logistic", "target": "label"}}, ["word", "context"]),
    "labels and weights": (
        labelled(COUNTS, each_once=True),
        {"objective": {"type": "logistic", "target": "label", "weight": "count"}}, ["word", "context"],
    ),
    "positive rows alone": (
        pairs_of(COUNTS), {"objective": {"type": "logistic", "target": "label", "implicit": "context"}},
        ["word", "context"],
    ),
    "classes": (
        pairs_of(COUNTS, each_once=True), {"objective": {"type": "softmax", "target": "context", "weight": "count"}},
        ["word"],
    ),
}  # fmt: skip


def counts_by_name(request: BaselineRequest) -> npt.NDArray[Any]:
    """The counts in the order of the names."""
    encoder = request.run.fitted
    contexts = encoder.classes or encoder.codecs["context"].vocabulary
    assert contexts is not None
    words: Any = encoder.codecs["word"].vocabulary
    counts = pair_counts(request, "word").toarray()
    ordered: npt.NDArray[Any] = counts[
        np.ix_(np.argsort(words.keys.to_pylist()), np.argsort(contexts.keys.to_pylist()))
    ]
    return ordered


@pytest.mark.parametrize("case", CASES)
def test_pairs_are_counted_as_the_objective_has_them(case: str) -> None:
    table, options, groups = CASES[case]
    request = request_for(table, options, {name: GROUPS[name] for name in groups})
    np.testing.assert_array_equal(counts_by_name(request), COUNTS)


def test_words_of_a_text_are_items_beside_a_key() -> None:
    table = pa.table({"word": ["w0", "w1", "w0"], "text": ["a b", "b", "b c"], "size": [1.0, None, 2.0]})
    groups = {
        "word": GROUPS["word"],
        "text": {"column": "text", "extractor": {"type": "lookup", "split": "words"}},
        "size": {"column": "size", "extractor": "numeric"},
    }
    counts = pair_counts(request_for(table, {"objective": "nce"}, groups), "word").toarray()
    assert counts.shape == (2, 3 + 10)  # numbers in ten bins
    np.testing.assert_array_equal(np.sort(counts[:, :3].ravel()), [0, 0, 1, 1, 1, 2])
    assert counts[:, 3:].sum(axis=1).tolist() == [2, 0]


@pytest.mark.parametrize(("negatives", "alpha"), [(1, 1.0), (1, 0.75), (3, 0.75), (100, 1.0)])
def test_shifted_positive_pmi_is_that_of_loops(negatives: int, alpha: float) -> None:
    matrix = shifted_positive_pmi(sparse.csr_array(COUNTS.astype(float)), negatives, alpha)
    expected = reference.shifted_positive_pmi(COUNTS.astype(float), negatives, alpha)
    np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-12)
    assert matrix.nnz == np.count_nonzero(expected)


@pytest.mark.parametrize("dim", [1, 4, 11, 12, 40])
def test_factors_are_the_nearest_of_their_rank(dim: int) -> None:
    """Eckart and Young: the squared error is the sum of the squared singular values that are left out."""
    matrix = np.maximum(np.random.default_rng(0).normal(size=(20, 12)), 0)
    left, right = factors(sparse.csr_array(matrix), dim)
    values = np.linalg.svd(matrix, compute_uv=False)
    assert left.shape == (20, min(dim, 12))
    assert np.square(matrix - left @ right.T).sum() == pytest.approx(np.square(values[dim:]).sum(), abs=1e-9)
    np.testing.assert_allclose(left.T @ left, right.T @ right, atol=1e-9)  # each has the root of the singular values
    np.testing.assert_array_equal(left, factors(sparse.csr_array(matrix), dim).left)


def test_a_corpus_with_planted_topics_gives_them_back() -> None:
    random = np.random.default_rng(0)
    topics = random.integers(0, 3, 2000)
    table = pa.table(
        {
            "word": [f"w{3 * random.integers(0, 4) + topic}" for topic in topics],
            "context": [f"c{3 * random.integers(0, 4) + topic if random.random() < 0.7 else 99}" for topic in topics],
        }
    )
    words = [f"w{i}" for i in range(12)]
    pairs = [(i, j) for i in range(12) for j in range(i)]
    judged = pa.table(
        {
            "a": [words[i] for i, _ in pairs],
            "b": [words[j] for _, j in pairs],
            "n": [float(i % 3 == j % 3) for i, j in pairs],
        }
    )
    request = request_for(table, {**SKIP_GRAM, "model": {"dim": 3}})
    facts = evaluate_beside(request.run, judged, "pairs", "word", ["pmi_svd"], train=table)
    assert facts["beside"]["pmi_svd"]["n"] == len(pairs)
    assert facts["beside"]["pmi_svd"]["spearman"] > 0.7  # ties of the judgements leave no 1
    assert facts["better"] == [
        f"pmi_svd is better for word: spearman {facts['beside']['pmi_svd']['spearman']:.4g}, "
        f"the run {facts['spearman']:.4g}"
    ]


@pytest.mark.parametrize(
    ("options", "fake_centres", "shifts"),
    [
        (SKIP_GRAM, None, [1]),
        ({**SKIP_GRAM, "noise": {"negatives": 3}}, None, [1, 3]),
        ({**SKIP_GRAM, "noise": {"negatives": 3}}, 2, [1, 2]),
        ({"objective": {"type": "glove", "target": "count"}}, None, [1]),  # which has no negatives
    ],
)
def test_the_shift_is_that_of_the_run_or_none(
    options: dict[str, Any], fake_centres: int | None, shifts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(pairs_of(COUNTS, each_once="glove" in str(options)), options)
    asked: list[int] = []

    def shifted(counts: Any, negatives: int, alpha: float) -> Any:
        asked.append(negatives)
        return shifted_positive_pmi(counts, negatives, alpha)

    monkeypatch.setattr(sys.modules["feat2vec.evaluation.baselines.pmi_svd"], "shifted_positive_pmi", shifted)
    facts = BASELINES["pmi_svd"].measure(replace(request, fake_centres=fake_centres))
    assert asked == shifts
    assert facts["negatives"] in shifts
    assert (facts["n"], facts["skipped_unseen"]) == (3, 1)


def test_words_that_nothing_stands_beside_are_like_no_other() -> None:
    """Both words stand beside both contexts as often as by chance, so that no PMI is above 0."""
    facts = BASELINES["pmi_svd"].measure(request_for(pairs_of(np.full((3, 3), 2)), SKIP_GRAM))
    assert facts == {"n": 3, "skipped_unseen": 1, "spearman": None, "negatives": 1}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    table, options, _ = CASES["labels"]
    request = request_for(table, options)
    without = BaselineRequest(request.run, open_table(table.drop("label")), request.test, "word")
    with pytest.raises(UserError, match="has no column 'label', the target"):
        BASELINES["pmi_svd"].measure(without)
    with pytest.raises(UserError, match="--train: a run keeps no rows"):
        BASELINES["pmi_svd"].measure(BaselineRequest(request.run, None, request.test, "word"))
    sized = {**GROUPS, "size": {"column": "size", "extractor": "numeric"}}
    of_size = request_for(table.append_column("size", pa.array(range(len(table)))), SKIP_GRAM, sized)
    with pytest.raises(UserError, match="beside pmi_svd: the group 'size' has no keys; choose a group"):
        BASELINES["pmi_svd"].measure(BaselineRequest(of_size.run, of_size.train, of_size.test, "size"))
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(UserError, match=r"beside word2vec: needs gensim: pip install 'feat2vec\[recipes\]'"):
        BASELINES["word2vec"].measure(request)


@pytest.mark.parametrize(
    ("of_corpus", "expected"),
    [
        ({}, {"window": 5, "negative": 7, "shrink_windows": True}),
        ({"has_fixed_windows": True, "window": 3}, {"window": 3, "negative": 7, "shrink_windows": False}),
        ({"fake_centres": 2}, {"window": 5, "negative": 2, "shrink_windows": True}),
    ],
)
def test_word2vec_has_the_windows_and_negatives_of_the_run(
    of_corpus: dict[str, Any], expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    class Model:
        def __init__(self, texts: list[list[str]], **options: Any) -> None:
            asked.update(options, texts=texts)
            self.wv = None

    monkeypatch.setitem(sys.modules, "gensim.models", SimpleNamespace(Word2Vec=Model))
    monkeypatch.setattr("feat2vec.evaluation.key_pairs.pair_similarities", lambda *_: {})
    request = request_for(pairs_of(COUNTS), {**SKIP_GRAM, "noise": {"negatives": 7}})
    texts = SimpleNamespace(sentences=lambda: iter([["w0", "w1"]]))
    BASELINES["word2vec"].measure(BaselineRequest(**{**vars(request), "corpus": texts, **of_corpus}))
    assert asked["texts"] == [["w0", "w1"]]
    assert asked["sg"] == 1
    assert {key: asked[key] for key in expected} == expected
