"""The bytes of an array that are no longer those of before, written as a stream, and read back over those of before.

The stream has a record for each block of the array, in order: how many bytes the block has, how many a unit has, and
how many units have changed, three uint32; then, if any has, a bit for each unit, and the changed units' bytes. A unit
is a row of a table, or a few small ones. Units are compared byte for byte: no digest decides what is unchanged.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from feat2vec.arrays import Array

RECORD = struct.Struct("<III")  # bytes of the block, bytes of a unit, changed units
LEAST_UNIT_BYTES = 64  # a bit for each unit, and its place in a step, cost less than this
BYTES_PER_BLOCK = 4 << 20
Bytes = npt.NDArray[np.uint8]


class Readable(Protocol):
    """A file that is read in order."""

    def read(self, size: int, /) -> bytes:
        """The next bytes."""


def unit_bytes(shape: Sequence[int], dtype: np.dtype[Any]) -> int:
    """The size of a unit of an array: a row, or as many rows as have `LEAST_UNIT_BYTES`.

    >>> unit_bytes([1000, 50], np.dtype(np.float32)), unit_bytes([1000], np.dtype(np.float32))
    (200, 64)
    """
    row = max(math.prod(shape[1:]) * dtype.itemsize, 1)
    return row * -(-LEAST_UNIT_BYTES // row)


def write_changes(out: IO[bytes], before: Readable, pieces: Iterable[Array], unit: int) -> None:
    """Write what of an array has changed.

    Args:
        out: Where the stream of changes goes.
        before: The array's bytes of before.
        pieces: The array now, in order, in pieces of any size.
        unit: The size of a unit, in bytes.

    Raises:
        ValueError: There are fewer bytes of before.

    """
    block = max(BYTES_PER_BLOCK // unit, 1) * unit
    for piece in pieces:
        content: Bytes = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
        for start in range(0, len(content), block):
            now = content[start : start + block]  # [bytes]
            places = np.flatnonzero(_changed_units(now, _bytes_of(before, len(now)), unit))
            out.write(RECORD.pack(len(now), unit, len(places)))
            if len(places):
                bits = np.zeros(-(-len(now) // unit), np.bool_)  # [units]
                bits[places] = True
                out.write(np.packbits(bits).data)
                out.write(_units(now, places, unit).data)


def _changed_units(now: Bytes, before: Bytes, unit: int) -> npt.NDArray[np.bool_]:
    """Which units of a block have changed, [units]; the last unit may be short."""
    complete = len(now) // unit * unit
    word: Any = np.uint64 if unit % 8 == 0 else np.uint32 if unit % 4 == 0 else np.uint8
    pairs = [array[:complete].view(word).reshape(-1, unit // np.dtype(word).itemsize) for array in (now, before)]
    changed: npt.NDArray[np.bool_] = (pairs[0] != pairs[1]).any(axis=1)  # [units, words] -> [units]
    if complete == len(now):
        return changed
    return np.append(changed, not np.array_equal(now[complete:], before[complete:]))


def _units(block: Bytes, places: npt.NDArray[np.intp], unit: int) -> Bytes:
    """The bytes of some units of a block, one after the other."""
    full_units = len(block) // unit
    end = full_units * unit
    units = block[:end].reshape(full_units, unit)[places[places < full_units]].reshape(-1)
    return units if places[-1] < full_units else np.concatenate([units, block[end:]])


def _bytes_of(file: Readable, size: int) -> Bytes:
    content = file.read(size)
    if len(content) < size:
        raise ValueError("the file ends early")
    return np.frombuffer(content, np.uint8)


class ChangedBytes:
    """The bytes of an array as they are after its changes; they are read in order.

    Args:
        before: The array's bytes of before.
        changes: The stream of changes.
        size: How many bytes the array has.

    """

    def __init__(self, before: Readable, changes: Readable, size: int) -> None:
        self.before, self.changes, self.left = before, changes, size
        self._block = np.empty(0, np.uint8)  # what of the current block has not been read

    def read(self, size: int) -> bytes:
        """The next bytes; after the last one, what of the two files is left over.

        Raises:
            ValueError: The changes are not those of this array.

        """
        parts: list[bytes] = []
        while size:
            if not len(self._block):
                if not self.left:
                    parts.append(self.before.read(size) + self.changes.read(size))
                    break
                self._block = self._next_block()
            parts.append(self._block[:size].tobytes())
            self._block = self._block[size:]
            size -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next_block(self) -> Bytes:
        size, unit, changed = RECORD.unpack(_bytes_of(self.changes, RECORD.size).tobytes())
        if not 0 < size <= self.left or not unit:
            raise ValueError("its changes are of another array")
        self.left -= size
        block = _bytes_of(self.before, size)
        if not changed:
            return block
        units = -(-size // unit)
        bits = np.unpackbits(_bytes_of(self.changes, -(-units // 8)))[:units]  # [units]
        places = np.flatnonzero(bits)
        if len(places) != changed:
            raise ValueError("its changes do not count their units")
        block = block.copy()
        full_units = size // unit
        end, inside = full_units * unit, places[places < full_units]
        numbers = _bytes_of(self.changes, len(inside) * unit)
        block[:end].reshape(full_units, unit)[inside] = numbers.reshape(-1, unit)
        if len(inside) < len(places):
            block[end:] = _bytes_of(self.changes, size - end)
        return block
