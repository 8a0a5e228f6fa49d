"""The task `pairs`: similarities of pairs of keys beside what people say of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from feat2vec.errors import UserError
from feat2vec.evaluation.metrics import spearman
from feat2vec.schema.extractor_options import Lookup
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.space.search_options import VectorSimilarity
from feat2vec.table.keys import items_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage, open_table, stages
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject


class KeyedSimilarities(Protocol):
    """Vectors by key, such as `Vectors` or gensim's KeyedVectors."""

    def __contains__(self, key: object, /) -> bool: ...

    @property
    def similarity(self) -> Callable[..., float]:
        """The similarity of two keys."""


def pairs(run: TrainedRun, data: object, target: str, similarity: VectorSimilarity = "cosine") -> JsonObject:
    """Spearman's rank correlation of the similarities of keys with what people say of them.

    A key that is not there as it is written is looked up in lower case; pairs with one that training has not seen are
    counted.

    Args:
        run: The run.
        data: A table whose first three columns are a key, another key, and a number.
        target: The group of the keys.
        similarity: "cosine" or "dot".

    Returns:
        The options, counts and the correlation.

    Raises:
        UserError: The table has fewer columns, or a number is missing.

    """
    facts = pair_similarities(data, vectors_of_group(run, target), similarity)
    return {"task": "pairs", "target": target, "similarity": similarity, **facts}


def pair_similarities(data: object, vectors: KeyedSimilarities, similarity: VectorSimilarity = "cosine") -> JsonObject:
    """What `pairs` says of any vectors by key, feat2vec's or gensim's."""
    table = open_table(data)
    columns = list(table.columns)[:3]
    if len(columns) < 3:
        received = ", ".join(map(repr, columns))
        raise UserError(f"{table.name}: --task pairs needs three columns (key, key, number); received {received}")
    options = {} if similarity == "cosine" else {"similarity": similarity}  # gensim knows no other
    learnt: list[float] = []
    judged: list[float] = []
    total = 0
    for stage in stages(table, columns):
        first_keys = [_known_key(vectors, key) for key in _keys(stage, columns[0])]
        second_keys = [_known_key(vectors, key) for key in _keys(stage, columns[1])]
        numbers = numbers_of(stage, columns[2])[0]
        for i, number in enumerate(numbers):
            total += 1
            if np.isnan(number):
                stage.refuse(i, columns[2], None, "a pair needs a number; leave the row out")
            first, second = first_keys[i], second_keys[i]
            if first is not None and second is not None:
                learnt.append(float(vectors.similarity(first, second, **options)))
                judged.append(float(number))
    correlation = spearman(np.array(learnt), np.array(judged))
    return {"n": len(learnt), "skipped_unseen": total - len(learnt), "spearman": correlation}


def _keys(stage: Stage, column: str) -> list[str | None]:
    """The key of each row, as a lookup group spells it."""
    items = items_of(stage, column, Lookup())
    keys = iter(items.keys.take(pa.array(items.codes)).to_pylist())
    return [next(keys) if length else None for length in items.lengths]


def _known_key(vectors: KeyedSimilarities, key: str | None) -> str | None:
    """The key as the group spells it, None if it has none."""
    if key is None or key in vectors:
        return key
    return key.casefold() if key.casefold() in vectors else None
