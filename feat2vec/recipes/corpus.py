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
        self, window: int, subsample: float = 0.0, seed: int = 0, tokens_at_once: int = TOKENS_AT_ONCE
    ) -> Iterator[pa.RecordBatch]:
        """Rows (word, context): each word with the words at most b away, b uniform in 1 .. `window` for each word.

        `subsample` t leaves a word of relative frequency f out with probability 1 - (sqrt(t / f) + t / f), before words
        are paired, as word2vec does; 0 leaves none out.
        """
        random = np.random.default_rng(seed)
        keep = np.ones(len(self.words))
        if subsample:
            ratio = subsample / (self.counts / self.counts.sum())
            keep = np.minimum(np.sqrt(ratio) + ratio, 1)
        for tokens, sentence in self._blocks(tokens_at_once):
            kept = random.random(len(tokens)) < keep[tokens]
            tokens, sentence = tokens[kept], sentence[kept]
            reach = random.integers(1, window + 1, len(tokens))  # b of each word
            words: list[Integers] = []
            contexts: list[Integers] = []
            for distance in range(1, window + 1):
                earlier, later = slice(None, -distance), slice(distance, None)
                for centre, neighbour in ((earlier, later), (later, earlier)):
                    is_near = (sentence[centre] == sentence[neighbour]) & (reach[centre] >= distance)
                    words.append(tokens[centre][is_near])
                    contexts.append(tokens[neighbour][is_near])
            word, context = np.concatenate(words), np.concatenate(contexts)
            if len(word):
                yield pa.RecordBatch.from_pydict({"word": self._spelled(word), "context": self._spelled(context)})

    def cooccurrences(self, window: int, tokens_at_once: int = TOKENS_AT_ONCE) -> pa.Table:
        """(word, context, count): words at most `window` apart, a pair d apart counting 1 / d, in both directions."""
        total, codes = len(self.words), np.zeros(0, np.int64)
        sums: Floats = np.zeros(0)
        for tokens, sentence in self._blocks(tokens_at_once):
            pair_codes, weights = [codes], [sums]
            for distance in range(1, window + 1):
                is_near = sentence[:-distance] == sentence[distance:]
                left, right = tokens[:-distance][is_near].astype(np.int64), tokens[distance:][is_near].astype(np.int64)
                pair_codes += [left * total + right, right * total + left]
                weights.append(np.full(2 * len(left), 1 / distance))
            codes, at = np.unique(np.concatenate(pair_codes), return_inverse=True)
            sums = np.bincount(at, np.concatenate(weights)).astype(np.float64)
        word, context = np.divmod(codes, total)
        return pa.table({"word": self._spelled(word), "context": self._spelled(context), "count": sums})

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
