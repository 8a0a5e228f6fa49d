"""Rows as records of fixed length: four bytes for each number, little-endian, in files without a header.

TensorFlow reads them with `tf.data.FixedLengthRecordDataset`, NumPy with `np.fromfile`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array
from feat2vec.encode.arrays_on_disk import ROWS_PER_BLOCK, release_pages
from feat2vec.encode.encoder import Encoded
from feat2vec.sampling.joint_values import Joint
from feat2vec.writing.files import replace_durably

NUMBER_BYTES = 4
SHARD_BYTES = 256 << 20  # about, of a file
STORED = {"int32": "<i4", "float32": "<f4"}  # the types of numbers, as they are stored


class RecordColumn(NamedTuple):
    """A number of each record.

    Args:
        kind: What it is: `value` (the value id of a group), `joint` (the id of a tuple of groups), `target`, `weight`.
        name: The group, the groups of a tuple with ` x ` between them, or the column of the table.
        type: `int32` or `float32`.

    """

    kind: str
    name: str
    type: str


def record_columns(encoded: Encoded, joints: Sequence[Joint]) -> list[RecordColumn]:
    """The numbers of a record, in their order.

    Args:
        encoded: The rows.
        joints: The joint sets of groups whose tuples have ids.

    """
    names, schema = list(encoded.values), encoded.encoder.schema
    columns = [RecordColumn("value", name, "int32") for name in names]
    columns += [RecordColumn("joint", " x ".join(names[g] for g in joint.groups), "int32") for joint in joints]
    if encoded.target is not None:
        columns.append(RecordColumn("target", str(schema.target), encoded.target.dtype.name))
    if encoded.weight is not None:
        columns.append(RecordColumn("weight", str(schema.weight), encoded.weight.dtype.name))
    return columns


def places_of_groups(columns: Sequence[RecordColumn], groups: Sequence[str]) -> list[int]:
    """Where the value ids of groups are in a record, in the order of the groups.

    Args:
        columns: The numbers of a record.
        groups: The names of the groups, whose order may be another one than when they were encoded.

    """
    places = {column.name: place for place, column in enumerate(columns) if column.kind == "value"}
    return [places[group] for group in groups]


def rows_of_shards(rows: int, columns: int, shard_bytes: int = SHARD_BYTES) -> list[range]:
    """The rows of each shard; all but the last one have the same number.

    >>> rows_of_shards(5, 2, shard_bytes=16)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    size = max(shard_bytes // (columns * NUMBER_BYTES), 1)
    return [range(start, min(start + size, rows)) for start in range(0, rows, size)]


def shard_name(shard: int) -> str:
    """The name of a shard's file.

    >>> shard_name(7)
    'rows-00007.bin'
    """
    return f"rows-{shard:05d}.bin"


def write_shard(path: Path, encoded: Encoded, joints: Sequence[Joint], rows: range) -> None:
    """Write some rows as records; the file gets its name when it is whole.

    Args:
        path: The file. One that is there already, whole, is left as it is.
        encoded: All rows.
        joints: The joint sets of groups whose tuples have ids.
        rows: The numbers of the rows.

    """
    width = len(record_columns(encoded, joints))
    if path.exists() and path.stat().st_size == len(rows) * width * NUMBER_BYTES:
        return
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("wb") as file:
        for start in range(rows.start, rows.stop, ROWS_PER_BLOCK):
            part = slice(start, min(start + ROWS_PER_BLOCK, rows.stop))
            value_ids = np.asarray(encoded.rows[part])  # [rows, groups]
            numbers = [value_ids, *(joint.ids(value_ids)[:, None] for joint in joints)]
            for array in (encoded.target, encoded.weight):
                if array is not None:
                    numbers.append(np.ascontiguousarray(array[part]).view(np.int32)[:, None])
            file.write(np.concatenate(numbers, axis=1, dtype="<i4").tobytes())
    replace_durably(unfinished, path)
    release_pages(encoded.rows)


class ShardReader:
    """Reads a shard from its beginning to its end, and its digest on the way.

    Args:
        path: The file.
        width: The numbers of a record.

    """

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width = path, width
        self.digest = hashlib.sha256()

    def blocks(self, rows_per_block: int = ROWS_PER_BLOCK) -> Iterator[Array]:
        """The records in blocks, int32 [rows, width]."""
        record_bytes = self.width * NUMBER_BYTES
        with self.path.open("rb") as file:
            while content := file.read(rows_per_block * record_bytes):
                self.digest.update(content)
                size = len(content) // record_bytes * record_bytes
                yield np.frombuffer(content[:size], "<i4").reshape(-1, self.width)
