"""`evaluate --beside`: a run and its baselines on the same rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.beside import TaskOptions, _better, better_of, evaluate_beside, lines_beside
from feat2vec.evaluation.tasks import evaluate
from tests.commands import feat2vec as command
from tests.evaluation.test_baselines import rated, things
from tests.short_trainings import train

GROUPS: dict[str, Any] = {
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "kind": {"column": "kind"},
    "size": {"column": "size", "extractor": "numeric"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training rows, test rows, a run that is hardly trained, and one that predicts."""
    folder = tmp_path_factory.mktemp("beside")
    pq.write_table(things(300, 0), folder / "train.parquet")
    pq.write_table(things(80, 1), folder / "test.parquet")
    training = {"epochs": 1, "neighbours": 0, "optimizer": {"type": "adam", "learning_rate": 1e-5}}
    schema = {"version": 1, "model": {"dim": 3}, "groups": GROUPS, "training": training}
    lookups = {name: GROUPS[name] for name in ("tags", "kind")}
    train({**schema, "groups": lookups}, folder / "train.parquet", folder / "space", quiet=True)
    objective = {"type": "regression", "target": "price"}
    train(
        {**schema, "groups": lookups, "objective": objective}, folder / "train.parquet", folder / "prices", quiet=True
    )
    return folder


def test_each_lookup_group_is_ranked_beside_baselines(folder: Path) -> None:
    run, test = feat2vec.load(folder / "space"), folder / "test.parquet"
    facts = evaluate_beside(run, test, names=["popularity", "tfidf", "boosting"], train=folder / "train.parquet")
    assert facts["task"] == "rank"
    assert list(facts["groups"]) == ["tags", "kind"]
    for group, part in facts["groups"].items():
        alone = evaluate(run, test, "rank", target=group)
        assert {key: part[key] for key in alone} == alone
        assert list(part["beside"]) == ["popularity", "tfidf"]
        assert {metrics["n"] for metrics in part["beside"].values()} == {part["n"]}
    tags, kind = facts["groups"]["tags"], facts["groups"]["kind"]
    better = f"tfidf is better for kind: mrr {kind['beside']['tfidf']['mrr']:.4g}, the run {kind['mrr']:.4g}"
    assert better in better_of(facts)
    lines = list(lines_beside(facts))
    assert lines[0].split() == ["target", "method", "n", "mpr", "mrr", "top1", "recall_at_10", "median_rank"]
    assert [line.split()[:2] for line in lines[1:7:3]] == [["tags", "the"], ["kind", "the"]]
    assert lines[2].split()[:3] == ["tags", "popularity", str(tags["n"])]
    assert lines[7:] == ["boosting is for the task predict and was not measured", *better_of(facts)]


def test_a_run_that_predicts_has_other_baselines(folder: Path) -> None:
    run = feat2vec.load(folder / "prices")
    facts = evaluate_beside(
        run, folder / "test.parquet", names=["constant", "linear", "popularity"], train=folder / "train.parquet"
    )
    assert (facts["task"], list(facts["beside"])) == ("predict", ["constant", "linear"])
    assert facts["better"][-1].startswith("linear is better for price: rmse")
    lines = list(lines_beside(facts))
    assert [line.split()[0] for line in lines][:3] == ["target", "price", "price"]
    assert "popularity is for the task rank and was not measured" in lines


def test_nothing_beside_is_what_evaluate_says(folder: Path) -> None:
    run, test = feat2vec.load(folder / "space"), folder / "test.parquet"
    assert evaluate_beside(run, test, "rank", "kind") == evaluate(run, test, "rank", target="kind")
    facts = evaluate_beside(run, test, options=TaskOptions(given=["tags"], similarity="dot"))
    assert list(facts["groups"]) == ["kind"]
    assert (facts["groups"]["kind"]["given"], facts["groups"]["kind"]["similarity"]) == (["tags"], "dot")


def test_python_names_arguments_and_takes_one_baseline(folder: Path) -> None:
    run, test = feat2vec.load(folder / "space"), folder / "test.parquet"
    wrong: Any = "rnak"
    with pytest.raises(UserError, match=r"^task: there is no 'rnak'; did you mean 'rank'\?$"):
        run.evaluate(test, task=wrong)
    assert list(run.evaluate(test, target="kind", beside="popularity")["beside"]) == ["popularity"]


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no such baseline": ({"names": ["tfdif"]}, "--beside: there is no 'tfdif'; did you mean 'tfidf'?"),
    "of another task": (
        {"names": ["boosting"]},
        "--beside: boosting is not for the task rank; for it there are popularity, tfidf, pca",
    ),
    "of no task": (
        {"names": ["popularity"], "task": "nearest", "target": "kind"},
        "--beside: popularity is not for the task nearest; it has none",
    ),
    "no training rows": ({"names": ["popularity", "tfidf"]}, "tfidf learns from the rows that the run was trained on"),
    "no matrix is completed": (
        {"names": ["tfidf"], "matrix": ["kind", "tags"], "train": "train.parquet"},
        "--matrix: is for svd, als, soft_impute; name one of them by --beside, or remove it",
    ),
    "the test rows": ({"names": ["tfidf"], "train": "test.parquet"}, "--train: is the same table as --data"),
    "nothing to rank by": (
        {"options": TaskOptions(given=["tags"]), "data": "few.parquet"},
        "few.parquet by another; the lookup groups are tags, kind",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str, folder: Path) -> None:
    options, message = MISTAKES[mistake]
    pq.write_table(things(9, 0).select(["tags"]), folder / "few.parquet")
    data = folder / options.get("data", "test.parquet")
    given = {name: value for name, value in options.items() if name != "data"}
    if "train" in given:
        given["train"] = folder / given["train"]
    with pytest.raises(UserError) as error:
        evaluate_beside(feat2vec.load(folder / "space"), data, **given)
    assert message in str(error.value)


def test_a_run_measures_itself_and_its_messages_name_arguments(folder: Path) -> None:
    run, test = feat2vec.load(folder / "space"), folder / "test.parquet"
    facts = run.evaluate(test, beside=["tfidf"], train=folder / "train.parquet")
    assert list(facts["groups"]) == ["tags", "kind"]
    assert run.evaluate(test, target="kind", given=["tags"]) == evaluate(
        run, test, "rank", target="kind", given=["tags"]
    )
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"beside": ["tfdif"]}, r"^beside: there is no 'tfdif'"),
        ({"beside": ["tfidf"]}, r"name them by train; popularity needs none"),
        ({"target": "kid"}, r"^target: there is no group 'kid'"),
        ({"target": "kind", "level": 2}, r"^level: is not for task rank; remove it"),
        ({"task": "nearest"}, r"^task nearest needs target"),
    ]
    for arguments, message in mistakes:
        with pytest.raises(UserError, match=message):
            run.evaluate(test, **arguments)
    with pytest.raises(UserError, match=r"^label: is a column of data; name the rows too"):
        run.report(folder / "none.html", label="kind")
    with pytest.raises(UserError, match=r"^out: .*exists already; .*add force=True"):
        run.explore(folder / "test.parquet")
    with pytest.raises(UserError, match=r"^groups: there is no group 'kid'"):
        run.explore(folder / "none.html", groups=["kid"])


def test_the_command_prints_a_table_or_one_object(folder: Path) -> None:
    words = ["evaluate", "space", "--data", "test.parquet", "--beside", "popularity,tfidf,boosting"]
    done = command(*words, "--train", "train.parquet", folder=folder)
    assert [line.split()[1] for line in done.stdout.splitlines()[:4]] == ["method", "the", "popularity", "tfidf"]
    printed = json.loads(command(*words, "--train", "train.parquet", "--json", folder=folder).stdout)
    assert set(printed["groups"]["kind"]["beside"]) == {"popularity", "tfidf"}
    done = command(*words, folder=folder, code=2)
    assert done.stderr.splitlines()[-1] == "a run keeps no rows: name them by --train; popularity needs none"
    done = command("evaluate", "space", "--data", "test.parquet", "--target", "kind", folder=folder)
    assert done.stdout.splitlines()[0].split() == ["task", "rank"]


def test_rows_to_learn_from_that_are_not_those_of_the_run_are_told(folder: Path) -> None:
    new = things(100, 1).set_column(1, "kind", pa.array(["new"] * 100))
    pq.write_table(pa.concat_tables([things(300, 0), new]), folder / "both.parquet")
    words = ["evaluate", "space", "--data", "test.parquet", "--beside", "tfidf", "--train"]
    assert command(*words, "train.parquet", folder=folder).stderr == ""
    (warning,) = command(*words, "both.parquet", folder=folder).stderr.splitlines()
    assert re.fullmatch(r"both\.parquet: 300 of 400 rows are among those the run was trained on: .*", warning)


def test_a_tie_is_not_better() -> None:
    run = {"log_loss": 0.34561}
    peers = {"equal": {"log_loss": 0.34561}, "as shown": {"log_loss": 0.34559}, "lower": {"log_loss": 0.3453}}
    assert list(_better("hit", run, peers)) == ["lower is better for hit: log_loss 0.3453, the run 0.3456"]
    assert list(_better("hit", {"mrr": 0.5}, {"equal": {"mrr": 0.5}, "worse": {"mrr": 0.4}})) == []


def test_the_report_shows_the_baselines_and_what_is_better(folder: Path) -> None:
    words = ["report", "space", "--data", "test.parquet", "--out", "page.html", "--force"]
    done = command(*words, "--beside", "popularity,tfidf", "--train", "train.parquet", folder=folder)
    page = (folder / "page.html").read_text()
    (sentence,) = [line for line in done.stdout.splitlines() if line.startswith("tfidf is better for kind")]
    assert sentence in page
    assert "Beside other methods" in page
    done = command("report", "space", "--beside", "tfidf", "--out", "other.html", folder=folder, code=2)
    assert done.stderr == "--beside: is measured on --data; name rows that training has not seen\n"


def test_matrices_are_completed_beside_a_run_that_predicts_a_number(tmp_path: Path) -> None:
    for part, rows in (("train", 300), ("test", 80)):
        pq.write_table(rated(rows, part == "test"), tmp_path / f"{part}.parquet")
    schema = {
        "version": 1, "groups": {name: {"column": name} for name in ("buyer", "shop", "kind")},
        "model": {"dim": 2, "bias": True}, "objective": {"type": "regression", "target": "price"},
        "training": {"epochs": 1, "validation": 0},
    }  # fmt: skip
    run = train(schema, tmp_path / "train.parquet", tmp_path / "run", quiet=True)
    names = ["svd", "als", "soft_impute"]
    facts = run.evaluate(tmp_path / "test.parquet", beside=names, train=tmp_path / "train.parquet")
    assert list(facts["beside"]) == names
    assert [sentence.split()[0] for sentence in facts["better"]] == names
    words = ["evaluate", "run", "--data", "test.parquet", "--train", "train.parquet", "--beside", "svd,als", "--json"]
    printed = json.loads(command(*words, "--matrix", "buyer,kind", folder=tmp_path).stdout)
    assert printed["beside"]["als"]["matrix"] == ["buyer", "kind"]
    done = command(*words, "--matrix", "buyer,kinds", folder=tmp_path, code=2)
    assert done.stderr == "--matrix: there is no group 'kinds'; did you mean 'kind'?\n"
    with pytest.raises(UserError, match=r"^matrix: expected two groups"):
        run.evaluate(tmp_path / "test.parquet", beside="als", train=tmp_path / "train.parquet", matrix=["kind"])
