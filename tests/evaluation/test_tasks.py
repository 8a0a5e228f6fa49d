"""Ranks and numbers against loops over rows."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation import tasks as evaluate
from feat2vec.evaluation.tasks import pair_similarities
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.recipes.baselines import popularity
from feat2vec.run import Run, train
from feat2vec.space.geometry import candidates, dense, extract, similarities
from tests.commands import feat2vec as command
from tests.reference import ranks_of_true_values

SCHEMA: dict[str, Any] = {
    "version": 1,
    "groups": {
        "director": {"column": "director", "extractor": {"type": "lookup", "multi": True}},
        "cast": {"column": "cast", "extractor": {"type": "lookup", "multi": True, "min_count": 2}},
        "year": {"column": "year"},
        "score": {"column": "score", "extractor": "numeric"},
        "both": {"columns": ["score", "votes"], "extractor": "numeric"},
        "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    },
    "training": {"epochs": 1, "optimizer": {"type": "adam", "learning_rate": 0.01}},
}


def films(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    director = rng.zipf(1.3, rows) % 60
    return pa.table(
        {
            "director": [[f"d{d}", *([f"d{d + 1}"] if i % 5 == 0 else [])] for i, d in enumerate(director)],
            "cast": [[f"c{d + int(x)}" for x in rng.integers(0, 4, i % 4)] for i, d in enumerate(director)],
            "year": [None if i % 13 == 0 else 1990 + int(d) % 20 for i, d in enumerate(director)],
            "score": director / 7,
            "votes": rng.integers(0, 30, rows).astype(float),
            "title": [f"the {int(d) % 6} of {int(x)}" for d, x in zip(director, rng.integers(0, 4, rows), strict=True)],
        }
    )


@pytest.fixture(scope="module", params=["fm", "rafm"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {**SCHEMA, "model": {"dim": 6} if request.param == "fm" else {"ranks": [2, 6]}}
    return train(schema, films(400, 0), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def expected_ranks(
    run: feat2vec.Run, table: pa.Table, given: list[str], similarity: Any
) -> tuple[list[float], int, int]:
    """One query at a time."""
    encoder = run.fitted
    directors, actors = (encoder.codecs[name].vocabulary for name in ("director", "cast"))
    assert directors is not None
    assert actors is not None
    index = {key: i for i, key in enumerate(directors.keys.to_pylist())}
    cast = set(actors.keys.to_pylist())
    (batch,) = encoder.entries(table)
    found = candidates(run.model, encoder, "director")
    ranks, unseen, empty = [], 0, 0
    for i, row in enumerate(table.to_pylist()):
        truth = [index[d] for d in row["director"] if d in index]
        unseen += len(row["director"]) - len(truth)
        if given == ["cast"] and not cast & set(row["cast"]):
            empty += len(truth)
            continue
        entries = {name: dense(batch[name])[i : i + 1] for name in given}
        scores = similarities(extract(run.model, entries), found, similarity)[0]
        for t in truth:
            rest = np.delete(scores, [u for u in truth if u != t])
            ranks.append((rest > scores[t]).sum() + ((rest == scores[t]).sum() - 1) / 2)
    return ranks, unseen, empty


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("given", [["cast"], ["cast", "year", "score", "both", "title"]])
def test_ranks_are_those_of_a_loop(run: feat2vec.Run, given: list[str], similarity: Any, monkeypatch: Any) -> None:
    test = films(150, 1)
    ranks, unseen, empty = expected_ranks(run, test, given, similarity)
    assert unseen
    assert (empty > 0) == (given == ["cast"])
    total = len(candidates(run.model, run.fitted, "director").tables[0])
    for scores in (1 << 26, total * 7):  # whole, and in blocks
        monkeypatch.setattr(evaluate, "SCORES", scores)
        facts = evaluate.rank(run, test, "director", None if len(given) > 1 else given, similarity)
        assert (facts["n"], facts["skipped_unseen"], facts["skipped_empty"]) == (len(ranks), unseen, empty)
        assert (facts["given"], facts["candidates"], facts["similarity"]) == (given, total, similarity)
        assert facts["mpr"] == pytest.approx(np.mean(ranks) / total, rel=2e-3)  # rounding may reorder neighbours
        assert facts["mrr"] == pytest.approx(np.mean(1 / (np.array(ranks) + 1)), rel=2e-3)
        assert facts["top1"] == pytest.approx(np.mean(np.array(ranks) == 0), abs=0.01)
        assert facts["recall_at_10"] == pytest.approx(np.mean(np.array(ranks) < 10), abs=0.01)
        assert facts["median_rank"] == pytest.approx(np.median(ranks), abs=0.5)


@pytest.mark.parametrize("seed", range(20))
def test_ranks_are_those_of_the_reference_also_with_ties(seed: int, monkeypatch: Any) -> None:
    """Three different scores among 40 candidates: nearly all are ties, a row's other true values among them."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (30, 40)).astype(np.float32)
    true_values = [sorted(rng.choice(40, rng.integers(0, 7), replace=False).tolist()) for _ in scores]
    expected = [rank for r, values in enumerate(true_values) for rank in ranks_of_true_values(scores[r], values)]
    row = np.repeat(np.arange(30), [len(values) for values in true_values])
    value = np.concatenate(true_values).astype(np.int64)
    for most in (1 << 23, 40 * 7, 1):  # scores in memory: of all rows, of seven, of one
        monkeypatch.setattr(evaluate, "SCORES", most)
        np.testing.assert_array_equal(evaluate.rank_scores(lambda some: scores[some], 40, row, value), expected)


def test_ties_count_half_and_a_rows_other_true_values_not_at_all() -> None:
    equal = np.zeros((2, 11), np.float32)
    row, value = np.array([0, 0, 1]), np.array([3, 7, 5])
    assert evaluate.rank_scores(lambda some: equal[some], 11, row, value).tolist() == [4.5, 4.5, 5]
    best = equal.copy()
    best[row, value] = 1  # a perfect model: nothing is above a true value, and nothing ties with it
    assert evaluate.rank_scores(lambda some: best[some], 11, row, value).tolist() == [0, 0, 0]


def test_a_value_that_a_row_repeats_is_one_query(run: feat2vec.Run) -> None:
    rng = np.random.default_rng(0)
    data = films(150, 1)
    names_twice = pa.array([names + names[: 1 + i % 2] for i, names in enumerate(data["director"].to_pylist())])
    data = data.set_column(0, "director", names_twice)
    directors = run.fitted.codecs["director"].vocabulary
    assert directors is not None
    index = {key: i for i, key in enumerate(directors.keys.to_pylist())}
    scores = rng.integers(0, 4, (150, len(index))).astype(np.float64)
    expected: list[float] = []
    for row, names in enumerate(data["director"].to_pylist()):
        expected += ranks_of_true_values(scores[row], [index[name] for name in names if name in index])
    rest = [name for name in run.fitted.codecs if name not in ("director", "cast")]  # each row has one of them
    facts = evaluate.ranked(run, data, "director", rest, len(index), lambda _: lambda some: scores[some])
    assert facts["n"] == len(expected)
    assert facts["mpr"] == pytest.approx(np.mean(expected) / len(index), rel=1e-12)
    assert facts["mrr"] == pytest.approx(np.mean(1 / (np.array(expected) + 1)), rel=1e-12)
    assert facts["median_rank"] == np.median(expected)
    ranked_once, ranked_twice = (evaluate.rank(run, some, "director") for some in (films(150, 1), data))
    assert {**ranked_once, "skipped_unseen": 0} == {**ranked_twice, "skipped_unseen": 0}


def test_true_values_beyond_max_items_are_queries_and_no_rivals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row holds all five of its user's tags, of which the model sees two."""
    users = [i % 8 for i in range(40)]
    tags = [[f"t{user * 5 + (i + j) % 5}" for j in range(5)] for i, user in enumerate(users)]
    rows = pa.table({"user": [f"u{user}" for user in users], "tags": [[*some, "unseen"] for some in tags]})
    schema = {
        "version": 1, "model": {"dim": 2}, "training": {"epochs": 1},
        "groups": {
            "user": {"column": "user"},
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "max_items": 2}},
        },
    }  # fmt: skip
    run = train(schema, rows.set_column(1, "tags", pa.array(tags)), tmp_path / "run", quiet=True)
    vocabulary = run.fitted.codecs["tags"].vocabulary
    assert vocabulary is not None
    keys = vocabulary.keys.to_pylist()
    scores = np.array([[float(key in some) for key in keys] for some in tags])  # a perfect ordering
    facts = evaluate.ranked(run, rows, "tags", ["user"], len(keys), lambda _: lambda some: scores[some])
    assert facts["n"] == sum(key in keys for some in tags for key in some)
    assert facts["skipped_unseen"] == 40 + sum(key not in keys for some in tags for key in some)
    assert facts["mpr"] == 0
    whole = evaluate.rank(run, rows, "tags")
    monkeypatch.setattr(evaluate, "ROWS", 7)
    assert evaluate.rank(run, rows, "tags") == whole


def test_a_value_with_every_word_of_a_text_is_ranked(tmp_path: Path) -> None:
    """Words repeat: the ranks stay between 0 and the number of candidates."""
    text = ["so it goes so it goes so", "it is so", "goes it goes", "so so so so is"] * 10
    schema = {
        "version": 1, "model": {"dim": 2}, "training": {"epochs": 1},
        "groups": {
            "words": {"column": "text", "extractor": {"type": "lookup", "split": "words"}}, "b": {"column": "b"},
        },
    }  # fmt: skip
    rows = pa.table({"text": text, "b": [f"b{i % 4}" for i in range(40)]})
    facts = evaluate.rank(train(schema, rows, tmp_path / "run", quiet=True), rows, "words")
    assert facts["n"] == sum(len(set(line.split())) for line in text)
    assert 0 <= facts["mpr"] <= 1
    assert 0 < facts["mrr"] <= 1


@pytest.mark.parametrize("target", ["director", "title", "score"])
def test_popularity_ranks_the_same_candidates(run: feat2vec.Run, target: str) -> None:
    """Keys of a lookup; of any other group the values of training, a text's being whole texts, not words."""
    test = films(60, 1)
    facts, by_vectors = popularity(run, test, target, ["both"]), evaluate.rank(run, test, target, ["both"])
    assert (facts["n"], facts["candidates"]) == (by_vectors["n"], by_vectors["candidates"])
    counts = Counter(key for value in films(400, 0)[target].to_pylist() for key in keys_of(value))
    names, expected = list(counts), []
    for value in test[target].to_pylist():
        true_values = [names.index(key) for key in keys_of(value) if key in counts]
        expected += ranks_of_true_values(list(counts.values()), true_values)
    assert (facts["n"], facts["candidates"]) == (len(expected), len(names))
    assert facts["mpr"] == pytest.approx(np.mean(expected) / len(names), rel=1e-12)


def keys_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_a_number_is_read_off_the_nearest_value(run: feat2vec.Run) -> None:
    test = films(150, 1)
    (batch,) = run.fitted.entries(test)
    found = candidates(run.model, run.fitted, "score")
    scores = similarities(extract(run.model, {"director": dense(batch["director"])}), found, "cosine")
    decoded = np.array(run.fitted.decode("score", run.fitted.values["score"].entries), float)[:, 0]
    directors = run.fitted.codecs["director"].vocabulary
    assert directors is not None
    seen = [any(d in directors.key_to_id for d in row) for row in test["director"].to_pylist()]
    error = (decoded[scores.argmax(axis=1)] - test["score"].to_numpy())[seen] ** 2
    facts = evaluate.nearest(run, test, "score", ["director"])
    assert facts["n"] == sum(seen)
    assert facts["skipped_empty"] == len(seen) - sum(seen) > 0
    assert facts["mse"] == pytest.approx(error.mean(), rel=1e-4)
    year = evaluate.nearest(run, test, "year")
    assert year["skipped_missing"] == test["year"].null_count
    assert set(evaluate.nearest(run, test, "both")["mse"]) == {"score", "votes"}


@pytest.mark.parametrize("target", ["title", "score"])
def test_whole_texts_and_numbers_are_ranked(run: feat2vec.Run, target: str) -> None:
    test = films(60, 1)
    texts = {str(value) for value in films(400, 0)[target].to_pylist()}
    facts = evaluate.rank(run, test, target, ["director"])
    assert facts["candidates"] == len(texts)
    assert facts["skipped_unseen"] == sum(str(value) not in texts for value in test[target].to_pylist())
    assert facts["n"] + facts["skipped_unseen"] + facts["skipped_empty"] == 60
    (batch,) = run.fitted.entries(test)
    found = candidates(run.model, run.fitted, target)
    scores = similarities(extract(run.model, {"director": dense(batch["director"])}), found, "cosine")
    decoded = run.fitted.decode(target, run.fitted.values[target].entries)
    own = dense(batch[target])
    index = {entry.tobytes(): i for i, entry in enumerate(np.asarray(run.fitted.values[target].entries))}
    known = [i for i in range(60) if own[i].tobytes() in index and dense(batch["director"])[i].max() > 1]
    truth = [scores[i][index[own[i].tobytes()]] for i in known]
    ranks = [(scores[i] > t).sum() + ((scores[i] == t).sum() - 1) / 2 for i, t in zip(known, truth, strict=True)]
    assert len(decoded) == facts["candidates"]
    assert facts["n"] == len(ranks)
    assert facts["mpr"] == pytest.approx(np.mean(ranks) / len(decoded), rel=5e-3)


def test_what_cannot_be_evaluated_is_said(run: feat2vec.Run) -> None:
    test = films(20, 1)
    with pytest.raises(UserError, match="there is no group 'directr'; did you mean 'director'"):
        evaluate.rank(run, test, "directr")
    with pytest.raises(UserError, match="'cast' is the target, which it would give away"):
        evaluate.rank(run, test, "cast", ["cast"])
    with pytest.raises(UserError, match="holds no numbers"):
        evaluate.nearest(run, test, "cast")
    with pytest.raises(UserError, match="has no column 'director', which the target 'director' needs"):
        evaluate.rank(run, test.drop_columns(["director"]), "director")


def test_the_command_prints_one_object(run: feat2vec.Run, tmp_path: Path) -> None:
    pq.write_table(films(60, 3), tmp_path / "test.parquet")
    words = ["evaluate", run.folder, "--data", tmp_path / "test.parquet", "--task", "rank"]
    words += ["--target", "director", "--given", "cast, year", "--json"]
    done = command(*words)
    facts = json.loads(done.stdout)
    assert list(facts) == [
        "task", "target", "given", "similarity", "n", "skipped_unseen", "skipped_empty", "candidates", "mpr", "mrr",
        "top1", "recall_at_10", "median_rank",
    ]  # fmt: skip
    assert facts["given"] == ["cast", "year"]
    assert done.stderr == ""


def test_dates_are_measured_without_the_time_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    days = pa.array([datetime(2020, 3, 1 + i % 31) for i in range(62)], pa.timestamp("us"))  # clocks change on the 8th
    table = pa.table({"word": [f"w{i % 7}" for i in range(62)], "day": days})
    groups = {"word": {"column": "word"}, "day": {"column": "day", "extractor": "numeric"}}
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit({"version": 1, "groups": groups}, table).encoder))
    errors = []
    try:
        for zone in ("UTC", "EST5EDT"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            errors.append(evaluate.nearest(run, table, "day")["mse"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert errors[0] == errors[1] > 0


def test_pairs_of_typed_columns_find_their_keys() -> None:
    class Known(dict[str, float]):
        def similarity(self, a: str, b: str) -> float:
            return self[a] * self[b]

    times = [datetime(2020, 1, 1), datetime(2020, 1, 2, 10, 30), None]
    known = Known({"2020-01-01": 1.0, "2020-01-02 10:30:00": 2.0, "5": 3.0})
    facts = pair_similarities(pa.table({"a": times, "b": [5.0, 5.0, 5.0], "n": [1, 2, 3]}), known)
    assert facts == {"n": 2, "skipped_unseen": 1, "spearman": pytest.approx(1)}


def test_a_group_all_of_whose_keys_are_rare_has_no_ranks_and_no_vectors() -> None:
    table = pa.table({"word": ["a", "b", "c"], "place": ["x", "y", "x"]})
    groups = {"word": {"column": "word", "extractor": {"type": "lookup", "min_count": 2}}, "place": {"column": "place"}}
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit({"version": 1, "groups": groups}, table).encoder))
    facts = evaluate.rank(run, table, "word")
    assert (facts["n"], facts["skipped_unseen"], facts["candidates"], facts["mrr"]) == (0, 3, 0, None)
    with pytest.raises(UserError, match="the group 'word' has no vectors: none of its keys is as frequent"):
        run.vectors("word")
