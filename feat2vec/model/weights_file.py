"""The weights in `model.keras`, read in pieces and without TensorFlow: one table alone if no more is needed.

The file is a zip archive: `config.json` (with the schema, which must be the run's) and `model.weights.h5`; in runs
without digests, a copy of the encoder's files too. Keras would build whatever `config.json` names, and unpack the
archive into TMPDIR. Here the weights are read from within the archive, and nothing in it names code.
"""

from __future__ import annotations

import io
import json
import struct
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, cast

import h5py
import numpy as np

from feat2vec.arrays import Array, Ints
from feat2vec.encode.arrays_on_disk import is_finite
from feat2vec.errors import RESTORE, UserError, in_a_line
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import schema_of
from feat2vec.writing.digests import CheckedFile, Pieces
from feat2vec.writing.seekable_bytes import SeekableBytes
from feat2vec.writing.signatures import BLOCK_BYTES

CONFIG, WEIGHTS, ASSETS = "config.json", "model.weights.h5", "assets/encoder/"
MAX_SHOWN = 150  # characters of what is wrong with a schema
MAX_CONFIG_BYTES = 64 << 20
BYTES_PER_READ = 4 << 20
LOCAL_HEADER = struct.Struct("<4s22xHH")  # of a zip member: its signature, and the lengths of its name and extra field
SIGNATURE = b"PK\x03\x04"


class Lookup(NamedTuple):
    """The weights of a lookup: a table for each level, the first with the unseen key's row, and linear terms."""

    tables: list[Array]  # [|F_k|, D_k] each
    linear: Array | None  # [|F_1|], None without bias


class ModelFile:
    """A model's file that is open: its weights, none of which is read yet.

    Args:
        path: A file that `write_model` or Keras wrote.
        schema: That of the run; it must be the one in the file.
        sealed: Whether the file's digest has been checked. If not, the archive's checksums are checked.
        pieces: The digests of its pieces, each of which is compared when it is read; None if nothing is left to check.

    Raises:
        UserError: If the file belongs to another run, or a piece was changed.
        Exception: What a damaged file makes `zipfile`, `json` and `h5py` raise; see `damage_as_user_error`.

    """

    def __init__(self, path: Path, schema: Schema, *, sealed: bool = False, pieces: Pieces | None = None) -> None:
        self.path = path
        with ExitStack() as stack:
            opened = path.open("rb") if pieces is None else cast(BinaryIO, CheckedFile(path, pieces))
            file: BinaryIO = stack.enter_context(opened)
            archive = stack.enter_context(zipfile.ZipFile(file))
            check_schema(path, archive, schema)
            if not sealed:
                _check_checksums(path, file, archive)
            self.weights = stack.enter_context(h5py.File(_open_member(file, archive.getinfo(WEIGHTS)), "r"))
            self.size = sum(_array_sizes(self.weights))  # the number of numbers in its arrays
            self._open_files = stack.pop_all()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._open_files.close()

    def close_when_forgotten(self) -> None:
        """Close the file when nothing refers to this any more, for what reads on outside of a `with` statement."""
        weakref.finalize(self, self._open_files.close)

    def lookup_layer(self, name: str, owner: str) -> StoredArrays:
        """The arrays of an extractor, by the name of its layer: `group_0`, `group_1`, ...; messages call it `owner`."""
        for layer, group in extractor_groups(self.weights):
            if layer == name:
                return StoredArrays(self.path, owner, group)
        raise ValueError(f"{WEIGHTS} has no layer {name!r}")

    def model_arrays(self) -> StoredArrays:
        """The arrays of the model itself, which belong to no layer."""
        return StoredArrays(self.path, "what stands beside the groups", self.weights.get("vars", {}))


def holds_encoder(path: Path) -> bool:
    """Whether a model's file has a copy of the encoder, as those of runs without digests do."""
    with damage_as_user_error(path), zipfile.ZipFile(path) as archive:
        return any(name.startswith(ASSETS) for name in archive.namelist())


@contextmanager
def damage_as_user_error(path: Path) -> Iterator[None]:
    """Raise a `UserError` in place of what reading a damaged file raises."""
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: cannot be read, as it is missing; {RESTORE}") from None
    except OSError as error:
        if error.errno is not None:  # not the file's contents: permissions, a disk that fails
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        raise _damaged(path, error) from None
    except (ValueError, KeyError, TypeError, RuntimeError, EOFError, NotImplementedError, struct.error) as error:
        raise _damaged(path, error) from None
    except (zipfile.BadZipFile, RecursionError, OverflowError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: BaseException) -> UserError:
    remedy = "it is damaged or of another version: train the run again, or restore the file"
    return UserError(f"{path}: cannot be read ({in_a_line(error)})", remedy)


# --- what is in the archive -----------------------------------------------------------------------------------------


class FileSlice(SeekableBytes):
    """Some bytes of an open file, as a file to read: `size` of them from `start` on."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__(size)
        self.file, self.start = file, start

    def read_at(self, position: int, view: memoryview) -> int:
        self.file.seek(self.start + position)
        return int(self.file.readinto(view))  # type: ignore[attr-defined]


def _open_member(file: BinaryIO, info: zipfile.ZipInfo) -> FileSlice:
    """A member of an archive, read from within the file; Keras does not compress it."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
        raise ValueError(f"{info.filename} is compressed or encrypted, which Keras never does")
    file.seek(info.header_offset)
    signature, name_length, extra_length = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    start = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
    if signature != SIGNATURE or start + info.file_size > file.seek(0, io.SEEK_END):
        raise ValueError(f"{info.filename} is not whole")
    return FileSlice(file, start, info.file_size)


def check_schema(path: Path, archive: zipfile.ZipFile, schema: Schema) -> None:
    """Raise if the schema in a model's archive is another than that of the run."""
    info = archive.getinfo(CONFIG)
    if info.file_size > MAX_CONFIG_BYTES:
        raise ValueError(f"{CONFIG} has {info.file_size:,} bytes")
    text = json.loads(archive.read(info))["config"]["schema"]
    if not isinstance(text, str):
        raise ValueError(f"{CONFIG} holds no schema")
    try:
        schema_of_model = schema_of(text, f"{path}: {CONFIG}")
    except UserError as error:
        raise UserError(error.problems[0][: len(str(path)) + MAX_SHOWN], RESTORE) from None
    if schema_of_model == schema:
        return
    options_of_model, options = schema_of_model.model_dump(mode="json"), schema.model_dump(mode="json")
    keys = ", ".join(key for key in options if options_of_model[key] != options[key])
    raise UserError(
        f"{path}: was trained with another schema than the schema.yaml beside it ({keys} differ); {RESTORE}"
    )


def _check_checksums(path: Path, file: BinaryIO, archive: zipfile.ZipFile) -> None:
    """Raise if the weights, or the encoder's files beside the model, are not those that the archive has checksums of.

    It is done for runs of before, which have no digests.
    """
    for info in archive.infolist():
        name = info.filename
        if name == WEIGHTS and _crc32_of(_open_member(file, info)) != info.CRC:
            raise ValueError(f"the checksum of {WEIGHTS} is wrong")
        encoder_file = path.parent / name.removeprefix(ASSETS)
        is_encoder_file = name.startswith(ASSETS) and name.endswith(".parquet") and ".." not in name
        if is_encoder_file and encoder_file.is_file():
            with encoder_file.open("rb") as opened:
                if _crc32_of(opened) != info.CRC:
                    raise UserError(f"{encoder_file}: is not the file that {path.name} was trained with; {RESTORE}")


class _Readable(Protocol):
    def readinto(self, buffer: bytearray, /) -> int | None: ...


def _crc32_of(file: _Readable) -> int:
    """The CRC-32 of the rest of a file."""
    checksum, buffer = 0, bytearray(BLOCK_BYTES)
    while count := file.readinto(buffer):
        checksum = zlib.crc32(memoryview(buffer)[:count], checksum)
    return checksum


# --- weights --------------------------------------------------------------------------------------------------------


def extractor_groups(weights: h5py.Group) -> Iterator[tuple[str, h5py.Group]]:
    """For each extractor the name of its layer, and the HDF5 group that holds its variables."""
    extractors = weights.get("extractors", {})
    for key in extractors:
        group = extractors[key].get("vars") if isinstance(extractors[key], h5py.Group) else None
        if isinstance(group, h5py.Group):
            yield str(group.attrs.get("name", "")), group


def _array_sizes(group: h5py.Group, seen_addresses: set[int] | None = None) -> Iterator[int]:
    """The size of each array in a group and those below it; raises if anything is a link, or has two names."""
    seen = {h5py.h5o.get_info(group.id).addr} if seen_addresses is None else seen_addresses
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link")
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            raise ValueError(f"{name} is a second name for what has one already")
        seen.add(address)
        if isinstance(item, h5py.Dataset):
            _refuse_partial(item, name)
            yield item.size
        elif isinstance(item, h5py.Group):
            yield from _array_sizes(item, seen)


def _refuse_partial(dataset: h5py.Dataset, name: str) -> None:
    """Raise if an array is not in the file itself, or the file holds less of it than its shape says."""
    if dataset.shape is None or dataset.external or dataset.is_virtual or dataset.chunks is not None:
        raise ValueError(f"{name} is no plain array")
    if dataset.dtype.hasobject or dataset.nbytes != dataset.id.get_storage_size():
        raise ValueError(f"{name} holds less than its shape, {dataset.shape}, says")


class StoredArrays(Mapping[str, Array]):
    """The arrays of a layer by name, each read from the file at each access; raises if one is not finite.

    Args:
        path: The file, for messages.
        owner: What the arrays are called in messages.
        group: The HDF5 group that holds them.

    """

    def __init__(self, path: Path, owner: str, group: h5py.Group | Mapping[str, h5py.Dataset]) -> None:
        self.path, self.owner, self.group = path, owner, group

    def __len__(self) -> int:
        return len(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(self.group)

    def __getitem__(self, name: str) -> Array:
        dataset = self._dataset(name)
        array: Array = np.asarray(dataset[()])
        if dataset.attrs.get("dtype") == "bfloat16":  # stored as bytes, as HDF5 has no such type
            import ml_dtypes

            if array.dtype != np.dtype("V2"):
                raise ValueError(f"{name} holds {array.dtype} in place of bfloat16")
            array = array.view(ml_dtypes.bfloat16)
        elif array.dtype.kind not in "fiu":
            raise ValueError(f"{name} holds {array.dtype}, no numbers")
        with np.errstate(over="ignore"):  # a larger type may hold numbers that a weight cannot
            self._refuse_not_finite(array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array)
        return array

    def table(self, name: str, shape: Sequence[int], out: Array | None = None) -> Array:
        """A table, float32 of this shape, read a few rows at a time.

        Args:
            name: The name of the array.
            shape: The shape that it must have.
            out: The array to read into; a new one by default.

        Returns:
            `out`, or the new array.

        """
        dataset = self._table(name, shape)
        array: Array = np.empty(tuple(shape), np.float32) if out is None else out
        rows_per_read = _rows_per_read(shape)
        for start in range(0, shape[0], rows_per_read):
            rows = np.s_[start : start + rows_per_read]
            dataset.read_direct(array, rows, rows)
            self._refuse_not_finite(array[rows])
        return array

    def table_part(self, name: str, shape: Sequence[int], rows: slice) -> Array:
        """Consecutive rows of a table, float32 of this shape.

        Args:
            name: The name of the array.
            shape: The shape that the table must have.
            rows: From which row to which.

        """
        array: Array = np.empty((rows.stop - rows.start, *shape[1:]), np.float32)
        if len(array):
            self._table(name, shape).read_direct(array, np.s_[rows.start : rows.stop])
            self._refuse_not_finite(array)
        return array

    def table_rows(self, name: str, shape: Sequence[int], numbers: Ints) -> Array:
        """Some rows of a table, float32 of this shape: what is between them passes through a buffer.

        Args:
            name: The name of the array.
            shape: The shape that the table must have.
            numbers: The numbers of the rows [rows], ascending.

        """
        dataset = self._table(name, shape)
        rows: Array = np.empty((len(numbers), *shape[1:]), np.float32)
        rows_per_read = _rows_per_read(shape)
        buffer = np.empty((min(rows_per_read, shape[0]), *shape[1:]), np.float32)
        for start in range(0, shape[0], rows_per_read):
            first, end = np.searchsorted(numbers, [start, start + rows_per_read])
            if first == end:
                continue
            piece_numbers = numbers[first:end]
            below, above = int(piece_numbers[0]), int(piece_numbers[-1]) + 1  # of this piece no more is read
            dataset.read_direct(buffer, np.s_[below:above], np.s_[: above - below])
            np.take(buffer, piece_numbers - below, axis=0, out=rows[first:end], mode="clip")  # the fastest mode
            self._refuse_not_finite(rows[first:end])
        return rows

    def _table(self, name: str, shape: Sequence[int]) -> h5py.Dataset:
        dataset = self._dataset(name)
        if dataset.shape != tuple(shape) or dataset.dtype != np.float32:
            raise ValueError(f"{name} is {dataset.dtype} {dataset.shape} in place of float32 {tuple(shape)}")
        return dataset

    def _dataset(self, name: str) -> h5py.Dataset:
        dataset = self.group[name]
        if not isinstance(dataset, h5py.Dataset):
            raise ValueError(f"{name} is no array")
        _refuse_partial(dataset, name)
        return dataset

    def _refuse_not_finite(self, array: Array) -> None:
        if not is_finite(array):
            raise UserError(f"{self.path}: {self.owner} has weights that are not finite (NaN or infinity); {RESTORE}")


def _rows_per_read(shape: Sequence[int]) -> int:
    """How many rows of a table are read at a time."""
    bytes_of_row = np.dtype(np.float32).itemsize * int(np.prod(shape[1:]))
    return max(BYTES_PER_READ // max(bytes_of_row, 1), 1)
