"""Search of many vectors: ours against faiss, exact and by an index, with the same threads in one process.

python tools/bench_search.py [--vectors 1000000] [--dim 64] [--queries 100] [--index hnsw|ivf] > search.json

Vectors are random around random centers, of length 1; queries are drawn like them. Times are medians of repeats that
take turns. Needs the extra `search`.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from feat2vec.arrays import Float32s
from feat2vec.space.exact_index import ExactIndex, Hits
from feat2vec.space.faiss_index import FaissIndex, import_faiss

CENTERS, SPREAD = 2_000, 0.7


def main() -> None:
    """Print the measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--index", choices=["hnsw", "ivf"], default="hnsw")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    faiss = import_faiss()
    whole = unit_vectors(options.vectors + options.queries, options.dim)
    vectors, queries = whole[: options.vectors], whole[options.vectors :].copy()
    raw = faiss.IndexFlatIP(options.dim)
    raw.add(vectors)
    flat = ExactIndex(vectors, np.ones(len(vectors), np.float32))
    ours, faiss_flat = in_turns(
        options.repeats, lambda: flat.search(queries, 10), lambda: Hits(*reversed(raw.search(queries, 10)))
    )
    tracemalloc.start()
    flat.search(queries, 10)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    facts = {
        "vectors": options.vectors, "dim": options.dim, "queries": options.queries,
        "threads": faiss.omp_get_max_threads(), "exact_seconds": ours.seconds, "faiss_flat_seconds": faiss_flat.seconds,
        "exact_over_faiss": round(ours.seconds / faiss_flat.seconds, 3),
        "exact_same_as_faiss": overlap(ours.hits, faiss_flat.hits),
        "exact_queries_per_second": round(options.queries / ours.seconds),
        "exact_memory_mb": round(held / 1e6, 1),
    }  # fmt: skip
    print(json.dumps({**facts, **bench_index(flat, queries, ours.hits, options.index, options.repeats)}))


def bench_index(
    flat: ExactIndex, queries: Float32s, true: Hits, kind: Literal["hnsw", "ivf"], repeats: int
) -> dict[str, float | str]:
    """What an index costs and finds, its exact rival measured again at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / kind
        start = time.perf_counter()
        index = FaissIndex.open(flat, kind, path)
        built = time.perf_counter() - start
        start = time.perf_counter()
        index = FaissIndex.open(flat, kind, path)
        opened, size = time.perf_counter() - start, path.stat().st_size
    exact, found = in_turns(repeats, lambda: flat.search(queries, 10), lambda: index.search(queries, 10))
    return {
        "index": kind, "index_recall_at_10": overlap(found.hits, true), "index_seconds": found.seconds,
        "index_queries_per_second": round(len(queries) / found.seconds),
        "index_over_exact": round(exact.seconds / found.seconds, 2), "build_seconds": round(built, 1),
        "open_seconds": round(opened, 2), "index_gb": round(size / 1e9, 3), "peak_rss_gb": round(peak(), 3),
    }  # fmt: skip


def unit_vectors(count: int, dim: int) -> Float32s:
    """Random vectors in clusters."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CENTERS, dim), np.float32)
    vectors: Float32s = centers[rng.integers(0, CENTERS, count)]
    vectors += np.float32(SPREAD) * rng.standard_normal((count, dim), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


class Timed:
    """A search's hits and its median time."""

    def __init__(self, hits: Hits, seconds: float) -> None:
        self.hits, self.seconds = hits, round(seconds, 5)


def in_turns(repeats: int, *searches: Callable[[], Hits]) -> list[Timed]:
    """Time searches that take turns, after each has run once."""
    hits = [search() for search in searches]
    times: list[list[float]] = [[] for _ in searches]
    for _ in range(repeats):
        for of_search, search in zip(times, searches, strict=True):
            start = time.perf_counter()
            search()
            of_search.append(time.perf_counter() - start)
    return [Timed(some, median(of_search)) for some, of_search in zip(hits, times, strict=True)]


def overlap(found: Hits, true: Hits) -> float:
    """How much of the true ones was found."""
    pairs: Any = zip(found.ids.tolist(), true.ids.tolist(), strict=True)
    return round(float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs])), 4)


def peak() -> float:
    """The most memory so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
