"""The film benchmark: gensim's Word2Vec, LightFM and feat2vec on the same films, in one process tree.

python tools/bench_films.py TRAIN.parquet TEST.parquet [--repeats 3] [--skip-gram-epochs 20 100] [--peers] > films.json

Both files have the columns title, year, cast, genres, directors and plot. gensim sees each film that has a cast and a
director as a document of tagged tokens. Each side trains in a process of its own and then ranks each true director of
a test film among all directors of the training films: gensim by cosine with the sum of the cast's vectors, feat2vec as
`evaluate --task rank` does, also by all of the film's other groups. Seconds of feat2vec are those of `feat2vec train`,
from start to exit; its `training_cpu_seconds` are those of training alone. The schema films_paper learns from the films
that gensim sees, the schemas films and films_small from all of the file. --peers adds LightFM (pip install
lightfm-next), at its best known settings and at those of a short training, measured as feat2vec is; it learns a film's
director from its cast, and ranks by its own score, the product with the sum of the cast's vectors and the director's
bias.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from peers.timed_command import FEAT2VEC, OURS, PEERS, is_installed, timed

SCHEMAS = Path(__file__).parents[1] / "schemas"
LIGHTFM = Path(__file__).parent / "peers" / "lightfm_films.py"
LIGHTFM_SETTINGS = {
    "lightfm": "--dim 100 --epochs 60 --rate 0.02 --alpha 1e-5 --sampled 200",
    "lightfm_short": "--dim 50 --epochs 20 --rate 0.05 --alpha 1e-5 --sampled 30",
}
QUALITY = ("mpr", "mrr", "top1", "recall_at_10", "median_rank", "n", "candidates")


def tokens(film: Mapping[str, Any]) -> Iterator[str]:
    """A film as words for gensim, each tagged with its column."""
    yield f"year={film['year']}"
    for column, most in (("genres", 3), ("cast", 10), ("directors", 5)):
        yield from (f"{column}={name}" for name in film[column][:most])
    yield from (f"title={word}" for word in re.findall(r"\w+", film["title"].lower())[:5])


def with_both(path: str) -> Any:
    """The films that have a cast and a director, as a table."""
    table = pq.read_table(path)
    both = [
        bool(cast and directors)
        for cast, directors in zip(*(table[c].to_pylist() for c in ("cast", "directors")), strict=True)
    ]
    return table.filter(both)


def films(path: str) -> list[dict[str, Any]]:
    """The films that have a cast and a director."""
    rows: list[dict[str, Any]] = with_both(path).to_pylist()
    return rows


def gensim_side(train: str, test: str, skip_gram: bool, epochs: int) -> dict[str, Any]:
    """Train and rank with gensim."""
    from gensim.models import Word2Vec

    documents = [list(tokens(film)) for film in films(train)]
    start = time.perf_counter()
    model = Word2Vec(
        documents,
        vector_size=50,
        window=50,
        shrink_windows=False,
        min_count=1,
        sg=int(skip_gram),
        negative=5,
        ns_exponent=0.75,
        sample=0,
        epochs=epochs,
        workers=2,
        seed=1,
    )
    seconds = time.perf_counter() - start
    names = [key for key in model.wv.index_to_key if key.startswith("directors=")]
    place = {name: i for i, name in enumerate(names)}
    directors = model.wv[names] / np.linalg.norm(model.wv[names], axis=1, keepdims=True)
    ranks: list[float] = []
    for film in films(test):
        cast = [key for key in (f"cast={name}" for name in film["cast"][:10]) if key in model.wv]
        true = [place[key] for key in (f"directors={name}" for name in film["directors"][:5]) if key in place]
        if cast:
            ranks += ranks_of(true, directors @ model.wv[cast].sum(axis=0))
    return {
        "seconds": seconds,
        "rows_per_second": len(documents) * epochs / seconds,
        **quality(ranks, len(names)),
    }


def ranks_of(true: Sequence[int], scores: Any) -> list[float]:
    """The rank of each true director, counted from 0, without the film's others; ties count half."""
    ranks = []
    for own in true:
        rest = np.delete(scores, [other for other in true if other != own])
        ranks.append((rest > scores[own]).sum() + ((rest == scores[own]).sum() - 1) / 2)
    return ranks


def quality(ranks: Sequence[float], candidates: int) -> dict[str, float]:
    """What `feat2vec evaluate --task rank` says of ranks that are counted from 0."""
    rank = np.array(ranks)
    return {
        "n": len(rank), "candidates": candidates, "mpr": rank.mean() / candidates, "mrr": (1 / (rank + 1)).mean(),
        "top1": (rank == 0).mean(), "recall_at_10": (rank < 10).mean(), "median_rank": np.median(rank),
    }  # fmt: skip


def lightfm_side(train: str, test: str, settings: str, seed: int) -> dict[str, Any]:
    """Train and rank with LightFM."""
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder) / "vectors.npz"
        words = [sys.executable, str(LIGHTFM), train, str(vectors), *settings.split(), "--seed", str(seed)]
        command = timed(words, PEERS)
        with np.load(vectors) as file:
            return {**command.facts(), **lightfm_quality(dict(file), films(test))}


def lightfm_quality(vectors: Mapping[str, Any], test: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How well the vectors that `peers/lightfm_films.py` writes rank the true directors of films."""
    cast_index, director_index = (
        {name: i for i, name in enumerate(vectors[column].tolist())} for column in ("cast", "directors")
    )
    ranks: list[float] = []
    for film in test:
        cast = [cast_index[name] for name in film["cast"][:10] if name in cast_index]
        true = [director_index[name] for name in film["directors"][:5] if name in director_index]
        if cast:
            query = vectors["cast_vectors"][cast].sum(axis=0)
            ranks += ranks_of(true, vectors["director_vectors"] @ query + vectors["director_biases"])
    return quality(ranks, len(director_index))


def feat2vec_side(train: str, test: str, schema: Path, all_groups: bool, seed: int) -> dict[str, Any]:
    """Train and rank by the command line."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        if not all_groups:
            pq.write_table(with_both(train), Path(folder) / "train.parquet")
            train = str(Path(folder) / "train.parquet")
        words = ["train", str(schema), "--data", train, "--out", run, "--set", f"training.seed={seed}"]
        command = timed([*FEAT2VEC, *words], OURS)
        metrics = json.loads((Path(run) / "metrics.json").read_text())
        facts: dict[str, Any] = {**command.facts(), **{key: metrics[key] for key in ("rows_per_second", "parameters")}}
        words = ["evaluate", run, "--data", test, "--task", "rank", "--target", "director", "--json"]
        for name, given in (("cast", ["--given", "cast"]), ("all", [])):
            if name == "cast" or all_groups:
                done = subprocess.run([*FEAT2VEC, *words, *given], check=True, stdout=subprocess.PIPE, text=True)
                found = json.loads(done.stdout)
                facts |= {key if name == "cast" else f"{key}_from_all": found[key] for key in QUALITY}
    return facts


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each number."""
    return {key: float(f"{statistics.median(float(run[key]) for run in runs):.5g}") for key in runs[0]}


def gensim_process(options: argparse.Namespace, skip_gram: bool, epochs: int) -> dict[str, float]:
    """Run gensim in a process of its own, several times."""
    words = [sys.executable, __file__, options.train, options.test, "--gensim", str(int(skip_gram)), str(epochs)]
    done = [subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True) for _ in range(options.repeats)]
    return medians([json.loads(one.stdout) for one in done])


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cbow-epochs", type=int, nargs="*", default=[20, 100])
    parser.add_argument("--skip-gram-epochs", type=int, nargs="*", default=[20, 100])
    parser.add_argument("--peers", action="store_true", help="Measure LightFM, too.")
    parser.add_argument("--gensim", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gensim:
        facts = gensim_side(options.train, options.test, bool(options.gensim[0]), options.gensim[1])
        print(json.dumps({key: float(value) for key, value in facts.items()}))
        return
    files = options.train, options.test
    peers = LIGHTFM_SETTINGS if options.peers and is_installed("lightfm", "lightfm-next") else {}
    schemas = {"films": True, "films_small": True, "films_paper": False}  # name: whether it learns from all groups
    paths = {name: SCHEMAS / f"{name}.yaml" for name in schemas if (SCHEMAS / f"{name}.yaml").exists()}
    runs: dict[str, list[dict[str, Any]]] = {}
    for seed in range(options.repeats):  # side by side, so that a machine that slows down slows them all
        for name, path in paths.items():
            runs.setdefault(name, []).append(feat2vec_side(*files, path, schemas[name], seed))
        for name, settings in peers.items():
            runs.setdefault(name, []).append(lightfm_side(*files, settings, seed))
    result: dict[str, Any] = {name: medians(sides) for name, sides in runs.items()}
    cbow = [gensim_process(options, False, epochs) for epochs in options.cbow_epochs]
    skip_gram = [gensim_process(options, True, epochs) for epochs in options.skip_gram_epochs]
    result["gensim_cbow"] = dict(zip(map(str, options.cbow_epochs), cbow, strict=True))
    result["gensim_skip_gram"] = dict(zip(map(str, options.skip_gram_epochs), skip_gram, strict=True))
    ours, paper = result["films"], result["films_paper"]
    if cbow:
        result["paper_mpr_over_cbow"] = round(paper["mpr"] / min(one["mpr"] for one in cbow), 3)
        result["paper_top1_over_cbow"] = round(paper["top1"] / max(one["top1"] for one in cbow), 2)
        result["rows_per_second_over_cbow"] = round(
            ours["rows_per_second"] / max(x["rows_per_second"] for x in cbow), 2
        )
    if skip_gram:
        fastest = max(one["rows_per_second"] for one in skip_gram)
        result["rows_per_second_over_skip_gram"] = round(ours["rows_per_second"] / fastest, 2)
        result["seconds_over_skip_gram"] = round(ours["seconds"] / max(one["seconds"] for one in skip_gram), 3)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
