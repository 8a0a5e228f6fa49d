"""What a factorization machine costs: RaFM against FM, and both against PyTorch's, on the same rows in one run.

python tools/bench_fm.py FRAPPE_TRAIN.parquet [--epochs 4] [--repeats 3] > fm.json

Tables: Frappe, with RaFM of four levels and of the two of schemas/frappe.yaml; and long-tailed ones, made here with the
features of MovieLens Tag (90,445, three a row, half of them seen once or twice), with its 668,953 rows and with
300,000, of which fewer values reach the upper level. Models learn with the logistic loss, Adam and batches of 2,048; an
epoch's time is the median over epochs and repeats, without the first epoch of each process, sides taking turns. RaFM's
time is set against what sum_k D_k n(F_k) / (D_m n(F)) predicts from FM's, n(F_k) being the occurrences of values that
have level k. The peer is an FM in PyTorch as one writes it (Embedding, Adam), and with sparse gradients (SparseAdam);
the faster one counts, and on the long tails one epoch of each is enough.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

BATCH = 2048
# Features, and how often the most frequent one comes; half of the features come once or twice.
TAIL = {"user": (17_045, 6_000), "film": (23_743, 1_600), "tag": (49_657, 4_500)}
TAIL_ROWS = 668_953  # as MovieLens Tag has; with fewer, fewer values are frequent enough for the upper level
TAILS = {"long_tail": TAIL_ROWS, "long_tail_of_fewer_rows": 300_000}
RANKS = {"frappe": [32, 64, 128, 256], "frappe_two_levels": [96, 256], **{tail: [32, 512] for tail in TAILS}}
SIDES = ("fm", "rafm", "torch", "torch_sparse")


def counts_with_tail(features: int, rows: int, head: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """How often each feature comes: half of them once or twice, the others from `head` down to three.

    There n = head (1 + place / q)^-a (Zipf and Mandelbrot), with q such that they fill the rows.
    """
    few = rng.integers(1, 3, features // 2)
    places = np.arange(features - len(few), dtype=float)
    left = rows - few.sum()

    def law(q: float) -> npt.NDArray[np.float64]:
        return np.asarray(head * (1 + places / q) ** (-np.log(head / 3) / np.log1p(places[-1] / q)))

    low, high = 1e-3, 1e9
    for _ in range(200):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if law(middle).sum() < left else (low, middle)
    many = np.floor(law(low)).astype(np.int64)
    many[: left - many.sum()] += 1
    return np.concatenate([many, few])


def long_tail(rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows of users, films and tags, with a label that follows from hidden vectors."""
    columns: dict[str, Any] = {}
    score = np.zeros(rows)
    before = np.zeros((rows, 4))
    for name, (features, head) in TAIL.items():
        counts = counts_with_tail(features, rows, head * rows // TAIL_ROWS, rng)
        ids = np.repeat(np.arange(features), counts)
        rng.shuffle(ids)
        columns[name] = pa.array([f"{name[0]}{i}" for i in range(features)]).take(pa.array(ids))
        vectors = rng.normal(size=(features, 4))[ids]
        score += (before * vectors).sum(axis=1)
        before += vectors
    columns["used"] = pa.array((score + rng.logistic(size=rows) > 0).astype(np.int8))
    return pa.table(columns)


def schema(groups: list[str], model: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """A factorization machine on all columns but the label."""
    return {
        "version": 1, "model": {"bias": True, "scale": 0.01, **model},
        "groups": {name: {"column": name} for name in groups},
        "objective": {"type": "logistic", "target": "used"},
        "training": {"validation": 0, "epochs": epochs, "batch_size": BATCH, "l2": 0.005,
                     "optimizer": {"type": "adam", "learning_rate": 0.003, "decay": "none"}},
    }  # fmt: skip


def ours(path: str, model: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """Train, and say how long epochs take."""
    from feat2vec.encode.encoder import fit
    from feat2vec.run import train

    groups = [name for name in pq.read_schema(path).names if name != "used"]
    given = schema(groups, model, epochs)
    run = train(given, path, quiet=True)
    facts = {"seconds": [row["seconds"] for row in run.history[1:]], "parameters": run.metrics["parameters"]}
    ranks = model.get("ranks")
    if ranks:
        occurrences = np.zeros(len(ranks))
        from feat2vec.schema.levels import Levels

        for codec in fit(run.schema, path).encoder.codecs.values():
            counts = np.asarray(codec.vocabulary.counts)  # type: ignore[union-attr]
            top = Levels(tuple(ranks)).of_counts(counts)
            occurrences += [counts[top >= level].sum() for level in range(1, len(ranks) + 1)]
        facts["predicted"] = float((occurrences * ranks).sum() / (occurrences[0] * ranks[-1]))
        facts["occurrences"] = occurrences.tolist()
    return facts


def torch_side(path: str, dim: int, epochs: int, sparse: bool) -> dict[str, Any]:
    """An FM in PyTorch: one embedding of all features, all pairs by the sum of squares."""
    import torch

    table = pq.read_table(path)
    names = [name for name in table.column_names if name != "used"]
    columns, start = [], 0
    for name in names:
        found = table[name].combine_chunks().cast(pa.string()).dictionary_encode()
        columns.append(found.indices.to_numpy() + start)
        start += len(found.dictionary)
    ids = torch.from_numpy(np.stack(columns, axis=1).astype(np.int64))
    label = torch.from_numpy(table["used"].to_numpy().astype(np.float32))
    torch.manual_seed(0)
    vectors, linear = torch.nn.Embedding(start, dim, sparse=sparse), torch.nn.Embedding(start, 1, sparse=sparse)
    torch.nn.init.normal_(vectors.weight, std=0.01)
    torch.nn.init.zeros_(linear.weight)
    bias = torch.nn.Parameter(torch.zeros(()))
    tables = [*vectors.parameters(), *linear.parameters()]
    optimizers: list[Any] = [torch.optim.Adam([bias], lr=0.003)]
    optimizers.append((torch.optim.SparseAdam if sparse else torch.optim.Adam)(tables, lr=0.003))
    loss_of = torch.nn.BCEWithLogitsLoss()
    seconds = []
    for _ in range(epochs):
        begun = time.perf_counter()
        order = torch.randperm(len(ids))
        for at in range(0, len(ids), BATCH):
            rows = order[at : at + BATCH]
            some = ids[rows]
            v = vectors(some)  # [batch, fields, dim]
            pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(1)
            loss = loss_of(bias + linear(some).sum((1, 2)) + pairs, label[rows])
            loss = loss + 0.0025 * v.square().sum((1, 2)).mean()
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        seconds.append(time.perf_counter() - begun)
    return {"seconds": seconds[1:], "parameters": start * (dim + 1) + 1}


def side(name: str, path: str, table: str, epochs: int) -> dict[str, Any]:
    """One side in this process."""
    ranks = RANKS[table]
    if name.startswith("torch"):
        return torch_side(path, ranks[-1], epochs, name == "torch_sparse")
    return ours(path, {"ranks": ranks} if name == "rafm" else {"dim": ranks[-1]}, epochs)


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side[0], options.train, options.side[1], options.epochs)))
        return
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths, shares = {"frappe": options.train, "frappe_two_levels": options.train}, {}
        for table, size in TAILS.items():
            made, paths[table] = long_tail(size, np.random.default_rng(0)), str(Path(folder) / f"{table}.parquet")
            pq.write_table(made, paths[table])
            seen = np.concatenate([pc.value_counts(made[name]).field("counts").to_numpy() for name in TAIL])
            shares[table] = {"features": len(seen), "seen_once_or_twice": float((seen < 3).mean())}
        for table, path in paths.items():
            rows = pq.read_metadata(path).num_rows
            found: dict[str, Any] = {name: {"seconds": []} for name in SIDES}
            for _ in range(options.repeats):
                for name in SIDES:
                    slow = table in TAILS and name.startswith("torch")  # one epoch of minutes tells enough
                    if slow and found[name]["seconds"]:
                        continue
                    words = [sys.executable, __file__, path, "--epochs", str(2 if slow else options.epochs)]
                    words += ["--side", name, table]
                    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                    facts = json.loads(done.stdout)
                    found[name]["seconds"] += facts.pop("seconds")
                    found[name] |= facts
            for facts in found.values():
                facts["seconds_an_epoch"] = statistics.median(facts.pop("seconds"))
                facts["rows_per_second"] = round(rows / facts["seconds_an_epoch"])
            ratio = found["rafm"]["seconds_an_epoch"] / found["fm"]["seconds_an_epoch"]
            peer = max(found["torch"]["rows_per_second"], found["torch_sparse"]["rows_per_second"])
            result[table] = {
                **shares.get(table, {}), "rows": rows, **found, "rafm_over_fm": round(ratio, 3),
                "rafm_over_predicted": round(ratio / found["rafm"]["predicted"], 3),
                "rafm_parameters_over_fm": round(found["rafm"]["parameters"] / found["fm"]["parameters"], 3),
                "fm_over_torch": round(found["fm"]["rows_per_second"] / peer, 2),
            }  # fmt: skip
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
