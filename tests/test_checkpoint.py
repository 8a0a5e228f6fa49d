"""Checkpoints: what is written is read, and a failed write leaves the one before."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec.checkpoint import read_checkpoint, write_checkpoint
from feat2vec.errors import UserError


def test_facts_and_arrays_come_back(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"facts": np.arange(3), "file": np.zeros((0, 2), np.float32), "b": np.array(2.5)}
    write_checkpoint(tmp_path / "c.npz", {"epoch": 3, "note": "ä"}, arrays)
    facts, found = read_checkpoint(tmp_path / "c.npz")
    assert facts == {"epoch": 3, "note": "ä"}
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {"epoch": 1}, {})

    def full(file: Any, **arrays: Any) -> None:
        del arrays
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(
        OSError, match=r"No space left on device; the checkpoint before is intact: make room and add --resume"
    ) as caught:
        write_checkpoint(path, {"epoch": 2}, {})
    assert caught.value.filename == str(path)
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
    assert read_checkpoint(path)[0] == {"epoch": 1}


def test_what_is_no_checkpoint_is_said(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04 half", b"words"):
        (tmp_path / "c.npz").write_bytes(content)
        with pytest.raises(UserError, match=r"c\.npz: is no checkpoint that can be read"):
            read_checkpoint(tmp_path / "c.npz")
    np.savez(tmp_path / "c.npz", facts=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="is no checkpoint"):
        read_checkpoint(tmp_path / "c.npz")
