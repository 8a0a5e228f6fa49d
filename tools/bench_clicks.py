"""A click log of many rare features: parameters that are held and remain, and AUC, of LR, FM and RaFM.

python tools/bench_clicks.py [--rows 2000000] [--features 500000] [--epochs 3] [--local-cluster 2x2] > clicks.json

The log is made here, in kind that of figure 4 of the RaFM paper: a user, an item, a query, a publisher and a position,
whose keys follow Zipf's law and are `features` in all, and a click that follows from hidden linear terms of all keys
and hidden vectors, longer for frequent keys. All models are trained by FTRL-Proximal on four fifths of the rows; those
with adaptive memory have vectors for keys of `count` rows or more (`model.activation`). `held` counts weights in
memory, `remaining` those that are not zero. With `--local-cluster` workers and servers on this machine train from
shards of encoded rows, and `servers` says what each server holds. What is measured of a model is told at once on
standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import click_models

if TYPE_CHECKING:
    from feat2vec.run import Run

SHARES = {"user": 0.6, "item": 0.25, "query": 0.1499, "publisher": 0.0001}  # of the features
POSITIONS = 8
HIDDEN = 4  # coordinates of hidden vectors
RANKS = (2, 4, 8)
CLICK_SCORE = -2.0  # the score without any feature

Labels = npt.NDArray[np.int8]
Numbers = npt.NDArray[np.float64]


def click_log(rows: int, features: int, seed: int = 0) -> tuple[pa.Table, Numbers]:
    """Rows of keys with a click, and the hidden score of each: [rows]."""
    rng = np.random.default_rng(seed)
    sizes = {name: max(int(features * share), 2) for name, share in SHARES.items()} | {"position": POSITIONS}
    columns: dict[str, Any] = {}
    score, before = np.full(rows, CLICK_SCORE), np.zeros((rows, HIDDEN))
    for name, size in sizes.items():
        ids = np.minimum(np.exp(rng.random(rows) * np.log(size + 1)) - 1, size - 1).astype(np.int64)  # p(k) ~ 1 / (k+1)
        counts = np.bincount(ids, minlength=size)
        length = 0.35 * np.minimum(np.log1p(counts) / np.log(100), 1.5)  # a rare key's vector is short
        terms, vectors = rng.normal(0, 0.4, size), rng.normal(0, 1, (size, HIDDEN)) * length[:, None]
        score += terms[ids] + (before * vectors[ids]).sum(axis=1)
        before += vectors[ids]
        columns[name] = pa.array(np.char.add(f"{name[0]}", ids.astype(str)))
    columns["click"] = pa.array((rng.random(rows) < 1 / (1 + np.exp(-score))).astype(np.int8))
    return pa.table(columns), score


def auc(labels: Labels, scores: npt.NDArray[Any]) -> float:
    """The share of pairs of a click and no click in which the click has the higher score; half of the equal ones."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # of equal scores their mean, [rows]
    clicks = int(labels.sum())
    return float((ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks)))


def schema(epochs: int, model: dict[str, Any], l1: float) -> dict[str, Any]:
    """A model of all columns, trained by FTRL-Proximal."""
    columns, training = (*SHARES, "position"), {"epochs": epochs, "batch_size": 2048}
    if not model.get("pairs", True):
        return click_models.schema(columns, "click", model, l1, **training)
    return click_models.schema(columns, "click", {"scale": 0.05, **model}, l1, l2=0.005, **training)


def models(count: int) -> dict[str, dict[str, Any]]:
    """The options of each model."""
    activation = {"count": count}
    return {
        "LR": {"pairs": False},
        "FM 8": {"dim": RANKS[-1]},
        "FM 8, adaptive memory": {"dim": RANKS[-1], "activation": activation},
        "RaFM [2, 4, 8]": {"ranks": list(RANKS)},
        "RaFM [2, 4, 8], adaptive memory": {"ranks": list(RANKS), "activation": activation},
    }


def trained_on_cluster(document: Mapping[str, Any], rows: pa.Table, size: str, folder: Path) -> tuple[Run, list[str]]:
    """The run of a training by workers and servers of this machine, and what is said of each server."""
    from feat2vec.run import encode_table, load

    schema_file, out = folder / "schema.yaml", folder / "run"
    schema_file.write_text(yaml.safe_dump(dict(document)))
    encoded = encode_table(document, rows, folder / "encoded")
    words = ["train", schema_file, "--data", encoded, "--out", out, "--local-cluster", size]
    command = [sys.executable, "-m", "feat2vec", *map(str, words)]
    done = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    return load(out), [line for line in done.stderr.splitlines() if line.startswith("server ")]


def measure(
    rows: int, features: int, epochs: int, l1: float, count: int, seed: int = 0, local_cluster: str | None = None
) -> dict[str, Any]:
    """Train the models, and return the size and the AUC of each."""
    from feat2vec.run import train

    table, score = click_log(rows, features, seed)
    learnt, measured = table[: rows - rows // 5], table[rows - rows // 5 :]
    labels = measured["click"].to_numpy()
    facts: dict[str, Any] = {"rows": rows, "features": features, "epochs": epochs, "l1": l1, "count": count}
    facts["clicks"] = round(float(labels.mean()), 4)
    facts["auc of the hidden score"] = round(auc(labels, score[-len(labels) :]), 5)
    for name, model in models(count).items():
        began, began_cpu = time.perf_counter(), time.process_time()
        document = schema(epochs, model, l1)
        with tempfile.TemporaryDirectory() as folder:
            if local_cluster is None:
                run, of_servers = train(document, learnt, quiet=True), {}
            else:
                run, lines = trained_on_cluster(document, learnt, local_cluster, Path(folder))
                of_servers = {"servers": lines}
            facts[name] = {
                **click_models.weights_of(run),
                **of_servers,
                "auc": round(auc(labels, run.predict(measured)["probability"]), 5),
                "seconds": round(time.perf_counter() - began, 1),
                "cpu_seconds": round(time.process_time() - began_cpu, 1),  # of this process
            }
        sys.stderr.write(json.dumps({name: facts[name]}) + "\n")
    return facts


def main() -> None:
    """Print the measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=500_000, help="keys of all columns together")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--l1", type=float, default=1.0)
    parser.add_argument("--count", type=int, default=10, help="rows of a key that has a vector")
    parser.add_argument("--local-cluster", metavar="WxP", help="workers x servers of this machine, such as 2x2")
    options = parser.parse_args()
    print(json.dumps(measure(**vars(options)), indent=1))


if __name__ == "__main__":
    main()
