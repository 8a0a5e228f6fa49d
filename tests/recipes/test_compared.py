"""Models compared in a recipe: what is trained, measured and printed, and the groups that rows propose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.sizes import level_costs
from feat2vec.recipes import compared
from feat2vec.recipes.compared import Measured
from feat2vec.recipes.proposed import proposed_document
from feat2vec.recipes.reading import read_recipe
from feat2vec.recipes.recipe import Compare
from feat2vec.recipes.running import run_recipe
from feat2vec.recipes.tables import ComparisonTables
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import dump_document, parse_document
from feat2vec.table.table import open_table
from tests.test_tools import tool

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")

RECIPE = """\
version: 1
name: small
data: {rows: {ask: "rows with a label"}}
split: {validation: 0.2, test: 0.2}
schema:
  version: 1
  model: {ranks: [2, 6], bias: true}
  groups: proposed
  objective: {target: label}
  training: {epochs: 1, batch_size: 256, l2: 0.01}
compare:
  models:
    LR: {model: {pairs: false}, training.l2: 0}
    FM 6: {model.ranks: null, model.dim: 6}
    RaFM: {}
  tables:
    "Table 4": {FM: [FM 6, RaFM], LR: [LR], RaFM: [RaFM]}
  figure:
    title: "Figure 3"
    line: [FM 6]
    beside: {RaFM: {model: RaFM}, RaFM-low: {model: RaFM, level: 1}}
"""


def written(folder: Path, text: str = RECIPE) -> tuple[Path, Path]:
    """A recipe, and a small table like MovieLens Tag."""
    recipe, rows = folder / "small.yaml", folder / "tags.parquet"
    recipe.write_text(text)
    pq.write_table(tool("make_tags").tags(900), rows)
    return recipe, rows


def cost_by_loops(encoder: feat2vec.Encoder, rows: list[dict[str, Any]]) -> float:
    """sum_k D_k n(F_k) over the training rows, value by value; of nested levels D_k is what a level adds."""
    levels, total = encoder.schema.model.levels, 0.0
    for name, group in encoder.schema.groups.items():
        vocabulary = encoder.codecs[name].vocabulary
        assert vocabulary is not None
        level_of = dict(zip(vocabulary.keys.to_pylist(), vocabulary.levels_in(levels).tolist(), strict=True))
        for row in rows:
            total += sum(levels.dims[k] for k in range(level_of.get(row[group.columns[0]], 1)))
    return total / len(rows)


@pytest.mark.slow
def test_a_recipe_compares_models_on_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, rows = written(tmp_path)
    lines: list[str] = []
    facts = run_recipe(recipe, tmp_path / "run", [str(rows)], print_lines=lines.append)
    results = facts["compare"]
    assert json.loads((tmp_path / "run" / "results.json").read_text())["compare"] == results
    training_rows = pq.read_table(tmp_path / "run" / "data" / "train.parquet").to_pylist()
    runs = {name: feat2vec.load(tmp_path / "run" / "compared" / name) for name in results["models"] if name != "RaFM"}
    runs["RaFM"] = feat2vec.load(tmp_path / "run")
    assert list(runs["RaFM"].schema.groups) == ["user", "film", "tag"]
    assert runs["RaFM"].schema.objective.type == "logistic"
    test = tmp_path / "run" / "data" / "test.parquet"
    for name, model in results["models"].items():
        run = runs[name]
        assert model["parameters"] == run.metrics["parameters"] == sum(w.numpy().size for w in trainable(run))
        assert model["cost"] == pytest.approx(cost_by_loops(run.fitted, training_rows))
        assert model["loss"] == pytest.approx(run.evaluate(str(test), "predict")["log_loss"], rel=1e-6)
        assert model["rank"] == (0 if name == "LR" else 6)
    assert results["models"]["LR"]["cost"] == 0
    best = min(("FM 6", "RaFM"), key=lambda name: results["models"][name]["validation_loss"])
    assert results["tables"]["Table 4"] == {"FM": best, "LR": "LR", "RaFM": "RaFM"}
    low = runs["RaFM"].evaluate(str(test), "predict", level=1)["log_loss"]
    assert results["figure"]["RaFM-low"]["loss"] == pytest.approx(low, rel=1e-6)
    assert results["figure"]["RaFM"]["loss"] == results["models"]["RaFM"]["loss"] != low
    assert any(line.startswith("Table 4") or line == "\nTable 4" for line in lines)
    assert any("#" in line and line.startswith("RaFM-low") for line in lines)
    page = (tmp_path / "run" / "comparison.html").read_text()
    assert "Figure 3" in page
    assert f"<td>FM ({best})</td>" in page

    monkeypatch.setattr(compared.Measured, "measure", lambda *_, **__: 1 / 0)
    before = {name: run.folder.stat().st_mtime_ns for name, run in runs.items() if name != "RaFM"}
    with pytest.raises(ZeroDivisionError):  # stopped before the models are measured
        run_recipe(recipe, tmp_path / "run", [str(rows)], resume=True, quiet=True)
    assert {name: run.folder.stat().st_mtime_ns for name, run in runs.items() if name != "RaFM"} == before


@pytest.mark.parametrize("sharing", ["separate", "truncate", "all"])
def test_the_cost_is_that_of_each_value_of_a_row(sharing: str) -> None:
    table = tool("make_tags").tags(600)
    groups = {name: {"column": name, "extractor": {"type": "lookup", "min_count": 3}} for name in ("user", "tag")}
    schema = {"version": 1, "model": {"ranks": [2, 5, 20], "level_sharing": sharing}, "groups": groups}
    encoder = feat2vec.fit({**schema, "objective": {"type": "logistic", "target": "label"}}, table).encoder
    costs = level_costs(encoder, len(table))
    assert len(costs) == (1 if sharing == "all" else 3)
    assert sum(costs) == pytest.approx(cost_by_loops(encoder, table.to_pylist()))


def test_the_cost_of_groups_that_share_keys_is_that_of_both() -> None:
    rows = pa.table({"home": ["a", "b", "a", "c"], "away": ["b", "a", "c", "a"]})
    groups = {"home": {"column": "home"}, "away": {"column": "away", "share": "home"}}
    schema = {"version": 1, "model": {"ranks": [2, 5], "levels": {"counts": [3]}}, "groups": groups}
    costs = level_costs(feat2vec.fit(schema, rows).encoder, len(rows))
    assert costs == [2 * 8 / 4, 5 * 4 / 4]  # a comes four times in eight, and reaches the second level alone


def test_the_cost_of_what_is_no_key_is_that_of_every_level() -> None:
    table = tool("make_tags").tags(600).append_column("year", [[2000 + i % 7 for i in range(600)]])
    groups = {"tag": {"column": "tag"}, "year": {"column": "year", "extractor": "numeric"}}
    schema = {"version": 1, "model": {"ranks": [2, 5]}, "groups": groups}
    encoder = feat2vec.fit({**schema, "objective": {"type": "logistic", "target": "label"}}, table).encoder
    of_tags = feat2vec.fit({**schema, "groups": {"tag": groups["tag"], "user": {"column": "user"}}}, table).encoder
    of_users = level_costs(of_tags.only(["user"]), 600)
    both = level_costs(of_tags, 600)
    expected = [a - b + dim for a, b, dim in zip(both, of_users, (2, 5), strict=True)]
    assert level_costs(encoder, 600) == pytest.approx(expected)


def trainable(run: feat2vec.Run) -> list[Any]:
    """What counts as parameters: weights that are learnt."""
    return list(run.model.trainable_variables)


def measured(name: str, rank: int, loss: float, validation_loss: float, **numbers: Any) -> Measured:
    facts: dict[str, Any] = {"auc": 0.9, "rmse": None, "parameters": 1000, "cost": 12.4}
    times = {"epoch_seconds": 2.0 * rank, "seconds": 20.0, "test_seconds": 1.0}
    return Measured(name, rank, loss, validation_loss=validation_loss, **{**facts, **times, **numbers})


COMPARE = Compare.model_validate(
    {
        "models": {"a": {}, "b": {}, "c": {}},
        "tables": {"T": {"both": ["a", "b"], "c": ["c"]}},
        "figure": {"title": "F", "line": ["b", "a"], "beside": {"c": {"model": "c"}}},
    }
)


def test_tables_show_the_best_by_the_validation_rows_and_times_beside_the_first() -> None:
    models = {
        "a": measured("a", 1, 0.5, 0.40),
        "b": measured("b", 2, 0.3, 0.41),
        "c": measured("c", 4, 0.4, 0.39, parameters=1234567),
    }
    tables = ComparisonTables(COMPARE, models, {"c": models["c"]})
    text = list(tables.lines())
    first = text.index("\nT")
    assert text[first + 1].split() == (
        [
            "log",
            "loss",
            "AUC",
            "parameters",
            "cost",
            "s/epoch",
            "s",
            "to",
            "the",
            "end",
            "train",
            "time",
            "test",
            "time",
        ]
    )
    assert text[first + 2].split() == ["both", "(a)", "0.5", "0.9", "1,000", "12", "2", "20", "1.00x", "1.00x"]
    assert text[first + 3].split() == ["c", "0.4", "0.9", "1,234,567", "12", "8", "20", "4.00x", "1.00x"]
    figure = text[text.index("\nF: loss") + 1 :]
    assert [line.split()[0] for line in figure] == ["a", "b", "c"]  # the line by rank, then what is beside it
    assert [line.count("#") for line in figure] == [40, 1, 20 + 1]
    assert tables.page("title").count("<polyline") == 2


def test_numbers_have_a_square_loss_and_its_root() -> None:
    models = {name: measured(name, 1, 4.0, 1.0, auc=None, rmse=2.0) for name in "abc"}
    lines = list(ComparisonTables(COMPARE, models, {}).lines())
    assert lines[1].split()[:3] == ["square", "loss", "RMSE"]
    assert lines[2].split()[:3] == ["a", "4", "2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("FM: [FM 6, RaFM]", "FM: [FN 6]", "small.yaml:17: compare.tables.*'FN 6', which is no compared model; did"),
        (
            "model: RaFM, level",
            "model: Rafm, level",
            "compare.figure.beside.RaFM-low: names 'Rafm', which is no compared",
        ),
        ("line: [FM 6]", "line: [FM 6, FM6]", r"compare.figure.line\[1\]: names 'FM6', which is no compared model"),
        (
            "split: {validation: 0.2, test: 0.2}",
            "split: {test: 0.2}",
            "compare: chooses epochs and models by rows that are",
        ),
        (
            "compare:\n",
            "compare:\n  data: tests\n",
            "compare.data: names 'tests', which is no part of the rows; did you mean",
        ),
        ("    FM 6:", "    a/b:", r"compare.models\['a/b'\]: names files or folders of the run"),
        ("    FM 6:", "    lr:", "compare.models.lr: may be the same file or folder as 'LR' of the run"),
        (
            "objective: {target: label}",
            "objective: {type: nce}",
            "objective: `groups: proposed` needs the column to learn",
        ),
        ("epochs: 1", "epoch: 1", "training.epoch: unknown key; did you mean 'epochs'"),
        (
            "name: small\n",
            "name: small\ntune: {ranges: {training.l2: {log: [1, 2]}}}\n",
            "tune: is for a schema with its own",
        ),
    ],
)
def test_what_is_wrong_with_a_comparison(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in RECIPE
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        read_recipe(path)


@pytest.mark.parametrize(
    ("old", "new", "settings", "message"),
    [
        ("model.dim: 6", "model.dims: 6", [], "compare.models.FM 6: .*model.dims: unknown key; did you mean 'dim'"),
        (
            "target: label",
            "target: label",
            ["objective.target=lable"],
            r"^--set objective.target=lable: objective.target: the table: has no column 'lable' to be the target; did "
            r"you mean 'label'\?\nname the column to learn: --set objective.target=COLUMN$",
        ),
        (
            "{target: label}",
            "{target: sold}",
            [],
            r"small.yaml:9: objective.target: the table: has no column 'sold' .*\nname the column to learn: --set",
        ),
    ],
)
def test_what_rows_show_is_told_before_any_training(
    old: str, new: str, settings: list[str], message: str, tmp_path: Path
) -> None:
    recipe, rows = written(tmp_path, RECIPE.replace(old, new, 1))
    with pytest.raises(UserError, match=message):
        run_recipe(recipe, tmp_path / "run", [str(rows)], settings=settings, quiet=True)
    assert not (tmp_path / "run").exists()


def test_numbers_of_proposed_groups_are_bins() -> None:
    rows = tool("make_tags").tags(600).append_column("price", [np.random.default_rng(0).normal(size=600)])
    options = yaml.safe_load(RECIPE)["schema"]
    schema = read_schema(proposed_document(parse_document(dump_document(options)), [], open_table(rows)))
    assert schema.groups["price"].extractor.model_dump()["bins"] == 30
    assert all(group.extractor.type == "lookup" for group in schema.groups.values())
    assert list(schema.model.ranks or ()) == [2, 6]


def test_tags_are_rare_and_suit() -> None:
    table = tool("make_tags").tags(6000)
    assert table.column_names == ["user", "film", "tag", "label"]
    assert np.mean(table["label"].to_numpy()) == pytest.approx(1 / 3)
    assert table.equals(tool("make_tags").tags(6000))
    counts = np.array(table["tag"].value_counts().field("counts"))
    assert (counts <= 2).mean() > 0.5
    assert counts.max() > 50
