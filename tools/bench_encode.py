"""Encoding against Keras' StringLookup and scikit-learn's OrdinalEncoder, on a generated table, in one run.

python tools/bench_encode.py [--rows 5000000] [--large 20000000] [--repeats 3] > encode.json

The table: strings of 10, 100k and 1M distinct values (Zipf), a list of 1 to 6 items, two numbers. The sides start from
the same Arrow table in memory and end with fitted vocabularies and ids; feat2vec also numbers the distinct lists and
pairs of numbers, which the peers do not. Each side runs in a process of its own. `--large` measures fit and encode from
Parquet: rows a second, peak memory and how the time grows.
Needs: pip install feat2vec[bench]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STRINGS = {"a": 10, "b": 100_000, "c": 1_000_000}
ITEMS = 50_000
CHUNK = 1_000_000


def generate(path: Path, rows: int, seed: int = 0) -> None:
    """Write the table, a chunk at a time."""
    rng = np.random.default_rng(seed)
    keys = {name: pa.array([f"{name}-{i:07x}" for i in range(size)]) for name, size in STRINGS.items()}
    items = pa.array([f"item-{i:05x}" for i in range(ITEMS)])
    cumulative = {size: np.cumsum(1 / np.arange(1, size + 1)) for size in (*STRINGS.values(), ITEMS)}

    def zipf(count: int, size: int) -> pa.Array:
        sums = cumulative[size]
        return pa.array(np.searchsorted(sums, rng.random(count) * sums[-1]).astype(np.int32))

    writer = None
    for start in range(0, rows, CHUNK):
        some = min(CHUNK, rows - start)
        columns = {name: keys[name].take(zipf(some, size)) for name, size in STRINGS.items()}
        lengths = rng.integers(1, 7, some)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        columns["l"] = pa.ListArray.from_arrays(offsets, items.take(zipf(int(lengths.sum()), ITEMS)))
        columns["x"] = pa.array(rng.normal(size=some))
        columns["y"] = pa.array(np.round(rng.lognormal(size=some), 2))
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def schema(groups: str) -> Any:
    """Groups of the table: one a letter, `n` for the numbers."""
    from feat2vec.schema.reading import read_schema

    known: dict[str, Any] = {name: {"column": name} for name in STRINGS}
    known["l"] = {"column": "l", "extractor": {"type": "lookup", "multi": True}}
    known["n"] = {"columns": ["x", "y"], "extractor": "numeric"}
    return read_schema({"version": 1, "groups": {name: known[name] for name in groups}})


def run_feat2vec(source: Any, groups: str) -> dict[str, float]:
    """Fit and encode some groups."""
    from feat2vec.encode.encoder import fit

    fitted = schema(groups)
    start = time.perf_counter()
    encoded = fit(fitted, source)
    return {"seconds": time.perf_counter() - start, "rows": len(encoded)}


def run_keras(table: pa.Table) -> dict[str, float]:
    """Adapt and call a StringLookup for each string column."""
    import keras
    import tensorflow as tf

    start = time.perf_counter()
    adapted = 0.0
    for name in (*STRINGS, "l"):
        column = table[name].combine_chunks()
        flat = column.flatten() if pa.types.is_list(column.type) else column
        strings = tf.constant(flat.to_numpy(zero_copy_only=False))
        layer = keras.layers.StringLookup()
        began = time.perf_counter()
        layer.adapt(tf.data.Dataset.from_tensor_slices(strings).batch(65_536))
        adapted += time.perf_counter() - began
        for at in range(0, len(flat), 65_536):
            layer(strings[at : at + 65_536])
    return {"seconds": time.perf_counter() - start, "of_which_adapt": adapted}


def run_sklearn(table: pa.Table, dtype: str) -> dict[str, float]:
    """Fit and transform an OrdinalEncoder on the string columns."""
    from sklearn.preprocessing import OrdinalEncoder

    frame = table.select(list(STRINGS)).to_pandas()
    if dtype == "object":
        frame = frame.astype(object)
    start = time.perf_counter()
    OrdinalEncoder().fit(frame).transform(frame)
    return {"seconds": time.perf_counter() - start}


def sides(path: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """What `--side` can name."""
    return {
        "feat2vec": lambda: run_feat2vec(pq.read_table(path), "abcln"),
        "feat2vec strings and lists": lambda: run_feat2vec(pq.read_table(path), "abcl"),
        "feat2vec strings": lambda: run_feat2vec(pq.read_table(path), "abc"),
        "feat2vec from parquet": lambda: run_feat2vec(path, "abcln"),
        "keras StringLookup": lambda: run_keras(pq.read_table(path)),
        "sklearn OrdinalEncoder": lambda: run_sklearn(pq.read_table(path), "string"),
        "sklearn OrdinalEncoder, object dtype": lambda: run_sklearn(pq.read_table(path), "object"),
    }


def measure(side: str, path: Path, repeats: int) -> dict[str, float]:
    """Medians of a side's runs, each in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--table", str(path)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        )
        runs.append(json.loads(done.stdout))
    return {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--large", type=int, default=20_000_000, help="rows of the memory test; 0 leaves it out")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        sides(options.table.with_name("small.parquet"))[options.side]()  # imports are no part of the work
        facts = sides(options.table)[options.side]()
        facts["peak_rss_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(json.dumps(facts))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        generate(path, options.rows)
        generate(path.with_name("small.parquet"), 1000)
        found = {side: measure(side, path, options.repeats) for side in sides(path)}
        ours, strings = found["feat2vec"]["seconds"], found["feat2vec strings"]["seconds"]
        flat = found["feat2vec strings and lists"]["seconds"]
        result: dict[str, Any] = {
            "rows": options.rows,
            "repeats": options.repeats,
            "sides": found,
            "rows_per_second": round(options.rows / ours),
            "keras_over_feat2vec": round(found["keras StringLookup"]["seconds"] / ours, 2),
            "keras_over_feat2vec_same_columns": round(found["keras StringLookup"]["seconds"] / flat, 2),
            "sklearn_over_feat2vec": round(found["sklearn OrdinalEncoder"]["seconds"] / strings, 2),
            "sklearn_object_over_feat2vec": round(
                found["sklearn OrdinalEncoder, object dtype"]["seconds"] / strings, 2
            ),
        }
        if options.large:
            generate(path, options.large)
            large = measure("feat2vec from parquet", path, 1)
            growth = large["seconds"] / found["feat2vec from parquet"]["seconds"]
            result["large"] = {
                "rows": options.large,
                **large,
                "rows_per_second": round(options.large / large["seconds"]),
                "times_the_rows": options.large / options.rows,
                "times_the_seconds": round(growth, 2),
            }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
