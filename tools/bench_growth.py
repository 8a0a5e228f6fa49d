"""Seconds an epoch and peak memory against the number of rows, the vocabulary staying as it is.

python tools/bench_growth.py [--rows 24000 240000 2400000 24000000] > growth.json

The table has a director, three actors, a genre, three title words and a year a row, each drawn from a Zipf law over as
many keys as the films of the film benchmark have; every size repeats the generator's first rows. Each size trains in a
process of its own and reports its last epoch. Peak memory is mostly that of encoding, bounded by `memory`; what is held
at the end of an epoch is told as well.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = {"director": (5_830, 1), "cast": (20_230, 3), "genre": (41, 1), "title": (12_184, 3), "year": (124, 1)}
DISTINCT = 24_000
PIECE = 240_000


def columns(rng: np.random.Generator) -> dict[str, pa.Array]:
    """The distinct rows."""
    found = {}
    for name, (keys, items) in KEYS.items():
        sums = np.cumsum(1 / np.arange(1, keys + 1))
        ids = np.searchsorted(sums, rng.random(DISTINCT * items) * sums[-1])
        words = pa.array([f"{name}{i}" for i in range(keys)]).take(pa.array(ids))
        starts = pa.array(np.arange(0, len(ids) + 1, items, dtype=np.int32))
        found[name] = words if items == 1 else pa.ListArray.from_arrays(starts, words)
    return found


def write(path: Path, rows: int) -> None:
    """A Parquet file of so many rows."""
    table = pa.table(columns(np.random.default_rng(0)))
    order: npt.NDArray[np.int64] = np.random.default_rng(1).integers(0, DISTINCT, PIECE)
    order[:DISTINCT] = np.arange(DISTINCT)
    piece = table.take(pa.array(order))
    with pq.ParquetWriter(path, table.schema) as writer:
        for start in range(0, rows, PIECE):
            writer.write_table(piece.slice(0, min(PIECE, rows - start)))


def schema(negatives: int) -> dict[str, Any]:
    """Lookups trained by the contrastive objective."""
    groups = {
        name: {"column": name, "extractor": {"type": "lookup", "multi": items > 1}} for name, (_, items) in KEYS.items()
    }
    noise = {"sharing": "batch", "negatives": negatives}
    return {"version": 1, "groups": groups, "objective": "contrastive", "noise": noise}


def measure(rows: int, epochs: int) -> dict[str, float]:
    """Encode and train one size."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        subprocess.run([sys.executable, __file__, "--write", str(path), str(rows)], check=True)
        import keras

        from feat2vec.run import train

        held: list[float] = []

        class Watch(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                del epoch, logs
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                held.append(pages * resource.getpagesize() / 1e9)

        start = time.perf_counter()
        settings = [f"training.epochs={epochs}", "training.validation=0"]
        run = train(schema(64), path, Path(folder) / "run", settings=settings, quiet=True, callbacks=[Watch()])
        seconds = time.perf_counter() - start
        last = run.history[-1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    epoch = last["seconds"]
    return {
        "rows": rows, "seconds_an_epoch": epoch, "rows_per_second": round(rows / epoch), "seconds": round(seconds, 2),
        "peak_rss_gb": round(peak, 3), "training_rss_gb": round(max(held), 3),
    }  # fmt: skip


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[24_000, 240_000, 2_400_000, 24_000_000])
    parser.add_argument("--side", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(Path(options.write[0]), int(options.write[1]))
        return
    if options.side:
        print(json.dumps(measure(options.side, 20 if options.side < 100_000 else 3 if options.side < 5_000_000 else 2)))
        return
    sizes = []
    for rows in options.rows:
        done = subprocess.run(
            [sys.executable, __file__, "--side", str(rows)], check=True, stdout=subprocess.PIPE, text=True
        )
        sizes.append(json.loads(done.stdout.splitlines()[-1]))
    print(json.dumps({"sizes": sizes}, indent=1))


if __name__ == "__main__":
    main()
