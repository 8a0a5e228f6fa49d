"""The weights in `model.keras`, read in pieces, without TensorFlow: a table alone if no more is asked for."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import h5py
import numpy as np

from feat2vec.errors import UserError
from feat2vec.values import Array

CONFIG, WEIGHTS, OPTIMIZER = "config.json", "model.weights.h5", "optimizer"
PIECE = 4 << 20  # bytes that are read at a time
BOMB, EXPANSION = 1 << 28, 100  # a compressed member that is larger, and that many times larger than in the file


class Lookup(NamedTuple):
    """What a lookup has learnt: a table for each level, the first with the unseen key's row, and linear terms."""

    tables: list[Array]  # [|F_k|, D_k] each
    linear: Array | None  # [|F_1|], None without bias


class ModelFile:
    """A file that is open: what it says of the model, and its weights, none of which is read yet.

    Raises what a damaged file makes `zipfile`, `json` and `h5py` raise: OSError, ValueError, KeyError, BadZipFile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with ExitStack() as opened:
            file: BinaryIO = opened.enter_context(path.open("rb"))
            with zipfile.ZipFile(file) as archive:
                self.config: dict[str, Any] = json.loads(archive.read(CONFIG))
                weights = opened.enter_context(_member(file, archive, archive.getinfo(WEIGHTS)))
            try:
                self.weights = opened.enter_context(h5py.File(weights, "r"))
                self.layers = dict(layers_of(self.weights))
            except RuntimeError as error:  # h5py's, of a damaged file
                raise ValueError(str(error)) from error
            self.opened = opened.pop_all()

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.opened.close()

    def table(self, layer: str, key: str, shape: Sequence[int], out: Array | None = None) -> Array:
        """A table of a layer, float32 of this shape, read into `out` if it is given."""
        if layer not in self.layers:
            raise ValueError(f"{WEIGHTS} has no layer {layer!r}")
        dataset = checked(self.layers[layer], key)
        if dataset.shape != tuple(shape) or dataset.dtype != np.float32:
            raise ValueError(f"{WEIGHTS}: {layer} holds {dataset.dtype} {dataset.shape}, not float32 {tuple(shape)}")
        array: Array = np.empty(shape, np.float32) if out is None else out
        step = max(PIECE // max(4 * int(np.prod(shape[1:])), 1), 1)
        for at in range(0, shape[0], step):
            dataset.read_direct(array, np.s_[at : at + step], np.s_[at : at + step])
        return array

    def number(self, key: str) -> float:
        """A number of the model's own."""
        if not _is_group(self.weights, "vars"):
            raise ValueError(f"{WEIGHTS} has no weights of the model's own")
        return float(checked(self.weights["vars"], key)[()])

    def others(self, path: Path, tables: Iterable[tuple[str, str]]) -> None:
        """Write all weights but these tables, of layers and keys, and the optimizer's slots to a file for Keras."""
        left_out = {f"{self.layers[layer].name}/{key}" for layer, key in tables if layer in self.layers}
        with h5py.File(path, "w") as file:
            _copy(self.weights, file, {*left_out, f"/{OPTIMIZER}"})


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What reading a damaged file raises, as words."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:200]
        remedy = "it is damaged or of another version: train the run again, or restore the file"
        raise UserError(f"{path}: cannot be read ({type(error).__name__}: {reason})", remedy) from None


def checked(group: Any, key: str) -> Any:
    """A dataset whose numbers are in this very file."""
    if group.get(key, getlink=True) is None:
        raise ValueError(f"{WEIGHTS} has no {group.name}/{key}")
    if not isinstance(group.get(key, getlink=True), h5py.HardLink):
        raise ValueError(f"{WEIGHTS}: {group.name}/{key} is a link")
    dataset = group[key]
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise ValueError(f"{WEIGHTS}: {group.name}/{key} is no dataset of this file")
    if dataset.size * dataset.dtype.itemsize > max(dataset.id.get_storage_size(), BOMB // EXPANSION) * EXPANSION:
        raise ValueError(f"{WEIGHTS}: {group.name}/{key} has more numbers than the file")
    return dataset


def _copy(source: Any, target: Any, left_out: set[str]) -> None:
    for key, value in source.attrs.items():
        target.attrs[key] = value
    for key in source:
        if f"{source.name.rstrip('/')}/{key}" in left_out:
            continue
        if _is_group(source, key):
            _copy(source[key], target.create_group(key), left_out)
            continue
        dataset = checked(source, key)
        target[key] = dataset[()]
        for name, value in dataset.attrs.items():
            target[key].attrs[name] = value


def layers_of(weights: Any) -> Iterable[tuple[str, Any]]:
    """The name that Keras gave each extractor, and the group that holds its variables."""
    if not _is_group(weights, "extractors"):
        return
    extractors = weights["extractors"]
    for key in extractors:
        if _is_group(extractors, key) and _is_group(extractors[key], "vars"):
            group = extractors[key]["vars"]
            yield str(group.attrs["name"]), group


def _is_group(group: Any, key: str) -> bool:
    """Whether a group holds another one itself, and no link to one."""
    return isinstance(group.get(key, getlink=True), h5py.HardLink) and group.get(key, getclass=True) is h5py.Group


def _member(file: BinaryIO, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """A member of an archive as a file that h5py reads."""
    if info.compress_type == zipfile.ZIP_STORED:
        file.seek(info.header_offset)
        header = file.read(30)
        if len(header) < 30:
            raise ValueError(f"{info.filename} is cut off")
        name, extra = struct.unpack("<HH", header[26:])
        return _Window(file, info.header_offset + 30 + name + extra, info.file_size)
    if info.file_size > BOMB and info.file_size > EXPANSION * info.compress_size:
        raise ValueError(f"{info.filename} has {info.file_size:,} bytes in {info.compress_size:,}")
    whole = tempfile.TemporaryFile()  # noqa: SIM115  # h5py reads it
    with archive.open(info) as packed:
        shutil.copyfileobj(packed, whole, PIECE)
    return whole


class _Window(io.RawIOBase):
    """Part of a file, to be read."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        super().__init__()
        self.part, self.start, self.size, self.at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        some = memoryview(buffer).cast("B")[: max(self.size - self.at, 0)]
        self.part.seek(self.start + self.at)
        count = self.part.readinto(some)  # type: ignore[attr-defined]
        self.at += count
        return int(count)
