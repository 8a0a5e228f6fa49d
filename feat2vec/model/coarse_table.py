"""A coarse copy of a large table, a quarter of its size, by which a search finds the few vectors that it has to read.

A vector v is stored as whole numbers c from -127 to 127 with a scale s, and with e = |v - s c|. For any query q

    |q . v - s q . c| <= |q| e,

so that a vector whose upper bound is below the k-th best lower bound is not among the k best: the search is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np

from feat2vec.arrays import Array, Float32s
from feat2vec.encode.arrays_on_disk import file_name
from feat2vec.errors import RESTORE, UserError
from feat2vec.writing.digests import CheckedFile, Pieces

COARSE = "coarse"  # the folder of such files in a run
CODES, SCALES = ".codes", ".scales"
LARGEST_CODE = 127
ROWS_PER_BLOCK = 1 << 16
NUMBERS_OF_ROW = 3  # that are no codes: s, e and |v|
ROUNDING = 2.0**-22  # of a sum of float32 for each of its terms, four times what one rounding may be

PiecesOf = Callable[[str], Pieces | None]  # of a file by its path below the run's folder


def coarse_name(owner: str) -> str:
    """The path of a group's coarse files below the run's folder, without their endings."""
    return f"{COARSE}/{file_name(owner)}"


class CoarseRows(NamedTuple):
    """Consecutive rows of a coarse table.

    Args:
        rows: Which ones.
        codes: c, int8 [rows, dim].
        scales: s, [rows].
        errors: e, rounded up, [rows].
        norms: |v|, [rows].

    """

    rows: slice
    codes: Array
    scales: Float32s
    errors: Float32s
    norms: Float32s


def coarse(vectors: Float32s) -> tuple[Array, Float32s]:
    """The codes of vectors [rows, dim], and s, e and |v| of each: [rows, 3]."""
    largest = np.abs(vectors).max(axis=1, initial=0)
    scales = np.where(largest > 0, largest / np.float32(LARGEST_CODE), np.float32(1)).astype(np.float32)
    codes = np.rint(vectors / scales[:, None]).astype(np.int8)
    rest = vectors.astype(np.float64) - codes * scales[:, None].astype(np.float64)
    errors = np.sqrt(np.einsum("ij,ij->i", rest, rest)).astype(np.float32)
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return codes, np.stack([scales, np.nextafter(errors, np.float32(np.inf)), norms], axis=1)


def write_coarse(pieces: Iterable[Float32s], path: Path) -> None:
    """Write the coarse copy of a table.

    Args:
        pieces: The rows of the table in their order, [rows, dim] each.
        path: The files without their endings; the folder is made.

    """
    path.parent.mkdir(exist_ok=True)
    with Path(f"{path}{CODES}").open("wb") as codes_file, Path(f"{path}{SCALES}").open("wb") as scales_file:
        for vectors in pieces:
            codes, scales = coarse(vectors)
            codes_file.write(codes.data)
            scales_file.write(np.ascontiguousarray(scales, "<f4").data)


class CoarseTable:
    """Reads the coarse copy of a table.

    Args:
        folder: The run's folder.
        name: The files' path below it, without their endings.
        shape: The shape of the table.
        pieces_of: What is known of the pieces of a file.

    """

    def __init__(self, folder: Path, name: str, shape: tuple[int, int], pieces_of: PiecesOf) -> None:
        self.folder, self.name, self.shape, self.pieces_of = folder, name, shape, pieces_of

    def blocks(self, first: int = 0, gain: float = 1.0, rows_per_block: int = ROWS_PER_BLOCK) -> Iterator[CoarseRows]:
        """The rows from one on, a block at a time, counted from 0, times a factor.

        Raises:
            UserError: A file is missing, has another size or was changed.

        """
        rows, dim = self.shape
        with ExitStack() as stack:
            codes_file = self._open(stack, CODES, rows * dim)
            scales_file = self._open(stack, SCALES, rows * NUMBERS_OF_ROW * 4)
            for start in range(first, rows, rows_per_block):
                count = min(rows_per_block, rows - start)
                codes = np.frombuffer(_read(codes_file, start * dim, count * dim), np.int8).reshape(count, dim)
                place, size = start * NUMBERS_OF_ROW * 4, count * NUMBERS_OF_ROW * 4
                numbers = np.frombuffer(_read(scales_file, place, size), "<f4").reshape(count, NUMBERS_OF_ROW)
                scales, errors, norms = (numbers * np.float32(gain)).T
                yield CoarseRows(slice(start - first, start - first + count), codes, scales, errors, norms)

    def _open(self, stack: ExitStack, ending: str, size: int) -> BinaryIO:
        name = f"{self.name}{ending}"
        path, pieces = self.folder / name, self.pieces_of(name)
        if not path.is_file() or path.stat().st_size != size:
            raise UserError(f"{path}: is missing, or is not the file that this run was trained with; {RESTORE}")
        opened = path.open("rb") if pieces is None else cast(BinaryIO, CheckedFile(path, pieces))
        return stack.enter_context(opened)


def _read(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)


def bounds(block: CoarseRows, query: Float32s, *, cosine: bool) -> tuple[Float32s, Float32s]:
    """What q . v is about for each row of a block, and how far it may be from that, [rows] both; q is [dim].

    With `cosine` both are divided by |v|.
    """
    products = (block.codes.astype(np.float32) @ query) * block.scales
    rounding = np.float32(ROUNDING * (len(query) + 8))
    slack = np.linalg.norm(query) * (block.errors + rounding * block.norms)
    if cosine:
        inverse = np.divide(1, block.norms, out=np.zeros_like(block.norms), where=block.norms > 0)
        products, slack = products * inverse, slack * inverse
    return products, slack.astype(np.float32)
