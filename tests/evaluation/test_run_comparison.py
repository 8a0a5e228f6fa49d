"""`compare`: settings that differ, metrics side by side, and neighbours that two runs share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation import run_comparison
from feat2vec.evaluation.run_comparison import compare
from feat2vec.evaluation.tasks import evaluate
from tests.commands import feat2vec as command
from tests.evaluation.test_baselines import things
from tests.short_trainings import train

GROUPS: dict[str, Any] = {
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "kind": {"column": "kind"},
    "words": {"column": "text", "extractor": {"type": "lookup", "split": "words"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of other seeds and other tables, and one that predicts."""
    folder = tmp_path_factory.mktemp("compare")
    pq.write_table(things(80, 1), folder / "test.parquet")
    schema = {"version": 1, "model": {"dim": 3}, "groups": GROUPS, "training": {"epochs": 1}}
    train(schema, things(200, 0), folder / "first", quiet=True)
    settings = ["training.seed=1", "model.dim=5", "training.epochs=2", "groups.words.extractor.max_items=9"]
    train(schema, things(30, 2), folder / "second", settings=settings, quiet=True)
    labelled = {**schema, "groups": {"kind": GROUPS["kind"]}, "objective": {"type": "regression", "target": "price"}}
    train(labelled, things(200, 0), folder / "prices", quiet=True)
    return folder


def shared_neighbours(run: feat2vec.Run, other_run: feat2vec.Run, group: str, topn: int, most: int) -> float:
    """By a loop over the keys that both have."""
    vectors, other_vectors = run.vectors(group), other_run.vectors(group)
    keys = [key for key in vectors.index_to_key if key in other_vectors][:most]
    topn = min(topn, len(keys) - 1)
    shares = []
    for key in keys:
        rest = [other for other in keys if other != key]
        nearest = sorted(rest, key=lambda other, key=key: -vectors.similarity(key, other))[:topn]  # type: ignore[misc]
        others = sorted(rest, key=lambda other, key=key: -other_vectors.similarity(key, other))[:topn]  # type: ignore[misc]
        shares.append(len(set(nearest) & set(others)) / topn)
    return float(np.mean(shares))


def test_settings_metrics_and_neighbours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, other_run = feat2vec.load(folder / "first"), feat2vec.load(folder / "second")
    facts = compare(run, other_run, folder / "test.parquet")
    assert facts["settings"]["model.dim"] == [3, 5]
    assert set(facts["settings"]) == {
        "model.dim", "training.epochs", "training.seed", "groups.words.extractor.max_items",
    }  # fmt: skip
    assert facts["metrics"]["rows"] == [200, 30]
    mrr = [evaluate(part, folder / "test.parquet", "rank", target="kind")["mrr"] for part in (run, other_run)]
    assert facts["measured"]["kind"]["mrr"] == mrr
    for group, overlap in facts["neighbours"].items():
        assert overlap["overlap"] == pytest.approx(shared_neighbours(run, other_run, group, 10, 1000), abs=1e-4)
    monkeypatch.setattr(run_comparison, "MOST_KEYS", 7)
    monkeypatch.setattr(run_comparison, "NEIGHBOURS", 3)
    tags = compare(run, other_run)["neighbours"]["tags"]
    assert (tags["keys"], tags["topn"]) == (7, 3)
    assert tags["overlap"] == pytest.approx(shared_neighbours(run, other_run, "tags", 3, 7), abs=1e-4)


def test_a_run_is_like_itself(folder: Path) -> None:
    run = feat2vec.load(folder / "first")
    facts = compare(run, run)
    assert (facts["settings"], facts["measured"]) == ({}, {})
    assert {overlap["overlap"] for overlap in facts["neighbours"].values()} == {1.0}


def test_runs_of_other_tasks_share_settings_and_neighbours_alone(folder: Path) -> None:
    run, prices = feat2vec.load(folder / "first"), feat2vec.load(folder / "prices")
    facts = compare(run, prices)
    assert facts["settings"]["objective.type"] == ["nce", "regression"]
    assert set(facts["settings"]) == {"objective.type", "objective.target"}  # no defaults of other objectives
    assert facts["groups"] == [["tags", "words"], []]
    lines = command("compare", "first", "prices", folder=folder).stdout.splitlines()
    assert "groups only in first: tags, words" in lines
    assert not [line for line in lines if line.startswith("groups only in prices")]
    assert list(facts["neighbours"]) == ["kind"]
    with pytest.raises(UserError, match=r"^data: the runs predict 'nothing' and 'price', which cannot be compared"):
        compare(run, prices, folder / "test.parquet")
    done = command("compare", "first", "prices", "--data", "test.parquet", folder=folder, code=2)
    assert done.stderr.startswith("--data: the runs predict")


def test_the_command_prints_columns_or_one_object(folder: Path) -> None:
    done = command("compare", "first", "second", "--data", "test.parquet", folder=folder)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["settings", "that", "differ", "first", "second"]
    assert any(line.split() == ["model.dim", "3", "5"] for line in lines)
    assert any(line.startswith("kind, on the rows given") for line in lines)
    assert lines[-1].startswith("words: ")
    assert "nearest are common (5 of 5 common keys)" in lines[-1]
    printed = json.loads(command("compare", "first", "first", "--json", folder=folder).stdout)
    assert printed["runs"] == ["first", "first"]
    assert command("compare", "first", "none", folder=folder, code=2).stderr.startswith("none: does not exist")
