"""What self-supervised vectors are worth to a head with few labels: films, from title and plot.

python tools/bench_finetune.py FILMS_TRAIN.parquet FILMS_TEST.parquet [--rows 500] [--seeds 5] > finetune.json

Both files have the columns title, year, cast, genres, directors and plot. The schema films learns from the
training films, without labels, but for 2,000 that choose; test films it never sees. Then each side learns a label (the
decade; whether a film is a drama) from the title and plot of the same 500 training films, with the same head, batches
and epochs, and is measured on all test films:

    pretrained   `feat2vec finetune`, whose vectors and vocabularies are those of the self-supervised run, once as it is
                 and once with `--freeze`
    scratch      `feat2vec train` with the same two groups, once with vocabularies of the 500 films and once with
                 those of all training films (the run's own encoder, its vectors drawn anew)

Each side's learning rate, and which of its two ways counts, is chosen by accuracy on those 2,000 films, having learnt
from 500 others than those that are measured with.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import feat2vec
from feat2vec.run import Run, load, train
from feat2vec.training.fine_tuning import schema_of
from feat2vec.training.fine_tuning_options import HeadType
from feat2vec.training.train import TrainingRequest, train_into
from feat2vec.training.warm_start import WarmStart

SCHEMAS = Path(__file__).parents[1] / "schemas"
GROUPS = ["title", "plot"]
RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
CHOSEN_BY = 2000  # films
SIDES = ("pretrained", "pretrained, frozen", "scratch, own words", "scratch, all words")


def labelled(films: pa.Table) -> pa.Table:
    """The films that have a year and a plot, with their labels."""
    decade = [None if year is None else str(year // 10 * 10) for year in films["year"].to_pylist()]
    kind = ["drama" if "Drama" in (genres or ()) else "other" for genres in films["genres"].to_pylist()]
    films = films.append_column("decade", pa.array(decade)).append_column("kind", pa.array(kind))
    return films.filter([bool(year and plot) for year, plot in zip(decade, films["plot"].to_pylist(), strict=True)])


def learn(side: str, run: Run, rows: pa.Table, target: str, rate: float, head: HeadType, seed: int, out: Path) -> Run:
    """One side's run."""
    settings = [f"training.optimizer.learning_rate={rate}", f"training.seed={seed}"]
    if side.startswith("pretrained"):
        frozen = side == "pretrained, frozen"
        options = {"head": head, "freeze": frozen, "groups": GROUPS, "settings": settings, "quiet": True}
        return run.finetune(rows, target, out, scratch=False, **options)
    schema = schema_of(run.schema, feat2vec.open_table(rows), target, head=head, groups=GROUPS, settings=settings)
    return train(schema, rows, out, quiet=True) if side == "scratch, own words" else scratch(schema, run, rows, out)


def scratch(schema: Any, run: Run, rows: pa.Table, out: Path) -> Run:
    """The run's encoder, and vectors that are drawn anew."""
    drawn = feat2vec.Feat2Vec.from_encoder(replace(run.fitted, classes=None))
    anew = replace(run, in_training=drawn)
    train_into(out, TrainingRequest(schema, quiet=True, start=WarmStart(anew)), rows)
    return load(out)


def measure(
    run: Run,
    films: pa.Table,
    held: pa.Table,
    test: pa.Table,
    target: str,
    head: HeadType,
    seeds: int,
    rows: int,
    folder: Path,
) -> dict[str, Any]:
    """The accuracies of every side with one target."""
    order = np.random.default_rng(7).permutation(len(films))
    samples = [films.take(order[i * rows : (i + 1) * rows]) for i in range(seeds + 1)]  # disjoint; the last one chooses
    sides: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        name = f"{target}-{head}-{side}".replace(", ", "-").replace(" ", "-")
        by_rate = {
            rate: accuracy(learn(side, run, samples[-1], target, rate, head, 99, folder / f"{name}-{rate}"), held)
            for rate in RATES
        }
        rate = max(by_rate, key=lambda rate: by_rate[rate])
        found = [
            accuracy(learn(side, run, some, target, rate, head, seed, folder / f"{name}-s{seed}"), test)
            for seed, some in enumerate(samples[:-1])
        ]
        sides[side] = {
            "learning_rate": rate, "validation": by_rate, "accuracy": found,
            "mean": statistics.mean(found), "spread": statistics.stdev(found),
        }  # fmt: skip
        print(json.dumps({target: {side: sides[side]}}), flush=True, file=sys.stderr)
    common = statistics.mode(films[target].to_pylist())
    one, other = (
        max((side for side in SIDES if side.startswith(kind)), key=lambda side: max(sides[side]["validation"].values()))
        for kind in ("pretrained", "scratch")
    )
    gains = [a - b for a, b in zip(sides[one]["accuracy"], sides[other]["accuracy"], strict=True)]
    return {
        "most_frequent": float(np.mean([label == common for label in test[target].to_pylist()])),
        "pretrained": sides[one]["mean"], "pretrained_is": one, "scratch": sides[other]["mean"], "scratch_is": other,
        "gain": statistics.mean(gains), "gain_spread": statistics.stdev(gains), "sides": sides,
    }  # fmt: skip


def accuracy(run: Run, rows: pa.Table) -> float:
    """The share of rows whose class is said right; a class that a side has not seen counts as wrong."""
    said = run.predict(rows)["prediction"].to_pylist()
    target = str(run.schema.target)
    return float(np.mean([a == b for a, b in zip(said, rows[target].to_pylist(), strict=True)]))


def main() -> None:
    """Print one JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--heads", nargs="+", default=["fm", "mlp"])
    parser.add_argument("--targets", nargs="+", default=["decade", "kind"])
    given = parser.parse_args()
    films, test = pq.read_table(given.train), labelled(pq.read_table(given.test))
    order = np.random.default_rng(1).permutation(len(films))
    held, films = labelled(films.take(order[:CHOSEN_BY])), films.take(order[CHOSEN_BY:])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = train(SCHEMAS / "films.yaml", films, folder / "films", quiet=True)
        facts: dict[str, Any] = {
            "labelled_rows": given.rows, "seeds": given.seeds, "test_rows": len(test), "groups": GROUPS,
            "pretraining": {key: run.metrics[key] for key in ("rows", "epochs", "seconds")},
        }  # fmt: skip
        for head, target in itertools.product(given.heads, given.targets):
            found = measure(run, labelled(films), held, test, target, head, given.seeds, given.rows, folder)
            facts.setdefault(head, {})[target] = found
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
