"""Building an approximate index with faiss: a graph (HNSW: Malkov and Yashunin, 2020) or inverted lists (IVF)."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from feat2vec.errors import UserError
from feat2vec.space.exact_index import ExactIndex

ApproximateKind = Literal["hnsw", "ivf"]

MIN_INDEXED = 10_000  # fewer vectors are searched exactly: an index would not be faster
ROWS_PER_PIECE = 1 << 16  # vectors that are given to faiss at a time
LINKS, EF_CONSTRUCTION, EF_SEARCH = 32, 80, 64  # of HNSW: a vector's neighbours, candidates in building and searching
PROBES = 32  # lists of an IVF that a search looks through


def import_faiss(remedy: str = "search exactly (`--index exact`)") -> Any:
    """The library behind indexes, an extra. Without it, a `UserError` says how to install it, and the other remedy."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG, in some versions of Python
            import faiss
    except ImportError:
        raise UserError(
            f"an index needs faiss, which is not installed: `pip install 'feat2vec[search]'`; or {remedy}"
        ) from None
    return faiss


def build_index(faiss: Any, exact: ExactIndex, kind: ApproximateKind) -> Any:
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
