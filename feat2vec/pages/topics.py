"""Topics of lists and texts: a non-negative factorization of their bags of words, each topic named by its top words."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Floats, Int64s
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST
from feat2vec.pages.clusters import drawn_values, require_sklearn, short_name
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Schema

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfTransformer

MOST_TOPICS = 6  # as many as have a colour of their own
WORDS_PER_TOPIC = 5  # at least, on average
BAGS_LEARNT_FROM = 5_000  # more are drawn at random
ITERATIONS = 200
TOP_WORDS = 4  # that name a topic
BAGS_PER_BLOCK = 1 << 14


class _Factors(NamedTuple):
    """What was learnt of bags, the topics in the order of their shares."""

    transformer: TfidfTransformer
    model: NMF
    order: Int64s  # of each topic its number in the model, [topics]
    unit: Floats  # of each topic the sum of its words' weights in the model, [topics]
    shares: Floats  # of each topic in all bags, [topics]
    words: Floats  # p(word | topic), [topics, words]


def groups_with_topics(schema: Schema) -> list[str]:
    """The groups of lists and texts: those whose values are bags of words."""
    names = []
    for name, group in schema.groups.items():
        spec = group.extractor
        if spec.encoding == "tokens" or (isinstance(spec, ItemsSpec) and spec.bag and not spec.parts):
            names.append(name)
    return names


class Topics:
    """The topics of a group of lists or texts.

    The matrix of the TF-IDF of words in bags, of at most 5,000 training rows, is factorized as
    W H: how much each bag is of each topic, and how much each topic is of each word (Lee and Seung, 1999). The rows of
    H are brought to the sum 1: they are p(word | topic).

    Args:
        encoder: The encoder of the run, which has the bags of the training rows.
        group: One of `groups_with_topics`.
        seed: Decides the bags that are learnt from.

    Raises:
        UserError: scikit-learn is not installed.

    """

    def __init__(self, encoder: Encoder, group: str, seed: int = 0) -> None:
        require_sklearn("topics")
        codec = encoder.codecs[group]
        assert isinstance(codec, ItemsCodec)
        self.keys = codec.vocabulary.keys
        self.weighted = codec.weighted
        self._values = encoder.values[group]
        self._seed = seed

    @cached_property
    def _factors(self) -> _Factors | None:
        """What was learnt; None where there are too few words or bags."""
        from sklearn.decomposition import NMF
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.feature_extraction.text import TfidfTransformer

        rows_so_far = np.cumsum(self._values.counts)  # [bags], each of which several rows may have
        rows = int(rows_so_far[-1]) if len(rows_so_far) else 0
        topics = min(MOST_TOPICS, len(self.keys) // WORDS_PER_TOPIC, rows // WORDS_PER_TOPIC)
        if not topics:
            return None
        drawn = drawn_values(rows, BAGS_LEARNT_FROM, self._seed)
        bags = self._matrix(np.asarray(self._values.entries[np.searchsorted(rows_so_far, drawn, side="right")]))
        transformer = TfidfTransformer(sublinear_tf=True).fit(bags)
        model = NMF(topics, init="nndsvda", random_state=self._seed, max_iter=ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it counts as it is
            of_bags = model.fit_transform(transformer.transform(bags))  # [bags, topics]
        unit = model.components_.sum(axis=1)  # [topics]
        shares = of_bags.sum(axis=0) * unit
        order = np.argsort(-shares, kind="stable")
        order = order[shares[order] > 0]
        if not len(order):
            return None
        words = model.components_[order] / unit[order][:, None]
        return _Factors(transformer, model, order, unit[order], shares[order] / shares.sum(), words)

    @property
    def shares(self) -> list[float]:
        """How much of all bags is of each topic, in descending order."""
        return [] if self._factors is None else [float(share) for share in self._factors.shares]

    @cached_property
    def names(self) -> list[str]:
        """The names of topics, such as "1: war, army, general"."""
        return [short_name(topic, self.top_words(topic)) for topic in range(len(self.shares))]

    def top_words(self, topic: int) -> list[str]:
        """Return the most probable words of a topic, the most probable first.

        Args:
            topic: Its number.

        """
        assert self._factors is not None
        weights = self._factors.words[topic]
        order = np.argsort(-weights, kind="stable")[:TOP_WORDS]
        return [str(self.keys[int(i)]) for i in order if weights[i] > 0]

    def of_words(self) -> Int64s:
        """The most probable topic of each word of the vocabulary, -1 for none."""
        if self._factors is None:
            return np.full(len(self.keys), -1)
        return _strongest((self._factors.words * self._factors.shares[:, None]).T)

    def of_bags(self, entries: Array) -> Int64s:
        """The topic that each bag is most of, -1 for none.

        Args:
            entries: Bags as the encoder has them, [bags, width].

        """
        if self._factors is None:
            return np.full(len(entries), -1)
        parts = [np.zeros(0, np.int64)]
        for start in range(0, len(entries), BAGS_PER_BLOCK):
            bags = self._matrix(np.asarray(entries[start : start + BAGS_PER_BLOCK]))
            weights = self._factors.model.transform(self._factors.transformer.transform(bags))  # [bags, topics]
            parts.append(_strongest(weights[:, self._factors.order] * self._factors.unit))
        return np.concatenate(parts)

    def _matrix(self, entries: Array) -> csr_array:
        """How often each word is in each bag, [bags, words]."""
        from scipy import sparse

        ids = entries[:, : entries.shape[1] // 2] if self.weighted else entries
        bags, places = np.nonzero(ids >= FIRST)
        words = ids[bags, places].astype(np.int64) - FIRST
        return sparse.csr_array((np.ones(len(bags)), (bags, words)), shape=(len(entries), len(self.keys)))


def _strongest(weights: Floats) -> Int64s:
    """The place of the largest weight of each row, -1 where all are 0: [rows, topics] to [rows]."""
    return np.where(weights.max(axis=1) > 0, weights.argmax(axis=1), -1)


__all__ = ["Topics", "groups_with_topics"]
