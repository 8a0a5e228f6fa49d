"""Vocabularies: other spellings of keys, levels, files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from feat2vec.encode.parquet_files import write_parquet
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Vocabulary
from feat2vec.schema.levels import levels
from tests.encode.vocabularies import counts_of, fitted, strings


@pytest.mark.parametrize(
    "key", ["1.5-3", "1e", "1.5e", "1.5+2", "..", "1.", "-", "e5", "", "1e5.5", "1.5.2", "\u0661.5"]
)
def test_what_is_nearly_a_number_is_a_key(key: str) -> None:
    vocabulary, _ = fitted([["1.5", "2"]], kind="number")
    assert vocabulary.ids(strings([key])).tolist() == [UNSEEN]
    large, _ = fitted([["1.5", *map(str, range(100))]], kind="number")  # a few keys are looked up in another way
    assert large.ids(strings([key])).tolist() == [FIRST + 1 if key == "1." else UNSEEN]


def test_levels() -> None:
    """The nearest rank by the logarithm; the lower one where two are as near."""
    ranks, counts = [2, 8, 32], np.array([10**6, 32, 16, 15, 8, 4, 3, 1])
    expected = [
        1 + min(range(3), key=lambda k: (round(abs(math.log(count) - math.log(ranks[k])), 9), k)) for count in counts
    ]
    assert levels(counts, ranks).tolist() == expected == [3, 3, 2, 2, 2, 1, 1, 1]
    assert levels(np.array([7, 8, 9, 31, 32, 33]), [4, 16, 64]).tolist() == [
        1,
        1,
        2,
        2,
        2,
        3,
    ]  # 8 is as near to 4 as to 16
    assert levels(np.arange(1, 9), [50]).tolist() == [1] * 8
    descending = np.sort(np.random.default_rng(0).zipf(1.3, 1000))[::-1]
    assert (np.diff(levels(descending, [2, 8, 32, 256])) <= 0).all()  # a level's keys are a prefix of the ids


def test_saved_vocabularies(tmp_path: Path) -> None:
    vocabulary, _ = fitted([["a", "b", "b", "", "tab\tnew\nline", "c"]], max_size=4)
    write_parquet(vocabulary.table([2, 4]), tmp_path / "below" / "words.parquet")
    table = pq.read_table(tmp_path / "below" / "words.parquet")
    assert table.column_names == ["key", "id", "count", "level"]
    assert table["id"].to_pylist() == [2, 3, 4, 5]
    loaded = Vocabulary.from_table(table, vocabulary.unseen, vocabulary.kind)
    assert counts_of(loaded) == counts_of(vocabulary)
    assert (loaded.unseen, loaded.kind) == (1, "text")
