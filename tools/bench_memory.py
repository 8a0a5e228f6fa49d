"""What the commands hold in memory at most, and what `estimate()` says of it, on a generated table, in one run.

python tools/bench_memory.py [--rows 5000000] [--keys 1000000] [--groups 3] [--dim 64] > memory.json

The table: `groups` columns of `keys` strings, each of which occurs. Each command runs in a process of its own, whose
peak is the kernel's `ru_maxrss`. `base` is the peak of the same command on a table, and a run, of 100 rows: what
Python's modules, TensorFlow's threads and the graph take; `above_base` is the rest. Sizes are in MB of 2**20 bytes.
`--many 30,100,300,1000` measures trainings of that many groups on 24 rows instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MB = 2**20
PROGRAM = [sys.executable, "-c", "import sys; sys.argv[0] = 'feat2vec'; from feat2vec.cli import main; main()"]
CARE = {"validation": True, "averaging": 0.9, "patience": 3}  # what holds copies of the weights


def generate(path: Path, rows: int, keys: int, groups: int) -> None:
    """Write a table whose columns hold each of their keys."""
    rng = np.random.default_rng(0)
    columns = {}
    for g in range(groups):
        names = pa.array([f"{chr(97 + g % 26)}{g}-{i:07d}" for i in range(min(keys, rows))])
        columns[f"g{g}"] = names.take(pa.array(rng.permutation(rows) % len(names)))
    pq.write_table(pa.table(columns), path)


def schema(folder: Path, groups: int, dim: int, epochs: int, **training: Any) -> Path:
    """Write a schema of lookups."""
    path = folder / f"schema{len(list(folder.glob('*.yaml')))}.yaml"
    facts = {
        "version": 1,
        "model": {"dim": dim},
        "groups": {f"g{g}": {"column": f"g{g}", "extractor": "lookup"} for g in range(groups)},
        "noise": {"negatives": 64, "sharing": "batch"},
        "objective": {"type": "contrastive"},
        "training": {"validation": 0, "epochs": epochs, "batch_size": 4096, **training},
    }
    path.write_text(json.dumps(facts))
    return path


def run(command: list[str], log: Path) -> dict[str, float]:
    """Seconds and peak megabytes of a process."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start = time.perf_counter()
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}: {log.read_text()[-2000:]}")
    return {"seconds": round(time.perf_counter() - start, 1), "peak": round(usage.ru_maxrss / 1024)}


def side(words: list[str]) -> Any:
    """What this file prints when it is called with `words`."""
    done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def told(path: str, data: str) -> dict[str, float]:
    """What `estimate()` says, and the sizes of a model's weights and slots."""
    import feat2vec
    from feat2vec.model import optimizers
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.training.memory_estimate import estimate

    rows = feat2vec.fit(path, data)
    model = Feat2Vec.from_encoder(rows.encoder)
    optimizer = optimizers.named(rows.encoder.schema.training.optimizer.type, 0.1)
    optimizer.build(model.trainable_variables)
    weights, slots = (
        sum(int(np.prod(v.shape)) * v.dtype_size for v in _sized(some))
        for some in (
            model.weights,
            optimizer.variables,
        )
    )
    return {
        "estimate": round(sum(part.size for part in estimate(rows)) / MB),
        "weights": round(weights / MB), "slots": round(slots / MB),
    }  # fmt: skip


def _sized(variables: Any) -> Any:
    for variable in variables:
        variable.dtype_size = np.dtype(variable.dtype).itemsize
        yield variable


def commands(folder: Path, rows: int, keys: int, groups: int, dim: int, epochs: int) -> dict[str, Any]:
    """Each command on one table."""
    folder.mkdir()
    data, log = folder / "table.parquet", folder / "log"
    generate(data, rows, keys, groups)
    held = folder / "held.parquet"
    pq.write_table(pq.read_table(data).slice(0, max(rows // 50, 10)), held)
    few = folder / "few.parquet"  # each is compared with every key
    pq.write_table(pq.read_table(held).slice(0, 200), few)
    plain = schema(folder, groups, dim, epochs)
    careful = schema(folder, groups, dim, epochs, **{key: value for key, value in CARE.items() if key != "validation"})
    made, key = folder / "run", pq.read_table(data)["g0"][0].as_py()
    lines: dict[str, list[Any]] = {
        "train": ["train", plain, "--data", data, "--out", made],
        "train with validation, averaging and patience":
            ["train", careful, "--data", data, "--validation", held, "--out", folder / "careful"],
        "similar": ["similar", made, "g0", key],
        "embed": ["embed", made, "--data", held, "--out", folder / "vectors.parquet"],
        "predict": ["predict", made, "--data", held, "--out", folder / "scores.parquet"],
        "evaluate": ["evaluate", made, "--data", few, "--task", "rank", "--target", "g1"],
        **{f"export {kind}": ["export", made, "--format", kind, "--out", folder / kind] for kind in EXPORTS},
    }  # fmt: skip
    facts: dict[str, Any] = {}
    for name, words in lines.items():
        facts[name] = run([*PROGRAM, *map(str, words)], log)
        print(name, facts[name], file=sys.stderr)
    facts["train"] |= side(["--told", str(plain), str(data)])
    facts["train with validation, averaging and patience"] |= side(["--told", str(careful), str(data)])
    facts["model.keras"] = round((made / "model.keras").stat().st_size / MB)
    return facts


EXPORTS = ("parquet", "npz", "word2vec", "projector", "sql", "saved_model")


def many(folder: Path, counts: list[int]) -> dict[str, Any]:
    """Trainings of many groups on 24 rows."""
    facts = {}
    for count in counts:
        data = folder / f"{count}.parquet"
        generate(data, 24, 5, count)
        path = schema(folder, count, 8, 2)
        facts[str(count)] = run(
            [*PROGRAM, "train", str(path), "--data", str(data), "--out", str(folder / f"many{count}")], folder / "log"
        )
        print(count, facts[str(count)], file=sys.stderr)
    return facts


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 5_000_000), ("keys", 1_000_000), ("groups", 3), ("dim", 64), ("epochs", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--many", help="numbers of groups, with commas between them")
    parser.add_argument("--told", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.told:
        print(json.dumps(told(*options.told)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.many:
            print(json.dumps(many(folder, [int(count) for count in options.many.split(",")]), indent=1))
            return
        base = commands(folder / "base", 100, 100, options.groups, options.dim, options.epochs)
        facts = commands(folder / "whole", options.rows, options.keys, options.groups, options.dim, options.epochs)
        for command, small in base.items():
            if isinstance(small, dict):
                facts[command] |= {"base": small["peak"], "above_base": facts[command]["peak"] - small["peak"]}
        print(json.dumps({**vars(options), "commands": facts}, indent=1))


if __name__ == "__main__":
    main()
