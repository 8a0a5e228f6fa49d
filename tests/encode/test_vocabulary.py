"""Vocabularies: other spellings of keys, levels, files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from feat2vec.encode.parquet_files import write_parquet
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Vocabulary
from tests.encode.vocabularies import counts_of, fitted, strings


@pytest.mark.parametrize(
    "key", ["1.5-3", "1e", "1.5e", "1.5+2", "..", "1.", "-", "e5", "", "1e5.5", "1.5.2", "\u0661.5"]
)
def test_what_is_nearly_a_number_is_a_key(key: str) -> None:
    vocabulary, _ = fitted([["1.5", "2"]], kind="number")
    assert vocabulary.ids(strings([key])).tolist() == [UNSEEN]
    large, _ = fitted([["1.5", *map(str, range(100))]], kind="number")  # a few keys are looked up in another way
    assert large.ids(strings([key])).tolist() == [FIRST + 1 if key == "1." else UNSEEN]


def test_saved_vocabularies(tmp_path: Path) -> None:
    vocabulary, _ = fitted([["a", "b", "b", "", "tab\tnew\nline", "c"]], max_size=4)
    write_parquet(vocabulary.table([2, 4]), tmp_path / "below" / "words.parquet")
    table = pq.read_table(tmp_path / "below" / "words.parquet")
    assert table.column_names == ["key", "id", "count", "level"]
    assert table["id"].to_pylist() == [2, 3, 4, 5]
    loaded = Vocabulary.from_table(table, vocabulary.unseen, vocabulary.kind)
    assert counts_of(loaded) == counts_of(vocabulary)
    assert (loaded.unseen, loaded.kind) == (1, "text")
