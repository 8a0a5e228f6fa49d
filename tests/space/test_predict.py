"""What a run says of rows, and how true it is, against loops and closed forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation import metrics, prediction
from feat2vec.schema.objectives.formulas import sigmoid, softmax
from feat2vec.space.geometry import dense
from feat2vec.space.parquet_writer import parquet_writer
from feat2vec.writing import signed_parquet
from tests.commands import feat2vec as command
from tests.short_trainings import train

OBJECTIVES: dict[str, dict[str, Any]] = {
    "logistic": {"type": "logistic", "target": "label"},
    "regression": {"type": "regression", "target": "score"},
    "softmax": {"type": "softmax", "target": "kind"},
    "glove": {"type": "glove", "target": "count"},
    "negative_sampling": {"type": "negative_sampling"},
    "nce": {"type": "nce"},
}


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 12, rows), rng.integers(0, 7, rows)
    return pa.table(
        {
            "name": [f"row {i}" for i in range(rows)],
            "a": [None if i % 11 == 0 else f"a{x}" for i, x in enumerate(a)],
            "b": [f"b{x}" for x in b],
            "label": ((a + b) % 2).astype(np.int8),
            "score": (a - b).astype(float),
            "kind": [f"k{(x + y) % 3}" for x, y in zip(a, b, strict=True)],
            "count": 1 + a * b,
        }
    )


def schema(objective: str, **options: Any) -> dict[str, Any]:
    return {
        "version": 1, "id": "name", "groups": {"a": {"column": "a"}, "b": {"column": "b"}},
        "model": {"dim": 6, "bias": True}, "objective": OBJECTIVES[objective],
        "training": {"validation": 0,
                     "epochs": 3, "batch_size": 64, "optimizer": {"type": "adam", "learning_rate": 0.05}}, **options,
    }  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of each objective, trained when first asked for."""
    folder, trained = tmp_path_factory.mktemp("runs"), {}

    def run(objective: str) -> feat2vec.Run:
        if objective not in trained:
            trained[objective] = train(schema(objective), table(300, 0), folder / objective, quiet=True)
        return trained[objective]

    return run


def scores_loop(run: feat2vec.Run, rows: pa.Table) -> np.ndarray[Any, Any]:
    """bias + linear terms + the pair's dot product, row by row."""
    model, fitted = run.model, run.fitted
    keys = []
    for name in ("a", "b"):
        vocabulary = fitted.codecs[name].vocabulary
        assert vocabulary is not None
        keys.append({key: i for i, key in enumerate(vocabulary.keys.to_pylist())})
    found = []
    for row in rows.to_pylist():
        vectors, total = [], float(model.bias)
        for g, name in enumerate(("a", "b")):
            place = 0 if row[name] not in keys[g] else keys[g][row[name]] + 1
            extractor = model.extractors[g]
            there = 0.0 if row[name] is None else 1.0
            vectors.append(there * extractor.tables[0].numpy()[place].astype(float))
            total += there * float(extractor.linear.numpy()[place, 0])
        found.append(total + vectors[0] @ vectors[1])
    return np.array(found)


SLOWER = ("negative_sampling", "regression", "glove")  # of the same kinds as others


@pytest.mark.parametrize(
    "objective", [pytest.param(o, marks=pytest.mark.slow if o in SLOWER else ()) for o in OBJECTIVES]
)
def test_what_is_said_is_made_of_the_scores(objective: str, runs: Any, tmp_path: Path) -> None:
    run, rows = runs(objective), table(90, 1)
    rows = rows.set_column(1, "a", pa.array(["new" if i % 9 == 0 else x for i, x in enumerate(rows["a"].to_pylist())]))
    said = run.predict(rows)
    if objective == "softmax":
        scores = run.predictor().scores
        classes = run.fitted.classes.keys.to_pylist()
        np.testing.assert_allclose(said["probabilities"].sum(axis=1), 1, rtol=1e-5)
        best = said["probabilities"].argmax(axis=1)
        assert said["prediction"].to_pylist() == [classes[i] for i in best]
        np.testing.assert_array_equal(said["probability"], said["probabilities"].max(axis=1))
        assert scores is run.predictor().scores
    else:
        expected = scores_loop(run, rows)
        if objective in ("logistic", "negative_sampling"):
            np.testing.assert_allclose(said["score"], expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(said["probability"], 1 / (1 + np.exp(-expected)), rtol=1e-4)
        elif objective == "nce":
            np.testing.assert_allclose(said["score"], expected, rtol=1e-4, atol=1e-5)
        else:
            expected = np.exp(expected) if objective == "glove" else run.model.answer_scale_value().apply(expected)
            np.testing.assert_allclose(said["prediction"], expected, rtol=1e-4, atol=1e-5)
    out = tmp_path / "scores.parquet"
    assert run.predictor().write(rows, out) == 90
    written = pq.read_table(out)
    assert written.column_names == ["id", *said]
    assert written["id"].to_pylist() == rows["name"].to_pylist()
    for name, column in said.items():
        assert written[name].to_pylist() == column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    facts = json.loads(written.schema.metadata[b"feat2vec"])
    assert facts["objective"] == objective
    with pytest.raises(UserError, match="exists already"):
        run.predictor().write(rows, out)
    assert [path.name for path in tmp_path.iterdir()] == ["scores.parquet"]


def test_logistic_is_measured_by_log_loss_and_auc(runs: Any) -> None:
    run, rows = runs("logistic"), table(90, 1)
    facts = prediction.predict(run, rows)
    said, truth = run.predict(rows), rows["label"].to_numpy()
    chance = said["probability"].astype(float)
    assert list(facts) == ["task", "n", "log_loss", "auc"]
    assert facts["n"] == 90
    assert facts["log_loss"] == pytest.approx(-np.log(np.where(truth > 0, chance, 1 - chance)).mean(), rel=1e-4)
    pairs = [(p > q) + (p == q) / 2 for p in said["score"][truth > 0] for q in said["score"][truth == 0]]
    assert facts["auc"] == pytest.approx(np.mean(pairs), rel=1e-9)
    assert facts["auc"] > 0.6


def test_regression_softmax_and_glove_are_measured(runs: Any) -> None:
    rows = table(90, 1)
    said = runs("regression").predict(rows)["prediction"].astype(float)
    facts = prediction.predict(runs("regression"), rows)
    error = said - rows["score"].to_numpy()
    assert facts["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    assert facts["mae"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    assert facts["rmse"] < rows["score"].to_numpy().std()
    said = runs("glove").predict(rows)["prediction"].astype(float)
    facts = prediction.predict(runs("glove"), rows)
    error = np.log(said) - np.log(rows["count"].to_numpy())
    assert facts["rmse"] == pytest.approx(np.sqrt((error**2).mean()), rel=1e-4)
    kinds = rows["kind"].to_pylist()
    kinds[:5] = ["unseen"] * 5
    rows = rows.set_column(rows.column_names.index("kind"), "kind", pa.array(kinds))
    said = runs("softmax").predict(rows)
    facts = prediction.predict(runs("softmax"), rows)
    assert (facts["n"], facts["skipped_unseen"]) == (85, 5)
    right = [a == b for a, b in zip(said["prediction"].to_pylist(), kinds, strict=True)]
    assert facts["accuracy"] == pytest.approx(np.mean(right[5:]))
    classes = runs("softmax").fitted.classes.keys.to_pylist()
    true_probabilities = [said["probabilities"][i, classes.index(kind)] for i, kind in enumerate(kinds) if i >= 5]
    assert facts["log_loss"] == pytest.approx(-np.log(true_probabilities).mean(), rel=1e-5)


def test_one_class_has_no_auc_and_extreme_scores_are_finite() -> None:
    assert metrics.auc(np.array([1.0, 2.0]), np.array([1, 1])) is None
    assert metrics.auc(np.array([1.0, 1.0, 1.0]), np.array([1, 0, 0])) == 0.5
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(sigmoid(np.array([-80.0, 0, 80], np.float32)), [np.exp(-80.0), 0.5, 1], rtol=1e-5)
        np.testing.assert_allclose(softmax(np.array([[1e4, 0.0]])), [[1, 0]])
    assert metrics.log_loss(np.array([-1e4, 1e4]), np.array([1, 0])) == 1e4


@pytest.mark.usefixtures("no_graphs")
def test_a_level_is_the_submodel_of_that_level(tmp_path: Path) -> None:
    """B_{1,1} is a plain FM on the vectors of level 1."""
    run = train(schema("logistic", model={"ranks": [2, 6], "bias": True}), table(300, 0), tmp_path / "run", quiet=True)
    rows = table(50, 1)
    low = run.predict(rows, level=1)["score"]
    np.testing.assert_allclose(low, scores_loop(run, rows), rtol=1e-4, atol=1e-5)
    whole = run.predict(rows)["score"]
    np.testing.assert_array_equal(run.predict(rows, level=2)["score"], whole)
    assert not np.allclose(low, whole)
    facts = prediction.predict(run, rows, level=1)
    assert facts["log_loss"] == pytest.approx(metrics.log_loss(low.astype(float), rows["label"].to_numpy()))
    for level in (0, 3):
        with pytest.raises(UserError, match=f"no level {level}; the levels are 1 to 2"):
            run.predict(rows, level=level)


@pytest.mark.slow
def test_a_truncated_model_is_predicted_by_all_of_its_parts() -> None:
    rows = table(200, 0)
    spec = {**schema("logistic"), "model": {"ranks": [2, 4, 6], "bias": True, "level_sharing": "truncate"}}
    run = train(spec, rows, validation=rows, quiet=True)
    (entries,) = run.fitted.entries(rows)
    expected = run.model.call({name: dense(some) for name, some in entries.items()}).numpy()
    np.testing.assert_allclose(run.predict(rows)["score"], expected, rtol=1e-5, atol=1e-6)
    as_learnt = run.predict(rows)["score"].astype(float) / run.model.answer_scale_value().temperature
    val_loss = run.history[run.metrics["kept_epoch"] - 1]["val_loss"]
    assert metrics.log_loss(as_learnt, rows["label"].to_numpy()) == pytest.approx(val_loss, rel=1e-5)


def test_what_cannot_be_measured_is_said(runs: Any) -> None:
    with pytest.raises(UserError, match="objective nce has no target"):
        prediction.predict(runs("nce"), table(9, 1))
    with pytest.raises(UserError, match="has no column 'label', the target"):
        prediction.predict(runs("logistic"), table(9, 1).drop_columns(["label"]))
    wrong = table(9, 1).set_column(3, "label", pa.array([2] * 9))
    with pytest.raises(UserError, match=r"row 1: column 'label': received 2; the objective needs it to be 0 or 1"):
        prediction.predict(runs("logistic"), wrong)


def test_the_commands(runs: Any, tmp_path: Path) -> None:
    run, rows = runs("logistic"), table(40, 2)
    pq.write_table(rows, tmp_path / "rows.parquet")
    words = ("--data", tmp_path / "rows.parquet", "--task", "predict")
    done = command("evaluate", run.folder, *words, "--json")
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert facts.pop("task") == "predict"
    assert facts == pytest.approx({key: prediction.predict(run, rows)[key] for key in facts}, rel=1e-5)
    command("predict", run.folder, "--data", tmp_path / "rows.parquet", "--out", tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet").num_rows == 40
    done = command("evaluate", run.folder, *words, "--target", "a", code=2)
    assert "--target: is not for --task predict" in done.stderr


@pytest.mark.parametrize("name", ["scores.csv", "scores.ARROW"])
def test_a_name_of_another_format_is_refused(name: str, tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=rf"{name}: is called \S+, and Parquet is written: call it scores\.parquet"),
        parquet_writer(tmp_path / name, pa.schema({"a": pa.int64()})),
    ):
        pass
    assert not list(tmp_path.iterdir())
    with parquet_writer(tmp_path / "scores.pq", pa.schema({"a": pa.int64()})):
        pass


def test_what_is_read_is_not_replaced(runs: Any, tmp_path: Path) -> None:
    """`--force` replaces a file that feat2vec wrote, but not the one that the command is to read."""
    run, path = runs("logistic"), tmp_path / "rows.parquet"
    columns = {"a": table(9, 1)["a"], "b": table(9, 1)["b"]}
    with signed_parquet(path, pa.table(columns).schema) as file:
        file.write_table(pa.table(columns))
    before = path.read_bytes()
    for words in (("predict", run.folder, "--data"), ("embed", run.folder, "--data"), ("init",)):
        done = command(*words, path, "--out", path, "--force", code=2)
        assert f"{path}: is read, and would be replaced; copy it elsewhere, or choose another --out" in done.stderr
    assert path.read_bytes() == before
