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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from feat2vec.encode.array_files import Array
from feat2vec.errors import UserError
from feat2vec.writing.run_files import in_a_line

FACTS = "facts"
ANEW = "start anew with --force"
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
    """A checkpoint that is read: its facts, and its arrays one after the other.

    Args:
        archive: The file. Its arrays' headers are compared with their sizes before room is made for any of them.

    """

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        headers = {info.filename.removesuffix(".npy"): _header_of(archive, info) for info in archive.infolist()}
        self.headers = {name.removeprefix("array "): header for name, header in headers.items() if name != FACTS}
        facts = json.loads(b"".join(piece.tobytes() for _, piece in self._pieces(FACTS, *headers[FACTS])))
        if not isinstance(facts, dict):
            raise ValueError("its facts are no JSON object")
        self.facts: dict[str, Any] = facts

    def pieces(self, name: str) -> Iterator[tuple[slice, Array]]:
        """An array, some rows at a time; a small one, or a single number, is one piece."""
        return self._pieces(f"array {name}", *self.headers[name])

    def array(self, name: str) -> Array:
        """An array as a whole."""
        shape, dtype = self.headers[name]
        array: Array = np.empty(shape, dtype)
        for rows, piece in self.pieces(name):
            array[rows if array.ndim else ()] = piece
        return array

    def _pieces(self, name: str, shape: tuple[int, ...], dtype: Any) -> Iterator[tuple[slice, Array]]:
        with self.archive.open(f"{name}.npy") as member:
            np.lib.format.read_magic(member)
            np.lib.format.read_array_header_1_0(member)
            row = math.prod(shape[1:]) * dtype.itemsize
            if not shape or shape[0] * row <= PIECE:
                yield slice(None), _read(member, shape, dtype)
            else:
                step = max(PIECE // row, 1)
                for at in range(0, shape[0], step):
                    rows = slice(at, min(at + step, shape[0]))
                    yield rows, _read(member, (rows.stop - rows.start, *shape[1:]), dtype)
            if member.read(1):  # at the end, zipfile compares the digest
                raise ValueError(f"{name} goes on behind its end")


def _header_of(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[tuple[int, ...], Any]:
    """The shape and type of an array, which is as large as its header says."""
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
    return tuple(shape), dtype


def _read(member: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    size = math.prod(shape) * dtype.itemsize
    data = member.read(size)
    if len(data) < size:
        raise ValueError("the file ends early")
    array: Array = np.frombuffer(data, dtype).reshape(shape)
    return array


@contextmanager
def open_checkpoint(path: Path) -> Iterator[Checkpoint]:
    """Read a checkpoint; nothing in it is executed, and nothing is made that is larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Checkpoint(path, archive)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, RecursionError) as error:
        raise UserError(f"{path}: is no checkpoint that can be read ({in_a_line(error)}); {ANEW}") from None


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The facts and all the arrays of a checkpoint, which have room in memory."""
    with open_checkpoint(path) as checkpoint:
        return checkpoint.facts, {name: checkpoint.array(name) for name in checkpoint.headers}


@dataclass(frozen=True)
class Limits:
    """What a checkpoint of a training has to be like: its variables, and how far it can have come."""

    state: Sequence[Any]  # Keras variables, of which the shapes and types count
    weights: Sequence[Any]
    epochs: int
    steps: int


def check_checkpoint(checkpoint: Checkpoint, limits: Limits) -> None:
    """Raise if the facts and arrays are none that this training can have written."""
    problem = _problem_of_facts(checkpoint.facts, limits) or _problem_of_arrays(checkpoint.headers, limits)
    if problem:
        raise UserError(f"{checkpoint.path}: was altered or belongs to another training ({problem}); {ANEW}")


def _problem_of_facts(facts: Mapping[str, Any], limits: Limits) -> str | None:
    counts = {"epoch": limits.epochs, "step": limits.steps - 1, "waited": limits.epochs}
    for name, most in counts.items():
        value = facts.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            return f"`{name}` is no whole number up to {most}"
    timed = facts.get("timed")
    times = [
        facts.get("seconds_of_epoch"),
        facts.get("seconds_before"),
        *(timed if isinstance(timed, list) else [None]),
    ]
    if len(times) != 4 or not all(_is_number(time) and 0 <= time < 2**63 for time in times):
        return "its times are no numbers"
    if not isinstance(facts.get("stopped"), bool) or (facts["stopped"] and not facts["epoch"]):
        return "`stopped` is neither true nor false"
    if "best" not in facts or not (facts["best"] is None or _is_number(facts["best"])):
        return "`best` is no number"
    history = facts.get("history")
    if not isinstance(history, list) or len(history) != facts["epoch"]:
        return "`history` has not as many rows as epochs"
    rows = [row for row in history if isinstance(row, dict) and {"epoch", "loss", "rows_per_second"} <= set(row)]
    if len(rows) < len(history) or not all(_is_number(value) for row in rows for value in row.values()):
        return "`history` holds no numbers"
    return None


def _is_number(value: object) -> bool:
    """Whether a fact is a number, be it NaN or infinite, as a loss may be."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _problem_of_arrays(headers: Mapping[str, tuple[tuple[int, ...], Any]], limits: Limits) -> str | None:
    wanted = {f"state {i}": variable for i, variable in enumerate(limits.state)}
    for kind in ("best", "aside"):
        if f"{kind} 0" in headers:
            wanted |= {f"{kind} {i}": variable for i, variable in enumerate(limits.weights)}
    if set(headers) != set(wanted):
        return f"{len(headers)} arrays in place of {len(wanted)}"
    for name, like in wanted.items():
        shape, dtype = headers[name]
        if shape != tuple(like.shape) or dtype.name != str(like.dtype):
            return f"{name} is {dtype} {shape} in place of {like.dtype} {tuple(like.shape)}"
    return None
