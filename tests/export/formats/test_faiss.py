"""Indexes are read back by faiss."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.export.export import export
from feat2vec.export.formats.faiss import Faiss
from feat2vec.space.faiss_index import import_faiss
from tests.export.tables import check_nearest, unit


@pytest.mark.slow
@pytest.mark.parametrize("min_indexed", [10_000, 1])  # flat, or a graph
def test_faiss_finds_the_same_neighbours(run: feat2vec.Run, tmp_path: Path, min_indexed: int) -> None:
    faiss = import_faiss()
    export_format = Faiss(bytes_per_block=100, min_indexed=min_indexed)
    facts = export(run, export_format, tmp_path / "out", ["who", "title"])
    assert facts["normalised"]
    for name, group in facts["groups"].items():
        v = run.vectors(name)
        index, keys = (tmp_path / "out" / file for file in group["files"])
        read, known = faiss.read_index(str(index)), pq.read_table(keys)
        assert read.ntotal == len(v) == len(known)
        assert known["key"].to_pylist() == v.index_to_key
        np.testing.assert_allclose(read.reconstruct(3), unit(v.vectors)[3], rtol=1e-5)
        scores, ids = read.search(unit(v.vectors), len(v))
        np.testing.assert_allclose(scores[:, 0], 1, rtol=1e-5)
        for i, key in enumerate(v.index_to_key):
            check_nearest(v, key, [v.index_to_key[j] for j in ids[i] if j not in (i, -1)][:3])


def test_without_faiss_the_message_names_the_package_and_a_remedy(
    run: feat2vec.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"needs faiss, which is not installed: .*; or choose another format"):
        run.export("faiss", tmp_path / "out")
    assert not list(tmp_path.iterdir())
