"""The best of many vectors against a sort of all scores; what becomes of an index's file."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec.errors import UserError
from feat2vec.space import search
from feat2vec.space.search import Flat, Index
from feat2vec.writing import mark_folder

RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((3000, 8)).astype(np.float32)
QUERIES = RNG.standard_normal((7, 8)).astype(np.float32)
SCALE = (1 / np.linalg.norm(VECTORS, axis=1)).astype(np.float32)
SHIFT = RNG.standard_normal(3000).astype(np.float32)
FEW = Flat(VECTORS[:400], scale=SCALE[:400])
FLATS = {"dot": Flat(VECTORS), "cosine": Flat(VECTORS, scale=SCALE), "score": Flat(VECTORS, shift=SHIFT)}


def slow(flat: Flat, k: int) -> tuple[Any, Any]:
    scores = QUERIES.astype(float) @ flat.vectors.astype(float).T
    scores = scores * (1 if flat.scale is None else flat.scale) + (0 if flat.shift is None else flat.shift)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


@pytest.mark.parametrize("kind", list(FLATS))
@pytest.mark.parametrize("k", [1, 10, 2000, 5000])
@pytest.mark.parametrize("block", [1, 1 << 21])
def test_the_best_are_those_of_a_sort(kind: str, k: int, block: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(search, "BLOCK", block)
    monkeypatch.setattr(search, "QUERIES", 3)
    order, scores = slow(FLATS[kind], k)
    found = FLATS[kind].search(QUERIES, k)
    assert found.ids.shape == order.shape
    np.testing.assert_allclose(found.scores, scores, atol=1e-5)
    assert (found.ids == order).mean() > 0.99  # rounding may reorder neighbours


def test_of_equal_scores_the_first_come_first() -> None:
    scores = np.repeat(RNG.integers(0, 4, (2, 30)), 100, axis=1).astype(np.float32)
    found = search.best(lambda some: scores[:, some], 2, 3000, 150)
    np.testing.assert_array_equal(found.ids, np.argsort(-scores, axis=1, kind="stable")[:, :150])
    same = np.zeros((1, 5000), np.float32)
    assert search.best(lambda some: same[:, some], 1, 5000, 3).ids.tolist() == [[0, 1, 2]]


def test_nothing_is_found_in_nothing() -> None:
    assert Flat(VECTORS[:0]).search(QUERIES, 3).ids.shape == (7, 0)
    assert Flat(VECTORS).search(QUERIES[:0], 3).ids.shape == (0, 3)
    assert Flat(VECTORS).search(QUERIES, 0).ids.shape == (7, 0)


def test_no_matrix_of_all_scores_is_made() -> None:
    seen = []

    def scores(some: slice) -> Any:
        seen.append(some.stop - some.start)
        return np.zeros((100, seen[-1]), np.float32)

    search.best(scores, 100, 1_000_000, 10)
    assert max(seen) * 400 <= search.BLOCK
    assert sum(seen) == 1_000_000


@pytest.mark.parametrize("kind", list(FLATS))
def test_unit_vectors_give_the_same_order(kind: str) -> None:
    flat = FLATS[kind]
    units = np.concatenate([flat.unit(slice(0, 1000)), flat.unit(slice(1000, 3000))])
    np.testing.assert_allclose(np.linalg.norm(units, axis=1), 1, rtol=1e-5)
    assert units.shape[1] == flat.width
    products = flat.unit_queries(QUERIES) @ units.T
    scores = flat.scores(QUERIES)(slice(0, 3000))
    ratio = np.median(scores / products)
    np.testing.assert_allclose(products * ratio, scores, atol=1e-4)


@pytest.mark.parametrize("kind", list(FLATS))
@pytest.mark.parametrize("index", ["hnsw", "ivf"])
def test_an_index_finds_most_of_the_best(kind: str, index: Any) -> None:
    pytest.importorskip("faiss")
    found = Index.open(FLATS[kind], index, None).search(QUERIES, 10)
    order, _ = slow(FLATS[kind], 10)
    hit = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.ids.tolist(), order.tolist(), strict=True)])
    assert hit >= 0.8
    exact = FLATS[kind].scores(QUERIES)(slice(0, 3000))
    np.testing.assert_allclose(found.scores, np.take_along_axis(exact, found.ids, 1), atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()


def test_an_index_is_built_once_and_again_where_it_is_stale_or_damaged(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("faiss")
    built = []
    build = search._build
    monkeypatch.setattr(search, "_build", lambda *of: built.append(1) or build(*of))  # type: ignore[func-returns-value]
    flat, path = FLATS["cosine"], tmp_path / "run" / "index" / "who.hnsw"
    mark_folder(tmp_path / "run", "run", [])
    first = Index.open(flat, "hnsw", path).search(QUERIES, 5)
    np.testing.assert_array_equal(Index.open(flat, "hnsw", path).search(QUERIES, 5).ids, first.ids)
    assert len(built) == 1
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:1000], b"", whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]):
        path.write_bytes(damaged)
        built.clear()
        np.testing.assert_array_equal(Index.open(flat, "hnsw", path).search(QUERIES, 5).ids, first.ids)
        assert len(built) == 1
        assert path.read_bytes() != damaged
    built.clear()
    Index.open(Flat(VECTORS * 2, scale=SCALE), "hnsw", path)
    assert len(built) == 1
    assert [file.name for file in path.parent.iterdir()] == ["who.hnsw"]


def forged(kind: str, whole: bytes, seed: int) -> bytes:
    """An index's file with some of its numbers replaced, and the digests of who knows how they are made."""
    rng = np.random.default_rng(seed)
    digest = whole[-2 * search.DIGEST : -search.DIGEST]
    numbers = np.frombuffer(whole[: -2 * search.DIGEST], np.int32).copy()
    edges = {"hnsw": [0, 400, len(numbers) - 1, len(numbers)], "ivf": [0, 400, len(numbers)]}[kind]
    part = int(rng.integers(len(edges) - 1))
    many = int(rng.choice([1, 3, 1000]))
    extremes = [-(2**31), -2, -1, 0, 1, 2, 6, 7, 79, 80, 399, 400, 2**31 - 1, 0x7FC00000]
    numbers[rng.integers(edges[part], edges[part + 1], many)] = rng.choice(extremes, many)
    body = numbers.tobytes()
    if seed % 5 == 0:
        body = body[: int(rng.integers(len(body)))]
    if seed % 7 == 0:
        body += bytes(rng.integers(0, 256, 400, np.uint8))
    return body + digest + hashlib.blake2b(body + digest, digest_size=search.DIGEST).digest()


FORGE = """
import sys
from pathlib import Path
import numpy as np
from feat2vec.space.search import Index
from feat2vec.space import search
from tests.space.test_search import FEW, QUERIES, forged
kind, path = sys.argv[1], Path(sys.argv[2])
whole = path.read_bytes()
build, built = search._build, []
search._build = lambda *of: built.append(1) or build(*of)
for seed in range(40):
    path.write_bytes(forged(kind, whole, seed))
    found = Index.open(FEW, kind, path).search(QUERIES, 5)
    assert found.ids.shape == (7, 5) and found.ids.max() < 400
print("built again" if 10 < len(built) < 40 else len(built))
"""


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_a_forged_index_is_built_again_or_searched_but_never_crashes(kind: Any, tmp_path: Path) -> None:
    """In a child process, as what faiss would read for itself brings the process down."""
    pytest.importorskip("faiss")
    mark_folder(tmp_path / "run", "run", [])
    path = tmp_path / "run" / "index" / "who"
    Index.open(FEW, kind, path)
    command = [sys.executable, "-c", FORGE, kind, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout) == (0, "built again\n"), done.stderr[-500:]


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_index_that_is_read_back_finds_the_same(kind: Any, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("faiss")
    mark_folder(tmp_path / "run", "run", [])
    for name, flat in FLATS.items():
        path = tmp_path / "run" / "index" / name
        built = Index.open(flat, kind, path).search(QUERIES, 20)
        with monkeypatch.context() as context:
            context.setattr(search, "_build", None)  # it is not needed
            read = Index.open(flat, kind, path).search(QUERIES, 20)
        np.testing.assert_array_equal(read.ids, built.ids)
        np.testing.assert_array_equal(read.scores, built.scores)


def test_no_file_is_given_to_faiss_to_read() -> None:
    package = Path(search.__file__).parents[1]
    assert not [path.name for path in package.rglob("*.py") if "read_index" in path.read_text()]


def test_a_folder_that_takes_no_file_is_no_obstacle(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    run = tmp_path / "run"
    mark_folder(run, "run", [])
    (run / "index").write_text("in the way")
    for path in (run / "index" / "who.ivf", tmp_path / "index" / "who.ivf"):  # the second folder is not feat2vec's
        found = Index.open(FLATS["dot"], "ivf", path).search(QUERIES, 5)
        assert found.ids.shape == (7, 5)
    assert (run / "index").read_text() == "in the way"
    assert not (tmp_path / "index").exists()


def test_without_faiss_the_message_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"pip install 'feat2vec\[search\]'"):
        Index.open(FLATS["dot"], "hnsw", None)


def test_searching_imports_neither_tensorflow_nor_faiss() -> None:
    code = "import sys, feat2vec.space.search; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "faiss"} & set(done.stdout.split())
