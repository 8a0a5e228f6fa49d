"""The benchmark of tables: what it asks, how it counts, and that each peer finds a structure that was planted."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def tools_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def module(name: str) -> ModuleType:
    return importlib.import_module(f"tables.{name}")


def planted(rows: int = 600) -> Any:
    """A table whose `region` follows from `country`, whose `size` follows from `country` and `width`."""
    spec = module("spec")
    rng = np.random.default_rng(3)
    country = rng.integers(0, 24, rows)
    width = rng.normal(size=rows)
    frame = pandas.DataFrame({
        "country": [f"country {i}" for i in country], "region": [f"region {i // 2}" for i in country],
        "noise": [f"noise {i}" for i in rng.integers(0, 4, rows)], "width": width,
        "size": country / 3 + 2 * width, "when": pandas.date_range("2020-01-01", periods=rows).astype(str),
    })  # fmt: skip
    groups = [spec.Group(name, "key") for name in ("country", "region", "noise")]
    targets = [
        spec.Target("size", "number", lambda frame: frame["size"]),
        spec.Target("large", "yes/no", lambda frame: (frame["size"] > 4).astype(float)),
        spec.Target("place", "category", lambda frame: frame["region"]),
    ]
    numbers = [spec.Group("width", "number"), spec.Group("size", "number")]
    return spec.Table(frame, [*groups, *numbers], {"region": ()}, targets, ["size"], time="when")


def complete(table: Any, candidate: str) -> tuple[dict[str, Any], Any]:
    """The metrics of a peer's only question, and the question."""
    questions, encoding = module("questions"), module("encoding")
    split = questions.split_rows(table, "random", 0, 100)
    encoded = encoding.encode(table.groups_without(["size", "width"]), split.train, split.test)
    [question] = questions.complete_questions(table, split, encoded)
    try:
        peer = module("completing").COMPLETE_PEERS[candidate](encoded, 0)
    except module("spec").UnavailableError as error:
        pytest.skip(str(error))
    ranks = questions.ranks_of_queries(question, peer.scores_of(question))
    return questions.complete_metrics(question, ranks), question


@pytest.mark.parametrize("candidate", ["tfidf", "skipgram", "cbow", "lightfm"])
def test_a_value_that_follows_from_another_is_first(candidate: str) -> None:
    metrics, _ = complete(planted(3000), candidate)
    assert metrics["queries"] == 100
    assert metrics["values"] == 12
    assert metrics["mrr"] >= 0.99
    assert metrics["mpr"] < 0.001
    assert metrics["top1"] >= 0.98
    assert metrics["top10"] == 1


@pytest.mark.parametrize("candidate", ["tfidf", "skipgram", "cbow", "lightfm"])
def test_a_value_that_follows_from_nothing_is_not_found(candidate: str) -> None:
    """The hidden group is not among the given ones: chance is an MRR of 0.52 for four values."""
    metrics, question = complete(replace(planted(1500), complete={"noise": ()}), candidate)
    assert question.given == ["country", "region"]
    assert metrics["values"] == 4
    assert 0.4 < metrics["mrr"] < 0.65


def test_popularity_ranks_by_counts() -> None:
    table = planted()
    metrics, question = complete(table, "popularity")
    ranks = []
    for row, value in zip(question.query_rows, question.query_values, strict=True):
        count = question.counts[value]
        ties = [other for other in question.counts if other == count]
        ranks.append(sum(other > count for other in question.counts) + (len(ties) - 1) / 2)
        assert row < 100
    assert metrics["mrr"] == pytest.approx(np.mean([1 / (rank + 1) for rank in ranks]), rel=1e-5)
    assert question.counts.sum() == 480


def test_ranks_are_those_of_evaluate() -> None:
    questions = module("questions")
    from feat2vec.evaluation.metrics import rank_scores

    rng = np.random.default_rng(5)
    rows = np.array([0, 0, 0, 2, 3, 3])
    values = np.array([1, 4, 5, 0, 2, 3])
    scores = rng.integers(0, 3, (4, 6)).astype(float)  # with ties
    question = questions.CompleteQuestion("x", ("x",), [], list("abcdef"), np.ones(6), rows, values, 0)
    ranks = questions.ranks_of_queries(question, lambda asked: scores[asked])
    np.testing.assert_array_equal(ranks, rank_scores(lambda asked: scores[asked], 6, rows, values))


def test_true_values_beside_the_asked_one_are_left_out() -> None:
    """A list's items: with the scores 3, 2, 1 and the first two true, each is the first."""
    questions = module("questions")
    question = questions.CompleteQuestion(
        "x", ("x",), [], list("abc"), np.ones(3), np.array([0, 0]), np.array([0, 1]), 0
    )
    ranks = questions.ranks_of_queries(question, lambda rows: np.array([[3.0, 2.0, 1.0]])[rows])
    assert ranks.tolist() == [0, 0]


def test_unseen_values_are_no_queries_and_no_candidates() -> None:
    spec, questions, encoding = module("spec"), module("questions"), module("encoding")
    groups = [spec.Group("tags", "list", "|"), spec.Group("kind", "key")]
    train = pandas.DataFrame({"tags": ["a|b", "b | b", None], "kind": [1.0, 2.0, 3.0]})
    test = pandas.DataFrame({"tags": ["b|z", "a"], "kind": [1, 9]})
    encoded = encoding.encode(groups, train, test)
    split = questions.Split("random", 0, train, test)
    [question] = questions.complete_questions(spec.Table(train, groups, {"tags": ()}), split, encoded)
    assert question.values == ["a", "b"]
    assert question.counts.tolist() == [1, 2]
    assert question.given == ["kind"]
    assert question.query_rows.tolist() == [0, 1]
    assert question.query_values.tolist() == [1, 0]
    assert question.unseen == 1
    assert encoded["kind"].names == ["1", "2", "3"]
    assert encoded["kind"].test.toarray().tolist() == [[1, 0, 0], [0, 0, 0]]


def test_numbers_are_ten_quantile_bins_and_dates_have_parts() -> None:
    spec, encoding = module("spec"), module("encoding")
    groups = [spec.Group("x", "number"), spec.Group("day", "date"), spec.Group("hour", "time")]
    frame = pandas.DataFrame({
        "x": [*map(float, range(99)), None], "day": pandas.date_range("2020-01-01", periods=100).astype(str),
        "hour": ["17:30:00"] * 100,
    })  # fmt: skip
    encoded = encoding.encode(groups, frame, frame.iloc[[0, 98, 99]])
    assert len(encoded["x"].names) == 10
    assert np.asarray(encoded["x"].train.sum(axis=0)).ravel() == pytest.approx([10] * 9 + [9], abs=1)
    assert encoded["x"].test.toarray().sum(axis=1).tolist() == [1, 1, 0]
    assert encoded["x"].test[0].indices.tolist() == [0]
    assert encoded["x"].test[1].indices.tolist() == [9]
    assert encoded["day"].train_numbers[0].tolist() == [18262, 2020, 1, 2, 0]
    assert len(encoded["day"].names) == 10 + 4 + 7  # days, months and weekdays; one year and one hour say nothing
    assert encoded["hour"].train_numbers[0].tolist() == [17.5]
    assert encoded["hour"].names == []


@pytest.mark.parametrize("candidate", ["constant", "boosting", "linear", "mlp"])
def test_labels_that_follow_are_predicted_better_than_by_a_constant(candidate: str) -> None:
    threadpool_limits = pytest.importorskip("threadpoolctl").threadpool_limits
    table = planted()
    questions, encoding, predicting = module("questions"), module("encoding"), module("predicting")
    split = questions.split_rows(table, "random", 0, 100)
    encoded = encoding.encode(table.groups_without(table.hidden), split.train, split.test)
    assert set(encoded) == {"country", "region", "noise", "width"}
    for target in table.targets:
        question = questions.predict_question(target, split, None)
        with threadpool_limits(1):  # threads that wait for a busy core take a hundred times as long
            answers = predicting.PREDICT_PEERS[candidate](encoded, question, 0, [])
        metrics = questions.predict_metrics(question, answers)
        assert metrics["labelled"] == 480
        if candidate == "constant":
            deviation = np.sqrt(np.square(question.test_labels - question.train_labels.mean()).mean())
            assert metrics.get("auc", 0.5) == 0.5
            assert metrics.get("rmse", deviation) == pytest.approx(deviation, rel=1e-5)
        elif target.kind == "number":
            assert metrics["rmse"] < 0.3 * np.std(question.test_labels)
        elif target.kind == "yes/no":
            assert metrics["auc"] > 0.95
        else:
            assert metrics["accuracy"] > 0.95
            assert metrics["log_loss"] < 0.5


def test_probabilities_of_classes_that_few_labels_lack_are_counted() -> None:
    table = planted()
    questions = module("questions")
    split = questions.split_rows(table, "random", 0, 100)
    all_labels, few = (questions.predict_question(table.targets[2], split, labels) for labels in (None, 5))
    assert len(few.train_rows) == 5
    assert few.classes == all_labels.classes
    np.testing.assert_array_equal(few.test_labels, all_labels.test_labels)
    tenth = questions.predict_question(table.targets[0], split, 0.1)
    assert len(tenth.train_rows) == 48
    with pytest.raises(ValueError, match="99 answers for 100 rows"):
        questions.predict_metrics(tenth, np.zeros(99))


def test_a_split_in_time_tests_the_last_rows() -> None:
    table = planted(100)
    questions = module("questions")
    split = questions.split_rows(table, "time", 1, 50)
    assert len(split.train) == 80
    assert len(split.test) == 20
    assert split.train["when"].max() < split.test["when"].min()
    drawn = [questions.split_rows(table, "random", seed, 10).test for seed in (0, 1, 0)]
    assert len(drawn[0]) == 10
    assert not drawn[0].equals(drawn[1])
    assert drawn[0].equals(drawn[2])


def test_a_table_names_columns_that_are_there() -> None:
    spec = module("spec")
    frame = pandas.DataFrame({"a": [1]})
    with pytest.raises(ValueError, match=r"no such columns: \['b'\]"):
        spec.Table(frame, [spec.Group("b", "key")])
    with pytest.raises(ValueError, match=r"neither key nor list: \['a'\]"):
        spec.Table(frame, [spec.Group("a", "number")], {"a": ()})


def test_what_is_there_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure is recorded and asked again; the report has medians, and says who is best."""
    running, report, spec = module("running"), module("report"), module("spec")
    table = replace(planted(), targets=planted().targets[:1])
    sources = {"planted": spec.Source(600, lambda _: table), "absent": spec.Source(9, absent(spec.UnavailableError))}
    monkeypatch.setattr(running, "EVERY_TABLE", sources)
    calls: list[str] = []

    def failing(*_: Any) -> Any:
        calls.append("called")
        raise FloatingPointError("too large")

    monkeypatch.setitem(running.COMPLETE_PEERS, "cbow", failing)
    wanted = running.Wanted(
        ["absent", "planted"], [0], spec.Places(), ours=False, candidates=["popularity", "tfidf", "cbow", "constant"]
    )
    out = tmp_path / "results.jsonl"
    running.run_all(wanted, out)
    lines = out.read_text().splitlines()
    assert len(lines) == 8  # two splits, three that complete and one that predicts
    running.run_all(wanted, out)
    assert len(out.read_text().splitlines()) == 10
    assert calls == ["called"] * 4
    records = running.read_records(out)
    assert len(records) == 8
    assert [record["error"] for record in records if "error" in record] == ["FloatingPointError: too large"] * 2
    found = report.as_json(records)
    region = next(entry for entry in found["questions"] if entry["question"] == "region")
    assert region["candidates"]["tfidf"]["mrr"] == 1
    assert "planted random, region" in report.readable(records)
    json.dumps(found)


def test_a_larger_table_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are of their own: those of the whole table are not taken for them."""
    running, spec = module("running"), module("spec")
    cut = running.cut(planted(), 100).frame
    assert len(cut) == 100
    assert cut["when"].is_monotonic_increasing
    assert not cut["when"].duplicated().any()
    assert len(running.cut(planted(), 600).frame) == 600
    monkeypatch.setattr(running, "EVERY_TABLE", {"planted": spec.Source(600, lambda _: planted())})
    out = tmp_path / "results.jsonl"
    for most_rows in (None, 100, 100):
        running.run_all(
            running.Wanted(
                ["planted"], [0], spec.Places(), candidates=["popularity"], splits=["random"], most_rows=most_rows
            ),
            out,
        )
    assert [(record["most_rows"], record["results"][0]["queries"]) for record in running.read_records(out)] == [
        (None, 120), (100, 20),
    ]  # fmt: skip


def test_fine_tuning_and_few_labels_are_asked_of_the_first_random_split() -> None:
    running = module("running")
    wanted = running.Wanted(["planted"], [3, 4], module("spec").Places())
    full = running.candidates_of("predict", wanted, "random", 3)
    fewer = running.candidates_of("predict", wanted, "random", 4)
    assert {"finetune@200", "scratch@10%", "init --target", "boosting", "boosting@200"} <= set(full)
    assert not {"init --target@200", "init --target@10%"} & set(full)
    assert fewer == [name for name in full if "@" not in name and name not in ("finetune", "scratch")]
    assert running.candidates_of("predict", wanted, "time", 3) == fewer
    assert running.candidates_of("predict", replace(wanted, every_question=True), "time", 4) == full
    named = replace(wanted, candidates=["finetune@200", "tfidf"])
    assert running.candidates_of("predict", named, "random", 4) == ["finetune@200"]
    assert running.splits_of(planted(), wanted, 3) == ["random", "time"]
    assert running.splits_of(planted(), wanted, 4) == ["random"]
    assert running.splits_of(replace(planted(), time=None), wanted, 3) == ["random"]


def test_processes_append_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes side by side answer as one does, and what they have answered is not run again."""
    running, spec = module("running"), module("spec")
    monkeypatch.setenv("PYTHONPATH", str(TOOLS))
    for variable in running.THREADS_OF_LIBRARIES:
        monkeypatch.setenv(variable, "1")
    wanted = running.Wanted(
        ["artworks"], [0, 1], spec.Places(), ours=False, candidates=["popularity", "constant"], most_rows=300
    )
    running.run_all(wanted, tmp_path / "one.jsonl")
    for _ in range(2):
        running.run_all(wanted, tmp_path / "two.jsonl", processes=2)
    records = {}
    for name in ("one", "two"):
        lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
        assert len(lines) == 4
        records[name] = {running.key_of(answer): answer for answer in map(json.loads, lines)}
    assert records["one"].keys() == records["two"].keys()
    for key, answer in records["one"].items():
        beside = records["two"][key]
        for result in (*answer["results"], *beside["results"]):
            result.pop("seconds")
        assert answer["results"] == beside["results"]


def absent(error: type[Exception]) -> Any:
    def load(_: object) -> Any:
        raise error("not here")

    return load


def record(candidate: str, seed: int, **metrics: float) -> dict[str, Any]:
    task = "complete" if "mrr" in metrics else "predict"
    return {
        "table": "t", "split": "random", "seed": seed, "task": task, "candidate": candidate, "seconds": 1.0,
        "results": [{"question": "q", **metrics}],
    }  # fmt: skip


def test_the_summary_counts_what_is_asked_for() -> None:
    report = module("report")
    records = [
        *(record("ours", seed, mrr=mrr) for seed, mrr in enumerate([0.4, 0.49, 0.9])),
        record("tfidf", 0, mrr=0.5), record("popularity", 0, mrr=0.3),
        record("finetune", 0, rmse=1.2), record("constant", 0, rmse=1.1),
        record("finetune@200", 0, rmse=1.2), record("scratch@200", 0, rmse=1.3),
        record("init --target", 0, rmse=1.02), record("boosting", 0, rmse=1.0),
    ]  # fmt: skip
    assert report.summary_of(report.medians_of(records)) == {
        "complete_pairs": 1, "complete_at_least_best_peer": 0, "complete_at_least_0.97_of_it": 1,
        "complete_not_below_popularity": 1, "init_target_at_most_boosting": 0, "init_target_within_3_percent": 1,
        "finetune_no_worse_than_constant": 0, "finetune_200_better_than_scratch": 1,
        "finetune_no_worse_than_scratch": 1,
    }  # fmt: skip


@pytest.mark.slow
def test_ours_completes_as_evaluate_ranks(tmp_path: Path) -> None:
    table = planted()
    questions, encoding, ours = module("questions"), module("encoding"), module("ours")
    split = questions.split_rows(table, "random", 0, 100)
    encoded = encoding.encode(table.groups, split.train, split.test)
    [question] = questions.complete_questions(table, split, encoded)
    candidate = ours.Complete(table, split, tmp_path)
    ranks = questions.ranks_of_queries(question, candidate.scores_of(question))
    from feat2vec.evaluation.tasks import evaluate

    test = ours.write_rows(split.test, tmp_path, "test", "csv")
    facts = evaluate(candidate.run, test, "rank", target="region")
    metrics = questions.complete_metrics(question, ranks)
    assert metrics["queries"] == facts["n"]
    assert metrics["values"] == facts["candidates"]
    assert metrics["mrr"] == pytest.approx(facts["mrr"], rel=1e-4)
    answers = ours.Predict(table, split, tmp_path)
    for target in table.targets:
        asked = questions.predict_question(target, split, None)
        assert (
            "log_loss" in questions.predict_metrics(asked, answers.answers("finetune", asked))
            or target.kind == "number"
        )
