"""Vectors whose tables stay in the run's file are those that are read at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model import stored_table
from feat2vec.space import exact_index
from feat2vec.space.value_space import ValueSpace
from tests.short_trainings import train


@pytest.fixture(autouse=True)
def _large_tables() -> Iterator[None]:
    """All tables are large, and read in blocks of a few rows."""
    with (
        mock.patch.object(stored_table, "LEAST_STORED_BYTES", 0),
        mock.patch.object(stored_table, "BYTES_PER_BLOCK", 64),
    ):
        yield


@pytest.fixture
def stored(vectors_run: feat2vec.Run) -> feat2vec.Run:
    """The same run, of which nothing was read yet."""
    return feat2vec.load(vectors_run.folder)


def test_searches_find_the_same(vectors_run: feat2vec.Run, stored: feat2vec.Run) -> None:
    for group in ("who", "tags"):
        ours, theirs = stored.vectors(group), in_memory(vectors_run, group)
        stored_vectors: Any = ours._space.candidates.tables[0]
        assert isinstance(stored_vectors, stored_table.StoredTable)
        assert not isinstance(theirs._space.candidates.tables[0], stored_table.StoredTable)
        for key in theirs.index_to_key[:3]:
            for similarity in ("cosine", "dot"):
                hits, expected = (v.most_similar(key, similarity=similarity, to="tags") for v in (ours, theirs))
                assert [name for name, _ in hits] == [name for name, _ in expected]
                np.testing.assert_allclose([x for _, x in hits], [x for _, x in expected], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(ours[theirs.index_to_key[:2]], theirs[theirs.index_to_key[:2]])
        np.testing.assert_array_equal(ours.vectors, theirs.vectors)
        np.testing.assert_array_equal(ours.nearest(np.arange(3), 2).ids, theirs.nearest(np.arange(3), 2).ids)
        all_scores = ours.most_similar(theirs.index_to_key[0], topn=None)
        np.testing.assert_allclose(all_scores, theirs.most_similar(theirs.index_to_key[0], topn=None), rtol=1e-5)


def in_memory(run: feat2vec.Run, group: str, to: str = "tags") -> Any:
    """The vectors of a group, with tables that are read at once, as those of the group to search in."""
    with mock.patch.object(stored_table, "LEAST_STORED_BYTES", 1 << 60):
        vectors = feat2vec.load(run.folder).vectors(group)
        vectors.most_similar(vectors.index_to_key[0], to=to)
    return vectors


def test_a_key_is_looked_up_without_reading_all_vectors(stored: feat2vec.Run) -> None:
    vectors = stored.vectors("who")
    key = vectors.index_to_key[0]
    with mock.patch.object(ValueSpace, "vectors", property(lambda _: pytest.fail("all vectors are read"))):
        assert vectors[key].shape == (vectors.vector_size,)
        vectors.similarity(key, vectors.index_to_key[1])
        vectors.most_similar(key)


def test_a_run_with_coarse_copies_is_searched_by_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({name: rng.integers(0, 300, 2000).astype(str) for name in "ab"})
    schema = {
        "version": 1,
        "model": {"dim": 8, "bias": True},
        "groups": {"a": {"column": "a", "extractor": {"type": "lookup", "gain": 2.0}}, "b": {"column": "b"}},
        "training": {"validation": 0, "epochs": 1},
    }
    folder = train(schema, rows, tmp_path / "run", quiet=True).folder
    coarse = sorted(path.name for path in (folder / "coarse").iterdir())
    assert coarse == ["a.codes", "a.scales", "b.codes", "b.scales"]
    vectors, expected = feat2vec.load(folder).vectors("a"), in_memory(feat2vec.load(folder), "a", "b")
    reads: list[int] = []
    read = stored_table.StoredTable.__getitem__

    def noted(table: stored_table.StoredTable, wanted: Any) -> Any:
        values = read(table, wanted)
        reads.append(len(values))
        return values

    with (
        mock.patch.object(stored_table.StoredTable, "__getitem__", noted),
        mock.patch.object(exact_index, "MOST_READ_SHARE", 0.5),
    ):
        for key in expected.index_to_key[:5]:
            for similarity in ("cosine", "dot", "score"):
                hits, wanted = (v.search(key, topn=5, similarity=similarity, to="b") for v in (vectors, expected))
                assert [hit.key for hit in hits] == [hit.key for hit in wanted]
                np.testing.assert_allclose([hit.score for hit in hits], [hit.score for hit in wanted], rtol=1e-5)
    assert 0 < max(reads) < 100  # of 300 rows
    for name in coarse:
        path = folder / "coarse" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(UserError, match=rf"{name}: is missing, or is not the file that this run was trained with"):
            feat2vec.load(folder).vectors("a").search(key, to=name[0])
        path.write_bytes(content)
