"""Approximate search against exact search, and when an index is built."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec.errors import UserError
from feat2vec.space import faiss_build
from feat2vec.space.exact_index import ExactIndex
from feat2vec.space.faiss_index import FaissIndex
from feat2vec.writing import mark_folder
from tests.space.indexes import EXACT, QUERIES, SCALE, VECTORS, sorted_scores


@pytest.mark.parametrize("kind", list(EXACT))
@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_an_index_finds_most_of_the_best(kind: str, index: Any) -> None:
    pytest.importorskip("faiss")
    hits = FaissIndex.open(EXACT[kind], index, None).search(QUERIES, 10)
    order, _ = sorted_scores(EXACT[kind], 10)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(hits.ids.tolist(), order.tolist(), strict=True)])
    assert recall >= 0.8
    exact_scores = EXACT[kind].scores(QUERIES)(slice(0, 3000))
    np.testing.assert_allclose(hits.scores, np.take_along_axis(exact_scores, hits.ids, 1), atol=1e-5)
    assert (np.diff(hits.scores, axis=1) <= 0).all()


def test_an_index_is_built_once_and_again_where_it_is_stale_or_damaged(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("faiss")
    built = []
    build = faiss_build.build_index
    monkeypatch.setattr("feat2vec.space.faiss_index.build_index", lambda *of: built.append(1) or build(*of))  # type: ignore[func-returns-value]
    exact_index, path = EXACT["cosine"], tmp_path / "run" / "index" / "who.hnsw"
    mark_folder(tmp_path / "run", "run", [])
    first = FaissIndex.open(exact_index, "hnsw", path).search(QUERIES, 5)
    np.testing.assert_array_equal(FaissIndex.open(exact_index, "hnsw", path).search(QUERIES, 5).ids, first.ids)
    assert len(built) == 1
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:1000], b"", whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]):
        path.write_bytes(damaged)
        built.clear()
        np.testing.assert_array_equal(FaissIndex.open(exact_index, "hnsw", path).search(QUERIES, 5).ids, first.ids)
        assert len(built) == 1
        assert path.read_bytes() != damaged
    built.clear()
    FaissIndex.open(ExactIndex(VECTORS * 2, scale=SCALE), "hnsw", path)
    assert len(built) == 1
    assert [file.name for file in path.parent.iterdir()] == ["who.hnsw"]


def test_without_faiss_the_message_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"pip install 'feat2vec\[search\]'"):
        FaissIndex.open(EXACT["dot"], "hnsw", None)
