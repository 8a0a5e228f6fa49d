"""Building an approximate index with faiss: a graph (HNSW: Malkov and Yashunin, 2020) or inverted lists (IVF)."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np

from feat2vec.arrays import Array, Float32s, Int64s
from feat2vec.errors import UserError
from feat2vec.space.exact_index import SCORE_BYTES_PER_BLOCK, ExactIndex, Hits
from feat2vec.writing import file_in

ApproximateKind = Literal["hnsw", "ivf"]
Index: TypeAlias = Any  # of faiss, which ships no types

MIN_INDEXED = 10_000  # fewer vectors are searched exactly: an index would not be faster
ROWS_PER_PIECE = 1 << 16  # vectors that are given to faiss at a time
LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 80, 64  # of HNSW: a vector's neighbours, candidates in building and searching
PROBES = 32  # lists of an IVF that a search looks through


def import_faiss(remedy: str = "search exactly (`--index exact`)") -> ModuleType:
    """The library behind indexes, an extra. Without it, a `UserError` says how to install it, and the other remedy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG, in some versions of Python
            import faiss
    except ImportError:
        raise UserError(
            f"an index needs faiss, which is not installed: `pip install 'feat2vec[search]'`; or {remedy}"
        ) from None
    module: ModuleType = faiss
    return module


def build_index(faiss: ModuleType, exact: ExactIndex, kind: ApproximateKind) -> Index:
    """A faiss index of the vectors of an exact one, at length 1."""
    total = len(exact.vectors)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(exact.unit_dim, LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = EF_CONSTRUCTION
    else:
        lists = number_of_lists(total)
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(exact.unit_dim), exact.unit_dim, lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1
        step = max(total // (lists * 64), 1)  # centres are learnt from about 64 vectors a list
        sample = np.concatenate([exact.unit_vectors(rows)[::step] for rows in pieces(total)])
        index.train(np.ascontiguousarray(sample))
        index.nprobe = PROBES
    for rows in pieces(total):
        index.add(np.ascontiguousarray(exact.unit_vectors(rows)))
    return index


def number_of_lists(total: int) -> int:
    """How many lists an IVF of `total` vectors has."""
    return max(int(4 * np.sqrt(total)), 1)


def pieces(total: int) -> list[slice]:
    """Slices of vectors that are given to faiss at a time."""
    return [slice(start, min(start + ROWS_PER_PIECE, total)) for start in range(0, total, ROWS_PER_PIECE)]


VERSION = b"feat2vec index 2"
DIGEST_BYTES = 32


def digest_of(exact: ExactIndex) -> bytes:
    """The digest of everything that the scores follow from."""
    digest = hashlib.blake2b(VERSION, digest_size=DIGEST_BYTES)
    for array in (exact.vectors, exact.scale, exact.shift):
        if array is not None:
            digest.update(f"{array.shape}".encode())
            for start in range(0, len(array), ROWS_PER_PIECE):
                digest.update(np.ascontiguousarray(array[start : start + ROWS_PER_PIECE]).data)
    return digest.digest()


def load_index(
    faiss: ModuleType, exact: ExactIndex, kind: ApproximateKind, path: Path, vectors_digest: bytes
) -> Index | None:
    """The index in a file; None if there is none, or if it is damaged, of other vectors, or no index."""
    read = _read_hnsw if kind == "hnsw" else _read_ivf
    try:
        with path.open("rb") as file:
            numbers_in_file = (os.fstat(file.fileno()).st_size - 2 * DIGEST_BYTES) // 4
            index, arrays = read(faiss, exact, file, numbers_in_file)
            digests = vectors_digest + _file_digest(arrays, vectors_digest)
            return index if file.read(2 * DIGEST_BYTES + 1) == digests else None
    except (OSError, ValueError):
        return None


def save_index(faiss: ModuleType, index: Index, path: Path, vectors_digest: bytes) -> None:
    """Write an index, if that is possible.

    The run may be read-only or not feat2vec's own, or the disk full: then the index serves from memory.
    """
    arrays = [np.ascontiguousarray(array, "<i4") for array in _arrays_of(faiss, index)]
    with (
        suppress(OSError, UserError),
        file_in(path.parents[1], f"{path.parent.name}/{path.name}", whatever_it_holds=True) as new_path,
        new_path.open("xb") as file,
    ):
        for array in arrays:
            file.write(array.data)
        file.write(vectors_digest + _file_digest(arrays, vectors_digest))


def _file_digest(arrays: Sequence[Array], vectors_digest: bytes) -> bytes:
    """The digest of all before it in the file."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for array in arrays:
        digest.update(array.data)
    digest.update(vectors_digest)
    return digest.digest()


def _arrays_of(faiss: ModuleType, index: Index) -> list[Array]:
    """What the index has beside the vectors, in the order in which `_read_hnsw` and `_read_ivf` read it."""
    if hasattr(index, "hnsw"):
        graph = index.hnsw
        levels, neighbours = faiss.vector_to_array(graph.levels), faiss.vector_to_array(graph.neighbors)
        return [levels, neighbours, np.array([graph.entry_point])]
    list_of_vector = np.empty(index.ntotal, np.int32)
    for i in range(index.nlist):
        if size := index.invlists.list_size(i):
            list_of_vector[faiss.rev_swig_ptr(index.invlists.get_ids(i), size)] = i
    centres = index.quantizer.reconstruct_n(0, index.nlist)
    return [list_of_vector, centres.view(np.int32)]


def _read_hnsw(faiss: ModuleType, exact: ExactIndex, file: BinaryIO, numbers_in_file: int) -> tuple[Index, list[Array]]:
    """A graph: the number of levels of each vector, its neighbours on every level, and where a search begins."""
    total = len(exact.vectors)
    index = faiss.IndexHNSWFlat(exact.unit_dim, LINKS, faiss.METRIC_INNER_PRODUCT)
    # where the neighbours on each level begin, among those of a vector
    level_offsets = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level).astype(np.int64)
    levels = _numbers(file, total, 1, len(level_offsets) - 1)
    offsets = np.concatenate([[0], np.cumsum(level_offsets[levels])])  # where a vector's neighbours begin, [total + 1]
    if total + int(offsets[-1]) + 1 != numbers_in_file:
        raise ValueError("the file has another size")
    neighbours = _numbers(file, int(offsets[-1]), -1, total - 1)
    (start,) = start_array = _numbers(file, 1, 0, total - 1)
    if levels[start] != levels.max():
        raise ValueError("a search begins at the highest level")
    for level in range(1, int(levels.max())):  # the neighbours on a level are vectors that have it
        vectors_on_level = np.flatnonzero(levels > level)
        places = np.arange(level_offsets[level], level_offsets[level + 1])
        linked = neighbours[offsets[vectors_on_level, None] + places]  # [vectors on the level, places]
        if (levels[linked[linked >= 0]] <= level).any():
            raise ValueError("a neighbour does not have the level")
    for rows in pieces(total):
        index.storage.add(np.ascontiguousarray(exact.unit_vectors(rows)))
    index.ntotal = total
    faiss.copy_array_to_vector(levels, index.hnsw.levels)
    faiss.copy_array_to_vector(offsets.astype(np.uint64), index.hnsw.offsets)
    faiss.copy_array_to_vector(neighbours, index.hnsw.neighbors)
    index.hnsw.entry_point, index.hnsw.max_level = int(start), int(levels[start]) - 1
    return index, [levels, neighbours, start_array]


def _read_ivf(faiss: ModuleType, exact: ExactIndex, file: BinaryIO, numbers_in_file: int) -> tuple[Index, list[Array]]:
    """Inverted lists: the list of each vector, then the centres of the lists."""
    total, lists = len(exact.vectors), number_of_lists(len(exact.vectors))
    if total + lists * exact.unit_dim != numbers_in_file:
        raise ValueError("the file has another size")
    list_of_vector = _numbers(file, total, 0, lists - 1)
    centres = _numbers(file, lists * exact.unit_dim).view(np.float32).reshape(lists, exact.unit_dim)
    if not np.isfinite(centres).all():
        raise ValueError("a centre is not finite")
    quantizer = faiss.IndexFlatIP(exact.unit_dim)
    quantizer.add(centres)
    index = faiss.IndexIVFFlat(quantizer, exact.unit_dim, lists, faiss.METRIC_INNER_PRODUCT)
    index.is_trained, index.nprobe = True, PROBES
    for rows in pieces(total):
        vectors = np.ascontiguousarray(exact.unit_vectors(rows))
        list_ids = list_of_vector[rows].astype(np.int64)
        index.add_core(len(vectors), faiss.swig_ptr(vectors), None, faiss.swig_ptr(list_ids))
    return index, [list_of_vector, centres]


def _numbers(file: BinaryIO, count: int, low: int = -(1 << 31), high: int = (1 << 31) - 1) -> Array:
    """The next numbers of a file, all of which are in a range."""
    if count > (os.fstat(file.fileno()).st_size - file.tell()) // 4:
        raise ValueError("the file is cut off")
    numbers = np.fromfile(file, "<i4", count)
    if len(numbers) != count or (count and (numbers.min() < low or numbers.max() > high)):
        raise ValueError("a number is out of range")
    return numbers


class FaissIndex:
    """An approximate index of vectors. It finds nearly the best ones; the scores of what it finds are exact."""

    def __init__(self, exact: ExactIndex, index: Index) -> None:
        self.exact, self.index = exact, index

    @classmethod
    def open(cls, exact: ExactIndex, kind: ApproximateKind, path: Path | None) -> FaissIndex:
        """Read the index at `path` if it is undamaged and of these vectors; else build it, and write it if possible."""
        faiss = import_faiss()
        digest = digest_of(exact)
        index = None if path is None else load_index(faiss, exact, kind, path, digest)
        if index is None:
            index = build_index(faiss, exact, kind)
            if path is not None:
                save_index(faiss, index, path, digest)
        return cls(exact, index)

    def search(self, queries: Float32s, k: int) -> Hits:
        """Nearly the k best vectors of each query [queries, dim]."""
        exact = self.exact
        if hasattr(self.index, "hnsw"):  # a search finds no more vectors than it keeps as candidates
            self.index.hnsw.efSearch = max(EF_SEARCH, 2 * k)
        _, ids = self.index.search(exact.unit_queries(queries), min(k, len(exact.vectors)))  # [queries, k], -1: none
        scores = self._products(queries, ids)
        if exact.scale is not None:
            scores *= exact.scale[ids]
        if exact.shift is not None:
            scores += exact.shift[ids]
        scores[ids < 0] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")
        return Hits(np.take_along_axis(ids.astype(np.int64), order, 1), np.take_along_axis(scores, order, 1))

    def _products(self, queries: Float32s, ids: Int64s) -> Float32s:
        """The dot products of queries with the vectors of some ids, [queries, k]."""
        vectors = self.exact.vectors
        products = np.empty(ids.shape, np.float32)
        queries_per_block = max(SCORE_BYTES_PER_BLOCK // max(products[:1].size * vectors.shape[1], 1), 1)
        for start in range(0, len(queries), queries_per_block):
            rows = slice(start, start + queries_per_block)
            products[rows] = np.matmul(vectors[ids[rows]], queries[rows, :, None])[..., 0]
        return products
