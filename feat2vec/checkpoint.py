"""Arrays and facts in one file that is replaced whole: after a kill it holds the state before or after, never half.

Arrays are written and read in pieces, so that no copy of what a checkpoint holds is made. The file is one of NumPy's
(`.npz`), not compressed.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from feat2vec.errors import UserError
from feat2vec.values import Array

FACTS = "facts"
PIECE = 4 << 20  # bytes that are read at a time


class Streamed(NamedTuple):
    """An array that is written a few rows at a time."""

    shape: Sequence[int]
    dtype: Any
    pieces: Iterable[Array]


def write_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array | Streamed]) -> None:
    """Write a checkpoint; until it is whole, the one before stays."""
    fill_checkpoint(path, facts, arrays)
    commit_checkpoint(path)


def fill_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array | Streamed]) -> None:
    """Write what a checkpoint will hold beside the one before, which stays until `commit_checkpoint`."""
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    with _intact(path) as partial, zipfile.ZipFile(partial, "w") as archive:
        for name, array in {FACTS: text, **{f"array {name}": array for name, array in arrays.items()}}.items():
            _write(archive, name, array if isinstance(array, Streamed) else Streamed(array.shape, array.dtype, [array]))


def commit_checkpoint(path: Path) -> None:
    """Let what was filled take the place of the checkpoint before, once the disk has it."""
    with _intact(path) as partial:
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)


@contextmanager
def _intact(path: Path) -> Iterator[Path]:
    """The file that is written; it is gone, and the checkpoint before is there, if that fails."""
    partial = path.with_name(f"{path.name}.new")
    try:
        yield partial
    except OSError as error:
        partial.unlink(missing_ok=True)
        remedy = "; the checkpoint before is intact: make room and add --resume" if path.exists() else ""
        raise OSError(error.errno, f"{error.strerror or error}{remedy}", str(path)) from error


def _write(archive: zipfile.ZipFile, name: str, array: Streamed) -> None:
    """Write an array as `np.savez` does."""
    descr = np.lib.format.dtype_to_descr(np.dtype(array.dtype))
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": descr, "fortran_order": False, "shape": tuple(array.shape)}
        )
        for piece in array.pieces:
            member.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)


class Checkpoint:
    """A checkpoint that is read: its facts, and its arrays one after the other."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.facts: dict[str, Any] = json.loads(b"".join(piece.tobytes() for _, piece in self._pieces(FACTS)))
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        self.names = [name.removeprefix("array ") for name in names if name != FACTS]

    def pieces(self, name: str, shape: Sequence[int], dtype: Any) -> Iterator[tuple[slice, Array]]:
        """An array of this shape and type, some rows at a time; a small one, or a single number, is one piece."""
        return self._pieces(f"array {name}", tuple(shape), np.dtype(dtype))

    def array(self, name: str, shape: Sequence[int], dtype: Any) -> Array:
        """An array of this shape and type."""
        array: Array = np.empty(tuple(shape), dtype)
        for rows, piece in self.pieces(name, shape, dtype):
            array[rows if array.ndim else ()] = piece
        return array

    def _pieces(
        self, name: str, shape: tuple[int, ...] | None = None, dtype: Any = None
    ) -> Iterator[tuple[slice, Array]]:
        with self.archive.open(f"{name}.npy") as member:
            if np.lib.format.read_magic(member) != (1, 0):
                raise ValueError(f"{name} is of another version of NumPy's format")
            has, _, kind = np.lib.format.read_array_header_1_0(member)
            if kind.hasobject or (shape is not None and (has, kind) != (shape, dtype)):
                raise ValueError(f"{name} is {kind} {has}, not {dtype} {shape}")
            row = math.prod(has[1:]) * kind.itemsize
            if not has or has[0] * row <= PIECE:
                yield slice(None), _read(member, has, kind)
            else:
                step = max(PIECE // row, 1)
                for at in range(0, has[0], step):
                    rows = slice(at, min(at + step, has[0]))
                    yield rows, _read(member, (rows.stop - rows.start, *has[1:]), kind)
            if member.read(1):  # at the end, zipfile compares the digest
                raise ValueError(f"{name} goes on behind its end")


def _read(member: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    size = math.prod(shape) * dtype.itemsize
    data = member.read(size)
    if len(data) < size:
        raise ValueError("the file ends early")
    array: Array = np.frombuffer(data, dtype).reshape(shape)
    return array


@contextmanager
def open_checkpoint(path: Path) -> Iterator[Checkpoint]:
    """Read a checkpoint; nothing in it is executed."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Checkpoint(archive)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: is no checkpoint that can be read ({type(error).__name__}: {error})") from None
