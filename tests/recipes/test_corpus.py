"""Words and the words near them, against loops over every pair."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from feat2vec.errors import UserError
from feat2vec.recipes.corpus import Corpus
from feat2vec.table.table import open_table

TEXTS = ["The cat saw the dog", "a dog, a cat", None, "The end", "cat"]


def corpus(texts: Any = None, **options: Any) -> Corpus:
    return Corpus.read(open_table(pa.table({"text": pa.array(texts or TEXTS)})), "text", **options)


def sentences(seed: int, total: int = 300) -> list[list[str]]:
    random = np.random.default_rng(seed)
    return [[f"w{i}" for i in random.zipf(1.5, random.integers(0, 12)) % 20] for _ in range(total)]


def counted(batches: Any) -> collections.Counter[tuple[str, str]]:
    result: collections.Counter[tuple[str, str]] = collections.Counter()
    for batch in batches:
        result.update(zip(batch["word"].to_pylist(), batch["context"].to_pylist(), strict=True))
    return result


def counts_of(table: pa.Table) -> dict[tuple[str, str], float]:
    pairs = zip(table["word"].to_pylist(), table["context"].to_pylist(), strict=True)
    return dict(zip(pairs, table["count"].to_pylist(), strict=True))


def test_words_are_folded_and_numbered_by_count_then_spelling() -> None:
    result = corpus()
    assert result.words.to_pylist() == ["cat", "the", "a", "dog", "end", "saw"]
    assert result.counts.tolist() == [3, 3, 2, 2, 1, 1]
    assert list(result.sentences()) == [
        ["the", "cat", "saw", "the", "dog"], ["a", "dog", "a", "cat"], [], ["the", "end"], ["cat"],
    ]  # fmt: skip


def test_rare_words_are_left_out_before_words_are_near_each_other() -> None:
    result = corpus(min_count=2)
    assert result.words.to_pylist() == ["cat", "the", "a", "dog"]
    assert next(result.sentences()) == ["the", "cat", "the", "dog"]


def test_lists_of_words_are_taken_as_they_are() -> None:
    result = corpus([["B", "a"], ["B"]])
    assert list(result.sentences()) == [["B", "a"], ["B"]]


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([None, ""], {}, r"column 'text' holds no words: a corpus needs texts or lists of words"),
        (["a b"], {"min_count": 3}, r"0 words are there 3 times or more \(the most frequent 1 times\); lower"),
        ([1, 2], {}, r"column 'text' holds int64; words needs text"),
    ],
)
def test_what_is_no_corpus_is_refused(texts: Any, options: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        corpus(texts, **options)


def test_counts_are_those_of_a_loop() -> None:
    texts = sentences(0)
    table = corpus(texts).cooccurrences(3, tokens_at_once=50)  # several pieces
    loop: collections.Counter[tuple[str, str]] = collections.Counter()
    for words in texts:
        for i, word in enumerate(words):
            for j in range(max(i - 3, 0), min(i + 4, len(words))):
                if i != j:
                    loop[word, words[j]] += 1 / abs(i - j)  # type: ignore[assignment]
    assert len(table) == len(loop)
    for word, context, count in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
        assert count == pytest.approx(loop[word, context])


def test_pairs_are_within_the_window_and_as_many_as_expected() -> None:
    """A context `away` from a word is reached with probability (window - away + 1) / window."""
    texts = sentences(1, 4000)
    result = counted(corpus(texts).pairs(3, seed=5, tokens_at_once=700))
    expected: collections.Counter[tuple[str, str]] = collections.Counter()
    variance: collections.Counter[tuple[str, str]] = collections.Counter()
    for words in texts:
        for i, word in enumerate(words):
            for j in range(max(i - 3, 0), min(i + 4, len(words))):
                if i != j:
                    chance = (4 - abs(i - j)) / 3
                    expected[word, words[j]] += chance  # type: ignore[assignment]
                    variance[word, words[j]] += chance * (1 - chance)  # type: ignore[assignment]
    assert set(result) <= set(expected)
    for pair, mean in expected.items():
        # a word's draws are shared by its contexts, so the variance may be several times that of independent ones
        assert abs(result[pair] - mean) < 6 * np.sqrt(4 * variance[pair]) + 1, pair


def near(words: list[Any], window: int) -> list[tuple[int, int]]:
    """The places of each centre and each word at most `window` away, by a loop."""
    pairs = []
    for i in range(len(words)):
        for j in range(max(i - window, 0), min(i + window + 1, len(words))):
            if i != j:
                pairs.append((i, j))
    return pairs


def test_without_options_pairs_follow_from_these_draws() -> None:
    """What recipes have drawn ever since: first which tokens are kept, then how far each of them reaches."""
    texts = sentences(2, 200)
    read = corpus(texts)
    random = np.random.default_rng(7)
    ratio = 0.02 * read.counts.sum() / read.counts
    is_kept = random.random(len(read.tokens)) < np.minimum(np.sqrt(ratio) + ratio, 1)[read.tokens]
    reach = iter(random.integers(1, 5, is_kept.sum()).tolist())
    kept = iter(is_kept.tolist())
    expected: collections.Counter[tuple[str, str]] = collections.Counter()
    for words in texts:
        kept_words = [word for word in words if next(kept)]
        reach_of_word = [next(reach) for _ in kept_words]
        expected.update(
            (kept_words[i], kept_words[j]) for i, j in near(kept_words, 4) if abs(i - j) <= reach_of_word[i]
        )
    assert expected
    assert counted(read.pairs(4, 0.02, 7)) == expected


def test_fixed_windows_are_those_of_a_loop() -> None:
    texts = sentences(3)
    expected = collections.Counter((words[i], words[j]) for words in texts for i, j in near(words, 3))
    assert counted(corpus(texts).pairs(3, seed=1, tokens_at_once=60, reach="fixed")) == expected
    plain = corpus(texts).cooccurrences(3, tokens_at_once=60, count_weights="plain")
    assert counts_of(plain) == expected


@pytest.mark.parametrize("subsample", [0.0, 0.05])
def test_counts_of_random_windows_are_those_of_their_pairs(subsample: float) -> None:
    read = corpus(sentences(4))
    options: Any = {"seed": 3, "subsample": subsample, "reach": "random", "tokens_at_once": 100}
    plain = counts_of(read.cooccurrences(4, count_weights="plain", **options))
    assert plain == counted(read.pairs(4, **options))
    assert plain != counts_of(read.cooccurrences(4, count_weights="plain", **{**options, "seed": 4}))


def test_each_window_stands_again_beside_each_fake_centre() -> None:
    """One after the other: a centre's window with the label 1, then with its fakes; fixed windows, by a loop."""
    texts = sentences(5)
    rows = [row for batch in corpus(texts).pairs(2, reach="fixed", fake_centres=2, seed=1) for row in batch.to_pylist()]
    place, fakes = 0, []
    for words in texts:
        for i, centre in enumerate(words):
            window = sorted(words[j] for at, j in near(words, 2) if at == i)
            for number in range(3 if window else 0):
                beside = rows[place : place + len(window)]
                place += len(window)
                assert sorted(row["context"] for row in beside) == window
                assert {row["label"] for row in beside} == {int(number == 0)}
                (word,) = {row["word"] for row in beside}
                if number:
                    fakes.append(word)
                else:
                    assert word == centre
    assert place == len(rows)
    assert len(set(fakes)) > 5


@pytest.mark.parametrize("alpha", [0.0, 0.75, 1.0])
def test_fake_centres_are_drawn_by_the_power_of_their_counts(alpha: float) -> None:
    texts = [["a"] * 8 + ["b"] * 4 + ["c"] * 2 + ["d"]] * 800
    read = corpus(texts)
    batches = list(read.pairs(1, reach="fixed", fake_centres=3, fake_alpha=alpha, seed=2, tokens_at_once=500))
    drawn = pa.Table.from_batches(batches).filter(pc.field("label") == 0)
    observed = np.array([pc.sum(pc.equal(drawn["word"].cast(pa.string()), word)).as_py() for word in "abcd"])
    probability = np.array([8.0, 4, 2, 1]) ** alpha
    probability /= probability.sum()
    # a window of two words repeats its fake: twice the variance, at most
    statistic = ((observed - len(drawn) * probability) ** 2 / (2 * len(drawn) * probability)).sum()
    assert statistic < 16.3  # chi-squared of 3 degrees of freedom, 0.001


def test_frequent_words_are_left_out_as_word2vec_does() -> None:
    texts = [["often"] * 30 + ["rare", "seldom"]] * 2000
    frequency, rate = 30 / 32, 0.05
    keep = np.sqrt(rate / frequency) + rate / frequency
    result = counted(corpus(texts).pairs(1, subsample=rate, seed=0))
    total = sum(count for (word, context), count in result.items() if word == "often" and context == "often")
    kept = 2000 * 30 * keep
    assert total == pytest.approx(2 * (kept - 2000), rel=0.03)
    assert result["rare", "seldom"] == result["seldom", "rare"] == 2000  # rare words all stay
    assert result["rare", "often"] > 1990  # next to what is left of the 30
    assert counted(corpus(texts).pairs(1, subsample=rate, seed=0)) == result
    assert counted(corpus(texts).pairs(1, subsample=rate, seed=1)) != result
