"""Checkpoints: what is written is read, and a failed write leaves the one before."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec import checkpoint
from feat2vec.checkpoint import Streamed, open_checkpoint, write_checkpoint
from feat2vec.errors import UserError


def test_facts_and_arrays_come_back(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"facts": np.arange(3), "file": np.zeros((0, 2), np.float32), "b": np.array(2.5)}
    write_checkpoint(tmp_path / "c.npz", {"epoch": 3, "note": "ä"}, arrays)
    with open_checkpoint(tmp_path / "c.npz") as found, np.load(tmp_path / "c.npz") as file:
        assert found.facts == {"epoch": 3, "note": "ä"}
        assert found.names == list(arrays)
        for name, array in arrays.items():
            same = found.array(name, array.shape, array.dtype)
            np.testing.assert_array_equal(same, array)
            assert same.dtype == array.dtype
            np.testing.assert_array_equal(file[f"array {name}"], array)  # numpy reads it too


def test_arrays_are_written_and_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "PIECE", 64)
    whole = np.arange(70, dtype=np.float32).reshape(10, 7)
    streamed = Streamed(whole.shape, whole.dtype, (whole[at : at + 3] for at in range(0, 10, 3)))
    write_checkpoint(tmp_path / "c.npz", {}, {"a": streamed})
    with open_checkpoint(tmp_path / "c.npz") as found:
        pieces = list(found.pieces("a", (10, 7), np.float32))
    assert [rows for rows, _ in pieces] == [slice(at, at + 2) for at in range(0, 10, 2)]
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in pieces]), whole)


@pytest.mark.parametrize(("shape", "dtype"), [((10, 6), np.float32), ((7, 10), np.float32), ((10, 7), np.int32)])
def test_an_array_of_another_shape_or_type_is_refused_before_it_is_read(
    shape: tuple[int, ...], dtype: Any, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "c.npz", {}, {"a": np.zeros((10, 7), np.float32)})
    with (
        pytest.raises(UserError, match=r"c\.npz: is no checkpoint .*array a is float32 \(10, 7\), not "),
        open_checkpoint(tmp_path / "c.npz") as found,
    ):
        found.array("a", shape, dtype)


def test_an_altered_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {}, {"a": np.zeros(1000, np.float32)})
    data = bytearray(path.read_bytes())
    data[data.index(b"\0" * 4000) + 2000] = 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="Bad CRC"), open_checkpoint(path) as found:
        found.array("a", (1000,), np.float32)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, {"epoch": 1}, {})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write", full)
    with pytest.raises(
        OSError, match=r"No space left on device; the checkpoint before is intact: make room and add --resume"
    ) as caught:
        write_checkpoint(path, {"epoch": 2}, {})
    assert caught.value.filename == str(path)
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
    with open_checkpoint(path) as found:
        assert found.facts == {"epoch": 1}


def test_what_is_no_checkpoint_is_said(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04 half", b"words"):
        (tmp_path / "c.npz").write_bytes(content)
        with (
            pytest.raises(UserError, match=r"c\.npz: is no checkpoint that can be read"),
            open_checkpoint(tmp_path / "c.npz"),
        ):
            pass
    np.savez(tmp_path / "c.npz", facts=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="is no checkpoint"), open_checkpoint(tmp_path / "c.npz"):
        pass
