"""`model.keras` read as arrays. What the model is follows from the run's own schema; nothing in the file names code.

The file is a zip archive: `config.json` (the schema, which has to be the run's), `model.weights.h5`, and the encoder's
files. Keras would build whatever `config.json` names and unpack the archive into TMPDIR; here it is read in its place.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import keras
import numpy as np
import tensorflow as tf

from feat2vec.document import parse_document
from feat2vec.encode import Encoder
from feat2vec.errors import UserError
from feat2vec.memory import least_weights
from feat2vec.model import Feat2Vec
from feat2vec.run_files import BUFFER, RESTORE, in_a_line
from feat2vec.schema import Schema, read_schema
from feat2vec.scores import shapes_of
from feat2vec.values import Array, is_finite

CONFIG, WEIGHTS, ASSETS = "config.json", "model.weights.h5", "assets/encoder/"
MOST_SHOWN = 150  # characters of what is wrong with a schema
LARGEST_CONFIG = 64 << 20  # bytes
LOCAL_HEADER = struct.Struct("<4s22xHH")  # a zip member's own header: its mark, and how long its name and extras are


def read_model(path: Path, encoder: Encoder, *, sealed: bool = False) -> Feat2Vec:
    """Build the encoder's model and read its weights from a file.

    Args:
        path: A file that `Feat2Vec.save` wrote.
        encoder: The run's own; its schema must be the one in the file.
        sealed: Whether the file's digest was checked. If not, the sums within the archive are.

    Raises:
        UserError: If the file is damaged, belongs to another run, or holds weights that are not finite.

    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            _check_schema(path, archive, encoder.schema)
            if not sealed:
                _check_sums(path, file, archive)
            with h5py.File(_member(file, archive.getinfo(WEIGHTS)), "r") as stored:
                _refuse_too_few(path, stored, encoder)
                classes = 0 if encoder.classes is None else len(encoder.classes.keys)
                model = Feat2Vec(encoder.schema.resolved(), shapes_of(encoder), classes)
                model.encoder = encoder
                model.build()
                _load_weights(path, model, stored)
    except FileNotFoundError:
        raise UserError(f"{path}: cannot be read, as it is missing; {RESTORE}") from None
    except OSError as error:
        if error.errno is not None:  # not the file's contents: permissions, a disk that fails
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        raise _damaged(path, error) from None
    except (ValueError, KeyError, TypeError, RuntimeError, EOFError, NotImplementedError, struct.error) as error:
        raise _damaged(path, error) from None
    except (zipfile.BadZipFile, RecursionError, OverflowError, tf.errors.InvalidArgumentError) as error:
        raise _damaged(path, error) from None
    return model


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


def _check_schema(path: Path, archive: zipfile.ZipFile, schema: Schema) -> None:
    """The schema that the model was made of is the run's own."""
    info = archive.getinfo(CONFIG)
    if info.file_size > LARGEST_CONFIG:
        raise ValueError(f"{CONFIG} has {info.file_size:,} bytes")
    text = json.loads(archive.read(info))["config"]["schema"]
    if not isinstance(text, str):
        raise ValueError(f"{CONFIG} holds no schema")
    try:
        made_of = read_schema(parse_document(text, f"{path}: {CONFIG}"), plugins=False)
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


def _refuse_too_few(path: Path, stored: Any, encoder: Encoder) -> None:
    """Raise, before any weight is made, if the file cannot hold as many as schema and vocabularies ask for."""
    needed, held = least_weights(encoder), sum(_sizes(stored))
    if held < needed:
        raise UserError(
            f"{path}: holds {held:,} numbers, and the schema and vocabularies beside it ask for {needed:,}; {RESTORE}"
        )


def _sizes(group: Any, depth: int = 0) -> Iterator[int]:
    """How many numbers each array in a group of the file has; links out of it are not followed."""
    for name in group if depth < 16 else ():
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{name} is a link")
        item = group[name]
        if isinstance(item, h5py.Dataset):
            yield _checked(item, name).size
        elif isinstance(item, h5py.Group):
            yield from _sizes(item, depth + 1)


def _checked(dataset: Any, name: str) -> Any:
    """An array that is in the file itself, as large as it says it is."""
    if dataset.shape is None or dataset.external or dataset.is_virtual or dataset.chunks is not None:
        raise ValueError(f"{name} is no plain array")
    if dataset.dtype.hasobject or dataset.nbytes != dataset.id.get_storage_size():
        raise ValueError(f"{name} holds less than its shape, {dataset.shape}, says")
    return dataset


@dataclass
class _Place:
    """A layer, whose weights it holds, and the paths by which Keras may have saved it."""

    layer: keras.layers.Layer
    owner: str
    paths: list[str] = field(default_factory=list)


def _load_weights(path: Path, model: Feat2Vec, stored: Any) -> None:
    """Give every layer its arrays; Keras' layers say what they lack."""
    owners = {id(extractor): f"the group {name!r}" for name, extractor in _by_group(model)}
    places: dict[int, _Place] = {}
    _find_layers(model, "", "what stands beside the groups", owners, frozenset(), places)
    for place in places.values():
        arrays = None
        for at in place.paths:
            arrays = _group_at(stored, f"{at}/vars".removeprefix("/")) or arrays
        place.layer.load_own_variables(_Arrays(path, place.owner, arrays or {}))


def _by_group(model: Feat2Vec) -> Iterator[tuple[str, keras.layers.Layer]]:
    return zip(model.groups, model.extractors, strict=True)


def _find_layers(
    item: Any, path: str, owner: str, owners: Mapping[int, str], above: frozenset[int], places: dict[int, _Place]
) -> None:
    """Collect the layers below an attribute, with their paths: attributes' names, and in lists the classes' names."""
    if id(item) in above:
        return
    above = above | {id(item)}
    if isinstance(item, keras.layers.Layer):
        owner = owners.get(id(item), owner)
        places.setdefault(id(item), _Place(item, owner)).paths.append(path)
        children = list(vars(item).items())
    else:
        children = list(_named(item.values() if isinstance(item, dict) else item))
    for name, child in children:
        if isinstance(child, keras.layers.Layer | list | tuple | dict):
            _find_layers(child, f"{path}/{name}".removeprefix("/"), owner, owners, above, places)


def _named(items: Any) -> Iterator[tuple[str, Any]]:
    """What a list or dictionary holds, by the names that Keras saves it under: dense, dense_1, ..."""
    seen: Counter[str] = Counter()
    for item in items:
        if isinstance(item, keras.layers.Layer):
            name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", type(item).__name__)
            name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
        elif isinstance(item, list | tuple | dict):
            name = "container"
        else:
            continue
        yield f"{name}_{seen[name]}" if seen[name] else name, item
        seen[name] += 1


def _group_at(stored: Any, path: str) -> Any:
    """A group of the file, None where there is none."""
    for name in path.split("/"):
        stored = stored[name] if isinstance(stored, h5py.Group) and name in stored else None
    return stored if isinstance(stored, h5py.Group) else None


class _Arrays(Mapping[str, Array]):
    """The arrays of a layer, each read when it is asked for, all of them finite."""

    def __init__(self, path: Path, owner: str, group: Any) -> None:
        self.path, self.owner, self.group = path, owner, group

    def __len__(self) -> int:
        return len(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(self.group)

    def __getitem__(self, name: str) -> Array:
        dataset = self.group[name]
        if not isinstance(dataset, h5py.Dataset):
            raise ValueError(f"{name} is no array")
        array: Array = np.asarray(_checked(dataset, name)[()])
        if dataset.attrs.get("dtype") == "bfloat16":  # HDF5 has no such type
            array = array.view(tf.bfloat16.as_numpy_dtype)
        elif array.dtype.kind not in "fiu":
            raise ValueError(f"{name} holds {array.dtype}, no numbers")
        if not is_finite(array):
            raise UserError(f"{self.path}: {self.owner} has weights that are not finite (NaN or infinity); {RESTORE}")
        return array
