"""Tuning a schema without a recipe: ranges around its own values, and whether anything beats it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from feat2vec.errors import UserError
from feat2vec.evaluation.beside import evaluate_beside
from feat2vec.recipes.ranges import Tune
from feat2vec.recipes.tuning import plan, trials
from feat2vec.recipes.tuning.plan import is_schema, plan_of_schema
from feat2vec.recipes.tuning.pruning import measured
from feat2vec.recipes.tuning.schema_ranges import ranges_around
from feat2vec.recipes.tuning.study import schema_values
from feat2vec.recipes.tuning.trials import StudyOptions, tune_schema
from feat2vec.run import load, train
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import open_table
from feat2vec.writing import write_text
from tests.commands import feat2vec

SCHEMA = """\
version: 1
name: shelves  # a comment
model: {dim: 4}
groups: {item: {column: item}, shelf: {column: shelf}}
noise: {sharing: batch, negatives: 8}
objective: {type: contrastive, temperature: 0.5}
training: {epochs: 2, batch_size: 32}
"""
QUIET = StudyOptions(quiet=True)


@pytest.fixture(autouse=True)
def unsynchronised() -> Iterator[None]:
    """SQLite does not wait for the disk, which matters when the power fails."""

    def connected(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", connected)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", connected)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with a schema and rows in which an item tells its shelf."""
    items = np.random.default_rng(0).integers(0, 12, 300)
    lines = [f"i{item},s{item % 6},{item}" for item in items]
    (tmp_path / "rows.csv").write_text("\n".join(["item,shelf,price", *lines]) + "\n")
    write_text(tmp_path / "s.yaml", SCHEMA)
    labelled = SCHEMA.replace("{type: contrastive, temperature: 0.5}", "{type: regression, target: price}")
    (tmp_path / "prices.yaml").write_text(labelled.replace("noise: {sharing: batch, negatives: 8}\n", ""))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def untrained(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> list[dict[str, Any]]:
    """Trials with these results, without any training; returns the list of what was tried."""
    tried: list[dict[str, Any]] = []

    def instead(self: Any, trial: Any, trial_values: dict[str, Any]) -> float:
        del self, trial
        tried.append(dict(trial_values))
        return values[len(tried) - 1]

    monkeypatch.setattr(trials._Trials, "_value", instead)
    return tried


LABELLED = {"objective": {"type": "logistic", "target": "sold"}, "head": {"type": "mlp", "hidden": [64, 10]}}
SCHEMAS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "contrastive": (
        {"objective": {"type": "contrastive", "temperature": 0.3}, "training": {"l2": 0.03, "group_dropout": 0.7}},
        ["objective.temperature", "noise.negatives", "model.dim"],
    ),
    "nce": ({"noise": {"targets": ["a"]}}, ["objective", "noise", "model.dim"]),
    "labelled": (LABELLED, ["head.hidden", "head.dropout", "training.interaction_dropout", "model.dim"]),
    "ranks": ({**LABELLED, "head": "fm", "model": {"ranks": [2, 4]}}, ["training.interaction_dropout"]),
    "small": ({"objective": "contrastive", "model": {"dim": 1}, "training": {"epochs": 1}}, ["objective.temperature"]),
}
OF_ALL = ["training.optimizer.learning_rate", "training.l2", "training.group_dropout", "training.epochs"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_ranges_hold_the_schemas_own_values(name: str) -> None:
    options, first_keys = SCHEMAS[name]
    schema = read_schema({"version": 1, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}, **options})
    ranges = ranges_around(schema)
    assert list(ranges)[: len(first_keys)] == first_keys
    assert list(ranges)[-4:] == OF_ALL
    values = schema_values(Tune(ranges=ranges), schema)
    assert values is not None
    assert set(values) == set(ranges)
    for key, tried in ranges.items():
        assert len(tried.kinds()) == 1, key
        assert len({json.dumps(end) for end in tried.ends()}) > 1, key


def test_a_linear_model_is_tuned_without_vectors() -> None:
    groups = {"a": {"column": "a"}, "b": {"column": "b"}}
    objective = {"type": "logistic", "target": "y"}
    schema = read_schema({"version": 1, "groups": groups, "model": {"pairs": False}, "objective": objective})
    ranges = ranges_around(schema)
    assert {"training.optimizer.learning_rate", "training.epochs"} <= set(ranges)
    for key, tried in ranges.items():
        for end in tried.ends():
            read_schema(schema.resolved(), settings=[f"{key}={json.dumps(end)}"])


def test_each_end_of_a_range_is_a_schema(folder: Path) -> None:
    (folder / "nce.yaml").write_text(SCHEMA.replace("{type: contrastive, temperature: 0.5}", "nce"))
    for name in ("s.yaml", "nce.yaml", "prices.yaml"):
        planned, _ = plan_of_schema(Path(name), None, ["rows.csv"], [])
        assert list(planned.tune.ranges) == list(ranges_around(planned.schema))
    planned, _ = plan_of_schema(Path("s.yaml"), None, ["rows.csv"], ["training.epochs=3", "objective.temperature=1"])
    assert not {"training.epochs", "objective.temperature"} & set(planned.tune.ranges)


def test_the_first_trial_is_the_schema_and_nothing_need_beat_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = untrained(monkeypatch, [0.5, 0.4, 0.3])
    facts = tune_schema("s.yaml", 3, ["rows.csv"])
    assert tried[0]["model.dim"] == 4
    assert tried[0]["objective.temperature"] == 0.5
    assert (facts["measure"], facts["better"], facts["beats_own_values"]) == ("mean mrr", "higher", False)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].endswith("the schema's own values")
    assert "no trial beat the schema itself" in printed
    assert printed[-1] == "  feat2vec train runs/s-tune/best.yaml --data rows.csv --out runs/s-tune-run"
    text = (folder / facts["schema"]).read_text()
    assert text.count("written by feat2vec") == 1
    assert "name: shelves  # a comment" in text
    assert read_schema(folder / facts["schema"]).model_dump() == read_schema(folder / "s.yaml").model_dump()


def test_the_best_values_stand_in_the_best_schema(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = untrained(monkeypatch, [0.5, 0.4, 0.6])
    settings = ["training.epochs=7"]
    facts = tune_schema("s.yaml", 3, ["rows.csv"], "study", group="shelf", options=StudyOptions(settings, quiet=True))
    assert (facts["measure"], facts["beats_own_values"], facts["best"]["trial"]) == ("mrr", True, 3)
    best = read_schema(folder / "study" / "best.yaml")
    assert best.model.dim == tried[2]["model.dim"]
    assert best.training.epochs == 7
    assert best.training.optimizer.learning_rate == tried[2]["training.optimizer.learning_rate"]
    again = tune_schema("s.yaml", 3, ["rows.csv"], "study", group="shelf", options=StudyOptions(settings, quiet=True))
    assert again["trials"] == facts["trials"]
    with pytest.raises(UserError, match="holds a study of another recipe or other data"):
        tune_schema("s.yaml", 3, ["rows.csv"], "study", options=QUIET)


@pytest.mark.usefixtures("folder")
def test_the_loss_of_a_target_is_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    untrained(monkeypatch, [0.5, 0.4])
    facts = tune_schema("prices.yaml", 2, ["rows.csv"], "study", target="price", options=QUIET)
    assert (facts["measure"], facts["better"], facts["best"]["trial"]) == ("rmse", "lower", 2)


@pytest.mark.slow
def test_trials_are_measured_on_a_part_that_is_split_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tune_schema("s.yaml", 1, ["rows.csv"], "study", options=QUIET)
    parts = [open_table(folder / "study" / "data" / f"{name}.parquet") for name in ("train", "validation")]
    counts = [sum(batch.data.num_rows for batch in part.batches()) for part in parts]
    assert counts == [240, 60]
    monkeypatch.setattr(plan, "MOST_VALIDATION_ROWS", 30)
    assert plan._validation_share("rows.csv") == 0.1
    train("s.yaml", parts[0], "run", parts[1], quiet=True)
    groups = evaluate_beside(load("run"), parts[1])["groups"]
    expected = np.mean([group["mrr"] for group in groups.values()])
    planned, _ = plan_of_schema(Path("s.yaml"), None, ["rows.csv"], [])
    assert planned.tune.measure is not None
    assert measured(load("run"), parts[1], planned.tune.measure) == pytest.approx(expected)
    assert facts["best"]["value"] == pytest.approx(expected)


MISTAKES: dict[str, tuple[list[str], str]] = {
    "no such group": (["s.yaml", "--for", "shelv"], "--for: there is no group 'shelv'; did you mean 'shelf'?"),
    "no target": (["s.yaml", "--target", "price"], "--target: s.yaml learns without a target; give it `objective:"),
    "another target": (["prices.yaml", "--target", "item"], "--target: prices.yaml predicts 'price'; received 'item'"),
    "a group of what predicts": (["prices.yaml", "--for", "item"], "--for: prices.yaml predicts 'price'"),
    "two tables": (["s.yaml", "--data", "rows.csv"], "--data: a schema is tuned on one table; received 2"),
    "few rows": (["s.yaml"], "few.csv: has 3 rows, and tuning needs 200 to tell trials apart; give more"),
    "of a recipe": (["r.yaml", "--for", "shelf", "--trials", "2"], "--for: is for a schema; a recipe says by `tune.m"),
    "trials of a recipe": (["r.yaml"], "Missing option '--trials'"),
    "no file": (["none.yaml", "--trials", "2"], "none.yaml: no such recipe"),
    "all is set": (
        ["s.yaml", *(word for key in ("objective={type: contrastive}", "noise={}", "model={}", "training={}")
                     for word in ("--set", key))],
        "s.yaml: nothing is left to tune",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str, folder: Path) -> None:
    words, message = MISTAKES[mistake]
    (folder / "r.yaml").write_text("version: 1\nname: r\ndata: {rows: rows.csv}\nschema: s.yaml\n")
    (folder / "few.csv").write_text("item,shelf\n" + "a,b\n" * 3)
    data = "few.csv" if mistake == "few rows" else "rows.csv"
    done = feat2vec("tune", *words, "--data", data, folder=folder, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 5
    assert not (folder / "runs").exists()


def test_a_schema_without_lookups_needs_the_group_to_rank(folder: Path) -> None:
    groups = "{item: {column: item, extractor: text_cnn}, price: {column: price, extractor: numeric}}"
    (folder / "texts.yaml").write_text(f"version: 1\ngroups: {groups}\n")
    with pytest.raises(
        UserError, match=r"--for: no group of texts\.yaml is a lookup; name the one to rank: item, price"
    ):
        plan_of_schema(Path("texts.yaml"), None, ["rows.csv"], [])
    assert plan_of_schema(Path("texts.yaml"), None, ["rows.csv"], [], group="item")[0].tune.measure is not None


def test_a_schema_is_told_from_a_recipe(folder: Path) -> None:
    (folder / "r.yaml").write_text("version: 1\nname: r\nschema: s.yaml\n")
    (folder / "broken.yaml").write_text("{")
    assert [is_schema(Path(name)) for name in ("s.yaml", "r.yaml", "broken.yaml", "none.yaml")] == [
        True, False, False, False,
    ]  # fmt: skip
