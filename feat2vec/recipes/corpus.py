"""Texts to words and the words near them.

Pairs are for skip-gram (Mikolov et al. 2013), counts for GloVe (Pennington et al. 2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Floats, Integers
from feat2vec.errors import UserError
from feat2vec.recipes.windows import (
    FAKE_ALPHA,
    CountWeights,
    NearPairs,
    Reach,
    label_windows,
    near_pairs_of,
)
from feat2vec.schema.extractor_options import TokensSpec
from feat2vec.table.keys import UNLIMITED, tokens_of
from feat2vec.table.numbers import concat, flatten
from feat2vec.table.table import Table, stages
from feat2vec.table.types import is_list

TOKENS_AT_ONCE = 1 << 20  # tokens that are paired at a time


@dataclass(frozen=True)
class Corpus:
    """Sentences one after the other; words are numbered by descending count, then by their spelling."""

    tokens: Integers  # [tokens] which of the words
    lengths: Integers  # [sentences]
    words: pa.StringArray
    counts: Integers  # [words]

    @classmethod
    def read(cls, table: Table, column: str, min_count: int = 1) -> Corpus:
        """A column of texts, which are cut into words, or of lists of words; words that are rarer are left out."""
        number_of_word: dict[str, int] = {}
        tokens: list[Integers] = []
        lengths: list[Integers] = []
        for stage in stages(table, [column]):
            values = stage.column(column)
            if is_list(values.type):
                sentence_lengths, items = flatten(values)
                encoded = items.cast(pa.string()).combine_chunks().dictionary_encode()
                codes, keys = concat([encoded.indices]), encoded.dictionary
            else:
                text_tokens = tokens_of(stage, column, TokensSpec(type="words", max_tokens=UNLIMITED))
                sentence_lengths, codes, keys = text_tokens.lengths, text_tokens.codes, text_tokens.keys
            word_numbers = np.array(
                [number_of_word.setdefault(key, len(number_of_word)) for key in keys.to_pylist()], np.int32
            )
            tokens.append(word_numbers[codes])
            lengths.append(sentence_lengths)
        if not any(map(len, tokens)):
            raise UserError(f"{table.name}: column {column!r} holds no words: a corpus needs texts or lists of words")
        words = pa.array(number_of_word, pa.string())
        corpus = cls(np.concatenate(tokens), np.concatenate(lengths), words, np.zeros(len(words), np.int64))
        return corpus._sorted(min_count, f"{table.name}: column {column!r}")

    def _sorted(self, min_count: int, source: str) -> Corpus:
        counts = np.bincount(self.tokens, minlength=len(self.words))
        spelled = np.array(self.words.to_pylist(), object)
        order = np.lexsort((spelled, -counts))
        order = order[counts[order] >= min_count]
        if len(order) < 2:
            most = int(counts.max())
            raise UserError(
                f"{source}: {len(order)} words are there {min_count} times or more (the most frequent {most} times); "
                "lower `min_count`, or give more texts"
            )
        number = np.full(len(self.words), -1, np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        tokens = number[self.tokens]
        sentence = np.repeat(np.arange(len(self.lengths)), self.lengths)[tokens >= 0]
        lengths = np.bincount(sentence, minlength=len(self.lengths))
        return Corpus(tokens[tokens >= 0], lengths, pa.array(spelled[order], pa.string()), counts[order])

    def sentences(self) -> Iterator[list[str]]:
        """Each sentence as its words."""
        words = np.array(self.words.to_pylist(), object)
        for sentence in np.split(self.tokens, np.cumsum(self.lengths)[:-1]):
            yield words[sentence].tolist()

    def pairs(
        self,
        window: int,
        subsample: float = 0.0,
        seed: int = 0,
        tokens_at_once: int = TOKENS_AT_ONCE,
        *,
        reach: Reach = "random",
        fake_centres: int = 0,
        fake_alpha: float = FAKE_ALPHA,
    ) -> Iterator[pa.RecordBatch]:
        """Rows (word, context): each word, a centre, with the words near it, which are its window.

        With fake centres, rows (word, context, label): for each centre its window with the label 1, then the same
        window with the label 0 beside each of the fakes, words drawn by their counts whatever stands there.

        Args:
            window: How many words a centre reaches at most, on either side.
            subsample: The threshold t: a word of relative frequency f is left out with probability
                1 - (sqrt(t / f) + t / f), before words are paired, as word2vec does; 0 leaves none out.
            seed: The seed of all that is drawn.
            tokens_at_once: How many tokens are paired at a time.
            reach: "random": a centre reaches b words, b uniform in 1 .. `window`; "fixed": all of `window`.
            fake_centres: How many fakes there are for each centre.
            fake_alpha: The power of a word's count that a fake is drawn in proportion to.

        Returns:
            An iterator over the rows.

        """
        random = np.random.default_rng(seed)
        if fake_centres:  # no more rows at once than without them
            tokens_at_once = max(tokens_at_once // (1 + fake_centres), 1)
        for tokens, near_pairs in self._windows(window, reach, subsample, random, tokens_at_once):
            words: list[Integers] = []
            contexts: list[Integers] = []
            places: list[Integers] = []  # of the centres among the tokens
            for near in near_pairs:
                words.append(tokens[near.centres][near.is_near])
                contexts.append(tokens[near.contexts][near.is_near])
                if fake_centres:
                    places.append(np.arange(len(tokens))[near.centres][near.is_near])
            word, context = np.concatenate(words), np.concatenate(contexts)
            columns: dict[str, pa.Array | Integers] = {}
            if fake_centres:
                fakes = self._drawn_words((len(tokens), fake_centres), fake_alpha, random)
                word, context, columns["label"] = label_windows(tokens, fakes, np.concatenate(places), context)
            columns = {"word": self._spelled(word), "context": self._spelled(context)} | columns
            if len(word):
                yield pa.RecordBatch.from_pydict(columns)

    def cooccurrences(
        self,
        window: int,
        tokens_at_once: int = TOKENS_AT_ONCE,
        *,
        reach: Reach = "fixed",
        count_weights: CountWeights = "inverse_distance",
        subsample: float = 0.0,
        seed: int = 0,
    ) -> pa.Table:
        """(word, context, count): how often each word has another one in its window.

        Args:
            window: As for `pairs`.
            tokens_at_once: How many tokens are paired at a time.
            reach: As for `pairs`.
            count_weights: "inverse_distance": a pair d apart counts 1 / d; "plain": it counts 1.
            subsample: As for `pairs`.
            seed: As for `pairs`.

        Returns:
            The pairs that there are, each once.

        """
        total, codes = len(self.words), np.zeros(0, np.int64)
        sums: Floats = np.zeros(0)
        random = np.random.default_rng(seed)
        for tokens, near_pairs in self._windows(window, reach, subsample, random, tokens_at_once):
            pair_codes, weights = [codes], [sums]
            for near in near_pairs:
                word = tokens[near.centres][near.is_near].astype(np.int64)
                pair_codes.append(word * total + tokens[near.contexts][near.is_near])
                weights.append(np.full(len(word), 1.0 if count_weights == "plain" else 1 / near.distance))
            codes, at = np.unique(np.concatenate(pair_codes), return_inverse=True)
            sums = np.bincount(at, np.concatenate(weights)).astype(np.float64)
        word, context = np.divmod(codes, total)
        return pa.table({"word": self._spelled(word), "context": self._spelled(context), "count": sums})

    def _windows(
        self, window: int, reach: Reach, subsample: float, random: np.random.Generator, tokens_at_once: int
    ) -> Iterator[tuple[Integers, Iterator[NearPairs]]]:
        """Blocks of the tokens that subsampling keeps, and the pairs of each that are near."""
        keep = np.ones(len(self.words))
        if subsample:
            ratio = subsample / (self.counts / self.counts.sum())
            keep = np.minimum(np.sqrt(ratio) + ratio, 1)
        for tokens, sentence in self._blocks(tokens_at_once):
            is_kept = random.random(len(tokens)) < keep[tokens]
            tokens, sentence = tokens[is_kept], sentence[is_kept]
            if reach == "random":
                reach_of_token = random.integers(1, window + 1, len(tokens))
            else:
                reach_of_token = np.full(len(tokens), window)
            yield tokens, near_pairs_of(sentence, reach_of_token, window)

    def _drawn_words(self, shape: tuple[int, ...], alpha: float, random: np.random.Generator) -> Integers:
        """Words drawn by their counts to the power of alpha, independently."""
        cumulative = np.cumsum(self.counts**alpha)
        drawn = np.searchsorted(cumulative, random.random(shape) * cumulative[-1], side="right")
        words: Integers = np.minimum(drawn, len(self.words) - 1)  # a product may be rounded up to the last sum
        return words

    def _blocks(self, tokens_at_once: int) -> Iterator[tuple[Integers, Integers]]:
        """Blocks of whole sentences: the tokens, and the number of the sentence of each."""
        ends = np.cumsum(self.lengths)
        first = begin = 0
        while first < len(ends):
            last = max(int(np.searchsorted(ends, begin + tokens_at_once, side="right")), first + 1)
            sentence = np.repeat(np.arange(first, last), self.lengths[first:last])
            yield self.tokens[begin : int(ends[last - 1])], sentence
            first, begin = last, int(ends[last - 1])

    def _spelled(self, numbers: Integers) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), self.words)
