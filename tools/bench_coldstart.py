"""Values that training has not seen, ranked by what else is known of them: films of unseen directors, unseen apps.

python tools/bench_coldstart.py FILMS_TRAIN FILMS_TEST FRAPPE_TRAIN FRAPPE_VALIDATION FRAPPE_APPS > coldstart.json

Films: a tenth of the directors who have two films or more is held out with all of their films. A query is one of these
films and one of its directors, without a word of who directed it; the candidates are the held-out directors, each the
sum of his other films (each of length 1), compared by cosine. A film is the vectors of its groups side by side; one
group are the words of its plot, title, cast and genres with the weights of TF-IDF.
Frappe: a tenth of the apps is held out with all of their rows. A query is a row in which one of them was used; the
candidates are the held-out apps, each known by what its page says alone.

Baselines see the same: TF-IDF of the texts (fitted to the training part), and popularity, which for a director is his
number of other films, for an app that of the uses of its category in training.
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
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer

from feat2vec.run import Run, train
from feat2vec.space.geometry import dense

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
WORDS: dict[str, Any] = {"type": "lookup", "split": "words"}
FILMS: dict[str, Any] = {
    "version": 1,
    "model": {"dim": 1024},
    "groups": {
        "director": {"column": "directors", "extractor": {"type": "lookup", "multi": True, "max_items": 5}},
        "cast": {"column": "cast", "extractor": {"type": "lookup", "multi": True, "max_items": 30}},
        "genre": {"column": "genres", "extractor": {"type": "lookup", "multi": True, "max_items": 8, "gain": 0.5}},
        "title": {"column": "title", "extractor": {**WORDS, "max_items": 8, "gain": 0.5}},
        "year": {"column": "year", "extractor": {"type": "lookup", "gain": 0.5}},
        "text": {
            "column": "words",
            "extractor": {
                "type": "lookup", "multi": True, "weights": "shares", "max_items": 400,
                "item_dropout": 0.5, "gain": 2.0,
            },
        },
    },
    "noise": {
        "targets": ["director"],
        "sharing": "batch", "negatives": 256,
    },
    "objective": {"type": "contrastive", "unit": True, "temperature": 0.5},
    "training": {"validation": 0, "epochs": 15, "batch_size": 8192, "l2": 0.001, "group_dropout": 0.25},
}  # fmt: skip
CONTEXT = ("user", "daytime", "weekday", "isweekend", "homework", "cost", "weather", "country", "city")
APP: dict[str, Any] = {
    "category": {"column": "category"},
    "developer": {"column": "developer", "extractor": {"type": "lookup", "min_count": 2}},
    "downloads": {"column": "downloads"},
    "price": {"column": "price", "extractor": {"type": "lookup", "min_count": 2}},
    "rating": {"column": "rating"},
    "language": {"column": "language"},
    "name": {"column": "name", "extractor": {**WORDS, "max_items": 8, "min_count": 2, "combiner": "sqrtn"}},
    "short": {"column": "short desc", "extractor": {**WORDS, "max_items": 20, "min_count": 2, "combiner": "sqrtn"}},
    "description": {
        "column": "description",
        "extractor": {
            **WORDS, "max_items": 64, "min_count": 500, "max_share": 0.2, "combiner": "sqrtn", "item_dropout": 0.75,
        },
    },
}  # fmt: skip
FRAPPE: dict[str, Any] = {
    "version": 1,
    "model": {"dim": 32, "bias": True},
    "groups": {**{name: {"column": name} for name in CONTEXT}, **APP},
    "objective": {"type": "logistic", "target": "used"},
    "training": {
        "validation": 0, "epochs": 5, "batch_size": 4096, "l2": 0.5, "interaction_dropout": 0.2,
        "optimizer": {"type": "adam", "learning_rate": 0.003},
    },
}  # fmt: skip


def unit(vectors: Floats) -> Floats:
    """Vectors of length 1; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    ones: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return ones


def summary(scores: Floats, true: Ints, left_out: npt.NDArray[np.bool_] | None = None) -> dict[str, float]:
    """Where the true candidate of each query stands; ties count half, `left_out` candidates not at all."""
    own = scores[np.arange(len(true)), true]
    rivals = scores if left_out is None else np.where(left_out, -np.inf, scores)
    ties = (rivals == own[:, None]).sum(axis=1) - 1
    ranks = (rivals > own[:, None]).sum(axis=1) + ties / 2
    return {
        "mpr": round(float(ranks.mean() / scores.shape[1]), 4),
        "mrr": round(float((1 / (ranks + 1)).mean()), 4),
        "top10": round(float((ranks < 10).mean()), 4),
    }


def tfidf(training: list[str]) -> Any:
    """Of a text's words, fitted to those of training; rows of length 1."""
    return TfidfVectorizer(sublinear_tf=True, stop_words="english", dtype=np.float32).fit(training)


def weighted(fitted: Any, table: Any, texts: list[str]) -> Any:
    """A table with each text's words, and their weights."""
    found, names = fitted.transform(texts).sorted_indices(), fitted.get_feature_names_out()
    words = pa.ListArray.from_arrays(pa.array(found.indptr, pa.int32()), pa.array(names[found.indices], pa.string()))
    shares = pa.ListArray.from_arrays(pa.array(found.indptr, pa.int32()), pa.array(found.data))
    return table.append_column("words", words).append_column("shares", shares)


def joined(table: Any, columns: list[str]) -> list[str]:
    """The columns of each row as one text."""
    parts = [[" ".join(x) if isinstance(x, list) else x or "" for x in table[column].to_pylist()] for column in columns]
    return [" ".join(row) for row in zip(*parts, strict=True)]


# --- films of directors whom training has not seen ------------------------------------------------------------------


def films(train_path: str, test_path: str, folder: Path, seed: int) -> dict[str, Any]:
    """Rank the held-out directors for each of their films."""
    known = pq.read_table(train_path)
    table = pa.concat_tables([known, pq.read_table(test_path).select(known.column_names).cast(known.schema)])
    directors = table["directors"].to_pylist()
    names, counts = np.unique([name for row in directors for name in row], return_counts=True)
    several = names[counts >= 2]
    held = {name: i for i, name in enumerate(np.random.default_rng(seed).choice(several, len(several) // 10, False))}
    out = np.array([any(name in held for name in row) for row in directors])
    new = table.filter(pa.array(out))
    made = np.zeros((new.num_rows, len(held)), np.float32)  # [films, directors]
    for film, row in enumerate(new["directors"].to_pylist()):
        made[film, [held[name] for name in row if name in held]] = 1
    training = known.filter(pa.array(~out[: len(known)]))
    columns = ["title", "plot", "cast", "genres"]
    texts, new_texts = joined(training, columns), joined(new, columns)
    fitted = tfidf(texts)
    began = time.perf_counter()
    run = train(FILMS, weighted(fitted, training, texts), folder / "films", quiet=True)
    seconds = time.perf_counter() - began
    query, true = np.nonzero(made * (made.sum(axis=0) >= 2))
    others = made.sum(axis=0) - made[query]  # [queries, directors], films other than the query
    left_out = made[query] > 0
    left_out[np.arange(len(query)), true] = False
    unseen = weighted(fitted, new.drop_columns(["directors"]), new_texts)
    each = run.embed(unseen, ["cast", "genre", "title", "year", "text"], by_group=True)
    rows = np.concatenate(
        list(each.values()), axis=1
    )  # unlike groups of two new films have little to say of each other
    words = fitted.transform(new_texts).toarray()
    popular = others + 0.0
    sides = {
        "feat2vec": summary(of_directors(rows, made, query), true, left_out),
        "tfidf": summary(of_directors(words, made, query), true, left_out),
        "popularity": summary(popular, true, left_out),
    }
    return {
        "training_films": len(training), "held_out_films": len(new), "candidates": len(held), "queries": len(query),
        "train_seconds": round(seconds, 1), **sides,
    }  # fmt: skip


def of_directors(vectors: Floats, made: Floats, query: Ints) -> Floats:
    """The cosine of each query's film with the sum of each director's other films: [queries, directors]."""
    vectors = unit(vectors)
    sums = made.T @ vectors  # [directors, dim]
    scores = vectors[query] @ sums.T
    squares = np.einsum("ij,ij->i", sums, sums)[None] - made[query] * (2 * scores - 1)  # less the film itself
    cosine: Any = (scores - made[query]) / np.sqrt(np.maximum(squares, 1e-9))
    return np.asarray(cosine, np.float32)


# --- apps that training has not seen --------------------------------------------------------------------------------


def frappe(train_path: str, validation_path: str, apps_path: str, folder: Path, seed: int) -> dict[str, Any]:
    """Rank the held-out apps for each row in which one of them was used."""
    apps = pq.read_table(apps_path)
    known, other = (plain(pq.read_table(path)) for path in (train_path, validation_path))
    items = apps["item"].to_pylist()
    place = {item: i for i, item in enumerate(items)}
    used = sorted(set(known["item"].to_pylist()) & set(items))
    held = np.random.default_rng(seed).choice(used, len(used) // 10, replace=False)
    index = {item: i for i, item in enumerate(held)}
    candidates = apps.take([place[item] for item in held])
    training = known.filter(pc.invert(pc.is_in(known["item"], pa.array(held))))
    training = training.filter(pc.is_in(training["item"], pa.array(items)))
    at = pa.array([place[item] for item in training["item"].to_pylist()])
    whole = pa.table(
        {**{c: training[c] for c in (*CONTEXT, "used")}, **{c: apps[c].take(at) for c in apps.column_names[2:]}}
    )
    rows = pa.concat_tables([known, other])
    rows = rows.filter(pc.and_(pc.equal(rows["used"], 1), pc.is_in(rows["item"], pa.array(held))))
    true = np.array([index[item] for item in rows["item"].to_pylist()])
    began = time.perf_counter()
    run = train(FRAPPE, whole, folder / "frappe", quiet=True)
    seconds = time.perf_counter() - began
    positive = training.filter(pc.equal(training["used"], 1))
    uses = {(user, item) for user, item in zip(*(positive[c].to_pylist() for c in ("user", "item")), strict=True)}
    columns = ["name", "category", "developer", "short desc", "description"]
    texts = joined(apps, columns)
    vectors = tfidf([text for text, item in zip(texts, items, strict=True) if item not in index])
    vectors = vectors.transform(texts).toarray()
    profiles: dict[str, Floats] = {}
    for user in set(rows["user"].to_pylist()):
        mine = [place[item] for one, item in uses if one == user]
        profiles[user] = vectors[mine].sum(axis=0) if mine else np.zeros(vectors.shape[1], np.float32)
    liked = np.stack([profiles[user] for user in profiles]) @ vectors[[place[item] for item in held]].T
    of_user = {user: i for i, user in enumerate(profiles)}
    categories = apps["category"].to_pylist()
    share: dict[str, int] = {}
    for item in positive["item"].to_pylist():
        share[categories[place[item]]] = share.get(categories[place[item]], 0) + 1
    popular = np.array([share.get(category, 0) for category in candidates["category"].to_pylist()], np.float32)
    sides = {
        "feat2vec": summary(pair_scores(run, rows, candidates), true),
        "tfidf": summary(liked[[of_user[user] for user in rows["user"].to_pylist()]], true),
        "popularity": summary(np.broadcast_to(popular, (len(true), len(popular))), true),
    }
    return {
        "training_rows": len(whole), "candidates": len(held), "queries": len(true),
        "train_seconds": round(seconds, 1), **sides,
    }  # fmt: skip


def plain(table: Any) -> Any:
    """Text as text: parts of a table may have dictionaries of their own."""
    return table.cast(pa.schema([(f.name, pa.int8() if f.name == "used" else pa.string()) for f in table.schema]))


def pair_scores(run: Run, rows: Any, candidates: Any) -> Floats:
    """The model's score of each row with each candidate, but for what all candidates of a row share."""
    (asked, _, _), (found, squares, linear) = (
        sums(run, table, groups) for table, groups in ((rows, list(CONTEXT)), (candidates, list(APP)))
    )
    own = linear + (np.einsum("ij,ij->i", found, found) - squares) / 2  # pairs among the candidate's own groups
    scores: Floats = asked @ found.T + own
    return scores


def sums(run: Run, table: Any, groups: list[str]) -> tuple[Floats, Floats, Floats]:
    """Of each row's groups the sum of the vectors, of their squares and of the linear terms."""
    total: list[Any] = [0.0, 0.0, 0.0]
    encoder = run.fitted.only(groups)
    batches = [{name: dense(entries) for name, entries in batch.items()} for batch in encoder.entries(table)]
    for name in groups:
        extracted = run.model.vectors(name, np.concatenate([batch[name] for batch in batches]))
        vectors = extracted.levels[0].free.numpy()
        parts = (vectors, np.einsum("ij,ij->i", vectors, vectors), extracted.linear.numpy())
        total = [one + more for one, more in zip(total, parts, strict=True)]
    return total[0], total[1], total[2]


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    for name in ("films_train", "films_test", "frappe_train", "frappe_validation", "frappe_apps"):
        parser.add_argument(name)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        facts = {
            "films": films(args.films_train, args.films_test, Path(folder), args.seed),
            "frappe": frappe(args.frappe_train, args.frappe_validation, args.frappe_apps, Path(folder), args.seed),
        }
    json.dump(facts, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
