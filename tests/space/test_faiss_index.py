"""Approximate search against exact search, and when an index is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.space import faiss_index
from feat2vec.space.exact_index import ExactIndex
from feat2vec.space.faiss_index import FaissIndex
from feat2vec.writing import mark_folder
from tests.space.indexes import EXACT, FEW, QUERIES, SCALE, VECTORS, sorted_scores


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
    build = faiss_index.build_index
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


FORGE = """
import sys
from pathlib import Path
import numpy as np
from feat2vec.space import faiss_index
from feat2vec.space.faiss_index import FaissIndex
from tests.space.indexes import FEW, QUERIES, forged
kind, path = sys.argv[1], Path(sys.argv[2])
whole = path.read_bytes()
build, built = faiss_index.build_index, []
faiss_index.build_index = lambda *of: built.append(1) or build(*of)
for seed in range(40):
    path.write_bytes(forged(kind, whole, seed))
    found = FaissIndex.open(FEW, kind, path).search(QUERIES, 5)
    assert found.ids.shape == (7, 5) and found.ids.max() < 400
print("built again" if 10 < len(built) < 40 else len(built))
"""


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_a_forged_index_is_built_again_or_searched_but_never_crashes(kind: Any, tmp_path: Path) -> None:
    """In a child process, as what faiss would read for itself brings the process down."""
    pytest.importorskip("faiss")
    mark_folder(tmp_path / "run", "run", [])
    path = tmp_path / "run" / "index" / "who"
    FaissIndex.open(FEW, kind, path)
    command = [sys.executable, "-c", FORGE, kind, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout) == (0, "built again\n"), done.stderr[-500:]


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_index_that_is_read_back_finds_the_same(kind: Any, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("faiss")
    mark_folder(tmp_path / "run", "run", [])
    for name, exact in EXACT.items():
        path = tmp_path / "run" / "index" / name
        built = FaissIndex.open(exact, kind, path).search(QUERIES, 20)
        with monkeypatch.context() as context:
            context.setattr(faiss_index, "build_index", None)  # it is not needed
            read = FaissIndex.open(exact, kind, path).search(QUERIES, 20)
        np.testing.assert_array_equal(read.ids, built.ids)
        np.testing.assert_array_equal(read.scores, built.scores)


def test_no_file_is_given_to_faiss_to_read() -> None:
    package = Path(feat2vec.__file__).parent
    assert not [path.name for path in package.rglob("*.py") if "read_index" in path.read_text()]


def test_a_folder_that_takes_no_file_is_no_obstacle(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    run = tmp_path / "run"
    mark_folder(run, "run", [])
    (run / "index").write_text("in the way")
    for path in (run / "index" / "who.ivf", tmp_path / "index" / "who.ivf"):  # the second folder is not feat2vec's
        hits = FaissIndex.open(EXACT["dot"], "ivf", path).search(QUERIES, 5)
        assert hits.ids.shape == (7, 5)
    assert (run / "index").read_text() == "in the way"
    assert not (tmp_path / "index").exists()
