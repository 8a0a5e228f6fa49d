"""Seconds and peak memory of encode, train and what reads a run, as rows and keys grow, on generated tables.

python tools/bench_scale.py FOLDER [--rows 1000000,4000000] [--values 1000000] [--dim 16] [--memory 2GB] > scale.json

The table: eight groups, of which `item` has up to `values` keys (every one of them occurs once there are as many rows),
`user` a tenth as many, four more from a hundred to 100,000, a list of tags, and a price. Keys are drawn by Zipf's law;
parts of a million rows are compressed Parquet. Each command runs in a process of its own: `peak` is the kernel's
`ru_maxrss`, which counts pages of mapped files, and `held` the largest `RssAnon`, looked up ten times a second; sizes
are in MB of 2**20 bytes. `base` is the peak of the same command on a table, and a run, of 1,000 rows.
What is finished stays in FOLDER, and is neither made nor measured again: a bench that was killed goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MB = 2**20
PROGRAM = [sys.executable, "-c", "import sys; sys.argv[0] = 'feat2vec'; from feat2vec.cli import main; main()"]
SMALL_GROUPS = {"brand": 100_000, "city": 10_000, "shop": 1_000, "device": 100}
TAGS, MOST_TAGS = 50_000, 6
SCHEMA = {"item": "lookup", "user": "lookup", **dict.fromkeys(SMALL_GROUPS, "lookup"), "tags": None, "price": "numeric"}
BASE_ROWS = 1_000
SECONDS_BETWEEN_LOOKS = 0.1
FEW_ROWS = 200  # that are ranked among all keys
MOST_ROWS = 20_000  # that are embedded

# --- the table ------------------------------------------------------------------------------------------------------


def generate(folder: Path, rows: int, values: int, part_rows: int) -> None:
    """Write the parts of a table that are not there yet, each by a seed of its own."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def zipf(rng: Any, count: int, size: int) -> Any:
        """Draws from p(k) ~ 1 / (k + 1), by the inverse of its cumulative sum's continuous form; [count]."""
        return np.minimum(np.exp(rng.random(count) * np.log(size + 1)) - 1, size - 1).astype(np.int64)

    def keys(name: str, numbers: Any) -> Any:
        return pc.binary_join_element_wise(name, pa.array(numbers).cast(pa.string()), "-")

    folder.mkdir(parents=True, exist_ok=True)
    present = min(values, rows)  # keys of `item` that occur for certain, at places that are spread over the table
    for part, first in enumerate(range(0, rows, part_rows)):
        path = folder / f"part-{part:05d}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng([part, values])
        count = min(part_rows, rows - first)
        items = zipf(rng, count, values)
        places = np.arange(first, first + count)
        turns = places * present // rows
        is_turn = (places + 1) * present // rows > turns
        items[is_turn] = turns[is_turn] * 7_368_787 % present if present % 7_368_787 else turns[is_turn]
        columns = {"item": keys("item", items), "user": keys("user", zipf(rng, count, max(values // 10, 1)))}
        columns |= {name: keys(name, zipf(rng, count, size)) for name, size in SMALL_GROUPS.items()}
        lengths = rng.integers(1, MOST_TAGS + 1, count)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        columns["tags"] = pa.ListArray.from_arrays(offsets, keys("tag", zipf(rng, int(lengths.sum()), TAGS)))
        columns["price"] = pa.array(np.round(rng.lognormal(3, 1, count), 2))
        unfinished = path.with_name(f".{path.name}")
        pq.write_table(pa.table(columns), unfinished, compression="zstd")
        unfinished.rename(path)


def write_queries(folder: Path, data: Path) -> None:
    """Write the rows that a run is asked about, from the first part of its table."""
    import pyarrow.parquet as pq

    rows = pq.read_table(min(data.iterdir())).slice(0, MOST_ROWS)
    pq.write_table(rows, folder / "some.parquet")
    pq.write_table(rows.slice(0, FEW_ROWS), folder / "few.parquet")
    (folder / "key").write_text(rows["item"][0].as_py())


def schema(dim: int, epochs: int) -> dict[str, Any]:
    """The schema of the table: contrastive, by shared negatives."""
    groups: dict[str, Any] = {name: {"column": name, "extractor": kind} for name, kind in SCHEMA.items() if kind}
    groups["tags"] = {"column": "tags", "extractor": {"type": "lookup", "multi": True, "max_items": MOST_TAGS}}
    return {
        "version": 1,
        "model": {"dim": dim},
        "groups": groups,
        "noise": {"negatives": 64, "sharing": "batch"},
        "objective": {"type": "contrastive"},
        "training": {"validation": 0, "epochs": epochs, "batch_size": 4096, "averaging": 0},
    }


# --- measuring ------------------------------------------------------------------------------------------------------


def measured(command: Sequence[object], log: Path) -> dict[str, float]:
    """Seconds, processor seconds, bytes read and peak megabytes of a process."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = time.perf_counter()
    with log.open("ab") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, env=environment)
        looks = Looks(process.pid)
        looks.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        seconds = time.perf_counter() - start
        looks.end()
    if status:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {status}: {log.read_text()[-2000:]}")
    return {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak": round(usage.ru_maxrss / 1024),
        "held": looks.held,
        "read": looks.read,
    }


class Looks(threading.Thread):
    """What a process holds of its own, and what it has read, seen from time to time."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.held, self.read, self.ended = Path(f"/proc/{pid}"), 0, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(SECONDS_BETWEEN_LOOKS):
            with suppress(OSError, IndexError):  # it has ended, or the system does not say
                held = int((self.folder / "status").read_text().split("RssAnon:")[1].split()[0]) // 1024
                self.held = max(self.held, held)
                self.read = int((self.folder / "io").read_text().split("rchar:")[1].split()[0]) // MB

    def end(self) -> None:
        """Look no more."""
        self.ended.set()
        self.join()


def side(words: Sequence[object]) -> None:
    """Do something in a process of its own, whose memory is not counted to the commands that follow."""
    subprocess.run([sys.executable, __file__, *map(str, words)], check=True)


def commands(folder: Path, memory: str, index: Sequence[str]) -> dict[str, list[object]]:
    """The commands in their order."""
    plan, run, encoded = folder / "schema.yaml", folder / "run", folder / "encoded"
    key = (folder / "key").read_text()
    some, few = folder / "some.parquet", folder / "few.parquet"
    return {
        "encode": ["encode", plan, "--data", folder / "data", "--out", encoded, "--memory", memory, "--force"],
        "train": ["train", plan, "--data", encoded, "--out", run, "--force"],
        "similar": ["similar", run, "item", key],
        **{f"similar {kind}, {when}": ["similar", run, "item", key, "--index", kind]
           for kind in index for when in ("first", "again")},
        "embed": ["embed", run, "--data", some, "--out", folder / "vectors.parquet", "--force"],
        "evaluate": ["evaluate", run, "--data", few, "--task", "rank", "--target", "shop"],
        "evaluate item": ["evaluate", run, "--data", few, "--task", "rank", "--target", "item"],
        "export parquet": ["export", run, "--format", "parquet", "--out", folder / "exported", "--force"],
        "export npz": ["export", run, "--format", "npz", "--out", folder / "exported npz", "--force"],
    }  # fmt: skip


def bench(folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure each command on a table of so many rows; what was measured before is not measured again."""
    folder.mkdir(parents=True, exist_ok=True)
    facts_file, data = folder / "facts.json", folder / "data"
    facts: dict[str, Any] = json.loads(facts_file.read_text()) if facts_file.exists() else {}
    (folder / "schema.yaml").write_text(json.dumps(schema(options.dim, options.epochs)))
    side(["--generate", data, "--rows", rows, "--values", options.values, "--part-rows", options.part_rows])
    side(["--queries", folder, data])
    for name, words in commands(folder, options.memory, options.index).items():
        if name.split()[0] not in options.only or name in facts:
            continue
        facts[name] = measured([*PROGRAM, *words], folder / "log")
        print(rows, name, facts[name], file=sys.stderr)
        if name == "train":
            facts["sizes"] = sizes(folder, options.dim)
        facts_file.write_text(json.dumps(facts, indent=1))
    if not options.keep:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
    return facts


def sizes(folder: Path, dim: int) -> dict[str, Any]:
    """The megabytes of what training has to hold, and of what it wrote."""
    vocabularies = (folder / "run" / "vocabulary").glob("*.parquet")
    asked = "import sys, pyarrow.parquet as pq; print(sum(pq.read_metadata(path).num_rows for path in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", asked, *map(str, vocabularies)], check=True, stdout=subprocess.PIPE, text=True
    )
    keys = int(done.stdout)
    parameters = keys * dim * 4
    encoded = sum(path.stat().st_size for path in (folder / "encoded").rglob("*") if path.is_file())
    table = sum(path.stat().st_size for path in (folder / "data").iterdir())
    return {
        "keys": keys, "parameters": round(parameters / MB), "slots": round(parameters / MB),
        "model.keras": round((folder / "run" / "model.keras").stat().st_size / MB),
        "encoded": round(encoded / MB), "table": round(table / MB),
    }  # fmt: skip


def with_base(facts: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Facts with what each command holds beyond the same command on a few rows."""
    more: dict[str, Any] = {}
    for name, fact in facts.items():
        more[name] = dict(fact)
        if name in base and "peak" in fact:
            more[name] |= {f"{key}_above_base": fact[key] - base[name][key] for key in ("peak", "held")}
    return more


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where tables, runs and measurements are kept")
    parser.add_argument("--rows", default="1000000", help="sizes, with commas between them")
    parser.add_argument("--values", type=int, default=1_000_000, help="the keys of the largest group")
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--memory", default="2GB", help="of encode")
    parser.add_argument("--part-rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="encode,train,similar,embed,evaluate,export", help="commands, with commas")
    parser.add_argument("--index", default="", help="indexes of `similar` to measure, with commas: hnsw,ivf")
    parser.add_argument("--keep", action="store_true", help="keep tables and runs, not the measurements alone")
    parser.add_argument("--generate", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--queries", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.generate:
        generate(options.generate, int(options.rows), options.values, options.part_rows)
        return
    if options.queries:
        write_queries(*options.queries)
        return
    options.only, options.index = options.only.split(","), list(filter(None, options.index.split(",")))
    name = f"values{options.values}-dim{options.dim}"
    base = bench(options.folder / f"{name}-base", BASE_ROWS, options)
    by_rows = {
        rows: with_base(bench(options.folder / f"{name}-rows{rows}", int(rows), options), base)
        for rows in options.rows.split(",")
    }
    shown = {key: getattr(options, key) for key in ("values", "dim", "epochs", "memory", "part_rows")}
    print(json.dumps({**shown, "base": base, "rows": by_rows}, indent=1))


if __name__ == "__main__":
    main()
