"""Tuning: what is planted is found, on validation rows alone; a killed study goes on as if it had not been."""

from __future__ import annotations

import builtins
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy

from feat2vec.errors import FailedError, UserError
from feat2vec.evaluation.tasks import evaluate
from feat2vec.recipes.reading import read_recipe
from feat2vec.recipes.running import run_recipe
from feat2vec.recipes.tuning import study, trials
from feat2vec.recipes.tuning.trials import tune
from feat2vec.run import load
from feat2vec.schema.yaml_text import parse_document

RECIPE = """\
version: 1
name: shelves
data: {rows: rows.csv}
split: {validation: 0.2, test: 0.2}
schema:
  version: 1
  model: {dim: 4}
  groups: {item: {column: item}, shelf: {column: shelf}}
  noise: {targets: [shelf], sharing: batch, negatives: 8}
  objective: contrastive  # too slow
  training: {epochs: 4, batch_size: 32, optimizer: {type: adagrad, learning_rate: 1e-9}, patience: 0, neighbours: 0}
tune:
  ranges:
    training.optimizer.learning_rate: {choice: [1e-9, 0.3]}
  measure: {task: rank, target: shelf, metric: mpr}
"""
RATE = "training.optimizer.learning_rate"


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
    """A folder to be in, with a recipe and rows in which an item tells its shelf."""
    items = np.random.default_rng(0).integers(0, 12, 300)
    lines = [f"i{item},s{item % 6}" for item in items]
    (tmp_path / "rows.csv").write_text("\n".join(["item,shelf", *lines]) + "\n")
    (tmp_path / "r.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[dict[str, Any]], float]], list[dict[str, Any]]]:
    """Trials whose value is a function of their values, without any training; returns the list of what was tried."""

    def install(value: Callable[[dict[str, Any]], float]) -> list[dict[str, Any]]:
        tried: list[dict[str, Any]] = []

        def instead(self: Any, trial: Any, values: dict[str, Any]) -> float:
            del self, trial
            tried.append(dict(values))
            return value(dict(values))

        monkeypatch.setattr(trials._Trials, "_value", instead)
        return tried

    return install


# --- the recipe -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{log: [1, 0.1]}", "log: the lowest, 1.0, must be less than the highest, 0.1"),
        ("{log: [0, 0.1]}", "log: a logarithmic range begins above 0, received 0.0; use `uniform`"),
        ("{uniform: [1]}", "uniform: expected the lowest and the highest number, received 1 of them"),
        ("{choice: [1]}", "choice: expected two values or more, received 1"),
        ("{choice: [1, 2, 1]}", "choice: holds a value twice; keep one"),
        ("{}", ": expected one of log, uniform, integer, choice, received none"),
        ("{log: [1, 2], choice: [1, 2]}", ": expected one of log, uniform, integer, choice, received log and choice"),
        ("{uniform: [-1, 0.3]}", ": with -1.0: must be more than 0, received -1.0"),
        ("{uniform: [0.1, much]}", "expected a number, received much"),
        ("{between: [0, 1]}", "between: unknown key; known here: log, uniform, integer, choice"),
    ],
)
def test_a_range_that_is_none_is_told_with_its_line(folder: Path, given: str, message: str) -> None:
    change(folder / "r.yaml", "{choice: [1e-9, 0.3]}", given)
    with pytest.raises(UserError, match=rf"^r.yaml:14: tune.ranges\['{RATE}'\].*{re.escape(message)}"):
        read_recipe("r.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"    {RATE}", "    training.epoch", "r.yaml:14: .*with 1e-09: unknown key; did you mean 'epochs'"),
        (f"    {RATE}", "    training..epochs", "expected key=value"),
        (
            "    training.",
            "    training.optimizer: {choice: [adam, adagrad]}\n    training.",
            "is a part of 'trai",
        ),
        ("metric: mpr", "metric: mpx", "r.yaml:15: tune.measure.metric: 'mpx' is no metric of the task rank; did you"),
        ("target: shelf", "target: shelve", "tune.measure.target: there is no group 'shelve'; did you mean 'shelf'"),
        ("rank, target: shelf", "rank", "r.yaml:15: tune.measure: the task rank needs a `target`"),
        (
            "rank, target: shelf, metric: mpr",
            "predict, metric: auc",
            "'auc' is not for the objective contrastive",
        ),
        ("rank, target: shelf, metric: mpr", "pairs, metric: spearman", "expected 'rank', 'nearest' or 'predict'"),
        ("metric: mpr", "metric: mpr, data: test", "is 'test', but tuning measures on `validation` alone; remove it"),
        ("validation: 0.2, ", "", "r.yaml:12: tune: judges trials by rows that they do not learn from: add `split"),
        ("  ranges:\n    training.", "  range:\n    training.", "r.yaml:13: tune.range: unknown key; did you mean 'ra"),
    ],
)
def test_a_mistake_is_told_with_its_line(folder: Path, old: str, new: str, message: str) -> None:
    change(folder / "r.yaml", old, new)
    with pytest.raises(UserError, match=message):
        read_recipe("r.yaml")


def test_a_loss_is_not_compared_with_that_of_another_objective(folder: Path) -> None:
    change(folder / "r.yaml", "  measure: {task: rank, target: shelf, metric: mpr}\n", "")
    read_recipe("r.yaml")
    change(folder / "r.yaml", f"    {RATE}: ", "    noise.negatives: {integer: [4, 8]}\n    " + RATE + ": ")
    with pytest.raises(UserError, match=r"r.yaml:14: .*'noise.negatives'.*: changes what the validation loss means"):
        read_recipe("r.yaml")


def test_what_is_asked_for_has_to_be_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is what the recipe tunes; remove one of the two"):
        tune("r.yaml", 1, settings=["training.optimizer={type: adam}"])
    (folder / "plain.yaml").write_text(RECIPE[: RECIPE.index("tune:")])
    with pytest.raises(UserError, match=r"plain.yaml: says nothing of what to tune; add it, such as `tune: {ranges"):
        tune("plain.yaml", 1)
    (folder / "own").mkdir()
    (folder / "own" / "letter.txt").touch()
    with pytest.raises(UserError, match=r"own: is no folder of `feat2vec tune`: it was not made by feat2vec"):
        tune("r.yaml", 1, "own", force=True)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "optuna":
            raise ImportError
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"tuning needs Optuna: pip install 'feat2vec\[tune\]'"):
        tune("r.yaml", 1)


# --- trials ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_what_is_planted_is_found_and_the_best_recipe_runs_to_the_same_number() -> None:
    lines: list[str] = []
    facts = tune("r.yaml", 6, print_lines=lines.append)
    assert facts["trials"][0]["values"] == {RATE: 1e-9}  # the recipe's own
    assert facts["best"]["values"] == {RATE: 0.3}
    assert facts["best"]["value"] < facts["trials"][0]["value"] / 3
    assert "the recipe's own values" in lines[1]
    assert lines[-1].endswith("feat2vec run runs/shelves-tune/best.yaml --out runs/shelves-tune-run")
    assert {path.name for path in Path("runs/shelves-tune").iterdir()} == {
        ".feat2vec", "study.db", "lock", "lock.json", "data", "best.yaml",
    }  # fmt: skip
    best = Path("runs/shelves-tune/best.yaml").read_text()
    assert best.splitlines()[0].startswith("# The best of 6 trials of `feat2vec tune`: trial ")
    recipe, signature = best.split("\n", 1)[1].rsplit("# written by feat2vec", 1)
    assert recipe == RECIPE.replace("learning_rate: 1e-9", "learning_rate: 0.3")
    assert signature.startswith(", blake2b ")
    run_recipe("runs/shelves-tune/best.yaml", quiet=True)
    again = evaluate(load("runs/shelves"), "runs/shelves-tune/data/validation.parquet", "rank", target="shelf")
    assert again["mpr"] == facts["best"]["value"]


@pytest.mark.slow
def test_the_validation_loss_and_a_rate_that_diverges(folder: Path) -> None:
    change(folder / "r.yaml", "[1e-9, 0.3]", "[1e-9, 1e30]")
    change(folder / "r.yaml", "  measure: {task: rank, target: shelf, metric: mpr}\n", "")
    facts = tune("r.yaml", 6, "t", settings=["objective=nce"], quiet=True)
    diverged = [trial for trial in facts["trials"] if trial["values"][RATE] == 1e30]
    assert diverged
    assert all("is nan" in trial["stopped"] or "is inf" in trial["stopped"] for trial in diverged)
    assert all(trial["value"] is None for trial in diverged)
    assert facts["best"]["values"] == {RATE: 1e-9}
    assert "objective: nce" in (folder / "t" / "best.yaml").read_text()


@pytest.mark.slow
def test_a_trial_that_is_worse_than_most_is_pruned(folder: Path) -> None:
    change(folder / "r.yaml", "learning_rate: 1e-9", "learning_rate: 0.3")
    facts = tune("r.yaml", 6, "t", quiet=True, pruning=study.Pruning(startup=1, warmup=0))
    slow = [trial for trial in facts["trials"] if trial["values"][RATE] == 1e-9]
    assert slow
    assert all(re.match(r"pruned after epoch 1, at 0\.", trial["stopped"]) for trial in slow)
    assert not list(folder.glob("t/trial*"))


def test_values_are_within_their_ranges_and_found_by_what_came_before(folder: Path, untrained: Any) -> None:
    change(
        folder / "r.yaml",
        f"    {RATE}: {{choice: [1e-9, 0.3]}}",
        f"    {RATE}: {{log: [1e-3, 1]}}\n    model.dim: {{integer: [2, 9]}}\n"
        "    training.group_dropout: {uniform: [0, 0.5]}\n    groups.item.extractor.combiner: {choice: [sum, mean]}",
    )
    tried = untrained(lambda values: abs(values["model.dim"] - 7) + values["training.group_dropout"])
    lines: list[str] = []
    facts = tune("r.yaml", 14, "t", print_lines=lines.append)
    assert len(tried) == 14
    assert all(1e-3 <= values[RATE] <= 1 and 2 <= values["model.dim"] <= 9 for values in tried)
    assert {values["groups.item.extractor.combiner"] for values in tried} == {"sum", "mean"}
    assert lines[0] == "the recipe's own values are not all within the ranges, so that they are not tried"
    assert facts["best"]["values"]["model.dim"] in (6, 7, 8)
    text = (folder / "t" / "best.yaml").read_text().split("\n", 1)[1]
    schema: Any = parse_document(text).data["schema"]
    assert schema["model"]["dim"] == facts["best"]["values"]["model.dim"]
    assert (
        schema["groups"]["item"]["extractor"]["combiner"] == facts["best"]["values"]["groups.item.extractor.combiner"]
    )


def test_higher_may_be_better(folder: Path, untrained: Any) -> None:
    change(folder / "r.yaml", "metric: mpr", "metric: mrr")
    untrained(lambda values: values[RATE])
    assert tune("r.yaml", 4, "t", quiet=True)["best"]["values"] == {RATE: 0.3}


@pytest.mark.slow
def test_values_that_do_not_fit_together_are_no_end_of_the_study(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FailedError("trained")

    monkeypatch.setattr(trials, "train", fail)
    item = "groups.item.extractor"
    both = f'{item}.bins: {{choice: [null, 4]}}\n    {item}.split: {{choice: [null, ","]}}'
    change(folder / "r.yaml", f"{RATE}: {{choice: [1e-9, 0.3]}}", both)
    lines: list[str] = []
    with pytest.raises(FailedError, match="t: no trial of 12 came to its end; give other ranges"):
        tune("r.yaml", 12, "t", print_lines=lines.append)
    both = f"--set {item}.bins=4: {item}.bins: cannot be combined with `split`; keep one of them"
    assert {line.split("  ")[-1].strip() for line in lines[2:]} == {"trained", both}
    assert not (folder / "t" / "best.yaml").exists()


# --- going on -------------------------------------------------------------------------------------------------------


class _Killed(BaseException):
    """What no handler expects, as a kill."""


WIDE = f"    {RATE}: {{log: [1e-9, 1]}}\n    model.dim: {{integer: [2, 64]}}"


def test_a_killed_study_goes_on_as_if_it_had_not_been(folder: Path, untrained: Any) -> None:
    change(folder / "r.yaml", f"    {RATE}: {{choice: [1e-9, 0.3]}}", WIDE)
    kills = [1, 5, 6, 14]  # the settings that are tried, retries included, during which it dies

    def value(values: dict[str, Any]) -> float:
        return abs(float(np.log(values[RATE] / 0.1))) + values["model.dim"]

    def mortal(values: dict[str, Any]) -> float:
        if len(tried) in kills:
            raise _Killed
        return value(values)

    uninterrupted = untrained(value)
    expected = tune("r.yaml", 12, "whole", quiet=True)
    tried = untrained(mortal)
    for _ in kills:
        with pytest.raises(_Killed):
            tune("r.yaml", 12, "t", quiet=True)
    facts = tune("r.yaml", 12, "t", quiet=True)
    assert [trial["values"] for trial in facts["trials"]] == uninterrupted
    assert facts["best"]["trial"] == expected["best"]["trial"]
    assert len(tried) == 12 + len(kills)
    assert tried[0] == tried[1]  # the one that was killed, again
    assert tune("r.yaml", 12, "t", quiet=True)["trials"] == facts["trials"]
    assert len(tried) == 12 + len(kills)  # nothing was left to do


def test_a_setting_that_always_kills_makes_room_for_another(folder: Path, untrained: Any) -> None:
    def value(values: dict[str, Any]) -> float:
        if values[RATE] == 1e-9:
            raise _Killed
        return 1.0

    change(folder / "r.yaml", "[1e-9, 0.3]", "[1e-9, 0.3, 0.4, 0.5]")
    tried = untrained(value)
    for _ in range(study.PATIENCE):
        with pytest.raises(_Killed):
            tune("r.yaml", 1, "t", quiet=True)
    for _ in range(6 * study.PATIENCE):
        try:
            assert tune("r.yaml", 1, "t", quiet=True)["trials"]
        except _Killed:
            continue
        break
    assert tried[-1][RATE] != 1e-9


@pytest.mark.slow
def test_a_study_of_other_rows_or_another_recipe_is_refused(folder: Path, untrained: Any) -> None:
    untrained(lambda values: values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    written_at = (folder / "t" / "data" / "parts.json").stat().st_mtime_ns
    tune("r.yaml", 2, "t", quiet=True)
    assert (folder / "t" / "data" / "parts.json").stat().st_mtime_ns == written_at
    change(folder / "r.yaml", "epochs: 4", "epochs: 5")
    with pytest.raises(
        UserError, match=r"t: holds a study of another recipe.*\n  schema.training.epochs: 4 before, 5 now\n"
    ):
        tune("r.yaml", 3, "t", quiet=True)
    change(folder / "r.yaml", "epochs: 5", "epochs: 4")
    with pytest.raises(UserError, match=r"--rows: none before, 100 now"):
        tune("r.yaml", 3, "t", rows=100, quiet=True)
    with (folder / "rows.csv").open("a") as file:
        file.write("i1,s1\n")
    with pytest.raises(UserError, match=r"data.rows: rows.csv \(\w+\) before, rows.csv \(\w+\) now\nstart anew"):
        tune("r.yaml", 3, "t", quiet=True)
    assert len(tune("r.yaml", 1, "t", force=True, quiet=True)["trials"]) == 1
    assert (folder / "t" / "data" / "parts.json").stat().st_mtime_ns != written_at


def test_a_folder_of_something_else_stays_as_it_is(folder: Path, untrained: Any) -> None:
    untrained(lambda values: values[RATE])
    for name in ("data", "study.db", "trial"):
        (folder / "proj").mkdir()
        (folder / "proj" / name).mkdir()
        (folder / "proj" / name / "mine").write_text("mine")
        for force in (False, True):
            with pytest.raises(UserError, match="proj: is no folder of `feat2vec tune`: it was not made by feat2vec"):
                tune("r.yaml", 1, "proj", quiet=True, force=force)
        assert [path.as_posix() for path in Path("proj").rglob("*")] == [f"proj/{name}", f"proj/{name}/mine"]
        (folder / "proj").rename(folder / f"proj of {name}")
    tune("r.yaml", 1, "t", quiet=True)
    with pytest.raises(UserError, match=r"train\.parquet: lies in t, which is replaced"):
        tune("r.yaml", 1, "t", ["rows=t/data/train.parquet"], quiet=True, force=True)


def test_a_path_that_keras_takes_for_another_one_is_refused(folder: Path, untrained: Any) -> None:
    untrained(lambda values: values[RATE])
    before = sorted(folder.iterdir())
    with pytest.raises(UserError, match="a path has no backslash"):
        tune("r.yaml", 1, r"a\b", quiet=True)
    assert sorted(folder.iterdir()) == before


def test_a_study_deletes_no_recipe_that_it_is_made_of_and_writes_through_no_link(folder: Path, untrained: Any) -> None:
    untrained(lambda values: values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    with pytest.raises(UserError, match=r"t/best\.yaml: lies in t, which is replaced; copy it elsewhere"):
        tune("t/best.yaml", 2, "t", quiet=True, force=True)
    assert (folder / "t" / "best.yaml").exists()
    (folder / "mine.db").write_bytes(b"")
    (folder / "t" / "study.db").unlink()
    (folder / "t" / "study.db").symlink_to("../mine.db")
    for force in (False, True):
        with pytest.raises(UserError, match=r"t/study\.db: is a link, which feat2vec neither follows"):
            tune("r.yaml", 2, "t", quiet=True, force=force)
    assert (folder / "mine.db").read_bytes() == b""


@pytest.mark.parametrize("name", ["a?b%{SCHEMA_VERSION} #", "file:t"])
def test_a_study_of_any_name_lies_in_its_folder(folder: Path, untrained: Any, name: str) -> None:
    untrained(lambda values: values[RATE])
    before = {path.name for path in folder.iterdir()}
    tune("r.yaml", 1, name, quiet=True)
    assert {path.name for path in folder.iterdir()} == {*before, name}
    assert {"study.db", "best.yaml", "data"} <= {path.name for path in (folder / name).iterdir()}
    assert [trial["trial"] for trial in tune("r.yaml", 2, name, quiet=True)["trials"]] == [1, 2]


def test_two_do_not_tune_in_one_folder_and_a_damaged_study_is_told(folder: Path) -> None:
    with (
        study.locked_folder(folder / "t"),
        pytest.raises(UserError, match="t: another `feat2vec tune` is at work in it"),
    ):
        tune("r.yaml", 1, "t", quiet=True)
    (folder / "t" / "study.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(UserError, match=r"study.db: is no study that can be read; --force starts anew"):
        tune("r.yaml", 1, "t", quiet=True)


ALTERED = {
    "plugins": """update trial_user_attributes set value_json = '{"plugins": ["evil"]}' where key = 'values'""",
    "outside": f"""update trial_user_attributes set value_json = '{{"{RATE}": 5}}' where key = 'values'""",
    "unlike the suggestion": "update trial_params set param_value = 1 - param_value where trial_id = 1",
    "a list": "update trial_user_attributes set value_json = '[1]' where key = 'values'",
    "values missing": "delete from trial_user_attributes where key = 'values'",
    "seconds missing": "delete from trial_user_attributes where key = 'seconds'",
    "seconds as text": "update trial_user_attributes set value_json = '\"x\"' where key = 'seconds'",
    "seconds too many": f"update trial_user_attributes set value_json = '{10**400}' where key = 'seconds'",
    "number": "update trial_user_attributes set value_json = '7' where key = 'number' and trial_id = 1",
    "stopped": "update trial_user_attributes set value_json = '\"no\"' where key = 'stopped'",
    "no JSON": "update trial_user_attributes set value_json = '{' where key = 'seconds'",
    "no state": "update trials set state = 'odd'",
    "no value": "update trial_values set value = null",
    "infinite": "update trial_values set value_type = 'INF_POS'",
    "text": "update trial_values set value = 'x'",
    "no index": "update trial_params set param_value = 9",
    "another range": "update trial_params set distribution_json = replace(distribution_json, '0.3', '0.4')",
    "no range": "delete from trial_params",
    "another direction": "update study_directions set direction = 'MAXIMIZE'",
    "no direction": "delete from study_directions",
    "no study": "delete from studies",
    "made of a list": "update study_user_attributes set value_json = '[1]'",
    "made of nothing": "delete from study_user_attributes",
}


@pytest.mark.slow
def test_a_study_that_was_altered_is_told_and_makes_no_recipe(folder: Path, untrained: Any) -> None:
    untrained(lambda values: values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    database = folder / "t" / "study.db"
    before, best = database.read_bytes(), (folder / "t" / "best.yaml").read_bytes()
    for name, statement in ALTERED.items():
        database.write_bytes(before)
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute(statement).rowcount, name
            connection.commit()
        with pytest.raises(UserError, match=r"^t/study\.db: .*--force starts anew$"):
            tune("r.yaml", 2, "t", quiet=True)
        assert (folder / "t" / "best.yaml").read_bytes() == best, name
    tune("r.yaml", 1, "t", quiet=True, force=True)


@pytest.mark.slow
def test_an_enqueued_trial_of_somebody_else_is_not_run(folder: Path, untrained: Any) -> None:
    change(folder / "r.yaml", "{choice: [1e-9, 0.3]}", "{log: [1e-9, 0.3]}")
    tried = untrained(lambda values: values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    optuna.load_study(study_name="tune", storage=f"sqlite:///{folder}/t/study.db").enqueue_trial({RATE: 99})
    tune("r.yaml", 3, "t", quiet=True)
    assert max(values[RATE] for values in tried) <= 0.3


@pytest.mark.thinned(2)
@pytest.mark.parametrize("text", ["{", "[]", "{}", "other", '{"train": 1, "validation": {}}'])
def test_parts_of_rows_that_were_altered_are_told(folder: Path, untrained: Any, text: str) -> None:
    untrained(lambda values: values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    data = folder / "t" / "data"
    if text == "other":
        text = (data / "parts.json").read_text()
        (data / "validation.parquet").write_bytes((data / "train.parquet").read_bytes())
    (data / "parts.json").write_text(text)
    with pytest.raises(UserError, match=r"^t/data/.*; --force starts anew$"):
        tune("r.yaml", 2, "t", quiet=True)
    for source in ("../rows.csv", str(folder / "rows.csv")):
        (data / "parts.json").write_text(json.dumps({name: {"source": source} for name in ("train", "validation")}))
        with pytest.raises(UserError, match=r"^t/data/train.parquet: is not the part that this study began with"):
            tune("r.yaml", 2, "t", quiet=True)


@pytest.mark.parametrize("name", ["data/notes", "data/train.parquet", "trial/notes"])
def test_what_is_put_into_the_folder_of_a_study_stays(folder: Path, untrained: Any, name: str) -> None:
    untrained(lambda values: values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    path = folder / "t" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("what is mine")
    with pytest.raises(UserError, match=rf"^t/{name}: .*; it is not removed: move it elsewhere$"):
        tune("r.yaml", 1, "t", quiet=True, force=True)
    assert path.read_text() == "what is mine"
    assert (folder / "t" / "study.db").exists()


def test_a_best_recipe_that_was_changed_is_not_replaced(folder: Path, untrained: Any) -> None:
    untrained(lambda values: -values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    tune("r.yaml", 2, "t", quiet=True)
    change(folder / "t" / "best.yaml", "epochs: 4", "epochs: 5")
    changed = (folder / "t" / "best.yaml").read_bytes()
    for force in (False, True):
        with pytest.raises(UserError, match=r"t/best.yaml: was changed after `feat2vec tune` wrote it; move it"):
            tune("r.yaml", 3, "t", quiet=True, force=force)
    assert (folder / "t" / "best.yaml").read_bytes() == changed


@pytest.mark.slow
def test_a_full_disk_is_no_damaged_study(folder: Path, untrained: Any) -> None:
    untrained(lambda values: -values[RATE])
    tune("r.yaml", 1, "t", quiet=True)
    path, before = folder / "t" / "study.db", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        with pytest.raises(FailedError, match=r"study.db: disk I/O error; make room.* the trials that ended are kept"):
            tune("r.yaml", 50, "t", quiet=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ended = tune("r.yaml", 1, "t", quiet=True)["trials"]
    assert len(tune("r.yaml", len(ended) + 1, "t", quiet=True)["trials"]) == len(ended) + 1


def test_a_schema_that_is_a_file_and_a_table_that_is_asked_for(folder: Path, untrained: Any) -> None:
    below = RECIPE[RECIPE.index("schema:\n") + 8 : RECIPE.index("tune:")]
    (folder / "schemas").mkdir()
    (folder / "schemas" / "s.yaml").write_text("\n".join(line[2:] for line in below.splitlines()) + "\n")
    text = RECIPE.replace("schema:\n" + below, "schema: ../schemas/s.yaml\n")
    text = text.replace("{rows: rows.csv}", "{rows: {ask: a table of items and shelves}}")
    (folder / "recipes").mkdir()
    (folder / "recipes" / "r.yaml").write_text(text)
    untrained(lambda values: -values[RATE])
    facts = tune("recipes/r.yaml", 4, "t", ["rows.csv"], settings=["model.dim=3"], quiet=True)
    assert facts["next"] == "feat2vec run t/best.yaml --data rows.csv --out t-run"
    _, schema = read_recipe("t/best.yaml")
    assert (schema.model.dim, schema.training.optimizer.learning_rate) == (3, 0.3)
    assert "# too slow" in Path("t/best.yaml").read_text()


@pytest.mark.slow
def test_a_process_that_is_killed_or_interrupted_goes_on(folder: Path) -> None:
    change(folder / "r.yaml", "epochs: 4", "epochs: 40")
    command = [sys.executable, "-c", "from feat2vec.cli import main; main()", "tune", "r.yaml", "--trials", "4"]
    for sign in (signal.SIGKILL, signal.SIGINT):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        while not re.match(rf" +{1 if sign == signal.SIGKILL else 2} ", process.stdout.readline()):
            assert process.poll() is None
        deadline = time.monotonic() + 60
        while not Path("runs/shelves-tune/trial").exists() and time.monotonic() < deadline:
            os.sched_yield()
        process.send_signal(sign)
        _, errors = process.communicate(timeout=60)
        if sign == signal.SIGINT:
            assert process.returncode == 130
            assert "the trials that ended are kept: the same command goes on" in errors
            assert not Path("runs/shelves-tune/trial").exists()
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert [trial["trial"] for trial in facts["trials"]] == [1, 2, 3, 4]
    assert facts["best"]["values"] == {RATE: 0.3}
