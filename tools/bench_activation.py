"""How many weights remain where rare keys have no vector (`model.activation`) and l1 makes zeros, and the log loss.

python tools/bench_activation.py [--rows 150000] [--keys 20000] [--epochs 6] [--l1 2] > activation.json

The table is made here: three columns whose keys follow Zipf's law, most of them in fewer than ten rows, and a label
that follows from hidden linear terms and vectors of all keys. The same FM is trained by FTRL-Proximal with all vectors,
with none, with vectors for keys of ten rows, and with vectors for those of them whose linear term is not zero. Log loss
is that of rows that were not trained on; that of the hidden probabilities is the least there is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import numpy.typing as npt
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))

import click_models

COLUMNS = ("user", "item", "tag")
DIM = 16
EXPONENT = 1.1  # of Zipf's law
VECTOR_SCALE = 0.45  # of the hidden vectors' coordinates
COUNT = 10


def zipf_table(rows: int, keys: int, seed: int) -> tuple[pa.Table, npt.NDArray[np.float64]]:
    """Rows of three keys with a label, and the probability of each label: [rows]."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, keys + 1) ** -EXPONENT
    columns: dict[str, Any] = {}
    score, before = np.full(rows, -0.5), np.zeros((rows, 4))
    for name in COLUMNS:
        ids = rng.choice(keys, rows, p=shares / shares.sum())
        terms, vectors = rng.normal(0, 0.6, keys), rng.normal(0, VECTOR_SCALE, (keys, 4))
        columns[name] = pa.array([f"{name[0]}{i}" for i in range(keys)]).take(pa.array(ids))
        score += terms[ids] + (before * vectors[ids]).sum(axis=1)
        before += vectors[ids]
    probability = 1 / (1 + np.exp(-score))
    columns["label"] = pa.array((rng.random(rows) < probability).astype(np.int8))
    return pa.table(columns), probability


def log_loss(labels: npt.NDArray[Any], probability: npt.NDArray[Any]) -> float:
    """The mean logarithmic loss of probabilities."""
    clipped = np.clip(probability.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.mean(np.where(labels == 1, np.log(clipped), np.log1p(-clipped))))


def schema(epochs: int, l1: float, activation: dict[str, Any] | None) -> dict[str, Any]:
    """An FM of the three columns, trained for some epochs."""
    model = {"dim": DIM, "scale": 0.05, "activation": activation}
    return click_models.schema(COLUMNS, "label", model, l1, epochs=epochs, batch_size=1024, l2=0.01)


def measure(rows: int, keys: int, epochs: int, l1: float, seed: int = 0) -> dict[str, Any]:
    """Train the models, and return what remains of each and its log loss."""
    from feat2vec.model.remaining import remaining
    from feat2vec.run import train

    table, probability = zipf_table(rows + rows // 4, keys, seed)
    learnt, measured = table[:rows], table[rows:]
    labels = measured["label"].to_numpy()
    sides: dict[str, dict[str, Any] | None] = {
        "no_vectors": {"count": rows + 1},
        "all_vectors": None,
        "count": {"count": COUNT},
        "count_and_linear": {"count": COUNT, "linear": True},
    }
    facts: dict[str, Any] = {"rows": rows, "l1": l1, "epochs": epochs}
    facts["least_log_loss"] = round(log_loss(labels, probability[rows:]), 5)
    for side, activation in sides.items():
        run = train(schema(epochs, l1, activation), learnt, quiet=True)
        facts[side] = {
            **click_models.weights_of(run),
            "keys_with_linear_term": remaining(run.model).terms,
            "log_loss": round(log_loss(labels, run.predict(measured)["probability"]), 5),
        }
    return facts


def main() -> None:
    """Print the measurement as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--keys", type=int, default=20_000, help="of each column")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--l1", type=float, default=2.0)
    options = parser.parse_args()
    print(json.dumps(measure(options.rows, options.keys, options.epochs, options.l1), indent=1))


if __name__ == "__main__":
    main()
