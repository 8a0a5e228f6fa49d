"""The folder of a run: what is read back, what is refused, and the one copy of its encoder."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.encoder import fit
from feat2vec.errors import UserError, naming_options
from feat2vec.run import train
from feat2vec.schema.reading import read_schema
from feat2vec.training.fingerprints import fingerprints
from feat2vec.writing.digests import PARTS, SEAL, sealed
from feat2vec.writing.files import read_json

SCHEMA = {
    "version": 1,
    "groups": {"a": {"column": "a"}, "b": {"column": "b"}},
    "training": {"validation": 0, "epochs": 1},
}
TABLE = pa.table({"a": ["x", "y", "z", "x"], "b": ["p", "q", None, "q"]})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(SCHEMA, TABLE, tmp_path_factory.mktemp("runs") / "run", quiet=True).folder


def with_weights(run: Path, change: Callable[[Any], None], to: Path) -> Path:
    """A copy of a run whose model's weights, an HDF5 file, are changed."""
    shutil.copytree(run, to)
    with zipfile.ZipFile(run / "model.keras") as file:
        parts = {name: file.read(name) for name in file.namelist()}
    path = to.with_suffix(".h5")
    path.write_bytes(parts["model.weights.h5"])
    with h5py.File(path, "r+") as weights:
        change(weights)
    parts["model.weights.h5"] = path.read_bytes()
    with zipfile.ZipFile(to / "model.keras", "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    manifest = read_json(to / "manifest.json")
    facts = {key: value for key, value in manifest.items() if key not in (PARTS, SEAL)}
    (to / "manifest.json").unlink()
    (to / "manifest.json").write_text(json.dumps(sealed(facts, to)))  # a forger makes the digests anew
    return to


LINKS = ["external dataset", "virtual dataset", "external link", "external link of a group", "soft link"]


@pytest.mark.parametrize("kind", LINKS)
def test_weights_that_link_to_another_file_are_refused(kind: str, trained: Path, tmp_path: Path) -> None:
    """A model from somebody else must not read the user's files into vectors that it then gives away."""
    secret, table = tmp_path / "secret.bin", tmp_path / "secret.h5"
    names: list[str] = []

    def change(weights: Any) -> None:
        weights.visititems(lambda name, item: names.append(name) if getattr(item, "ndim", 0) == 2 else None)
        name = names[0]
        shape, group = weights[name].shape, weights[name].parent
        values = np.full(shape, 3.0, np.float32)
        secret.write_bytes(values.tobytes())
        with h5py.File(table, "w") as file:
            file["x"] = values
            file["group/0"] = values
        place = name.rsplit("/", 1)[1]
        del group[place]
        match kind:
            case "external dataset":
                group.create_dataset(place, shape, np.float32, external=[(str(secret), 0, values.nbytes)])
            case "virtual dataset":
                layout = h5py.VirtualLayout(shape, np.float32)
                layout[:] = h5py.VirtualSource(str(table), "x", shape)
                group.create_virtual_dataset(place, layout)
            case "external link":
                group[place] = h5py.ExternalLink(str(table), "/x")
            case "external link of a group":
                parent = group.name
                del weights[parent]
                weights[parent] = h5py.ExternalLink(str(table), "/group")
            case "soft link":
                weights["elsewhere"] = h5py.ExternalLink(str(table), "/x")
                group[place] = h5py.SoftLink("/elsewhere")

    run = feat2vec.load(with_weights(trained, change, tmp_path / "forged"))
    with pytest.raises(UserError, match=r"model\.keras: cannot be read \(ValueError: "):
        _ = run.model


def test_weights_that_are_only_written_again_are_read(trained: Path, tmp_path: Path) -> None:
    """The refusal above is of the links, not of what the test does with the file."""
    run = feat2vec.load(with_weights(trained, lambda _: None, tmp_path / "again"))
    for again, weights in zip(run.model.weights, feat2vec.load(trained).model.weights, strict=True):
        np.testing.assert_array_equal(again.numpy(), weights.numpy())


def test_a_run_is_read_back(tmp_path: Path) -> None:
    run = train(SCHEMA, TABLE, tmp_path / "run", quiet=True)
    loaded = feat2vec.load(tmp_path / "run")
    assert loaded.schema == run.schema == read_schema(tmp_path / "run" / "schema.yaml")
    assert loaded.manifest["data"] == fingerprints(fit(read_schema(SCHEMA), TABLE))
    assert set(loaded.manifest["versions"]) == {
        "python",
        "feat2vec",
        "keras",
        "tensorflow",
        "numpy",
        "pyarrow",
        "duckdb",
    }
    assert loaded.history == run.history
    unsealed = {key: value for key, value in loaded.manifest.items() if key not in (PARTS, SEAL)}
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(unsealed))
    for text in ("loss\n0.5\n", "epoch,loss\n1,x\n", "epoch,loss\n1,0.5,2\n"):
        (tmp_path / "run" / "history.csv").write_text(text)
        with pytest.raises(UserError, match=r"history\.csv: holds no history that can be read"):
            _ = feat2vec.load(tmp_path / "run").history
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({**loaded.manifest, "format": 99}))
    with pytest.raises(UserError, match="was written in format 99; this feat2vec reads 1"):
        feat2vec.load(tmp_path / "run")
    (tmp_path / "run" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read as a run"):
        feat2vec.load(tmp_path / "run")


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing: does not exist; `feat2vec\.train\(schema, data, out\)` makes one$"):
        feat2vec.load(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"`feat2vec train SCHEMA --data DATA --out RUN` makes one$"), naming_options():
        feat2vec.load(tmp_path / "nothing")
    with pytest.raises(UserError, match="is no run"):
        feat2vec.load(tmp_path)
    (tmp_path / "run.partial").mkdir()
    with pytest.raises(UserError, match=r"run\.partial was not finished, .*resume=True"):
        feat2vec.load(tmp_path / "run")


def test_a_run_holds_its_encoder_once_and_keras_reads_its_model(trained: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(trained / "model.keras") as file:
        assert sorted(file.namelist()) == ["config.json", "metadata.json", "model.weights.h5"]
    run, model = feat2vec.load(trained), keras.models.load_model(trained / "model.keras")
    rows = run.fitted.encode(TABLE)
    scores = model.predict(model.dataset(rows, shuffle=False), verbose=0)
    np.testing.assert_allclose(scores, run.predict(TABLE)["score"], rtol=1e-6)
    model.fit(model.dataset(rows), verbose=0)  # it is compiled
    assert any(np.any(a.numpy() != b.numpy()) for a, b in zip(model.weights, run.model.weights, strict=True))
    unsealed = {key: value for key, value in run.manifest.items() if key not in (PARTS, SEAL)}
    without_digests = Path(shutil.copytree(trained, tmp_path / "run"))
    (without_digests / "manifest.json").write_text(json.dumps(unsealed))
    message = r"manifest\.json: has lost the digests of the run's files; restore"
    with pytest.raises(UserError, match=message):
        _ = feat2vec.load(without_digests).model
    with pytest.raises(UserError, match=message):
        feat2vec.load(without_digests).vectors("a")
