"""`rank` and `nearest` against loops over rows."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.baselines import BASELINES, BaselineRequest
from feat2vec.evaluation.ranking import nearest, rank, ranked
from feat2vec.evaluation.tasks import evaluate
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.run import Run
from feat2vec.space.completer import Completer
from feat2vec.space.geometry import candidates, dense, extract, similarities
from feat2vec.space.run_completion import completion_of_run, kept_rows_of_run
from feat2vec.table.table import open_table
from tests.evaluation.tables import films
from tests.reference import ranks_of_true_values
from tests.short_trainings import train

CAST, EVERY_GROUP = ["cast"], ["cast", "year", "score", "both", "title"]


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
    by_probability = None
    if similarity == "probability":
        calibration, kept_rows = completion_of_run(run).get("director"), kept_rows_of_run(run)
        by_probability = Completer(encoder, run.model, "director", calibration, given, kept_rows=kept_rows)
    ranks, unseen, empty = [], 0, 0
    for i, row in enumerate(table.to_pylist()):
        truth = [index[d] for d in row["director"] if d in index]
        unseen += len(row["director"]) - len(truth)
        if given == ["cast"] and not cast & set(row["cast"]):
            empty += len(truth)
            continue
        entries = {name: dense(batch[name])[i : i + 1] for name in given}
        scores = similarities(extract(run.model, entries), found, "cosine" if by_probability else similarity)[0]
        if by_probability:
            scores = np.exp(by_probability.log_probabilities(by_probability.queries(entries))[0])
        for t in truth:
            rest = np.delete(scores, [u for u in truth if u != t])
            ranks.append((rest > scores[t]).sum() + ((rest == scores[t]).sum() - 1) / 2)
    return ranks, unseen, empty


@pytest.mark.parametrize(
    ("given", "similarity"),
    [
        (CAST, "probability"),
        pytest.param(CAST, "dot", marks=pytest.mark.slow),
        (EVERY_GROUP, "cosine"),
        pytest.param(CAST, "cosine", marks=pytest.mark.slow),
        pytest.param(EVERY_GROUP, "dot", marks=pytest.mark.slow),
        pytest.param(EVERY_GROUP, "probability", marks=pytest.mark.slow),
    ],
)
def test_ranks_are_those_of_a_loop(run: feat2vec.Run, given: list[str], similarity: Any) -> None:
    test = films(150, 1)
    ranks, unseen, empty = expected_ranks(run, test, given, similarity)
    assert unseen
    assert (empty > 0) == (given == ["cast"])
    total = len(candidates(run.model, run.fitted, "director").tables[0])
    for scores in (1 << 26, total * 7):  # whole, and in blocks
        facts = rank(run, test, "director", None if len(given) > 1 else given, similarity, scores_in_memory=scores)
        assert (facts["n"], facts["skipped_unseen"], facts["skipped_empty"]) == (len(ranks), unseen, empty)
        assert (facts["given"], facts["candidates"], facts["similarity"]) == (given, total, similarity)
        assert facts["mpr"] == pytest.approx(np.mean(ranks) / total, rel=2e-3)  # rounding may reorder neighbours
        assert facts["mrr"] == pytest.approx(np.mean(1 / (np.array(ranks) + 1)), rel=2e-3)
        assert facts["top1"] == pytest.approx(np.mean(np.array(ranks) == 0), abs=0.01)
        assert facts["recall_at_10"] == pytest.approx(np.mean(np.array(ranks) < 10), abs=0.01)
        assert facts["median_rank"] == pytest.approx(np.median(ranks), abs=0.5)


def test_the_default_is_what_the_run_was_trained_for(run: feat2vec.Run) -> None:
    test = films(60, 1)
    assert rank(run, test, "director", ["cast"]) == rank(run, test, "director", ["cast"], "probability")
    groups = {"director": {"column": "director", "extractor": {"type": "lookup", "multi": True}}}
    schema = {
        "version": 1, "groups": {**groups, "title": {"column": "title"}},
        "objective": {"type": "regression", "target": "score"},
    }  # fmt: skip
    labelled = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit(schema, films(60, 0)).encoder))
    assert rank(labelled, test, "director")["similarity"] == "cosine"
    with pytest.raises(UserError, match="the run predicts 'score'"):
        rank(labelled, test, "director", similarity="probability")
    with pytest.raises(UserError, match="--similarity: probability is for --task rank; nearest takes cosine or dot"):
        evaluate(run, test, "nearest", target="score", similarity="probability")


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
    facts = ranked(run, data, "director", rest, len(index), lambda _: lambda some: scores[some])
    assert facts["n"] == len(expected)
    assert facts["mpr"] == pytest.approx(np.mean(expected) / len(index), rel=1e-12)
    assert facts["mrr"] == pytest.approx(np.mean(1 / (np.array(expected) + 1)), rel=1e-12)
    assert facts["median_rank"] == np.median(expected)
    ranked_once, ranked_twice = (rank(run, some, "director") for some in (films(150, 1), data))
    assert {**ranked_once, "skipped_unseen": 0} == {**ranked_twice, "skipped_unseen": 0}


def test_true_values_beyond_max_items_are_queries_and_no_rivals(tmp_path: Path) -> None:
    """Each row holds all five of its user's tags, of which the model sees two."""
    users = [i % 8 for i in range(40)]
    tags = [[f"t{user * 5 + (i + j) % 5}" for j in range(5)] for i, user in enumerate(users)]
    rows = pa.table({"user": [f"u{user}" for user in users], "tags": [[*some, "unseen"] for some in tags]})
    schema = {
        "version": 1, "model": {"dim": 2}, "training": {"validation": 0, "epochs": 1},
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
    facts = ranked(run, rows, "tags", ["user"], len(keys), lambda _: lambda some: scores[some])
    assert facts["n"] == sum(key in keys for some in tags for key in some)
    assert facts["skipped_unseen"] == 40 + sum(key not in keys for some in tags for key in some)
    assert facts["mpr"] == 0
    whole = rank(run, rows, "tags")
    assert rank(run, rows, "tags", rows_at_once=7) == whole


def test_a_value_with_every_word_of_a_text_is_ranked(tmp_path: Path) -> None:
    """Words repeat: the ranks stay between 0 and the number of candidates."""
    text = ["so it goes so it goes so", "it is so", "goes it goes", "so so so so is"] * 10
    schema = {
        "version": 1, "model": {"dim": 2}, "training": {"validation": 0, "epochs": 1},
        "groups": {
            "words": {"column": "text", "extractor": {"type": "lookup", "split": "words"}}, "b": {"column": "b"},
        },
    }  # fmt: skip
    rows = pa.table({"text": text, "b": [f"b{i % 4}" for i in range(40)]})
    facts = rank(train(schema, rows, tmp_path / "run", quiet=True), rows, "words")
    assert facts["n"] == sum(len(set(line.split())) for line in text)
    assert 0 <= facts["mpr"] <= 1
    assert 0 < facts["mrr"] <= 1


@pytest.mark.parametrize("target", ["director", "title", "score"])
def test_popularity_ranks_the_same_candidates(run: feat2vec.Run, target: str) -> None:
    """Keys of a lookup; of any other group the values of training, a text's being whole texts, not words."""
    test = films(60, 1)
    request = BaselineRequest(run, open_table(test), open_table(test), target=target, given=["both"])
    facts, by_vectors = BASELINES["popularity"].measure(request), rank(run, test, target, ["both"])
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
    facts = nearest(run, test, "score", ["director"])
    assert facts["n"] == sum(seen)
    assert facts["skipped_empty"] == len(seen) - sum(seen) > 0
    assert facts["mse"] == pytest.approx(error.mean(), rel=1e-4)
    year = nearest(run, test, "year")
    assert year["skipped_missing"] == test["year"].null_count
    assert set(nearest(run, test, "both")["mse"]) == {"score", "votes"}


@pytest.mark.parametrize("target", ["title", "score"])
def test_whole_texts_and_numbers_are_ranked(run: feat2vec.Run, target: str) -> None:
    test = films(60, 1)
    texts = {str(value) for value in films(400, 0)[target].to_pylist()}
    facts = rank(run, test, target, ["director"], "cosine")
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
            errors.append(nearest(run, table, "day")["mse"])
    finally:
        monkeypatch.undo()
        time.tzset()
    assert errors[0] == errors[1] > 0


def test_a_group_all_of_whose_keys_are_rare_has_no_ranks_and_no_vectors() -> None:
    table = pa.table({"word": ["a", "b", "c"], "place": ["x", "y", "x"]})
    groups = {"word": {"column": "word", "extractor": {"type": "lookup", "min_count": 2}}, "place": {"column": "place"}}
    run = Run.of_model(Feat2Vec.from_encoder(feat2vec.fit({"version": 1, "groups": groups}, table).encoder))
    facts = rank(run, table, "word")
    assert (facts["n"], facts["skipped_unseen"], facts["candidates"], facts["mrr"]) == (0, 3, 0, None)
    with pytest.raises(UserError, match="the group 'word' has no vectors: none of its keys is as frequent"):
        run.vectors("word")
