"""Whether a checkpoint's facts and arrays are what a training can have written, checked before they are used."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from feat2vec.arrays import Array
from feat2vec.errors import UserError, in_a_line
from feat2vec.writing import replace_durably
from feat2vec.writing.files import JsonObject


class Shaped(Protocol):
    """A variable or an array: its shape and type are all that is checked."""

    @property
    def shape(self) -> Sequence[int]:
        """The size of each axis."""

    @property
    def dtype(self) -> object:
        """Its type, whose text is a name such as `float32`."""


@dataclass(frozen=True)
class ExpectedCheckpoint:
    """What the checkpoints of a training hold.

    Args:
        state: The variables that training changes, in the order of the arrays `state 0`, `state 1`, ...
        weights: The model's weights, in the order of the arrays `best 0`, ... and `aside 0`, ...
        epochs: The number of epochs of the training.
        steps: The number of steps of an epoch.
        averages: Whether epochs are averaged, so that there are weights aside from the first epoch on.
        validates: Whether an epoch has a validation loss.
        counter: The variable of the state that counts steps, by which rates and random draws go on; None if none does.

    """

    state: Sequence[Shaped]
    weights: Sequence[Shaped]
    epochs: int
    steps: int
    averages: bool = False
    validates: bool = False
    counter: Shaped | None = None


def check_checkpoint(checkpoint: CheckpointReader, expected: ExpectedCheckpoint) -> None:
    """Raise `UserError` if this training cannot have written these facts and arrays."""
    facts, headers = checkpoint.facts, checkpoint.headers
    problem = _problem_of_facts(facts, expected) or _problem_of_arrays(facts, headers, expected)
    if problem or (problem := _problem_of_numbers(checkpoint, expected)):
        raise altered(checkpoint.path, problem)


def altered(path: Path, problem: str) -> UserError:
    """The error of a checkpoint that this training cannot have written."""
    return UserError(f"{path}: was altered or belongs to another training ({problem}); {START_ANEW}")


def _problem_of_facts(facts: Mapping[str, object], expected: ExpectedCheckpoint) -> str | None:
    highest_counts = {"epoch": expected.epochs, "step": expected.steps - 1, "waited": expected.epochs}
    for name, highest in highest_counts.items():
        count = facts.get(name)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= highest:
            return f"`{name}` is no whole number up to {highest}"
    if not _has_times(facts):
        return "its times are no numbers"
    if not isinstance(facts.get("stopped"), bool) or (facts["stopped"] and not facts["epoch"]):
        return "`stopped` is neither true nor false"
    if "best" not in facts or not (facts["best"] is None or _is_number(facts["best"])):
        return "`best` is no number"
    history = facts.get("history")
    if not isinstance(history, list) or len(history) != facts["epoch"]:
        return "`history` has not as many rows as epochs"
    columns = {"epoch", "loss", "seconds", "rows_per_second"} | ({"val_loss"} if expected.validates else set())
    if not all(_is_history_row(row, columns) for row in history):
        return "`history` holds no numbers, or other ones than this training's"
    if [row["epoch"] for row in history] != list(range(1, facts["epoch"] + 1)):
        return "`history` does not count the epochs"
    return None


def _has_times(facts: Mapping[str, object]) -> bool:
    timed = facts.get("timed")  # [seconds, rows]
    if not isinstance(timed, list) or len(timed) != 2:
        return False
    times = [facts.get("seconds_of_epoch"), facts.get("seconds_before"), *timed]
    return all(_is_number(time) and 0 <= time < 2**63 for time in times)


def _is_history_row(row: object, columns: set[str]) -> bool:
    return isinstance(row, dict) and set(row) == columns and all(_is_number(value) for value in row.values())


def _is_number(value: object) -> bool:
    """Whether a fact is a number. It may be NaN or infinite, as a loss may be."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _problem_of_arrays(
    facts: Mapping[str, Any], headers: Mapping[str, Header], expected: ExpectedCheckpoint
) -> str | None:
    expected_arrays = {f"state {i}": variable for i, variable in enumerate(expected.state)}
    has_kind = {"best": facts["best"] is not None, "aside": expected.averages and facts["epoch"] > 0}
    for kind in ("best", "aside"):
        if has_kind[kind]:
            expected_arrays |= {f"{kind} {i}": weight for i, weight in enumerate(expected.weights)}
    if set(headers) != set(expected_arrays):
        return f"{len(headers)} arrays in place of {len(expected_arrays)}"
    for name, variable in expected_arrays.items():
        shape, dtype = headers[name]
        if shape != tuple(variable.shape) or dtype.name != str(variable.dtype):
            return f"{name} is {dtype} {shape} in place of {variable.dtype} {tuple(variable.shape)}"
    return None


def _problem_of_numbers(checkpoint: CheckpointReader, expected: ExpectedCheckpoint) -> str | None:
    """A count of steps that is not that of the facts, and weights that are not finite.

    Training stops before it keeps any of these, and a run with them can be used for nothing.
    """
    facts = checkpoint.facts
    for i, variable in enumerate(expected.state):
        steps = facts["epoch"] * expected.steps + facts["step"]
        if variable is expected.counter and checkpoint.array(f"state {i}") != steps:
            return f"state {i} counts other steps than `epoch` and `step`"
    weight_ids = {id(weight) for weight in expected.weights}
    names = [f"state {i}" for i, variable in enumerate(expected.state) if id(variable) in weight_ids]
    names += [name for name in checkpoint.headers if not name.startswith("state ")]
    for name in names:
        if checkpoint.headers[name].dtype.kind != "f":
            continue
        for _, values in checkpoint.pieces(name):
            if not np.isfinite(values).all():
                return f"{name} holds a number that is not finite"
    return None


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


def write_checkpoint(path: Path, facts: Mapping[str, object], arrays: Mapping[str, Array | Streamed]) -> None:
    """Write a checkpoint. The one before stays until the new one is complete."""
    fill_checkpoint(path, facts, arrays)
    commit_checkpoint(path)


def fill_checkpoint(path: Path, facts: Mapping[str, object], arrays: Mapping[str, Array | Streamed]) -> None:
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
        self.facts: JsonObject = facts

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


def read_checkpoint(path: Path) -> tuple[dict[str, object], dict[str, Array]]:
    """The facts and all arrays of a checkpoint that fits into memory."""
    with open_checkpoint(path) as checkpoint:
        return checkpoint.facts, {name: checkpoint.array(name) for name in checkpoint.headers}
