"""Topics of bags: planted ones are found, and named by their most probable words."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError
from feat2vec.pages import topics as module
from feat2vec.pages.topics import Topics, groups_with_topics

WORDS = {"war": ["war", "army", "general", "battle", "tank"], "sea": ["sea", "ship", "island", "whale", "sail"]}
GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "words": {"column": "words", "extractor": {"type": "lookup", "multi": True}},
    "weighted": {"column": "words", "extractor": {"type": "lookup", "multi": True, "weights": "weights"}},
    "title": {"column": "title", "extractor": {"type": "text_attention", "token_dim": 4, "heads": 2}},
    "split": {"column": "title", "extractor": {"type": "lookup", "split": "words"}},
    "day": {"column": "day", "extractor": {"type": "lookup", "parts": ["month", "weekday"]}},
}


def table(rows: int = 200) -> pa.Table:
    """Twice as many rows are of war as of the sea; each has a word of both."""
    rng = np.random.default_rng(0)
    subjects = ["sea" if i % 3 == 0 else "war" for i in range(rows)]
    words = [[*rng.choice(WORDS[subject], 4, replace=False), "the"] for subject in subjects]
    return pa.table(
        {
            "who": subjects,
            "words": words,
            "weights": [[0.5] * len(bag) for bag in words],
            "title": [" ".join(bag) for bag in words],
            "day": pa.array(range(rows), pa.int32()).cast(pa.date32()),
        }
    )


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return feat2vec.fit({"version": 1, "groups": GROUPS}, table()).encoder


def test_groups_of_lists_and_texts_have_topics(encoder: Encoder) -> None:
    assert groups_with_topics(encoder.schema) == ["words", "weighted", "title", "split"]


@pytest.mark.parametrize("group", ["words", "weighted", "title", "split"])
def test_planted_topics_are_found_and_named(group: str, encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOPICS", 2)
    topics = Topics(encoder, group)
    assert topics.shares[0] > topics.shares[1]
    assert sum(topics.shares) == pytest.approx(1)
    for topic, subject in enumerate(("war", "sea")):
        number, _, names = topics.names[topic].partition(": ")
        assert number == str(topic + 1)
        assert len(set(names.split(", ")) & {*WORDS[subject], "the"}) == 4
    of_words = dict(zip(topics.keys.to_pylist(), topics.of_words().tolist(), strict=True))
    for topic, subject in enumerate(("war", "sea")):
        assert {of_words[word] for word in WORDS[subject]} == {topic}
    encoded = encoder.encode(table())
    value_ids = np.asarray(encoded.rows[:, list(GROUPS).index(group)])
    monkeypatch.setattr(module, "BAGS_PER_BLOCK", 7)
    codes = topics.of_bags(encoded.values[group].entries)[value_ids]
    assert codes.tolist() == [int(subject == "sea") for subject in table()["who"].to_pylist()]


def test_topics_are_the_factorization_of_scikit_learn(encoder: Encoder) -> None:
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfTransformer

    topics = Topics(encoder, "words")
    keys, values = topics.keys.to_pylist(), encoder.values["words"]
    counts = np.array([[list(entry).count(number + 2) for number in range(len(keys))] for entry in values.entries])
    counts = np.repeat(counts, values.counts, axis=0)  # a bag as often as it comes
    tfidf = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    model = NMF(len(keys) // 5, init="nndsvda", random_state=0)
    of_bags = model.fit_transform(tfidf)
    shares = (of_bags[:, :, None] * model.components_).sum(axis=(0, 2))
    np.testing.assert_allclose(topics.shares, sorted(shares / shares.sum(), reverse=True), rtol=1e-6)
    first = model.components_[int(shares.argmax())]
    assert topics.top_words(0) == [keys[i] for i in np.argsort(-first, kind="stable")[:4]]
    of_words = (shares[:, None] * model.components_ / model.components_.sum(axis=1)[:, None]).argmax(axis=0)
    order = np.argsort(-shares).tolist()
    assert topics.of_words().tolist() == [order.index(topic) for topic in of_words]


def test_a_bag_of_unseen_words_and_groups_of_few_words_have_no_topic(encoder: Encoder) -> None:
    assert Topics(encoder, "words").of_bags(np.array([[1, 0], [0, 0]], np.int32)).tolist() == [-1, -1]
    few = feat2vec.fit({"version": 1, "groups": {"who": GROUPS["who"], "words": GROUPS["words"]}}, table(3)).encoder
    topics = Topics(few, "words")
    assert (topics.names, topics.shares) == ([], [])
    assert set(topics.of_words().tolist()) == {-1}
    assert topics.of_bags(few.values["words"].entries).tolist() == [-1, -1, -1]


def test_of_many_bags_some_are_drawn(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOPICS", 2)
    monkeypatch.setattr(module, "BAGS_LEARNT_FROM", 60)
    topics = Topics(encoder, "title")
    assert topics.shares == Topics(encoder, "title").shares != Topics(encoder, "title", seed=1).shares
    assert "war" in topics.top_words(0) or "army" in topics.top_words(0)


def test_without_scikit_learn_one_sentence_says_what_to_do(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(
        UserError, match=r"^topics: scikit-learn is not installed: `pip install 'feat2vec\[explore\]'`$"
    ):
        Topics(encoder, "words")
