"""The best of many vectors: exact in blocks, or by an index of faiss that is kept on disk."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from feat2vec.encode.array_files import Array
from feat2vec.errors import UserError
from feat2vec.writing import file_in

Floats = npt.NDArray[np.float32]
IndexKind = Literal["exact", "hnsw", "ivf"]

BLOCK = 1 << 23  # bytes of scores at a time: few blocks, as the threads of BLAS wait for each other at the end of each
QUERIES = 1024  # at a time
INDEXED = 10_000  # fewer vectors are searched exactly: an index would not be faster
PIECE = 1 << 16  # vectors that are given to faiss at a time
LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 80, 64  # of HNSW: a vector's neighbours, candidates in building and searching
PROBES = 32  # of the lists of an IVF
VERSION = b"feat2vec index 2"
DIGEST = 32


class Hits(NamedTuple):
    """The best candidates of each query, best first; of equal ones the first. -1 and -inf where there are fewer."""

    ids: npt.NDArray[np.int64]  # [queries, k]
    scores: Floats  # [queries, k]


def best(scores: Callable[[slice], Floats], queries: int, total: int, k: int) -> Hits:
    """The k best of `total` candidates; `scores` gives those of some candidates, [queries, some], to be read at once.

    A block's scores are looked through only where their maximum is above the k-th best so far.
    """
    k = min(k, total)
    found = Hits(np.full((queries, k), -1), np.full((queries, k), -np.inf, np.float32))
    if not k or not queries:
        return found
    size = max(BLOCK // (4 * queries), 1024, k)
    for start in range(0, total, size):
        block = scores(slice(start, min(start + size, total)))
        if start == 0:
            low = np.partition(block, -k, axis=1)[:, -k] if block.shape[1] > k else block.min(axis=1)
            low = np.nextafter(low, np.float32(-np.inf))
        else:
            low = found.scores[:, -1]
        rows = np.flatnonzero(block.max(axis=1) > low)
        if len(rows):
            _merge(found, rows, block[rows], low[rows], start)
    return found


def _merge(found: Hits, rows: Array, block: Floats, low: Floats, start: int) -> None:
    """Put what is above `low` among the best of some queries."""
    row, column = np.nonzero(block > low[:, None])
    counts = np.bincount(row, minlength=len(rows))
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    k = found.ids.shape[1]
    scores = np.full((len(rows), k + int(counts.max())), -np.inf, np.float32)
    ids = np.full(scores.shape, -1)
    scores[:, :k], ids[:, :k] = found.scores[rows], found.ids[rows]
    scores[row, k + place], ids[row, k + place] = block[row, column], column + start
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    found.scores[rows], found.ids[rows] = (np.take_along_axis(x, order, 1) for x in (scores, ids))


@dataclass(frozen=True)
class Flat:
    """Vectors that are compared by `query . v * scale + shift`: 1 / |v| for a cosine, a bias for a score."""

    vectors: Floats  # [n, dim]
    scale: Floats | None = None  # [n]
    shift: Floats | None = None  # [n]

    def scores(self, queries: Floats) -> Callable[[slice], Floats]:
        """The scores of some vectors, in memory that the next call uses again."""
        memory = np.zeros(0, np.float32)

        def of(some: slice) -> Floats:
            nonlocal memory
            vectors = self.vectors[some]
            size = len(queries) * len(vectors)
            if size > len(memory):
                memory = np.empty(size, np.float32)
            scores = memory[:size].reshape(len(queries), len(vectors))
            np.matmul(queries, vectors.T, out=scores)
            if self.scale is not None:
                scores *= self.scale[some]
            if self.shift is not None:
                scores += self.shift[some]
            return scores

        return of

    def search(self, queries: Floats, k: int) -> Hits:
        """The k best of each query, exactly."""
        parts = [queries[at : at + QUERIES] for at in range(0, len(queries), QUERIES)] or [queries]
        found = [best(self.scores(part), len(part), len(self.vectors), k) for part in parts]
        return Hits(*(np.concatenate(x) for x in zip(*found, strict=True)))

    # An index compares vectors of length 1. What is no cosine becomes one: with s the largest of |(v, shift)|, the
    # vector (v, shift, sqrt(s^2 - |(v, shift)|^2)) has length s, and a query (q, 1, 0) still gives q . v + shift.

    @property
    def width(self) -> int:
        """Dimensions of the vectors of length 1."""
        return int(self.vectors.shape[1]) + (0 if self.scale is not None else 2)

    @cached_property
    def _squares(self) -> npt.NDArray[np.float64]:
        squares: Array = np.einsum("ij,ij->i", self.vectors, self.vectors).astype(np.float64)
        if self.shift is not None:
            squares += np.square(self.shift, dtype=np.float64)
        return squares

    def unit(self, some: slice) -> Floats:
        """Some of the vectors, as vectors of length 1."""
        vectors = self.vectors[some]
        if self.scale is not None:
            return vectors * self.scale[some, None]
        longest = self._squares.max(initial=1e-30)
        shift = np.zeros(len(vectors), np.float32) if self.shift is None else self.shift[some]
        rest = np.sqrt(np.maximum(longest - self._squares[some], 0))
        whole: Floats = (np.column_stack([vectors, shift, rest]) / np.sqrt(longest)).astype(np.float32)
        return whole

    def unit_queries(self, queries: Floats) -> Floats:
        """Queries of such vectors."""
        if self.scale is not None:
            return np.ascontiguousarray(queries, np.float32)
        ones = np.full(len(queries), self.shift is not None)
        return np.column_stack([queries, ones, np.zeros(len(queries))]).astype(np.float32)

    def digest(self) -> bytes:
        """Of all that the scores follow from."""
        digest = hashlib.blake2b(VERSION, digest_size=DIGEST)
        for array in (self.vectors, self.scale, self.shift):
            if array is not None:
                digest.update(f"{array.shape}".encode())
                for at in range(0, len(array), PIECE):
                    digest.update(np.ascontiguousarray(array[at : at + PIECE]).data)
        return digest.digest()


class Index:
    """An approximate index of vectors; the scores of what it finds are exact."""

    def __init__(self, flat: Flat, index: Any) -> None:
        self.flat, self.index = flat, index

    @classmethod
    def open(cls, flat: Flat, kind: Literal["hnsw", "ivf"], path: Path | None) -> Index:
        """Read the index at `path` if it is of these vectors and whole; else build it, and keep it if that can be."""
        faiss = import_faiss()
        digest = flat.digest()
        index = None if path is None else _read(faiss, flat, kind, path, digest)
        if index is None:
            index = _build(faiss, flat, kind)
            if path is not None:
                _write(faiss, index, path, digest)
        return cls(flat, index)

    def search(self, queries: Floats, k: int) -> Hits:
        """Nearly the k best of each query."""
        if hasattr(self.index, "hnsw"):  # it finds no more than it holds on the way
            self.index.hnsw.efSearch = max(EF_SEARCH, 2 * k)
        _, ids = self.index.search(self.flat.unit_queries(queries), min(k, len(self.flat.vectors)))
        flat, scores = self.flat, np.empty(ids.shape, np.float32)
        step = max(BLOCK // max(scores[:1].size * flat.vectors.shape[1], 1), 1)
        for at in range(0, len(queries), step):
            some = slice(at, at + step)
            scores[some] = np.matmul(flat.vectors[ids[some]], queries[some, :, None])[..., 0]  # [some, k]
        if flat.scale is not None:
            scores *= flat.scale[ids]
        if flat.shift is not None:
            scores += flat.shift[ids]
        scores[ids < 0] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")
        return Hits(*(np.take_along_axis(x, order, 1) for x in (ids.astype(np.int64), scores)))


def import_faiss(remedy: str = "search exactly (`--index exact`)") -> Any:
    """The library behind indexes, an extra."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG, in some versions of Python
            import faiss
    except ImportError:
        raise UserError(
            f"an index needs faiss, which is not installed: `pip install 'feat2vec[search]'`; or {remedy}"
        ) from None
    return faiss


def _build(faiss: Any, flat: Flat, kind: Literal["hnsw", "ivf"]) -> Any:
    total = len(flat.vectors)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(flat.width, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = EF_CONSTRUCTION
    else:
        lists = _lists(total)
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(flat.width), flat.width, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1
        step = max(total // (lists * 64), 1)
        index.train(np.ascontiguousarray(np.concatenate([flat.unit(s)[::step] for s in _pieces(total)])))
        index.nprobe = PROBES
    for some in _pieces(total):
        index.add(np.ascontiguousarray(flat.unit(some)))
    return index


def _lists(total: int) -> int:
    return max(int(4 * np.sqrt(total)), 1)


def _pieces(total: int) -> list[slice]:
    return [slice(at, min(at + PIECE, total)) for at in range(0, total, PIECE)]


# --- an index as a file ---------------------------------------------------------------------------------------------
#
# faiss' own files are not read: a forged one makes it crash. A file holds what the index has beside the vectors, as
# numbers that are looked through before faiss gets them. It ends with the digest of the vectors and the digest of all
# before, so that a damaged one, or one of other vectors, is built again.


def _read(faiss: Any, flat: Flat, kind: IndexKind, path: Path, digest: bytes) -> Any:
    """The index in a file; None if there is none, or it is not whole, not of these vectors, or not an index."""
    read = _read_hnsw if kind == "hnsw" else _read_ivf
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - 2 * DIGEST
            index, numbers = read(faiss, flat, file, size // 4)
            whole = hashlib.blake2b(digest_size=DIGEST)
            for array in numbers:
                whole.update(array.data)
            whole.update(digest)
            return index if file.read(2 * DIGEST + 1) == digest + whole.digest() else None
    except (OSError, ValueError):
        return None


def _read_hnsw(faiss: Any, flat: Flat, file: BinaryIO, size: int) -> tuple[Any, list[Array]]:
    """A graph: each vector's number of levels, then its neighbours on every level, then where a search begins."""
    total = len(flat.vectors)
    index = faiss.IndexHNSWFlat(flat.width, LINKS, faiss.METRIC_INNER_PRODUCT)
    places = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level).astype(np.int64)  # of each level, in a vector's
    levels = _numbers(file, total, 1, len(places) - 1)
    offsets = np.concatenate([[0], np.cumsum(places[levels])])
    if total + int(offsets[-1]) + 1 != size:
        raise ValueError("the file has another size")
    neighbours = _numbers(file, int(offsets[-1]), -1, total - 1)
    (start,) = first = _numbers(file, 1, 0, total - 1)
    if levels[start] != levels.max():
        raise ValueError("a search begins at the highest level")
    for level in range(1, int(levels.max())):  # on a level are vectors that have it
        high = np.flatnonzero(levels > level)
        linked = neighbours[offsets[high, None] + np.arange(places[level], places[level + 1])]
        if (levels[linked[linked >= 0]] <= level).any():
            raise ValueError("a neighbour does not have the level")
    for some in _pieces(total):
        index.storage.add(np.ascontiguousarray(flat.unit(some)))
    index.ntotal = total
    for vector, numbers in (("levels", levels), ("offsets", offsets.astype(np.uint64)), ("neighbors", neighbours)):
        faiss.copy_array_to_vector(numbers, getattr(index.hnsw, vector))
    index.hnsw.entry_point, index.hnsw.max_level = int(start), int(levels[start]) - 1
    return index, [levels, neighbours, first]


def _read_ivf(faiss: Any, flat: Flat, file: BinaryIO, size: int) -> tuple[Any, list[Array]]:
    """Lists of vectors: the list of each vector, then the lists' centres."""
    total, lists = len(flat.vectors), _lists(len(flat.vectors))
    if total + lists * flat.width != size:
        raise ValueError("the file has another size")
    list_of = _numbers(file, total, 0, lists - 1)
    centres = _numbers(file, lists * flat.width).view(np.float32).reshape(lists, flat.width)
    if not np.isfinite(centres).all():
        raise ValueError("a centre is not finite")
    quantizer = faiss.IndexFlatIP(flat.width)
    quantizer.add(centres)
    index = faiss.IndexIVFFlat(quantizer, flat.width, lists, faiss.METRIC_INNER_PRODUCT)
    index.is_trained, index.nprobe = True, PROBES
    for some in _pieces(total):
        vectors, chosen = np.ascontiguousarray(flat.unit(some)), list_of[some].astype(np.int64)
        index.add_core(len(vectors), faiss.swig_ptr(vectors), None, faiss.swig_ptr(chosen))
    return index, [list_of, centres]


def _numbers(file: BinaryIO, count: int, low: int = -(1 << 31), high: int = (1 << 31) - 1) -> Array:
    """The next numbers of a file, each of which is in a range."""
    if count > (os.fstat(file.fileno()).st_size - file.tell()) // 4:
        raise ValueError("the file is cut off")
    numbers = np.fromfile(file, "<i4", count)
    if len(numbers) != count or (count and (numbers.min() < low or numbers.max() > high)):
        raise ValueError("a number is out of range")
    return numbers


def _write(faiss: Any, index: Any, path: Path, digest: bytes) -> None:
    if hasattr(index, "hnsw"):
        graph = index.hnsw
        levels, neighbours = (faiss.vector_to_array(vector) for vector in (graph.levels, graph.neighbors))
        numbers = [levels, neighbours, np.array([graph.entry_point])]
    else:
        list_of = np.empty(index.ntotal, np.int32)
        for i in range(index.nlist):
            if size := index.invlists.list_size(i):
                list_of[faiss.rev_swig_ptr(index.invlists.get_ids(i), size)] = i
        numbers = [list_of, index.quantizer.reconstruct_n(0, index.nlist).view(np.int32)]
    # The run may be read-only or not feat2vec's own, or the disk full: then the index serves from memory.
    with suppress(OSError, UserError), file_in(path.parents[1], f"{path.parent.name}/{path.name}") as new:
        whole = hashlib.blake2b(digest_size=DIGEST)
        with new.open("xb") as file:
            for array in numbers:
                part = np.ascontiguousarray(array, "<i4")
                whole.update(part.data)
                file.write(part.data)
            whole.update(digest)
            file.write(digest + whole.digest())
