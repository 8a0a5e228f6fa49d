"""The weights in `model.keras`, read in pieces, without TensorFlow: a table alone if no more is asked for.

The file is a zip archive: `config.json` (the schema, which has to be the run's), `model.weights.h5`, and the encoder's
files. Keras would build whatever `config.json` names and unpack the archive into TMPDIR; here it is read in its place,
and nothing in it names code.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import h5py
import numpy as np

from feat2vec.encode.array_files import Array, is_finite
from feat2vec.errors import UserError
from feat2vec.schema.options import Schema, schema_of
from feat2vec.writing.run_files import BUFFER, RESTORE, in_a_line

CONFIG, WEIGHTS, ASSETS = "config.json", "model.weights.h5", "assets/encoder/"
MOST_SHOWN = 150  # characters of what is wrong with a schema
LARGEST_CONFIG = 64 << 20  # bytes
LOCAL_HEADER = struct.Struct("<4s22xHH")  # a zip member's own header: its mark, and how long its name and extras are
PIECE = 4 << 20  # bytes that are read at a time


class Lookup(NamedTuple):
    """What a lookup has learnt: a table for each level, the first with the unseen key's row, and linear terms."""

    tables: list[Array]  # [|F_k|, D_k] each
    linear: Array | None  # [|F_1|], None without bias


class ModelFile:
    """A model's file that is open: its weights, none of which is read yet.

    Args:
        path: A file that `write_model` or Keras wrote.
        schema: The run's own; it must be the one in the file.
        sealed: Whether the file's digest was checked. If not, the sums within the archive are.

    Raises:
        UserError: If the file belongs to another run.
        Exception: What a damaged file makes `zipfile`, `json` and `h5py` raise; `readable` puts it into words.

    """

    def __init__(self, path: Path, schema: Schema, *, sealed: bool = False) -> None:
        self.path = path
        with ExitStack() as opened:
            file: BinaryIO = opened.enter_context(path.open("rb"))
            archive = opened.enter_context(zipfile.ZipFile(file))
            check_schema(path, archive, schema)
            if not sealed:
                _check_sums(path, file, archive)
            self.weights = opened.enter_context(h5py.File(_member(file, archive.getinfo(WEIGHTS)), "r"))
            self.held = sum(_sizes(self.weights))  # numbers, in arrays of this very file
            self.opened = opened.pop_all()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.opened.close()

    def lookup_layer(self, name: str) -> StoredArrays:
        """The arrays of an extractor, by the name that its layer has: `group_0`, `group_1`, ..."""
        for layer, group in layers_of(self.weights):
            if layer == name:
                return StoredArrays(self.path, name, group)
        raise ValueError(f"{WEIGHTS} has no layer {name!r}")

    def own(self) -> StoredArrays:
        """The arrays of the model itself, which belong to no layer."""
        group = self.weights.get("vars", {})
        return StoredArrays(self.path, "what stands beside the groups", group)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What reading a damaged file raises, as words."""
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


class _Window(io.RawIOBase):
    """A part of a file that is open, as a file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self.file, self.start, self.size, self.at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = max(offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence], 0)
        return self.at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[: max(self.size - self.at, 0)]
        self.file.seek(self.start + self.at)
        count = self.file.readinto(view)  # type: ignore[attr-defined]
        self.at += count
        return int(count)


def _member(file: BinaryIO, info: zipfile.ZipInfo) -> _Window:
    """A member of an archive where it stands in the file: it is not compressed, as Keras writes it."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
        raise ValueError(f"{info.filename} is compressed or encrypted, which Keras never does")
    file.seek(info.header_offset)
    mark, name, extra = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    start = info.header_offset + LOCAL_HEADER.size + name + extra
    if mark != b"PK\x03\x04" or start + info.file_size > file.seek(0, io.SEEK_END):
        raise ValueError(f"{info.filename} is not whole")
    return _Window(file, start, info.file_size)


def check_schema(path: Path, archive: zipfile.ZipFile, schema: Schema) -> None:
    """The schema that the model was made of is the run's own."""
    info = archive.getinfo(CONFIG)
    if info.file_size > LARGEST_CONFIG:
        raise ValueError(f"{CONFIG} has {info.file_size:,} bytes")
    text = json.loads(archive.read(info))["config"]["schema"]
    if not isinstance(text, str):
        raise ValueError(f"{CONFIG} holds no schema")
    try:
        made_of = schema_of(text, f"{path}: {CONFIG}")
    except UserError as error:
        raise UserError(error.problems[0][: len(str(path)) + MOST_SHOWN], RESTORE) from None
    if made_of == schema:
        return
    before, now = made_of.model_dump(mode="json"), schema.model_dump(mode="json")
    keys = ", ".join(key for key in now if before[key] != now[key])
    raise UserError(
        f"{path}: was trained with another schema than the schema.yaml beside it ({keys} differ); {RESTORE}"
    )


def _check_sums(path: Path, file: BinaryIO, archive: zipfile.ZipFile) -> None:
    """In a run without digests, the archive tells whether the weights and the encoder's files are those of training."""
    for info in archive.infolist():
        name = info.filename
        if name == WEIGHTS and _sum_of(_member(file, info)) != info.CRC:
            raise ValueError(f"the checksum of {WEIGHTS} is wrong")
        beside = path.parent / name.removeprefix(ASSETS)
        if name.startswith(ASSETS) and name.endswith(".parquet") and ".." not in name and beside.is_file():
            with beside.open("rb") as part:
                if _sum_of(part) != info.CRC:
                    raise UserError(f"{beside}: is not the file that {path.name} was trained with; {RESTORE}")


def _sum_of(file: Any) -> int:
    """The CRC-32 of a file."""
    total, buffer = 0, bytearray(BUFFER)
    while count := file.readinto(buffer):
        total = zlib.crc32(memoryview(buffer)[:count], total)
    return total


# --- weights --------------------------------------------------------------------------------------------------------


def layers_of(weights: Any) -> Iterator[tuple[str, Any]]:
    """The name that Keras gave each extractor, and the group of the file that holds its variables."""
    extractors = weights.get("extractors", {})
    for key in extractors:
        group = extractors[key].get("vars") if isinstance(extractors[key], h5py.Group) else None
        if isinstance(group, h5py.Group):
            yield str(group.attrs.get("name", "")), group


def _sizes(group: Any, seen: set[int] | None = None) -> Iterator[int]:
    """How many numbers each array in a group of the file has; nothing in it has two names, or a name elsewhere."""
    seen = {h5py.h5o.get_info(group.id).addr} if seen is None else seen
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link")
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            raise ValueError(f"{name} is a second name for what has one already")
        seen.add(address)
        if isinstance(item, h5py.Dataset):
            yield _checked(item, name).size
        elif isinstance(item, h5py.Group):
            yield from _sizes(item, seen)


def _checked(dataset: Any, name: str) -> Any:
    """An array that is in the file itself, as large as it says it is."""
    if dataset.shape is None or dataset.external or dataset.is_virtual or dataset.chunks is not None:
        raise ValueError(f"{name} is no plain array")
    if dataset.dtype.hasobject or dataset.nbytes != dataset.id.get_storage_size():
        raise ValueError(f"{name} holds less than its shape, {dataset.shape}, says")
    return dataset


class StoredArrays(Mapping[str, Array]):
    """The arrays of a layer, each read when it is asked for, all of them finite."""

    def __init__(self, path: Path, owner: str, group: Any) -> None:
        self.path, self.owner, self.group = path, owner, group

    def __len__(self) -> int:
        return len(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(self.group)

    def __getitem__(self, name: str) -> Array:
        dataset = self._dataset(name)
        array: Array = np.asarray(dataset[()])
        if dataset.attrs.get("dtype") == "bfloat16":  # HDF5 has no such type
            import ml_dtypes

            array = array.view(ml_dtypes.bfloat16)
        elif array.dtype.kind not in "fiu":
            raise ValueError(f"{name} holds {array.dtype}, no numbers")
        with np.errstate(over="ignore"):  # a larger type may hold numbers that a weight cannot
            self._check(array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array)
        return array

    def table(self, name: str, shape: Sequence[int], out: Array | None = None) -> Array:
        """A table, float32 of this shape, read a few rows at a time into `out` if it is given."""
        dataset = self._dataset(name)
        if dataset.shape != tuple(shape) or dataset.dtype != np.float32:
            raise ValueError(f"{name} is {dataset.dtype} {dataset.shape} in place of float32 {tuple(shape)}")
        array: Array = np.empty(tuple(shape), np.float32) if out is None else out
        step = max(PIECE // max(4 * int(np.prod(shape[1:])), 1), 1)
        for at in range(0, shape[0], step):
            rows = np.s_[at : at + step]
            dataset.read_direct(array, rows, rows)
            self._check(array[rows])
        return array

    def _dataset(self, name: str) -> Any:
        dataset = self.group[name]
        if not isinstance(dataset, h5py.Dataset):
            raise ValueError(f"{name} is no array")
        return _checked(dataset, name)

    def _check(self, array: Array) -> None:
        if not is_finite(array):
            raise UserError(f"{self.path}: {self.owner} has weights that are not finite (NaN or infinity); {RESTORE}")
