"""Arrays and facts in one file, `checkpoint.npz`, which is replaced as a whole.

After a kill the file holds the state before or after the write, never a part of both. Arrays are written and read in
pieces, so that no copy of them is made. The file is one of NumPy's (`.npz`), not compressed.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from feat2vec.encode.array_files import Array
from feat2vec.errors import UserError, in_a_line
from feat2vec.writing import replace_durably

FACTS = "facts"  # the member that holds the facts as JSON
START_ANEW = "start anew with --force"
BYTES_PER_READ = 4 << 20


class Streamed(NamedTuple):
    """An array that is written a few rows at a time.

    Args:
        shape: The shape of the whole array.
        dtype: Its type.
        pieces: Its numbers in order, as arrays of any shape.

    """

    shape: Sequence[int]
    dtype: np.dtype[Any]
    pieces: Iterable[Array]


class Header(NamedTuple):
    """What the file says of an array before its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


# --- writing --------------------------------------------------------------------------------------------------------


def write_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array | Streamed]) -> None:
    """Write a checkpoint. The one before stays until the new one is complete."""
    fill_checkpoint(path, facts, arrays)
    commit_checkpoint(path)


def fill_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array | Streamed]) -> None:
    """Write a new checkpoint beside the one before, which stays until `commit_checkpoint`."""
    facts_as_bytes = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    members: dict[str, Array | Streamed] = {FACTS: facts_as_bytes}
    members |= {f"array {name}": array for name, array in arrays.items()}
    with _new_file(path) as new_path, zipfile.ZipFile(new_path, "w") as archive:
        for name, array in members.items():
            streamed = array if isinstance(array, Streamed) else Streamed(array.shape, array.dtype, [array])
            _write_array(archive, name, streamed)


def commit_checkpoint(path: Path) -> None:
    """Put the checkpoint that was filled in the place of the one before, once it is on the disk."""
    with _new_file(path) as new_path:
        replace_durably(new_path, path)


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """The file that is being written. If that fails it is removed, and the checkpoint before stays."""
    new_path = path.with_name(f"{path.name}.new")
    try:
        yield new_path
    except OSError as error:
        new_path.unlink(missing_ok=True)
        remedy = "; the checkpoint before is intact: make room and add --resume" if path.exists() else ""
        raise OSError(error.errno, f"{error.strerror or error}{remedy}", str(path)) from error


def _write_array(archive: zipfile.ZipFile, name: str, array: Streamed) -> None:
    """Write an array as `np.savez` does."""
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(array.dtype)),
        "fortran_order": False,
        "shape": tuple(array.shape),
    }
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, header)
        for piece in array.pieces:
            member.write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)


# --- reading --------------------------------------------------------------------------------------------------------


class CheckpointReader:
    """A checkpoint that is open: its facts, and its arrays, which are read when they are asked for.

    Args:
        path: The file, for messages.
        archive: The file, open. The size of each array is compared with its header before memory is taken for it.
        bytes_per_read: The size of a piece of an array.

    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, bytes_per_read: int = BYTES_PER_READ) -> None:
        self.path, self.archive, self.bytes_per_read = path, archive, bytes_per_read
        headers = {info.filename.removesuffix(".npy"): _read_header(archive, info) for info in archive.infolist()}
        self.headers = {name.removeprefix("array "): header for name, header in headers.items() if name != FACTS}
        facts = json.loads(b"".join(piece.tobytes() for _, piece in self._read_member(FACTS, headers[FACTS])))
        if not isinstance(facts, dict):
            raise ValueError("its facts are no JSON object")
        self.facts: dict[str, Any] = facts

    def pieces(self, name: str) -> Iterator[tuple[slice, Array]]:
        """An array, a few rows at a time; a small one, or a single number, is one piece."""
        return self._read_member(f"array {name}", self.headers[name])

    def array(self, name: str) -> Array:
        """A whole array."""
        header = self.headers[name]
        array: Array = np.empty(header.shape, header.dtype)
        self.read_into(name, array)
        return array

    def read_into(self, name: str, out: Array) -> None:
        """Read an array into memory that is there."""
        for rows, values in self.pieces(name):
            out[rows if out.ndim else ()] = values

    def _read_member(self, name: str, header: Header) -> Iterator[tuple[slice, Array]]:
        shape, dtype = header
        with self.archive.open(f"{name}.npy") as member:
            np.lib.format.read_magic(member)
            np.lib.format.read_array_header_1_0(member)
            bytes_per_row = math.prod(shape[1:]) * dtype.itemsize
            if not shape or shape[0] * bytes_per_row <= self.bytes_per_read:
                yield slice(None), _read_numbers(member, shape, dtype)
            else:
                rows_per_piece = max(self.bytes_per_read // bytes_per_row, 1)
                for start in range(0, shape[0], rows_per_piece):
                    rows = slice(start, min(start + rows_per_piece, shape[0]))
                    yield rows, _read_numbers(member, (rows.stop - rows.start, *shape[1:]), dtype)
            if member.read(1):  # at the end, zipfile compares the digest
                raise ValueError(f"{name} is longer than its header says")


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    """The shape and type of an array, whose size is what they say."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise ValueError(f"{info.filename} is compressed or encrypted")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version != (1, 0):
            raise ValueError(f"{info.filename} has a header of version {version}")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.kind not in "biufV" or dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(f"{info.filename} holds {dtype}, no numbers")
        if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise ValueError(f"{info.filename} has not the shape {shape}")
    return Header(tuple(shape), dtype)


def _read_numbers(member: IO[bytes], shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    data = member.read(size)
    if len(data) < size:
        raise ValueError("the file ends early")
    array: Array = np.frombuffer(data, dtype).reshape(shape)
    return array


@contextmanager
def open_checkpoint(path: Path, bytes_per_read: int = BYTES_PER_READ) -> Iterator[CheckpointReader]:
    """Open a checkpoint. Nothing in it is executed, and nothing larger than the file is allocated.

    Raises:
        UserError: The file is missing, damaged or no checkpoint.

    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield CheckpointReader(path, archive, bytes_per_read)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, RecursionError) as error:
        raise UserError(f"{path}: is no checkpoint that can be read ({in_a_line(error)}); {START_ANEW}") from None


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The facts and all arrays of a checkpoint that fits into memory."""
    with open_checkpoint(path) as checkpoint:
        return checkpoint.facts, {name: checkpoint.array(name) for name in checkpoint.headers}
