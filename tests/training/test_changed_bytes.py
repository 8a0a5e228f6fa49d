"""Bytes that have changed: read back over those of before they are the array's, and no others are written."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from feat2vec.arrays import Array
from feat2vec.training import changed_bytes
from feat2vec.training.changed_bytes import ChangedBytes, unit_bytes, write_changes


def changes_of(before: Array, now: Array, rows_per_piece: int) -> bytes:
    out = io.BytesIO()
    pieces = [now[at : at + rows_per_piece] for at in range(0, len(now), rows_per_piece)]
    write_changes(out, io.BytesIO(before.tobytes()), pieces, unit_bytes(now.shape, now.dtype))
    return out.getvalue()


def read_back(before: Array, changes: bytes, size: int) -> bytes:
    """The bytes, read so many at a time."""
    reader = ChangedBytes(io.BytesIO(before.tobytes()), io.BytesIO(changes), before.nbytes)
    parts = iter(lambda: reader.read(size), b"")
    return b"".join(parts)


@pytest.mark.parametrize("rows_per_piece", [1, 7, 1000])
@pytest.mark.parametrize("shape", [(100, 20), (100, 3), (101,), (0, 4), (5, 1000), (1, 1)])
@pytest.mark.parametrize("dtype", ["f4", "i8", "u1"])
def test_an_array_of_before_and_its_changes_are_the_array(
    shape: tuple[int, ...], dtype: str, rows_per_piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_bytes, "BYTES_PER_BLOCK", 300)
    rng = np.random.default_rng(0)
    before: Any = rng.integers(0, 100, shape).astype(dtype)
    for share in (0, 0.05, 1):
        now = np.where(rng.random(shape) < share, before + 1, before).astype(dtype)
        changes = changes_of(before, now, rows_per_piece)
        for size in (1, 33, 10**6):
            assert read_back(before, changes, size) == now.tobytes()


def test_only_rows_that_changed_are_written() -> None:
    before = np.arange(10_000 * 16, dtype=np.float32).reshape(10_000, 16)  # rows of 64 bytes
    now = before.copy()
    now[[3, 4, 9_999]] += 1
    now[17] = -0.0 * now[17]  # other numbers, too
    changes = changes_of(before, now, 10_000)
    assert len(changes) == changed_bytes.RECORD.size + 10_000 // 8 + 4 * 64
    zeros = np.zeros((2, 16), np.float32)
    assert len(changes_of(zeros, -zeros, 2)) > changed_bytes.RECORD.size, "-0.0 equals 0.0, and has other bytes"
    nan = zeros * np.nan
    assert len(changes_of(nan, nan, 2)) == changed_bytes.RECORD.size, "NaN equals nothing, and has the same bytes"


@pytest.mark.parametrize("cut", [1, 5, 12, 13, 30])
def test_changes_that_are_cut_off_are_refused(cut: int) -> None:
    before = np.zeros((20, 16), np.float32)
    changes = changes_of(before, before + 1, 20)
    with pytest.raises(ValueError, match="the file ends early"):
        read_back(before, changes[:cut], 64)
    with pytest.raises(ValueError, match="another array"):
        read_back(before[:2], changes, 64)
    assert read_back(before, changes + b"more", 64)[-4:] == b"more", "the caller sees that something is left"
