"""Keys in memory and in DuckDB: when they are handed over, and how many stages are searched for at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.encode.counted_keys import BYTES_OF_SEARCHED_KEY, PLACES_FACTOR, KeysInDatabase, KeysInMemory
from feat2vec.encode.vocabulary_fit import VocabularyFit
from feat2vec.table.database import connect
from tests.encode.tables import files_below

STAGES = [["a", "b", "c"], ["c", "d"], ["b"], [], ["e", "a"]]
KEYS_AT_ONCE = {0: 5, 3: 3, 5: 2, 100: 1}  # how many keys are searched for at once: in how many searches


def added(fit: VocabularyFit, stages: list[list[str]]) -> VocabularyFit:
    for stage in stages:
        fit.add(pa.array(stage, pa.string()), np.ones(len(stage), np.int64))
    return fit


@pytest.fixture
def fit(tmp_path: Path) -> Iterator[VocabularyFit]:
    """A fit whose keys are all in DuckDB."""
    with connect() as connection:
        yield added(VocabularyFit(connection, "words", tmp_path, 0), STAGES)


@pytest.mark.parametrize("keys", KEYS_AT_ONCE)
def test_stages_are_searched_for_together(keys: int, fit: VocabularyFit) -> None:
    assert isinstance(fit.keys, KeysInDatabase)
    fit.keys.keys_at_once = keys
    ids = {key: 2 + i for i, key in enumerate(fit.finish(1, None, "text").keys.to_pylist())}
    expected = [[ids[key] for key in stage] for stage in STAGES]
    with mock.patch.object(fit.keys, "_search", wraps=fit.keys._search) as search:
        assert [fit.ids(stage).tolist() for stage in range(len(STAGES))] == expected
        assert search.call_count == KEYS_AT_ONCE[keys]
        assert [fit.ids(stage).tolist() for stage in (4, 0, 2)] == [expected[4], expected[0], expected[2]]


def test_ids_of_a_second_selection_replace_those_of_the_first(fit: VocabularyFit) -> None:
    assert isinstance(fit.keys, KeysInDatabase)
    fit.keys.keys_at_once = 100
    assert list(fit.finish(1, None, "text").keys.to_pylist()) == ["a", "b", "c", "d", "e"]
    assert fit.ids(1).tolist() == [4, 5]
    assert list(fit.finish(2, 2, "text").keys.to_pylist()) == ["a", "b"]
    assert fit.ids(1).tolist() == [1, 1]


def test_keys_with_an_id_are_mapped_from_files_without_a_name(fit: VocabularyFit, tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    vocabulary = fit.finish(1, None, "text")
    assert (vocabulary.keys.to_pylist(), vocabulary.counts.tolist()) == (list("abcde"), [2, 2, 2, 1, 1])
    addresses = {pa.py_buffer(buffer).address for buffer in vocabulary.keys.buffers() if buffer is not None}
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = [line.split()[0].split("-") for line in lines if str(tmp_path) in line]
    in_files = {address for address in addresses for start, end in mapped if int(start, 16) <= address < int(end, 16)}
    assert in_files == addresses
    assert files_below(tmp_path) == set()
    assert pa.total_allocated_bytes() - before < 10_000


def test_keys_without_new_ones_are_not_indexed_again() -> None:
    keys = KeysInMemory(0)
    keys.add(pa.array(["a", "b"]), np.array([1, 2]))
    distinct = keys.distinct
    keys._merge()
    assert keys.distinct is distinct
    assert keys.counts.tolist() == [1, 2]


def test_places_in_many_stages_are_too_many() -> None:
    stage = [f"key {i}" for i in range(100)]
    held = KeysInMemory(pa.array(stage).nbytes)
    while not held.are_too_many:
        held.add(pa.array(stage), np.ones(100, np.int64))
        held._merge()
    assert held.distinct.nbytes == held.held_bytes
    assert len(held.places) == PLACES_FACTOR * held.held_bytes // 400 + 1  # 4 bytes a key and stage


def test_more_bytes_of_keys_are_searched_for_at_once_where_more_are_held(tmp_path: Path) -> None:
    with connect() as connection:
        assert KeysInDatabase(connection, "words", tmp_path, 7 * BYTES_OF_SEARCHED_KEY).keys_at_once == 7
