"""`model.keras` as others may have made it: nothing of it is executed or believed."""

from __future__ import annotations

import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from tests.altered_runs import GOLDEN, refused, seal

TABLE = "extractors/lookup_extractor/vars/0"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of a run without digests: an attacker would make them match."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "run"))


def rebuilt(run: Path, change: Callable[[dict[str, bytes]], object], compression: int = zipfile.ZIP_STORED) -> None:
    """Write model.keras anew with other members."""
    with zipfile.ZipFile(run / "model.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(run / "model.keras", "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def with_config(run: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Change config.json; returns what it says then."""
    configs: list[dict[str, Any]] = []

    def edit(members: dict[str, bytes]) -> None:
        configs.append(json.loads(members["config.json"]))
        change(configs[0])
        members["config.json"] = json.dumps(configs[0]).encode()

    rebuilt(run, edit)
    return configs[0]


def with_weights(run: Path, change: Callable[[Any], object]) -> None:
    """Change the arrays."""

    def edit(members: dict[str, bytes]) -> None:
        held = io.BytesIO(members["model.weights.h5"])
        with h5py.File(held, "r+") as stored:
            change(stored)
        members["model.weights.h5"] = held.getvalue()

    rebuilt(run, edit)


def replaced(stored: Any, path: str, array: Any) -> None:
    del stored[path]
    stored[path] = array


def model_of(run: Path) -> Feat2Vec:
    return feat2vec.load(run).model


def test_the_weights_are_those_that_keras_reads(run: Path) -> None:
    ours, theirs = model_of(run), keras.models.load_model(run / "model.keras")
    assert len(ours.weights) == len(theirs.weights) == 17
    for weight, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), other.numpy())


def test_no_file_makes_a_model_trusted(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`trusted` was an argument of the constructor, so that config.json could give it."""
    (tmp_path / "evil_plugin.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def change(config: dict[str, Any]) -> None:
        config["config"]["trusted"] = True
        schema = config["config"]["schema"].replace("plugins: []", "plugins: [evil_plugin]")
        config["config"]["schema"] = schema

    config = with_config(run, change)
    assert "would run the code of 'evil_plugin'" in refused(lambda: model_of(run))
    for call in (
        lambda: keras.models.load_model(run / "model.keras"),
        lambda: Feat2Vec.from_config(config["config"]),
        lambda: Feat2Vec(**{key: config["config"][key] for key in ("schema", "shapes", "classes")}),
    ):
        with pytest.raises((UserError, TypeError, ValueError)):
            call()
    assert not (tmp_path / "executed").exists()
    assert "evil_plugin" not in sys.modules


def test_config_names_no_class_and_no_module(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Keras would look up or import for it, only the schema is read."""
    (tmp_path / "evil_class.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = [weight.numpy() for weight in model_of(run).weights]

    def change(config: dict[str, Any]) -> None:
        config |= {"module": "evil_class", "class_name": "Evil", "registered_name": "feat2vec>MlpHead"}
        config["build_config"] = {"class_name": "Evil", "module": "evil_class", "config": {}}
        config["config"]["shapes"] = {"who": [10**12, [10**12], False]}

    with_config(run, change)
    for weight, other in zip(model_of(run).weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), other)
    assert not (tmp_path / "executed").exists()
    assert "evil_class" not in sys.modules


def test_a_model_of_another_schema_is_refused(run: Path) -> None:
    with_config(run, lambda config: config["config"].update(schema=config["config"]["schema"].replace("[2, 3]", "[2]")))
    assert "was trained with another schema than the schema.yaml beside it (model differ" in refused(
        lambda: model_of(run)
    )


def test_an_encoder_of_another_schema_is_refused_by_keras_too(run: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        name = "assets/encoder/schema.yaml"
        members[name] = members[name].replace(b"seed: 0", b"seed: 1")

    rebuilt(run, change)
    with pytest.raises(ValueError, match="the encoder beside the model has another schema"):
        keras.models.load_model(run / "model.keras")


@pytest.mark.parametrize(
    ("number", "path", "owner"),
    [
        (np.nan, TABLE, "the group 'who'"),
        (np.inf, "extractors/numeric_extractor/heads/dense/vars/0", "the group 'size'"),
        (-np.inf, "vars/0", "what stands beside the groups"),
    ],
)
def test_weights_that_are_not_finite_are_refused_with_their_group(
    number: float, path: str, owner: str, run: Path
) -> None:
    def change(stored: Any) -> None:
        array = stored[path][()]
        array.reshape(-1)[-1] = number
        stored[path][...] = array

    with_weights(run, change)
    said = refused(lambda: model_of(seal(run)))  # whoever alters a run may make its digests too
    assert f"{owner} has weights that are not finite (NaN or infinity)" in said


STRANGE: dict[str, Callable[[Any], object]] = {
    "missing": lambda stored: stored.__delitem__(TABLE),
    "another shape": lambda stored: replaced(stored, TABLE, np.zeros((7, 3), np.float32)),
    "text": lambda stored: replaced(stored, TABLE, np.full((6, 2), b"x")),
    "strings": lambda stored: replaced(stored, TABLE, ["a", "b"]),
    "complex": lambda stored: replaced(stored, TABLE, np.zeros((6, 2), np.complex64)),
    "a group": lambda stored: (stored.__delitem__(TABLE), stored.create_group(TABLE)),
    "no array": lambda stored: replaced(stored, TABLE, h5py.Empty("f")),
    "far too large": lambda stored: (
        stored.__delitem__(TABLE), stored.create_dataset(TABLE, (10**6, 10**6), np.float32),
    ),
    "large and compressed": lambda stored: (
        stored.__delitem__(TABLE), stored.create_dataset(TABLE, (10**6, 10**6), np.float32, compression="gzip"),
    ),
    "a link": lambda stored: replaced(stored, TABLE, h5py.SoftLink("/vars/0")),
    "a link out of it": lambda stored: replaced(stored, TABLE, h5py.ExternalLink("other.h5", "/vars/0")),
    "of another file": lambda stored: (
        stored.__delitem__(TABLE), stored.create_dataset(TABLE, (6, 2), np.float32, external=[("/etc/passwd", 0, 48)]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_arrays_that_are_none_of_the_models_are_refused(name: str, run: Path) -> None:
    with_weights(run, STRANGE[name])
    assert "model.keras: cannot be read (" in refused(lambda: model_of(run))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("token_dim: 2", "token_dim: 65536"),
        ("hidden: []", "hidden: [65536, 65536, 65536]"),
    ],
)
def test_a_schema_that_asks_for_far_more_weights_is_refused_before_they_are_made(
    before: str, after: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both schemas say so, and the digests match; 65,536^2 numbers are 16 GB."""
    schema = (run / "schema.yaml").read_text()
    assert before in schema
    (run / "schema.yaml").write_text(schema.replace(before, after))
    with_config(run, lambda config: config["config"].update(schema=(run / "schema.yaml").read_text()))
    monkeypatch.setattr(Feat2Vec, "build", lambda _: pytest.fail("the weights are made"))
    assert "and the schema and vocabularies beside it ask for" in refused(lambda: model_of(seal(run)))


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.pop("config.json"),
        lambda members: members.pop("model.weights.h5"),
        lambda members: members.update({"config.json": b"[" * 100_000}),
        lambda members: members.update({"config.json": b"7"}),
        lambda members: members.update({"config.json": b'{"config": {"schema": ["version: 1"]}}'}),
        lambda members: members.update({"model.weights.h5": b""}),
        lambda members: members.update({"model.weights.h5": members["model.weights.h5"][:5000]}),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(change: Callable[[dict[str, bytes]], None], run: Path) -> None:
    rebuilt(run, change)
    assert "model.keras: cannot be read (" in refused(lambda: model_of(run))


def test_a_compressed_archive_is_refused(run: Path) -> None:
    rebuilt(run, lambda _: None, zipfile.ZIP_DEFLATED)
    assert "compressed or encrypted" in refused(lambda: model_of(run))


def test_weights_that_fail_their_checksum_are_refused(run: Path) -> None:
    """Of a run without digests; with them, the file's own says so."""
    path = run / "model.keras"
    with zipfile.ZipFile(path) as archive:
        at = path.read_bytes().index(archive.read("model.weights.h5")[:64]) + 3000
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert "the checksum of model.weights.h5 is wrong" in refused(lambda: model_of(run))


def test_a_model_is_read_without_a_temporary_folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras unpacks the archive into TMPDIR; with no room there, the model was said to be damaged."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    for name in ("mkdtemp", "mkstemp", "TemporaryFile", "TemporaryDirectory"):
        monkeypatch.setattr(f"tempfile.{name}", full)
    assert model_of(run).built


def test_a_disk_that_fails_is_not_called_a_damaged_model(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "getinfo", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    said = refused(lambda: model_of(run))
    assert said.endswith("model.keras: cannot be read: Input/output error")
