"""Time and memory of ranking queries against many candidates: the part of `evaluate --task rank` that grows with them.

python tools/bench_rank.py [--queries 5000] [--candidates 1000000] [--dim 64] > rank.json

Vectors are random, half of the candidates of the upper of two levels with --ranks; a query has one true value.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from feat2vec.evaluation.metrics import rank_queries
from feat2vec.space.geometry import Candidates, Queries


def main() -> None:
    """Print the measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--ranks", action="store_true", help="two levels, of half the dimensions and of all")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    sizes = [(options.candidates, options.dim)]
    if options.ranks:
        sizes = [(options.candidates, options.dim // 2), (options.candidates // 2, options.dim)]
    found = Candidates([rng.standard_normal(size, np.float32) for size in sizes])
    free, dependent = ([rng.standard_normal((options.queries, d), np.float32) for _, d in sizes] for _ in range(2))
    value = rng.integers(0, options.candidates, options.queries)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    ranks = rank_queries(Queries(free, dependent), found, np.arange(options.queries), value, "cosine")
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    facts = {"queries": options.queries, "candidates": options.candidates, "levels": len(sizes)}
    memory = {"peak_rss_gb": round(peak / 1e6, 3), "before_gb": round(before / 1e6, 3)}
    print(
        json.dumps(
            {
                **facts,
                "seconds": round(seconds, 2),
                **memory,
                "mpr": round(float(ranks.mean() / len(found.tables[0])), 4),
            }
        )
    )


if __name__ == "__main__":
    main()
