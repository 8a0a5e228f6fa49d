"""NumPy's files are read back without pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.export.export import export
from feat2vec.export.formats.npz import Npz
from feat2vec.writing import MARK
from tests.export.tables import HARD, unit, write_keys


def test_npz_needs_no_pickle(run: feat2vec.Run, tmp_path: Path) -> None:
    run.export("npz", tmp_path / "out", ["who", "title"], normalise=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARK, "manifest.json", "title.npz", "who.npz"]
    for name in ("who", "title"):
        v = run.vectors(name)
        with np.load(tmp_path / "out" / f"{name}.npz", allow_pickle=False) as file:
            assert sorted(file) == ["counts", "keys", "levels", "vectors"]
            assert file["keys"].tolist() == v.index_to_key
            np.testing.assert_allclose(file["vectors"], unit(v.vectors), rtol=1e-5)
            np.testing.assert_array_equal(file["counts"], v.counts)
            np.testing.assert_array_equal(file["levels"], v.levels)


def test_keys_that_would_take_too_much_memory_are_refused(run: feat2vec.Run, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^npz: the group 'who': numpy stores every key .* 12 characters: .*; use parquet$"
    ):
        export(run, Npz(max_key_bytes=100), tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


def test_npz_keeps_every_key_or_refuses_it(tmp_path: Path) -> None:
    write_keys("npz", HARD, tmp_path / "out")
    with np.load(tmp_path / "out" / "who.npz", allow_pickle=False) as file:
        assert file["keys"].dtype.kind == "U"
        assert file["keys"].tolist() == HARD
    message = r"^npz: the group 'who': the key 'a\\x00': numpy strings do not keep .* at their end; use parquet$"
    for keys in (["a", "a\0"], ["a\0"], ["b", "a\0", "c\0\0"]):
        with pytest.raises(UserError, match=message):
            write_keys("npz", keys, tmp_path / f"npz {len(keys)}")
