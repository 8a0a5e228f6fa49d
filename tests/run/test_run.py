"""The public face of the package, and the versions that it needs to be safe."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from packaging.requirements import Requirement

import feat2vec
from feat2vec.run import Run, train
from tests.commands import feat2vec as command
from tests.training.tables import small_model, table

pytestmark = pytest.mark.usefixtures("trainings_without_graphs")


@pytest.mark.parametrize(
    ("package", "python", "unsafe", "safe"),
    [
        ("keras", "3.11", ["3.12.4", "3.13.0", "3.13.2", "3.14.0"], ["3.14.1", "3.15.1"]),
        ("keras", "3.10", ["3.12.0", "3.12.1"], ["3.12.2", "3.12.4"]),
        ("duckdb", "3.11", ["1.4.0", "1.4.5"], ["1.5.0", "2.0.0"]),  # without `to_arrow_reader`
    ],
)
def test_versions_that_read_linked_weights_are_not_installed(
    package: str, python: str, unsafe: list[str], safe: list[str]
) -> None:
    """Each was tried with the files of tests/training/test_run_folder.py."""
    lines = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    quoted = [line.split('"')[1] for line in lines if re.match(rf'\s*"{package}\W', line)]
    requirements = [
        requirement
        for requirement in map(Requirement, quoted)
        if not requirement.marker or requirement.marker.evaluate({"python_version": python})
    ]
    assert requirements
    for requirement in requirements:
        assert not [version for version in unsafe if version in requirement.specifier]
        assert all(version in requirement.specifier for version in safe)


def test_the_package_trains_by_a_call() -> None:
    for _ in range(2):  # no module of the package may take the name
        assert callable(feat2vec.train)
        assert feat2vec.train is train


def test_embedders_and_predictors_are_made_once() -> None:
    run = Run.of_model(small_model())
    assert run.embedder(["who"]) is run.embedder(("who",))
    assert run.embedder(["who"]) is not run.embedder()
    assert run.predictor() is run.predictor(None)
    rows = table(5)
    by_group = run.embed(rows, by_group=True)
    np.testing.assert_allclose(run.embed(rows), sum(by_group.values()), rtol=1e-6)


def test_a_schema_is_proposed_where_none_is_given(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is kept with its comments, and the same table resumes with it."""

    def stop(*_: object) -> None:
        raise InterruptedError

    rows, out, settings = table(60), tmp_path / "run", ["training.epochs=2", "model.dim=4"]
    text = feat2vec.init(rows)
    stopping = keras.callbacks.LambdaCallback(on_epoch_end=stop)
    with pytest.raises(InterruptedError):
        feat2vec.train(None, rows, out, settings=settings, quiet=True, callbacks=[stopping])
    assert not capfd.readouterr().err
    run = feat2vec.train(None, rows, out, settings=settings, resume=True)
    kept = (out / "proposed.yaml").read_text(encoding="utf-8")
    assert kept.splitlines()[2:] == text.splitlines()[2:]  # the path in the proposed command is another one
    assert f"--data DATA\n# Weak: 60 rows of {len(run.schema.groups)} groups are too few" in kept
    assert run.schema.model_dump(exclude={"model", "training"}) == feat2vec.read_schema(text).model_dump(
        exclude={"model", "training"}
    )
    told = capfd.readouterr().err.splitlines()
    assert told[0].endswith("no schema is given; these choices are kept as proposed.yaml in the run:")
    assert any(line.startswith("  keys: ") for line in told)
    assert any(line.startswith("weak: 60 rows") for line in told)
    (out / "proposed.yaml").write_text("version: 1\n", encoding="utf-8")
    with pytest.raises(feat2vec.UserError, match=r"proposed\.yaml: is not the file that this run was trained with"):
        feat2vec.load(out)


def test_a_target_is_for_a_training_without_a_schema(tmp_path: Path) -> None:
    rows = table(60)
    text = feat2vec.init(rows)
    with pytest.raises(feat2vec.UserError, match=r"^target: is for a training without a schema"):
        feat2vec.train(text, rows, target="who")
    run = feat2vec.train(None, rows, tmp_path / "run", target="place", settings=["training.epochs=1"], quiet=True)
    assert (run.schema.target, run.schema.objective.type) == ("place", "softmax")
    assert "--target place` from" in (run.folder / "proposed.yaml").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, "good"])
def test_a_file_without_types_is_measured_on_its_own_rows(target: str | None, tmp_path: Path) -> None:
    """The rows that are held out of a CSV hold text that may be numbers, as the file does."""
    rng = np.random.default_rng(0)
    lines = [f"p{i % 7},{rng.normal():.3f},{i % 2}" for i in range(240)]
    (tmp_path / "places.csv").write_text("\n".join(["place,size,good", *lines]) + "\n", encoding="utf-8")
    data, quick = tmp_path / "places.csv", ["training.epochs=1"]
    run = feat2vec.train(None, data, tmp_path / "run", target=target, settings=quick, quiet=True)
    assert (run.metrics["held_out"], run.metrics["rows"]) == (24, 240)


def test_messages_name_arguments_in_python_and_options_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note.txt").write_text("keep")
    rows, text = table(60), feat2vec.init(table(60))
    with pytest.raises(feat2vec.UserError, match=r"^settings training\.epoch=1: "):
        feat2vec.train(text, rows, settings=["training.epoch=1"])
    with pytest.raises(feat2vec.UserError, match=r"^resume=True goes on with a run, force=True starts anew: give one"):
        feat2vec.train(text, rows, tmp_path / "run", resume=True, force=True)
    with pytest.raises(feat2vec.UserError, match=r"mine: exists already; (?!.*--)"):
        feat2vec.train(text, rows, tmp_path / "mine")
    words = ["train", "--data", "dataset:artworks", "--out", tmp_path / "run", "--resume", "--force"]
    assert "--resume goes on with a run, --force starts anew" in command(*words, code=2).stderr
