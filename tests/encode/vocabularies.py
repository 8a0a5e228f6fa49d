"""Fitted vocabularies for the tests of keys and ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.encode.vocabulary_fit import VocabularyFit
from feat2vec.table.types import Kind


def strings(keys: Sequence[str]) -> pa.StringArray:
    return pa.array(keys, pa.string())


def fitted(
    stages: Sequence[Sequence[str]],
    min_count: int = 1,
    max_size: int | None = None,
    kind: Kind | None = "text",
    max_count: int | None = None,
) -> tuple[Vocabulary, list[list[int]]]:
    """The vocabulary of stages of keys, and the id of each of a stage's distinct keys. Without a kind it is found.

    It is the same whether the keys are held in memory, handed over to DuckDB, or handed over halfway.
    """
    fits = []
    for held_bytes in (1 << 20, 0, 200):
        with duckdb.connect() as connection, TemporaryDirectory() as folder:
            fit = VocabularyFit(connection, "words", Path(folder), held_bytes)
            for stage in stages:
                counts = Counter(stage)
                fit.add(strings([*counts, "never counted"]), np.array([*counts.values(), 0]))
            vocabulary = fit.finish(min_count, max_size, kind or fit.spell(), max_count)
            ids = [fit.ids(i)[: len(set(stage))].tolist() for i, stage in enumerate(stages)]
            fits.append((vocabulary, ids))
    facts = [(v.table((8, 64)), v.unseen, v.kind, v.too_frequent, ids) for v, ids in fits]
    assert facts[0] == facts[1] == facts[2]
    return fits[0]


def counts_of(vocabulary: Vocabulary) -> dict[str, int]:
    return dict(zip(vocabulary.keys.to_pylist(), vocabulary.counts.tolist(), strict=True))
