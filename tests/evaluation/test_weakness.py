"""`weak:` a run beside popularity, or a constant, on rows that training held out."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation import weakness
from feat2vec.evaluation.baselines import BASELINES, BaselineRequest
from feat2vec.evaluation.ranking import rank, ranked
from feat2vec.evaluation.weakness import (
    Worth,
    held_out_worths,
    measured_weakness,
    ranked_groups,
    stored_worths,
    worth_of_fitted,
)
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.pages.report import facts_of, page
from feat2vec.run import Run
from feat2vec.space.calibration import default_calibration
from feat2vec.space.completion_calibration import fitted_groups
from feat2vec.space.neighbours import KeptRows
from feat2vec.table.table import open_table
from feat2vec.training.run_folder import TrainedRun
from feat2vec.training.trained_rows import hashes_of_table, read_trained_rows
from feat2vec.writing.digests import PARTS
from tests.evaluation.test_baselines import things
from tests.short_trainings import train

GROUPS: dict[str, Any] = {
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "kind": {"column": "kind"},
    "size": {"column": "size", "extractor": "numeric"},
}
CONTRASTIVE = {"objective": {"type": "contrastive"}, "noise": {"sharing": "batch", "negatives": 16}}


def skewed(rows: int, seed: int) -> pa.Table:
    """Things of which most are of one kind: popularity is hard to beat for what knows nothing."""
    table = things(rows, seed)
    rng = np.random.default_rng(seed)
    kinds = ["k0" if rng.random() < 0.7 else kind for kind in table["kind"].to_pylist()]
    return table.set_column(1, "kind", pa.array(kinds))


def untrained(schema: dict[str, Any], table: pa.Table) -> Run:
    return Run.of_model(Feat2Vec.from_encoder(feat2vec.fit({"version": 1, **schema}, table).encoder))


def no_rows(most: int) -> pa.Table:
    raise AssertionError(f"{most} training rows are not needed")


def test_a_space_that_knows_nothing_is_weak_and_told() -> None:
    run = untrained({"groups": GROUPS}, skewed(400, 0))
    facts = measured_weakness(run, skewed(200, 1), no_rows, None)
    weak = str(facts.metrics["weak"])
    assert facts.lines == (f"weak: {weak}",)
    assert weak.startswith("kind 0.") or "; kind 0." in weak
    assert weak.endswith(" (mrr on held-out rows); try `objective: {type: contrastive}`")
    stored = {worth["target"]: Worth(**worth) for worth in json.loads(facts.files["held_out.json"])}
    assert stored["kind"].is_weak
    assert stored["kind"].baseline_value > stored["kind"].value
    run = untrained({"groups": GROUPS, **CONTRASTIVE}, skewed(400, 0))
    assert (
        "try `feat2vec tune SCHEMA --data DATA --for " in measured_weakness(run, skewed(200, 1), no_rows, None).lines[0]
    )


def test_values_are_those_of_evaluate() -> None:
    held_out = things(200, 1)
    run = untrained({"groups": GROUPS}, things(400, 0))

    def by_probability(group: str) -> float:
        completer = run.completer(group)
        scores = completer.scores(completer.queries_of_table(held_out))
        facts = ranked(run, held_out, group, None, scores.shape[1], lambda _: scores.__getitem__)
        return float(facts["mrr"])

    for worth in held_out_worths(run, held_out):
        by_similarity = [rank(run, held_out, worth.target, similarity=similarity) for similarity in ("cosine", "dot")]
        request = BaselineRequest(run, None, open_table(held_out), worth.target)
        popularity = BASELINES["popularity"].measure(request)
        assert worth.n == popularity["n"]
        best = max(by_probability(worth.target), *(facts["mrr"] for facts in by_similarity))
        assert worth.value == round(best, 4)
        assert worth.baseline_value == round(popularity["mrr"], 4)


def test_values_that_training_has_not_seen_are_no_queries_and_no_rivals() -> None:
    """The encoder knows all rows; k4 stands in none of those that the model has learnt."""
    table = things(400, 0)
    run = untrained({"groups": GROUPS}, table)
    learnt = feat2vec.fit({"version": 1, "groups": GROUPS}, table)
    ids = np.asarray(learnt.rows)
    is_learnt = np.array([kind != "k4" for kind in table["kind"].to_pylist()])
    counts = {}
    for i, name in enumerate(GROUPS):
        of_group = ids[is_learnt, i]
        counts[name] = np.bincount(of_group[of_group >= 0], minlength=len(learnt.values[name].entries))
    held_out = things(200, 1)
    held_out = held_out.filter(held_out["size"].is_valid())  # something to be found by
    (worth,) = [worth for worth in held_out_worths(run, held_out, counts=counts) if worth.target == "kind"]
    kinds = held_out["kind"].to_pylist()
    assert worth.n == len(kinds) - kinds.count("k4")
    frequent_first = sorted((k for k in range(4)), key=lambda k: -table["kind"].to_pylist().count(f"k{k}"))
    reciprocals = [1 / (frequent_first.index(int(kind[1])) + 1) for kind in kinds if kind != "k4"]
    assert worth.baseline_value == pytest.approx(np.mean(reciprocals), abs=1e-3)
    assert worth.value >= (1 / 4 + 1 / 3 + 1 / 2 + 1) / 4 - 0.2


def test_few_rows_and_many_candidates_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    run = untrained({"groups": GROUPS}, things(400, 0))
    assert measured_weakness(run, things(20, 1), no_rows, None) == ({}, {}, ())
    monkeypatch.setattr(weakness, "SCORES_AT_MOST", 15 * 40 * 2)
    tags, kind = held_out_worths(run, things(200, 1))
    assert tags.n <= 3 * 40
    assert kind.n <= 120
    monkeypatch.setattr(weakness, "MOST_CANDIDATES", 6)
    assert [worth.target for worth in held_out_worths(run, things(200, 1))] == ["kind"]


def test_probabilities_are_the_fitted_ones() -> None:
    """With the popularity's power of 5 and no weights, a run ranks as popularity does."""
    run = untrained({"groups": GROUPS}, things(400, 0))
    fitted = {"kind": replace(default_calibration(run.fitted, "kind"), popularity=5.0, weights={})}
    (worth,) = [worth for worth in held_out_worths(run, things(200, 1), calibrations=fitted) if worth.target == "kind"]
    assert worth.value >= worth.baseline_value


def test_the_nearest_rows_are_asked_as_complete_asks_them() -> None:
    """A space that was never trained knows nothing; rows with the same tags know the kind."""
    table = pa.table({"tags": [[f"t{i % 40}"] for i in range(400)], "kind": [f"k{i % 40}" for i in range(400)]})
    learnt = feat2vec.fit({"version": 1, "groups": {name: GROUPS[name] for name in ("tags", "kind")}}, table)
    run = Run.of_model(Feat2Vec.from_encoder(learnt.encoder))
    (_, alone), (_, beside_rows) = (
        held_out_worths(run, table.slice(0, 80), kept_rows=kept)
        for kept in (None, KeptRows(learnt.encoder, np.asarray(learnt.rows)))
    )
    assert alone.target == beside_rows.target == "kind"
    assert beside_rows.value > 0.9 > alone.value


@pytest.mark.parametrize("rows", [200, 520])
def test_what_a_fit_knows_of_rows_is_not_looked_for_again(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few rows each half is fitted; of many the nearest are found once. `complete` finds the same."""
    learnt = feat2vec.fit({"version": 1, "groups": GROUPS, **CONTRASTIVE}, things(400, 0))
    run, held_out = Run.of_model(Feat2Vec.from_encoder(learnt.encoder)), things(rows, 1)
    kept_rows = KeptRows(learnt.encoder, np.asarray(learnt.rows))
    calibrations, known = {}, {}
    for fitted in fitted_groups(run, held_out, kept_rows=kept_rows):
        calibrations[fitted.group] = fitted.calibration
        if fitted.group in ranked_groups(run):
            with monkeypatch.context() as patch:
                patch.setattr("feat2vec.space.completer.Neighbours", None)
                known[fitted.group] = worth_of_fitted(run, held_out, None, kept_rows, fitted)
    worths = held_out_worths(run, held_out, None, None, calibrations, kept_rows)
    assert [worth.target for worth in worths] == ["tags", "kind"]
    assert calibrations["kind"].neighbours
    for worth in worths:
        at_once = known[worth.target]
        assert at_once is not None
        assert replace(at_once, value=0.0) == replace(worth, value=0.0)
        assert at_once.value == pytest.approx(worth.value, abs=2e-3)  # sums of other blocks are rounded otherwise
    assert held_out_worths(run, held_out, known={**known, "kind": None}) == [known["tags"]]


def test_words_and_parts_of_dates_are_not_compared() -> None:
    words = {"column": "kind", "extractor": {"type": "lookup", "split": "words"}}
    run = untrained({"groups": {**GROUPS, "kind": words}}, things(400, 0))
    assert "kind" not in {worth.target for worth in held_out_worths(run, things(200, 1))}


@pytest.mark.parametrize(("target", "objective"), [("price", "regression"), ("sold", "logistic"), ("shop", "softmax")])
def test_predictions_are_beside_a_constant(target: str, objective: str) -> None:
    schema = {"groups": GROUPS, "objective": {"type": objective, "target": target}, "model": {"bias": True}}
    run = untrained(schema, things(400, 0))
    (worth,) = held_out_worths(run, things(200, 1), things(400, 0))
    expected = BASELINES["constant"].measure(
        BaselineRequest(run, open_table(things(400, 0)), open_table(things(200, 1)))
    )
    assert worth.metric == ("rmse" if target == "price" else "log_loss")
    assert worth.baseline_value == round(expected[worth.metric], 4)
    assert worth.is_weak == (worth.value > 1.01 * worth.baseline_value)


def test_a_run_keeps_what_was_measured_for_its_report(tmp_path: Path) -> None:
    schema = {"version": 1, "groups": {"kind": GROUPS["kind"], "tags": GROUPS["tags"]}, "training": {"epochs": 1}}
    run = train(schema, things(100, 0), tmp_path / "run", quiet=True)
    assert "held_out" not in facts_of(run)
    worth = Worth("kind", "mrr", 50, 0.2, "popularity", 0.4, True)
    (tmp_path / "run" / "held_out.json").write_bytes(json.dumps([vars(worth)]).encode())
    from feat2vec.writing.signatures import digest_of

    parts = {**run.manifest[PARTS], "held_out.json": digest_of(tmp_path / "run" / "held_out.json")}
    metrics = {**run.metrics, "weak": "kind 0.2, popularity 0.4 (mrr on held-out rows); try more"}
    facts = facts_of(TrainedRun(tmp_path / "run", {**run.manifest, PARTS: parts}, metrics))
    assert facts["held_out"] == [vars(worth)]
    text = page(facts)
    assert "Weak: kind 0.2, popularity 0.4 (mrr on held-out rows); try more." in text
    assert "On the rows that training held out" in text


def test_a_group_is_not_found_by_another_of_its_column() -> None:
    groups = {**GROUPS, "kind again": GROUPS["kind"]}
    run = untrained({"groups": groups}, things(400, 0))
    facts = rank(run, things(200, 1), "kind")
    assert facts["given"] == ["tags", "size"]
    alone = {"kind": GROUPS["kind"], "kind again": GROUPS["kind"]}
    run = untrained({"groups": alone}, things(400, 0))
    assert measured_weakness(run, things(200, 1), no_rows, None) == ({}, {}, ())
    with pytest.raises(UserError, match="no group is left beside the target 'kind' that shares no column with it"):
        rank(run, things(200, 1), "kind")


@pytest.mark.parametrize("validation", [None, things(60, 5)], ids=["a part of the table", "another table"])
def test_the_rows_that_are_ranked_are_none_that_the_model_has_learnt(
    validation: pa.Table | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked_rows: list[pa.Table] = []
    measure = weakness.held_out_worths

    def measured(run: TrainedRun, held_out: pa.Table, *others: Any) -> list[Worth]:
        ranked_rows.append(held_out)
        return measure(run, held_out, *others)

    monkeypatch.setattr(weakness, "held_out_worths", measured)
    table = things(400, 0)
    table = table.set_column(2, "size", pa.array(np.arange(400.0)))  # no two rows are equal
    training = {"epochs": 1, "refit": False}
    run = train({"version": 1, "groups": GROUPS, "training": training}, table, tmp_path / "run", validation, quiet=True)
    known = read_trained_rows(run)
    (rows,) = ranked_rows
    assert known is not None
    assert rows.num_rows == (40 if validation is None else 60)
    assert int(known.counts.sum()) == (360 if validation is None else 400)
    assert known.overlap(hashes_of_table(run, rows)).trained == 0
    assert known.overlap(hashes_of_table(run, table)).trained == int(known.counts.sum())


def test_training_says_what_is_weak(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A space that has hardly moved from its random beginning, and has no rows to ask."""
    groups = {"kind": GROUPS["kind"], "tags": GROUPS["tags"]}
    training = {"epochs": 1, "neighbours": 0, "optimizer": {"type": "adam", "learning_rate": 1e-9}}
    noise = {"sharing": "batch", "negatives": 16}
    table = skewed(500, 0)
    run = train({"version": 1, "groups": groups, "noise": noise, "training": training}, table, tmp_path / "run")
    (worth,) = [worth for worth in stored_worths(run) if worth.target == "kind"]
    assert worth.is_weak
    assert worth.text() in run.metrics["weak"]
    assert f"weak: {run.metrics['weak']}" in capfd.readouterr().err.splitlines()
    facts = facts_of(feat2vec.load(tmp_path / "run"))
    assert f"Weak: {run.metrics['weak']}." in html.unescape(page(facts))
