"""Groups called by words of Python, by paths, and by what no file, signature or table can be called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.errors import UserError
from feat2vec.export.formats import FORMATS
from feat2vec.export.graph.saved_model import distinct_names
from feat2vec.run import Run
from feat2vec.space.keras_models import input_names
from feat2vec.writing import MARK
from tests.short_trainings import train

NAMES = [
    "class", "self", "training", "row", "with space", "a/b", "a_b", "../x", "x\ny", "é日本", "n" * 300, "é" * 150,
]  # fmt: skip
COLUMNS = [f"c{i}" for i in range(len(NAMES))]
ROWS = pa.table({column: [("u", "v", "w")[i % 3] for i in range(12)] for column in COLUMNS})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    groups = {name: {"column": column} for name, column in zip(NAMES, COLUMNS, strict=True)}
    schema: dict[str, Any] = {
        "version": 1,
        "model": {"dim": 2},
        "training": {"validation": 0, "epochs": 1},
        "groups": groups,
    }
    return train(schema, ROWS, tmp_path_factory.mktemp("runs") / "run", quiet=True)


@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("saved_model", "sql")])
def test_an_export_stays_in_its_folder(run: Run, format: str, tmp_path: Path) -> None:  # noqa: A002
    out = tmp_path / "below" / "out"
    facts = run.export(format, out)
    files = [name for group in facts["groups"].values() for name in group["files"]]
    assert len({name.casefold() for name in files}) == len(files)
    beside = {"manifest.json", MARK} | ({"projector_config.pbtxt"} if format == "projector" else set())
    assert {str(path.relative_to(out)) for path in out.rglob("*")} == {*files, *beside}
    assert {path.name for path in tmp_path.rglob("*") if out not in (path, *path.parents)} == {"below"}


@pytest.mark.slow
def test_a_signature_takes_any_name(run: Run, tmp_path: Path) -> None:
    facts = run.export("saved_model", tmp_path / "model")
    inputs = {facts["groups"][name]["inputs"][0]["name"]: tf.constant(["u", "w"]) for name in NAMES}
    outputs = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"](**inputs)
    assert len(inputs) == len(NAMES)
    assert set(outputs) == {"row", *(facts["groups"][name]["output"] for name in NAMES)}


def test_a_keras_model_takes_any_name(run: Run, tmp_path: Path) -> None:
    encoder = run.encoder()
    encoder.save(tmp_path / "encoder.keras")
    batch = next(iter(run.dataset(ROWS, shuffle=False)))
    vectors = keras.models.load_model(tmp_path / "encoder.keras")(batch)
    assert set(vectors) == {*input_names(NAMES), "row"}
    assert vectors["row"].shape == (12, 2)


@pytest.mark.parametrize("name", ["npz", "saved_model", "embed", "predict"])
def test_a_place_of_stray_bytes_is_refused(run: Run, name: str, tmp_path: Path) -> None:
    out = tmp_path / "caf\udce9"
    writers: dict[str, Callable[[], object]] = {
        "npz": lambda: run.export("npz", out),
        "saved_model": lambda: run.export("saved_model", out),
        "embed": lambda: run.embedder().write(ROWS, out),
        "predict": lambda: run.predictor().write(ROWS, out),
    }
    with pytest.raises(UserError, match=r"caf.: its name, or that of a folder above it, is not UTF-8; rename it"):
        writers[name]()
    assert not list(tmp_path.iterdir())


def test_a_keyword_has_a_stroke() -> None:
    names = ["class", "class_", "self", "None", "lambda", "klass"]
    assert distinct_names(names) == ["class_", "class__", "self_", "None_", "lambda_", "klass"]
    assert input_names(["self", "class", "row"]) == ["self_", "class", "row_"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n" * 300, r"^sql: a table's name has up to 63 bytes, 'nnn+' has 300; leave the group out by groups, or use"),
        ("é" * 150, r"^sql: a table's name has up to 63 bytes, 'é+' has 300; leave the group out by groups, or use"),
    ],
)
def test_what_postgresql_would_cut_is_refused(run: Run, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        run.export("sql", tmp_path / "out", [name])
    assert not (tmp_path / "out").exists()
    assert run.export("sql", tmp_path / "out", [name for name in NAMES if len(name.encode()) < 64])


def test_what_postgresql_has_no_name_for_is_refused(tmp_path: Path) -> None:
    schema = {"version": 1, "model": {"dim": 2}, "training": {"validation": 0, "epochs": 1}, "groups": {
        "a\0b": {"column": "c0"}, "ab": {"column": "c1"}}}  # fmt: skip
    run = train(schema, ROWS, tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match=r"^sql: no name in PostgreSQL has the character 0, as 'a\\x00b' has; leave"):
        run.export("sql", tmp_path / "out")
    assert run.export("sql", tmp_path / "out", ["ab"])
