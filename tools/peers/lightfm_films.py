"""LightFM learns which director a film has from its cast: films are users, their cast the users' features.

python tools/peers/lightfm_films.py TRAIN.parquet VECTORS.npz [--dim 100] [--epochs 60] [--rate 0.02] [--sampled 200]

`VECTORS.npz` has the names and vectors of cast and directors and the directors' biases. A film's score with a director
is the product of the sum of its cast's vectors with the director's, and the bias. Films without a cast or a director
are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from lightfm import LightFM

MOST = {"cast": 10, "directors": 5}  # names of a film that count


def films(path: str) -> dict[str, list[list[str]]]:
    """The cast and directors of each film that has both."""
    table = pq.read_table(path, columns=list(MOST)).to_pydict()
    rows = [row for row in zip(table["cast"], table["directors"], strict=True) if row[0] and row[1]]
    return {name: [row[i][: MOST[name]] for row in rows] for i, name in enumerate(MOST)}


def indices(lists: Sequence[Sequence[str]]) -> dict[str, int]:
    """An index for each name, in the order of their first occurrence."""
    return {name: i for i, name in enumerate(dict.fromkeys(name for names in lists for name in names))}


def incidence(lists: Sequence[Sequence[str]], index: Mapping[str, int]) -> Any:
    """A 1 for each name of each row, [rows, names]."""
    rows = [i for i, names in enumerate(lists) for _ in names]
    columns = [index[name] for names in lists for name in names]
    ones = np.ones(len(rows), np.float32)
    return sp.csr_matrix((ones, (rows, columns)), shape=(len(lists), len(index)), dtype=np.float32)


def main() -> None:
    """Train, and write the vectors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("vectors")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--alpha", type=float, default=1e-5)
    parser.add_argument("--sampled", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train = films(options.train)
    index = {name: indices(lists) for name, lists in train.items()}
    matrix = {name: incidence(lists, index[name]) for name, lists in train.items()}
    model = LightFM(
        no_components=options.dim,
        loss="warp",
        learning_rate=options.rate,
        user_alpha=options.alpha,
        max_sampled=options.sampled,
        random_state=options.seed,
    )
    print("training", flush=True)
    model.fit(matrix["directors"], matrix["cast"], epochs=options.epochs, num_threads=options.threads)
    print(f"epoch {options.epochs}/{options.epochs}", flush=True)
    np.savez(
        options.vectors,
        cast=np.array(list(index["cast"])),
        directors=np.array(list(index["directors"])),
        cast_vectors=model.user_embeddings,  # [cast, dim]
        director_vectors=model.item_embeddings,  # [directors, dim]
        director_biases=model.item_biases,
    )


if __name__ == "__main__":
    main()
