"""Vectors whose tables stay in the run's file are those that are read at once."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

import feat2vec
from feat2vec.model import stored_table
from feat2vec.model.model_file import StoredModel
from feat2vec.space.value_space import ValueSpace


@pytest.fixture
def stored(vectors_run: feat2vec.Run) -> Any:
    """The same run, all of whose tables stay in the file, in blocks of a few rows."""
    stored_tables = StoredModel.stored_tables
    with (
        mock.patch.object(StoredModel, "stored_tables", lambda model, group: stored_tables(model, group, 0)),
        mock.patch.object(stored_table, "BYTES_PER_BLOCK", 64),
    ):
        yield feat2vec.load(vectors_run.folder)


def test_searches_find_the_same(vectors_run: feat2vec.Run, stored: feat2vec.Run) -> None:
    for group in ("who", "tags"):
        ours, theirs = stored.vectors(group), vectors_run.vectors(group)
        stored_vectors: Any = ours._space.candidates.tables[0]
        assert isinstance(stored_vectors, stored_table.StoredTable)
        for key in theirs.index_to_key[:3]:
            for similarity in ("cosine", "dot"):
                found, expected = (v.most_similar(key, similarity=similarity, to="tags") for v in (ours, theirs))
                assert [name for name, _ in found] == [name for name, _ in expected]
                np.testing.assert_allclose([x for _, x in found], [x for _, x in expected], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(ours[theirs.index_to_key[:2]], theirs[theirs.index_to_key[:2]])
        np.testing.assert_array_equal(ours.vectors, theirs.vectors)
        nearest, expected_hits = ours.nearest(np.arange(3), 2), theirs.nearest(np.arange(3), 2)
        np.testing.assert_array_equal(nearest.ids, expected_hits.ids)
        everything = ours.most_similar(theirs.index_to_key[0], topn=None)
        np.testing.assert_allclose(everything, theirs.most_similar(theirs.index_to_key[0], topn=None), rtol=1e-5)


def test_a_key_is_looked_up_without_reading_all_vectors(stored: feat2vec.Run) -> None:
    vectors = stored.vectors("who")
    key = vectors.index_to_key[0]
    with mock.patch.object(ValueSpace, "vectors", property(lambda _: pytest.fail("all vectors are read"))):
        assert vectors[key].shape == (vectors.vector_size,)
        vectors.similarity(key, vectors.index_to_key[1])
        vectors.most_similar(key)
