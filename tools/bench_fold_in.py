"""New directors, folded in from a few films of each without training, beside a training with these films.

python tools/bench_fold_in.py FILMS_TRAIN FILMS_VALIDATION [--epochs 20] [--seed 0] > fold_in.json

A tenth of the directors with three films or more is held out: one film of each, drawn at random, is a query, and the
others are known. One run of films.yaml is trained without all of these films; the new directors are then folded in by
their known films. Another is trained with the known films. A query ranks its director among all directors by the cosine
with the sum of its other groups, as in bench_films.py; its other true directors are left out. `gain` is what fold-in
adds to the MRR over a director without a vector, divided by what training adds. `known_directors` are those of the
films of FILMS_VALIDATION whom training has seen: new ones are among their rivals, and an MRR that falls tells that they
are found where they should not be. `milliseconds` are a new director's, with the reading of the rows; `first_seconds`
is what a run computes once and keeps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from feat2vec.run import Run, train

SCHEMA = Path(__file__).parents[1] / "schemas" / "films.yaml"
GIVEN = ("cast", "genre", "title", "year", "plot")
LEAST_FILMS = 3  # of a director who may be held out
Floats = npt.NDArray[np.float64]
Space = tuple[Run, list[str], Floats]  # a run, its candidates and their vectors


def split(films: pa.Table, seed: int) -> tuple[set[str], pa.Table, pa.Table, pa.Table]:
    """The new directors, the films without them, their known films, and their queries."""
    of_films = [list(dict.fromkeys(row)) for row in films["directors"].to_pylist()]
    names, counts = np.unique([name for row in of_films for name in row], return_counts=True)
    several, rng = names[counts >= LEAST_FILMS], np.random.default_rng(seed)
    new = set(rng.choice(several, len(several) // 10, replace=False).tolist())
    places: dict[str, list[int]] = {name: [] for name in sorted(new)}
    for place, row in enumerate(of_films):
        for name in row:
            if name in new:
                places[name].append(place)
    is_query, is_new = np.zeros(len(films), np.bool_), np.zeros(len(films), np.bool_)
    for of_director in places.values():
        is_query[rng.choice(of_director)] = True
        is_new[of_director] = True
    others, known, queries = (films.filter(pa.array(rows)) for rows in (~is_new, is_new & ~is_query, is_query))
    return new, others, known, queries


def mrr(space: Space, films: pa.Table, directors: set[str]) -> dict[str, float]:
    """The mean reciprocal rank of some directors in their films, among all candidates; ties count half."""
    run, keys, vectors = space
    place = {key: i for i, key in enumerate(keys)}
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    reciprocals = []
    for row, names in zip(run.embed(films, GIVEN), films["directors"].to_pylist(), strict=True):
        scores = units @ row.astype(np.float64)
        true = [place[name] for name in dict.fromkeys(names) if name in place]
        for name in dict.fromkeys(names):
            if name in directors and name in place:
                rivals = np.delete(scores, [other for other in true if other != place[name]])
                score = scores[place[name]]
                rank = (rivals > score).sum() + ((rivals == score).sum() - 1) / 2
                reciprocals.append(1 / (rank + 1))
    return {"mrr": round(float(np.mean(reciprocals)), 4), "n": len(reciprocals)}


def known_directors(run: Run) -> tuple[list[str], Floats]:
    """The directors that a run knows, and their vectors."""
    vectors = run.vectors("director")
    return vectors.index_to_key, vectors.vectors.astype(np.float64)


def measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train twice, fold in, and rank."""
    films, validation = pq.read_table(arguments.films_train), pq.read_table(arguments.films_validation)
    new, others, known_films, queries = split(films, arguments.seed)
    settings = [f"training.epochs={arguments.epochs}", f"training.seed={arguments.seed}"]
    runs, train_seconds = {}, {}
    for name, table in (("without", others), ("with", pa.concat_tables([others, known_films]))):
        began = time.perf_counter()
        runs[name] = train(SCHEMA, table, folder / name, settings=settings, quiet=True)
        train_seconds[name] = round(time.perf_counter() - began, 1)
    run, seconds = runs["without"], []
    for _ in range(2):
        began = time.perf_counter()
        folded = run.fold_in(known_films, "director")
        seconds.append(time.perf_counter() - began)
    kept = [i for i, key in enumerate(folded.index_to_key) if key in new]
    keys, vectors = known_directors(run)
    all_keys = [*keys, *(folded.index_to_key[i] for i in kept)]
    spaces: dict[str, Space] = {
        "nothing": (run, all_keys, np.concatenate([vectors, np.zeros((len(kept), vectors.shape[1]))])),
        "fold_in": (run, all_keys, np.concatenate([vectors, folded.vectors[kept]])),
        "trained": (runs["with"], *known_directors(runs["with"])),
    }
    of_new = {name: mrr(space, queries, new) for name, space in spaces.items()}
    of_known = {name: mrr(space, validation, set(keys)) for name, space in spaces.items()}
    nothing, fold_in, trained = (facts["mrr"] for facts in of_new.values())
    return {
        "epochs": arguments.epochs, "seed": arguments.seed, "films": len(others), "known_films": len(known_films),
        "new_directors": len(kept), "candidates": len(all_keys), "new": of_new, "known_directors": of_known,
        "gain": round((fold_in - nothing) / (trained - nothing), 3),
        "milliseconds": round(1000 * seconds[1] / len(folded), 3), "first_seconds": round(seconds[0] - seconds[1], 3),
        "train_seconds": train_seconds,
    }  # fmt: skip


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("films_train")
    parser.add_argument("films_validation")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        facts = measured(arguments, Path(folder))
    json.dump(facts, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
