"""A checkpoint on the disk: facts as JSON and arrays, as `np.savez` writes them, or what has changed since one.

    checkpoint.npz            a whole checkpoint
    checkpoint.npz.changes    the checkpoint after it, if it was written as what had changed since

The changes name the whole checkpoint that they follow. If they follow another one, they are of before it and count for
nothing: a process that is killed between any two steps of writing leaves a checkpoint that can be read.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from feat2vec.arrays import Array
from feat2vec.errors import UserError, in_a_line
from feat2vec.training.changed_bytes import ChangedBytes, Readable, unit_bytes, write_changes
from feat2vec.writing import changes_path, replace_durably
from feat2vec.writing.files import JsonObject

FACTS = "facts"  # the member that holds the facts as JSON
SINCE = "since"  # that of a file of changes which names the checkpoint before, and all arrays
LEAST_COMPARED_BYTES = 64 << 10  # of an array; a smaller one is written as it is
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

    @property
    def header(self) -> Header:
        """Its shape and type."""
        return Header(tuple(self.shape), np.dtype(self.dtype))


class Header(NamedTuple):
    """What the file says of an array before its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many bytes its numbers have."""
        return math.prod(self.shape) * self.dtype.itemsize


Arrays: TypeAlias = Mapping[str, Array | Streamed]

# --- writing --------------------------------------------------------------------------------------------------------


def write_checkpoint(path: Path, facts: Mapping[str, object], arrays: Arrays) -> None:
    """Write a whole checkpoint. The one before stays until the new one is complete."""
    fill_checkpoint(path, facts, arrays)
    commit_checkpoint(path)


def fill_checkpoint(path: Path, facts: Mapping[str, object], arrays: Arrays) -> None:
    """Write a new, whole checkpoint beside the one before, which stays until `commit_checkpoint`."""
    with _new_file(path, path) as new_path, zipfile.ZipFile(new_path, "w") as archive:
        _write_array(archive, FACTS, _text(facts))
        for name, array in arrays.items():
            _write_array(archive, f"array {name}", _streamed(array))


def commit_checkpoint(path: Path) -> None:
    """Put the checkpoint that was filled in the place of the one before, once it is on the disk."""
    with _new_file(path, path) as new_path:
        replace_durably(new_path, path)
    changes_path(path).unlink(missing_ok=True)


class _TooMuchChangedError(Exception):
    """What has changed is not much less than the whole."""


def fill_changes(path: Path, facts: Mapping[str, object], arrays: Arrays, most_bytes: float) -> bool:
    """Write a new checkpoint as what has changed since the last whole one, beside what is there.

    Args:
        path: The last whole checkpoint.
        facts: The facts of the new one.
        arrays: Its arrays.
        most_bytes: How large it may be; otherwise nothing is written.

    Returns:
        Whether it was written: not if it is larger, or if the last one cannot be read.

    """
    try:
        with _new_file(changes_path(path), path) as new_path:
            try:
                _fill_changes(path, new_path, facts, arrays, most_bytes)
            except (_TooMuchChangedError, ValueError, EOFError, zipfile.BadZipFile):
                new_path.unlink(missing_ok=True)
                return False
    except FileNotFoundError:
        return False
    return True


def _fill_changes(path: Path, new_path: Path, facts: Mapping[str, object], arrays: Arrays, most_bytes: float) -> None:
    with (
        zipfile.ZipFile(path) as last_whole,
        new_path.open("wb") as file,
        zipfile.ZipFile(file, "w") as archive,
    ):
        before = CheckpointReader(path, last_whole)

        def bounded(pieces: Iterable[Array]) -> Iterator[Array]:
            for piece in pieces:
                if file.tell() > most_bytes:
                    raise _TooMuchChangedError
                yield piece

        _write_array(archive, FACTS, _text(facts))
        _write_array(archive, SINCE, _text({"whole": _digest_of_sums(last_whole), "arrays": list(arrays)}))
        for name, array in arrays.items():
            streamed = _streamed(array)
            header = streamed.header
            streamed = streamed._replace(pieces=bounded(streamed.pieces))
            if header.size < LEAST_COMPARED_BYTES or before.headers.get(name) != header:
                _write_array(archive, f"array {name}", streamed)
                continue
            with (
                before.open_numbers(name) as numbers,
                archive.open(_changes_of(name), "w", force_zip64=True) as member,
            ):
                write_changes(member, numbers, streamed.pieces, unit_bytes(*header))
        if file.tell() > most_bytes:
            raise _TooMuchChangedError


def commit_changes(path: Path) -> None:
    """Let the changes that were filled count, once they are on the disk."""
    with _new_file(changes_path(path), path) as new_path:
        replace_durably(new_path, changes_path(path))


@contextmanager
def _new_file(path: Path, before: Path) -> Iterator[Path]:
    """The file that is being written. If that fails it is removed, and the checkpoint before stays."""
    new_path = path.with_name(f"{path.name}.new")
    try:
        yield new_path
    except OSError as error:
        new_path.unlink(missing_ok=True)
        remedy = "; the checkpoint before is intact: make room and add --resume" if before.exists() else ""
        raise OSError(error.errno, f"{error.strerror or error}{remedy}", str(before)) from error


def _changes_of(name: str) -> str:
    return f"changes {name}"


def _digest_of_sums(archive: zipfile.ZipFile) -> str:
    """What tells a whole checkpoint from another one: a digest of its members' names, checksums and sizes."""
    sums = [(info.filename, info.CRC, info.file_size) for info in archive.infolist()]
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()


def _text(facts: Mapping[str, object]) -> Streamed:
    return _streamed(np.frombuffer(json.dumps(facts).encode(), np.uint8))


def _streamed(array: Array | Streamed) -> Streamed:
    return array if isinstance(array, Streamed) else Streamed(array.shape, array.dtype, [array])


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
        changes: The file of changes, open; None if there is none.

    """

    def __init__(
        self,
        path: Path,
        archive: zipfile.ZipFile,
        bytes_per_read: int = BYTES_PER_READ,
        changes: zipfile.ZipFile | None = None,
    ) -> None:
        self.path, self.bytes_per_read = path, bytes_per_read
        self._members = _Members(archive)
        self._changes = None
        self.facts, self.headers = self._members.json(FACTS), self._members.headers
        if changes is not None and _Members(changes).json(SINCE).get("whole") == _digest_of_sums(archive):
            self._changes = _Members(changes)
            self.facts, self.headers = self._changes.json(FACTS), self._changed_headers(self._changes)

    def _changed_headers(self, changes: _Members) -> dict[str, Header]:
        """The headers of all arrays, each of which is in the file of changes, whole or as what has changed."""
        names = changes.json(SINCE)["arrays"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the file of changes names no arrays")
        headers, members = {}, {FACTS, SINCE}
        for name in names:
            is_whole = name in changes.headers
            headers[name] = (changes if is_whole else self._members).headers[name]
            members.add(f"array {name}" if is_whole else _changes_of(name))
        if members != changes.names:
            raise ValueError("the file of changes holds other arrays than it names")
        return headers

    def pieces(self, name: str) -> Iterator[tuple[slice, Array]]:
        """An array, a few rows at a time; a small one, or a single number, is one piece."""
        shape, dtype = header = self.headers[name]
        with self.open_numbers(name) as numbers:
            bytes_per_row = math.prod(shape[1:]) * dtype.itemsize
            if not shape or header.size <= self.bytes_per_read:
                yield slice(None), _read_numbers(numbers, shape, dtype)
            else:
                rows_per_piece = max(self.bytes_per_read // bytes_per_row, 1)
                for start in range(0, shape[0], rows_per_piece):
                    rows = slice(start, min(start + rows_per_piece, shape[0]))
                    yield rows, _read_numbers(numbers, (rows.stop - rows.start, *shape[1:]), dtype)
            if numbers.read(1):  # at the end, zipfile compares the digest
                raise ValueError(f"{name} is longer than its header says")

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

    @contextmanager
    def open_numbers(self, name: str) -> Iterator[Readable]:
        """The bytes of an array's numbers, as a file to read in order."""
        with ExitStack() as stack:
            if self._changes is None:
                yield stack.enter_context(self._members.numbers(name))
            elif name in self._changes.headers:
                yield stack.enter_context(self._changes.numbers(name))
            else:
                before = stack.enter_context(self._members.numbers(name))
                changes = stack.enter_context(self._changes.archive.open(_changes_of(name)))
                yield ChangedBytes(before, changes, self.headers[name].size)


class _Members:
    """The members of a file: headers of arrays, which are small, and numbers, which are read in order."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.names = {info.filename.removesuffix(".npy") for info in archive.infolist()}
        self.headers: dict[str, Header] = {}  # of the arrays that are there whole
        self._texts: dict[str, Header] = {}
        for info in archive.infolist():
            _refuse_packed(info)
            name = info.filename.removesuffix(".npy")
            if info.filename != name:
                headers = self.headers if name.startswith("array ") else self._texts
                headers[name.removeprefix("array ")] = _read_header(archive, info)

    def json(self, name: str) -> JsonObject:
        """A small member that is a JSON object."""
        shape, dtype = self._texts[name]
        with self._open(name) as member:
            facts = json.loads(_read_numbers(member, shape, dtype).tobytes())
            member.read(1)  # the digest is compared
        if not isinstance(facts, dict):
            raise ValueError(f"its {name} are no JSON object")
        return facts

    def numbers(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """The bytes of an array's numbers, as a file to read in order."""
        return self._open(f"array {name}")

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        with self.archive.open(f"{name}.npy") as member:
            np.lib.format.read_magic(member)
            np.lib.format.read_array_header_1_0(member)
            yield member


def _refuse_packed(info: zipfile.ZipInfo) -> None:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise ValueError(f"{info.filename} is compressed or encrypted")


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Header:
    """The shape and type of an array, whose size is what they say."""
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


def _read_numbers(member: Readable, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
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
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            changes = None
            if changes_path(path).exists():
                changes = stack.enter_context(zipfile.ZipFile(changes_path(path)))
            yield CheckpointReader(path, archive, bytes_per_read, changes)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, RecursionError) as error:
        raise UserError(f"{path}: is no checkpoint that can be read ({in_a_line(error)}); {START_ANEW}") from None


def read_checkpoint(path: Path) -> tuple[dict[str, object], dict[str, Array]]:
    """The facts and all arrays of a checkpoint that fits into memory."""
    with open_checkpoint(path) as checkpoint:
        return checkpoint.facts, {name: checkpoint.array(name) for name in checkpoint.headers}
