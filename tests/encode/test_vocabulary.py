"""Vocabularies: other spellings of keys, levels, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.encode import vocabulary as vocabulary_module
from feat2vec.encode.arrays_on_disk import write_parquet
from feat2vec.encode.vocabulary import FIRST, UNSEEN, Vocabulary
from feat2vec.schema.levels import Levels
from feat2vec.table.types import Kind
from tests import reference
from tests.encode.vocabularies import counts_of, fitted, strings


@pytest.mark.thinned(3)
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


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("key", ["b", None], "lacks a key, an id or a count"),
        ("count", [2, None], "lacks a key, an id or a count"),
        ("count", [None, None], "lacks a key, an id or a count"),
        ("id", [2, None], "lacks a key, an id or a count"),
        ("id", [3, 2], "not in the order of their ids"),
        ("count", [2, -1], "do not descend"),
        ("count", [1, 2], "do not descend"),
    ],
)
def test_a_saved_vocabulary_that_was_altered_is_refused(column: str, values: list[Any], message: str) -> None:
    vocabulary, _ = fitted([["a", "b", "b"]])
    table = vocabulary.table([2])
    position = table.column_names.index(column)
    altered = table.set_column(position, column, pa.array(values, table.schema.field(column).type))
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_table(altered, 0, "text")


def test_ids_are_by_count_then_bytes() -> None:
    keys = ["b", "Z", "a", "é", "東", "\U0001f600", "\uff41", "b", "c", "c", "c"]
    vocabulary, [ids] = fitted([keys])
    expected = ["c", "b", "Z", "a", "é", "東", "\uff41", "\U0001f600"]  # not in the order of UTF-16
    assert vocabulary.keys.to_pylist() == expected
    assert [vocabulary.key(i) for i in range(len(vocabulary))] == [None, None, *expected]
    assert ids == [expected.index(key) + FIRST for key in dict.fromkeys(keys)]
    assert vocabulary.ids(strings(["東", "new", "c", ""])).tolist() == [7, UNSEEN, 2, UNSEEN]


def test_too_frequent_keys_have_no_id() -> None:
    vocabulary, ids = fitted([list("aaabbc"), list("abbbd")], max_count=4)
    assert counts_of(vocabulary) == {"a": 4, "c": 1, "d": 1}
    assert (vocabulary.too_frequent, vocabulary.unseen) == (["b"], 0)
    assert ids == [[2, 0, 3], [2, 0, 4]]
    vocabulary, ids = fitted([list("aaabbc"), list("abbbd")], min_count=2, max_count=3)
    assert counts_of(vocabulary) == {}
    assert (vocabulary.too_frequent, vocabulary.unseen) == (["a", "b"], 2)
    assert ids == [[0, 0, 1], [0, 0, 1]]


def test_a_few_keys_are_searched_for_in_pieces_of_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feat2vec.encode.vocabulary.KEYS_AT_ONCE", 3)
    vocabulary, _ = fitted([[f"k{i}" for i in range(20) for _ in range(20 - i)]])
    scans = vocabulary.scans
    searched = ["k7", None, "k19", "none of them", "k0", "k7"]
    assert vocabulary.ids(pa.array(searched, pa.string())).tolist() == [
        FIRST + 7,
        0,
        FIRST + 19,
        UNSEEN,
        FIRST,
        FIRST + 7,
    ]
    assert vocabulary.scans == scans + 1


def test_left_out_keys_are_counted() -> None:
    keys = ["a"] * 3 + ["b"] * 2 + ["c"] * 2 + ["d"]
    for min_count, max_size, kept, unseen in (
        (1, None, "abcd", 0),
        (2, None, "abc", 1),
        (2, 2, "ab", 3),
        (1, 1, "a", 5),
        (9, None, "", 8),
    ):
        vocabulary, [ids] = fitted([keys], min_count, max_size)
        assert "".join(vocabulary.keys.to_pylist()) == kept
        assert vocabulary.unseen == unseen
        assert ids == [kept.index(key) + FIRST if key in kept else UNSEEN for key in "abcd"]


KEYS = st.sampled_from(["a", "b", "B", "é", "e\u0301", "1", "1.0", "2e0", "-0.50", "True", "true"])


@pytest.mark.parametrize("examples", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_as_the_reference(examples: int) -> None:
    search = settings(max_examples=examples, derandomize=True, deadline=None)
    search(given(st.lists(st.lists(KEYS)), st.integers(1, 3), st.none() | st.integers(1, 4))(assert_as_reference))()


def assert_as_reference(stages: list[list[str]], min_count: int, max_size: int | None) -> None:
    keys = [key for stage in stages for key in stage]
    vocabulary, ids = fitted(stages, min_count, max_size)
    assert (counts_of(vocabulary), vocabulary.unseen) == reference.vocabulary(keys, min_count, max_size)
    assert ids == [vocabulary.ids(strings(list(dict.fromkeys(stage)))).tolist() for stage in stages]
    spelled, ids = fitted(stages, min_count, max_size, None)
    assert (counts_of(spelled), spelled.unseen) == reference.vocabulary(reference.spell_text(keys), min_count, max_size)
    assert list(counts_of(spelled)) == list(reference.vocabulary(reference.spell_text(keys), min_count, max_size)[0])
    assert ids == [spelled.ids(strings(list(dict.fromkeys(stage)))).tolist() for stage in stages]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("keys", "kind", "spelled"),
    [
        (["True", "FALSE", "true"], "boolean", ["true", "false"]),
        (["True", "NA", "false", "NULL", "null"], "boolean", ["false", "true"]),
        (["True", "na"], "text", ["True", "na"]),
        (["NA", "NULL"], "text", ["NA", "NULL"]),
        (["1", "2", "1"], "numeral", ["1", "2"]),
        (["1.0", "2.50", "1"], "numeral", ["1", "1.0", "2.50"]),
        (["1e3", "1E3", "1000", "1e400"], "numeral", ["1000", "1E3", "1e3", "1e400"]),
        (["-0.0", "0"], "numeral", ["-0.0", "0"]),
        (["007", "1.0"], "text", ["007", "1.0"]),
        (["1.0", "x"], "text", ["1.0", "x"]),
        (["true", "1"], "text", ["1", "true"]),
        (["1.0", "NA"], "number", ["1"]),  # as pandas writes integers beside gaps
        (["26.0", "0.0", "26.0", "-0.0", "9007199254740993.0"], "number", ["0", "26", "9007199254740993"]),
        (["1.0", "1.50", "NA"], "numeral", ["1.0", "1.50"]),
        (["one", "NA"], "text", ["NA", "one"]),
        (["+1.5", "2.5"], "text", ["+1.5", "2.5"]),
        (["18446744073709551616", "9007199254740993"], "numeral", ["18446744073709551616", "9007199254740993"]),
        ([], "text", []),
    ],
)
def test_text_is_spelled_by_what_all_of_it_is(keys: list[str], kind: Kind, spelled: list[str]) -> None:
    vocabulary, _ = fitted([keys], kind=None)
    assert (vocabulary.kind, vocabulary.keys.to_pylist()) == (kind, spelled)
    ids = vocabulary.ids(strings(keys))
    is_missing = np.array([kind != "text" and key in ("NA", "NULL", "null") for key in keys], np.bool_)
    assert ids[~is_missing].min(initial=FIRST) == FIRST
    assert not ids[is_missing].any()


@pytest.mark.parametrize("kind", ["number", "float"])
def test_text_that_is_no_number_finds_no_long_number(kind: Kind) -> None:
    keys = ["123456789012", "0.1"]
    vocabulary = Vocabulary(pa.array(keys), np.ones(2, np.int64), 0, kind)
    texts = ["0123456789012", "123456789012 ", "123456_789012", "12345678901\u0662", "0.1000000000000000_1"]
    assert vocabulary.ids(pa.array([*texts, *keys])).tolist() == [1, 1, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("keys", [0, 1, 6, 7, 20])
def test_levels_are_the_same_in_pieces(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_module, "ROWS_PER_PIECE", 3)
    counts = np.arange(keys, 0, -1) ** 2
    vocabulary = Vocabulary(strings([f"key {i}" for i in range(keys)]), counts)
    levels = Levels((2, 8, 32))
    assert vocabulary.levels_in(levels).tolist() == levels.of_counts(counts).tolist()
    assert vocabulary.levels_in(levels).dtype == np.int8
