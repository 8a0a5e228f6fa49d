"""A run's vectors to a run that predicts: what stays, what learns, what it is asked."""

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
from feat2vec.evaluation import prediction
from feat2vec.model.vector_model import vector_weights
from feat2vec.run import finetune, train
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import open_table
from feat2vec.training.fine_tuning import objective_of, schema_of, scratch_schema
from feat2vec.training.fitting import Fitting
from feat2vec.writing import partial_folder
from tests.commands import feat2vec as command
from tests.training.callbacks import StopAt, StopError
from tests.training.tables import same
from tests.training.tables import weights as arrays_of

MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 8},
    "rafm": {"ranks": [3, 8]},
    "difacto": {"ranks": [3, 8], "level_sharing": "truncate"},
    "activated": {"dim": 8, "bias": True, "activation": {"count": 20, "linear": True}},
}


def table(rows: int, seed: int = 0) -> pa.Table:
    """Tags and titles follow the hidden kind of a row, and so do the labels."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    tags = [[f"k{k} t{int(x)}" for x in rng.integers(0, 15, 2)] for k in kind]
    title = [f"the w{k} x{int(rng.integers(0, 9))}" for k in kind]
    return pa.table(
        {
            "name": [f"row {i}" for i in range(rows)],
            "tags": tags,
            "title": title,
            "place": [None if i % 9 == 0 else f"p{k} {int(rng.integers(0, 4))}" for i, k in enumerate(kind)],
            "kind": [f"kind {k}" for k in kind],
            "good": kind == 1,
            "size": kind * 2.0 + rng.normal(0, 0.1, rows),
        }
    )


def schema(model: str) -> dict[str, Any]:
    return {
        "version": 1, "id": "name", "model": MODELS[model],
        "groups": {
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "item_dropout": 0.25}},
            "title": {"column": "title", "extractor": {"type": "text_cnn", "max_tokens": 4, "dropout": 0.2}},
            "place": {"column": "place"},
            "kind": {"column": "kind"},
            "size": {"column": "size", "extractor": "numeric"},
        },
        "noise": {"targets": ["tags", "kind"], "negatives": 3},
        "training": {"validation": 0, "epochs": 3, "batch_size": 64, "seed": 5},
    }  # fmt: skip


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name == "rafm" else pytest.mark.slow) for name in MODELS]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    out = tmp_path_factory.mktemp("runs") / request.param
    return feat2vec.load(train(schema(request.param), table(400), out, quiet=True).folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return train(schema("fm"), table(400), tmp_path_factory.mktemp("plain") / "run", quiet=True)


def vectors_of(run: feat2vec.Run) -> dict[str, list[bytes]]:
    pairs = zip(run.model.groups, run.model.extractors, strict=True)
    return {name: [weight.numpy().tobytes() for weight in vector_weights(extractor)] for name, extractor in pairs}


@pytest.mark.slow
def test_frozen_vectors_stay_and_the_rest_learns(run: feat2vec.Run, tmp_path: Path) -> None:
    head: Any = "fm" if run.schema.model.ranks is None else "mlp"
    tuned = run.finetune(
        table(80, 1), "good", tmp_path / "run", head=head, freeze=True, settings=["training.epochs=3"], quiet=True
    )
    before, after = vectors_of(run), vectors_of(feat2vec.load(tuned.folder))
    assert after.keys() <= before.keys()
    for name, weights in after.items():  # an average of equal numbers may turn -0 into 0
        for weight, frozen in zip(weights, before[name], strict=True):
            np.testing.assert_array_equal(np.frombuffer(weight, np.float32), np.frombuffer(frozen, np.float32))
    assert tuned.schema.objective.type == "logistic"
    assert tuned.schema.head.type == head
    assert any(np.any(np.asarray(weight)) for layer in tuned.model.extractors for weight in linear_of(layer))
    facts = prediction.predict(tuned, table(200, 2))
    assert facts["n"] == 200
    assert tuned.history[-1]["loss"] < tuned.history[0]["loss"]
    assert tuned.manifest["start"]["freeze"] is True
    assert set(tuned.predict(table(5, 3))) == {"score", "probability"}


def linear_of(layer: Any) -> list[Any]:
    return [weight.numpy() for weight in getattr(layer.linear, "weights", [layer.linear])]


@pytest.mark.slow
def test_vectors_that_are_not_frozen_begin_as_the_runs_and_learn(run: feat2vec.Run, tmp_path: Path) -> None:
    still = ["training.epochs=1", "training.optimizer.learning_rate=1e-30"]
    tuned = run.finetune(table(80, 1), "good", tmp_path / "still", settings=still, scratch=False, quiet=True)
    for name, weights in vectors_of(tuned).items():
        for weight, expected in zip(weights, vectors_of(run)[name], strict=True):
            np.testing.assert_allclose(
                np.frombuffer(weight, np.float32), np.frombuffer(expected, np.float32), atol=1e-6
            )
    tuned = run.finetune(
        table(80, 1), "good", tmp_path / "run", settings=["training.epochs=1"], scratch=False, quiet=True
    )
    pairs = zip(vectors_of(tuned).values(), vectors_of(run).values(), strict=False)
    assert all(learnt != before for learnt, before in pairs)


@pytest.mark.slow
def test_classes_are_of_the_new_rows_and_words_of_the_old(plain: feat2vec.Run, tmp_path: Path) -> None:
    rows = table(120, 1).drop_columns(["name"])
    tuned = plain.finetune(rows, "kind", tmp_path / "run", table(60, 2), quiet=True)
    assert tuned.schema.objective.type == "softmax"
    assert list(tuned.schema.groups) == ["tags", "title", "place", "size"]  # the target's own group is left out
    assert tuned.schema.id is None  # a column that the labelled rows lack
    assert tuned.schema.groups["tags"].extractor.item_dropout == 0  # type: ignore[attr-defined]
    assert sorted(tuned.fitted.classes.keys.to_pylist()) == ["kind 0", "kind 1", "kind 2"]  # type: ignore[union-attr]
    for name in tuned.schema.groups:
        old, new = plain.fitted.codecs[name], tuned.fitted.codecs[name]
        assert old.facts() == new.facts()
        assert (old.vocabulary is None) == (new.vocabulary is None)
        assert old.vocabulary is None or old.vocabulary.keys.equals(new.vocabulary.keys)  # type: ignore[union-attr]
    facts = prediction.predict(feat2vec.load(tuned.folder), table(200, 3))
    assert facts["accuracy"] > 0.8
    assert all("val_loss" in row for row in tuned.history)
    tuned = plain.finetune(rows, "size", tmp_path / "size", groups=["place", "tags", "size"], quiet=True)
    assert (tuned.schema.objective.type, list(tuned.schema.groups)) == ("regression", ["tags", "place"])
    assert prediction.predict(tuned, table(200, 3))["rmse"] < 1.2
    assert tuned.schema.training.seed == 5


@pytest.mark.slow
def test_pretrained_vectors_help() -> None:
    """With few labels: most tags of new rows were never labelled, but the run has seen their company."""
    run = train(schema("fm"), table(2000), quiet=True, settings=["training.epochs=20"])
    rows, test = table(25, 1), table(500, 2)
    options: dict[str, Any] = {"groups": ["tags"], "quiet": True}
    tuned = run.finetune(rows, "kind", freeze=True, **options)
    scratch = train({**schema("fm"), "objective": {"type": "softmax", "target": "kind"}, "noise": {},
                     "groups": {"tags": schema("fm")["groups"]["tags"]}, "training": tuned.schema.training.model_dump(mode="json")}, rows, quiet=True)  # fmt: skip  # noqa: E501
    assert prediction.predict(tuned, test)["accuracy"] > prediction.predict(scratch, test)["accuracy"] + 0.1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False, None], "logistic"),
        ([0, 1, 1], "logistic"),
        ([0.0, 1.0], "logistic"),
        ([1, 2], "regression"),
        ([0.5], "regression"),
        (["a", "b"], "softmax"),
        (["1", "0"], "softmax"),
    ],
)
def test_the_objective_follows_from_the_column(values: list[Any], expected: str, tmp_path: Path) -> None:
    assert objective_of(open_table(pa.table({"y": values})), "y") == expected
    if None not in values:  # a CSV has no types: its text is looked at
        path = tmp_path / "rows.csv"
        path.write_text("y,z\n" + "".join(f"{value},1\n" for value in values))
        assert objective_of(open_table(path), "y") == ("logistic" if values == ["1", "0"] else expected)


@pytest.mark.slow
def test_an_interrupted_one_is_resumed(plain: feat2vec.Run, tmp_path: Path) -> None:
    import keras

    from feat2vec.training.train import TrainingRequest, train_into
    from feat2vec.training.warm_start import WarmStart

    rows, settings = table(120, 1), ["training.epochs=3"]
    uninterrupted = plain.finetune(rows, "good", tmp_path / "whole", freeze=True, settings=settings, quiet=True)

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            del logs
            if epoch == 2:
                raise KeyboardInterrupt

    again = schema_of(plain.schema, open_table(rows), "good", settings=settings)
    request = TrainingRequest(again, quiet=True, callbacks=(Stop(),), start=WarmStart(plain, True))
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "cut", request, rows)
    assert (partial_folder(tmp_path / "cut") / "checkpoint.npz").exists()
    options: dict[str, Any] = {"settings": settings, "quiet": True, "resume": True}
    with pytest.raises(UserError, match=r"start\.freeze: True before, False now"):
        plain.finetune(rows, "good", tmp_path / "cut", **options)
    resumed = plain.finetune(rows, "good", tmp_path / "cut", freeze=True, **options)
    for expected, weight in zip(uninterrupted.model.weights, resumed.model.weights, strict=True):
        assert weight.numpy().tobytes() == expected.numpy().tobytes()
    finished_before = plain.finetune(rows, "good", tmp_path / "cut", freeze=True, **options)
    assert finished_before.history == resumed.history


def test_what_is_together_stays_so_where_groups_are_left_and_pairs_are_asked_for() -> None:
    first = read_schema(
        {
            "version": 1,
            "groups": {name: {"column": name} for name in ("a", "b", "c", "d")},
            "model": {"together": [["a", "b", "c"]]},
            "objective": {"type": "logistic", "target": "y"},
        }
    )
    rows = open_table(pa.table({**{name: ["u", "v"] * 3 for name in "abcd"}, "score": [0.5, 1.5] * 3}))

    def together(target: str, groups: list[str] | None = None) -> Any:
        return schema_of(first, rows, target, groups=groups).model.together

    assert together("score") == (("a", "b", "c"),)
    assert together("score", ["a", "c", "d"]) == (("a", "c"),)
    assert together("score", ["a", "d"]) == together("score", ["a", "b"]) == ()
    assert together("d") == together("a") == ()  # a text's objective is softmax


def test_mistakes_are_said(plain: feat2vec.Run, tmp_path: Path) -> None:
    rows = table(40, 1)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"target": "god"}, "has no column 'god'; did you mean 'good'"),
        ({"target": "tags"}, "column 'tags' of .* holds lists"),
        ({"target": "good", "groups": ["tag"]}, "groups: the run has no group 'tag'; did you mean 'tags'"),
        ({"target": "kind", "groups": ["kind"]}, "each of groups holds 'kind' itself"),
        ({"target": "good", "head": "cnn"}, "head: is one of fm, mlp; received 'cnn'"),
        ({"target": "kind", "objective": "logistic"}, "column 'kind': received 'kind"),
        ({"target": "good", "settings": ["model.dim=9"]}, r"settings model\.dim: the run's vectors have 8; received 9"),
        ({"target": "good", "settings": ["groups.place.extractor.bins=3"]}, r"settings groups\.place: .* another kind"),
        ({"target": "good", "out": plain.folder}, "is the run to begin with"),
    ]
    for options, message in cases:
        with pytest.raises(UserError, match=message):
            finetune(plain, rows, quiet=True, **{"out": tmp_path / "run", **options})
    column = rows.column_names.index("size")
    few, none = [0.5, 1.0, 2.0, *[None] * 37], pa.nulls(40, pa.float64())
    for values, message in (
        (pa.array(few), "^the table: 3 rows have a value of 'size', too few to learn from; label some dozens$"),
        (none, "^the table: no row has a value of 'size', the target; give rows that have one$"),
        (pa.array([2.5] * 40), "^the table: the target 'size' is 2.5 in every row; give rows of which it differs$"),
    ):
        with pytest.raises(UserError, match=message):
            finetune(plain, rows.set_column(column, "size", values), "size", tmp_path / "run", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_the_command(plain: feat2vec.Run, tmp_path: Path) -> None:
    for name, seed in (("rows", 1), ("test", 2)):
        pq.write_table(table(80, seed), tmp_path / f"{name}.parquet")
    words = ("--data", tmp_path / "rows.parquet", "--out", tmp_path / "new", "--set", "training.epochs=2")
    done = command("finetune", plain.folder, *words, "--target", "goood", code=2)
    assert "did you mean 'good'" in done.stderr
    done = command("finetune", plain.folder, *words, "--target", "good", "--head", "mlp", "--freeze")
    assert "weights" in done.stdout
    assert "epoch 2/2" in done.stderr
    done = command("evaluate", tmp_path / "new", "--data", tmp_path / "test.parquet", "--task", "predict", "--json")
    assert json.loads(done.stdout)["n"] == 80


@pytest.mark.slow
def test_columns_that_a_table_lacks_are_missing_and_said_to_be(
    plain: feat2vec.Run, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = table(60, 1).drop_columns(["title", "place"])
    tuned = finetune(plain, rows, "good", settings=["training.epochs=1"], validation=rows)
    said = "the table: has no columns 'title', 'place', which are treated as missing in every row"
    assert capfd.readouterr().err.count(said) == 1
    nothing = pa.nulls(60, pa.string())
    with_nulls = rows.append_column("title", nothing).append_column("place", nothing)
    expected = finetune(plain, with_nulls, "good", settings=["training.epochs=1"], validation=with_nulls, quiet=True)
    np.testing.assert_array_equal(tuned.predict(rows)["score"], expected.predict(with_nulls)["score"])
    with pytest.raises(UserError, match="has none of the columns"):
        finetune(plain, table(60).select(["good"]), "good", quiet=True)


@pytest.mark.slow
def test_labels_that_are_missing_are_left_out(plain: feat2vec.Run) -> None:
    rows = table(80, 1)
    good = [None if i % 4 == 0 else value for i, value in enumerate(rows["good"].to_pylist())]
    partly = rows.set_column(rows.column_names.index("good"), "good", pa.array(good))
    settings = ["training.epochs=1"]
    tuned = finetune(plain, partly, "good", settings=settings, scratch=False, quiet=True)
    assert tuned.schema.objective.type == "logistic"
    assert tuned.metrics["rows"] == 60
    labelled = rows.take(pa.array([i for i in range(80) if i % 4]))
    expected = finetune(plain, labelled, "good", settings=settings, scratch=False, quiet=True)
    np.testing.assert_array_equal(tuned.predict(rows)["score"], expected.predict(rows)["score"])
    facts = prediction.predict(tuned, partly)
    assert (facts["n"], facts["skipped_missing"]) == (60, 20)
    assert {**facts, "skipped_missing": 0} == {**prediction.predict(tuned, labelled), "skipped_missing": 0}
    with pytest.raises(UserError, match="no row has a value of 'good'"):
        prediction.predict(tuned, partly.take(pa.array([0, 4])))
    kinds = [None if i % 5 == 0 else value for i, value in enumerate(rows["kind"].to_pylist())]
    partly = rows.set_column(rows.column_names.index("kind"), "kind", pa.array(kinds))
    assert finetune(plain, partly, "kind", settings=settings, scratch=False, quiet=True).metrics["rows"] == 64


@pytest.mark.slow
def test_a_run_from_scratch_is_kept_beside_and_the_mean_is_predicted(
    plain: feat2vec.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, test, settings = table(260, 1), table(100, 2), ["training.epochs=2"]
    tuned = plain.finetune(rows, "size", tmp_path / "run", groups=["tags", "place"], settings=settings)
    said = capfd.readouterr().err
    assert "the same target from scratch:" in said
    assert f"loss on 26 held-out rows: {tuned.metrics['loss_from_run']:.4g} from the run's vectors" in said
    scratch = tuned.from_scratch
    assert scratch is not None
    assert set(scratch.schema.groups) == {"tags", "place"}  # of those columns that the run may read
    assert (scratch.schema.objective, scratch.schema.training.epochs) == (tuned.schema.objective, 2)
    assert scratch.schema.training.seed == tuned.schema.training.seed
    assert float(tuned.metrics["seconds"]) > float(scratch.metrics["seconds"])  # of both trainings
    alone = plain.finetune(
        rows, "size", tmp_path / "alone", groups=["tags", "place"], settings=settings, scratch=False, quiet=True
    )
    assert alone.from_scratch is None
    assert not (alone.folder / "scratch").exists()
    assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays_of(tuned), arrays_of(alone), strict=True))
    share = float(tuned.metrics["share_from_scratch"])
    expected = (1 - share) * alone.predict(test)["prediction"] + share * feat2vec.load(scratch.folder).predict(test)[
        "prediction"
    ]
    np.testing.assert_allclose(feat2vec.load(tuned.folder).predict(test)["prediction"], expected, rtol=1e-5)
    numbers = np.asarray(test["size"])
    rmse = prediction.predict(feat2vec.load(tuned.folder), test)["rmse"]
    assert rmse == pytest.approx(np.sqrt(np.mean((expected - numbers) ** 2)), rel=1e-4)
    scratch_model = tuned.folder / "scratch" / "model.keras"
    scratch_model.write_bytes(scratch_model.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"scratch/model\.keras: is not the file that this run was trained with"):
        feat2vec.load(tuned.folder).predict(test)
    lacking = test.drop_columns(["title"])  # which is missing to the run, and cannot be learnt from scratch
    alone = plain.finetune(rows, "size", tmp_path / "alone", lacking, settings=settings, force=True)
    assert "nothing is learnt from scratch: the table: has no column 'title'" in capfd.readouterr().err
    assert alone.from_scratch is None
    assert "share_from_scratch" not in alone.metrics


@pytest.mark.slow
def test_one_killed_in_any_of_its_trainings_resumes_to_the_same_bytes(
    plain: feat2vec.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = table(220, 1)
    settings = ["training.epochs=2", "training.checkpoint_minutes=1e-9", "training.batch_size=32"]
    options: dict[str, Any] = {"groups": ["place"], "settings": settings, "quiet": True}
    expected = plain.finetune(rows, "good", tmp_path / "whole", **options)
    fit = Fitting.fit
    for killed in range(4):  # from the run's vectors, again on all rows, from scratch, again on all rows
        began: list[str] = []

        def stopping_fit(
            self: Fitting, callbacks: Any, killed: int = killed, began: Any = began, **further: Any
        ) -> None:
            began.append("fit")
            stops = [StopAt(2)] if len(began) == killed + 1 else []
            fit(self, [*callbacks, *stops], **further)

        monkeypatch.setattr(Fitting, "fit", stopping_fit)
        out = tmp_path / f"killed {killed}"
        with pytest.raises(StopError):
            plain.finetune(rows, "good", out, **options)
        monkeypatch.setattr(Fitting, "fit", fit)
        resumed = plain.finetune(rows, "good", out, resume=True, **options)
        assert resumed.from_scratch is not None
        assert expected.from_scratch is not None
        assert same(resumed, expected)
        assert same(feat2vec.load(resumed.from_scratch.folder), feat2vec.load(expected.from_scratch.folder))
        assert resumed.metrics["share_from_scratch"] == expected.metrics["share_from_scratch"]
        assert not partial_folder(out).exists()
    assert plain.finetune(rows, "good", out, resume=True, **options).folder == out  # was finished already
    plain.finetune(rows, "good", out, force=True, scratch=False, **options)
    assert not (out / "scratch").exists()


def test_what_init_would_write_for_the_columns_of_the_run_is_learnt_from_scratch(plain: feat2vec.Run) -> None:
    rows = table(300, 1)
    labelled = rows.append_column("leak", rows["good"]).append_column("word", rows["place"])

    def scratch(target: str, **options: Any) -> Any:
        first = schema_of(plain.schema, open_table(labelled), target, **options)
        return scratch_schema(first, open_table(labelled), target, options.get("settings", ()))

    schema = scratch("good")
    assert {column for group in schema.groups.values() for column in group.columns} <= {
        "tags",
        "title",
        "place",
        "kind",
        "size",
    }
    assert (schema.id, schema.target, schema.model.dim, schema.training.seed) == ("name", "good", 16, 5)
    schema = scratch("size", groups=["kind"], objective="softmax", settings=["training.epochs=3", "head.hidden=[7]"])
    assert (list(schema.groups), schema.objective.type) == (["kind"], "softmax")
    assert (schema.training.epochs, schema.head.hidden, schema.model.bias) == (3, (7,), False)
    constant = labelled.set_column(labelled.column_names.index("good"), "good", pa.array([1] * 300))
    first = schema_of(plain.schema, open_table(constant), "good")
    assert scratch_schema(first, open_table(constant), "good") is None


def labelled_days(rows: int) -> pa.Table:
    """Rows of three years, and labels that nothing tells."""
    rng = np.random.default_rng(6)
    days = np.datetime64("2018-01-01") + np.sort(rng.integers(0, 1000, rows))
    shops = [f"s{shop}" for shop in rng.integers(0, 9, rows)]
    return pa.table({"shop": shops, "day": pa.array(days), "sold": pa.array(rng.integers(0, 2, rows))})


def schemas_in_time(labelled: pa.Table, *settings: str, **options: Any) -> tuple[str | None, str | None]:
    """The `training.time` of what is learnt from a run's vectors, and of what is learnt from scratch."""
    with_parts = {"column": "day", "extractor": {"type": "lookup", "parts": ["year", "month"]}}
    groups = {"shop": {"column": "shop"}, "day": with_parts, "when": {"column": "day", "extractor": "numeric"}}
    objective = {"type": "contrastive"}
    data = {"version": 1, "groups": groups, "objective": objective, "training": {"time": "day"}}
    first = read_schema(data, settings=options.pop("of_run", []))
    rows = open_table(labelled)
    tuned = schema_of(first, rows, "sold", settings=settings, **options)
    fresh = scratch_schema(tuned, rows, "sold", settings)
    return tuned.training.time, None if fresh is None else fresh.training.time


def test_the_last_labelled_rows_are_those_by_the_time_of_the_run() -> None:
    rows = labelled_days(1000)
    assert schemas_in_time(rows) == ("day", "day_days")
    assert schemas_in_time(rows, head="fm") == ("day", "day_days")
    assert schemas_in_time(rows, "training.time=when") == ("when", "day_days")
    for settings in ("training.time=null", "training.refit=false", "training.validation=0", "training={epochs: 3}"):
        assert schemas_in_time(rows, settings) == (None, None)
    assert schemas_in_time(rows, "objective.class_weights=balanced") == (None, None)
    assert schemas_in_time(rows, of_run=["training.time=null"]) == (None, None)
    assert schemas_in_time(rows, has_validation_rows=True) == (None, None)
    assert schemas_in_time(rows, groups=["shop", "when"]) == (None, None)
    assert schemas_in_time(rows.drop_columns(["day"])) == (None, None)
    missing = pa.array([None, *rows["sold"].to_pylist()[1:]])
    one_less = rows.set_column(2, "sold", missing)
    assert schemas_in_time(one_less) == (None, None)
    assert schemas_in_time(one_less, "training.time=day") == ("day", "day_days")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            ["training.time=day", "training.refit=false"],
            "--set training.refit=false: training.refit: false never learns the last rows, which `time` holds out; "
            "remove it, or set `time: null`",
        ),
        (
            ["training.time=dya"],
            "--set training.time=dya: training.time: names 'dya', which is no group; did you mean 'day'?",
        ),
    ],
)
def test_a_time_that_cannot_be_names_what_was_set(settings: list[str], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        schemas_in_time(labelled_days(50), *settings)
    assert caught.value.problems == (expected,)
