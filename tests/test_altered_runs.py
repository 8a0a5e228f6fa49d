"""A run whose files were changed or mixed after training is refused, and one of format 1 loads as it was."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.writing import MARK
from feat2vec.writing.digests import sealed
from feat2vec.writing.files import read_json
from tests.altered_runs import GOLDEN, mutated, refused, seal
from tests.short_trainings import train

MUTATIONS = 24  # of each file
PARTS = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of a run without digests."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "old"))


@pytest.fixture
def run(old: Path) -> Path:
    """The same run with digests, as training writes it now."""
    return seal(old)


def rewritten(folder: Path, name: str, change: Mapping[str, Any]) -> None:
    facts = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**facts, **change}))


def contents(folder: Path) -> dict[str, Any]:
    """All that a run says of itself."""
    loaded = feat2vec.load(folder)
    encoder = loaded.fitted
    return {
        "weights": [weight.numpy().tobytes() for weight in loaded.model.weights],
        "facts": [loaded.manifest, loaded.metrics, loaded.history, loaded.schema],
        "codecs": {name: codec.facts() for name, codec in encoder.codecs.items()},
        "keys": [codec.vocabulary and codec.vocabulary.keys.to_pylist() for codec in encoder.codecs.values()],
        "values": [values.entries.tobytes() for values in encoder.values.values()],
        "classes": encoder.classes and encoder.classes.keys.to_pylist(),
    }


def test_a_run_of_an_earlier_feat2vec_loads_as_it_was(old: Path) -> None:
    loaded = feat2vec.load(old)
    rows = {"who": ["w0", "w1"], "tags": [["t0", "t0"], ["t1", "t1"]], "size": [0.0, 1.0]}
    rows["title"] = ["the 0 of 0", "the 1 of 1"]
    table = pa.table(rows)
    vectors = [[0.47428780794143677, 1.614745020866394], [0.3780469596385956, 0.7892019748687744]]
    np.testing.assert_allclose(loaded.embed(table), vectors, rtol=1e-5)
    np.testing.assert_allclose(loaded.predict(table)["probability"], [0.3664952, 0.33893645], rtol=1e-5)


def test_files_that_a_run_gets_later_are_none_of_its_parts(run: Path) -> None:
    before = contents(run)
    (run / "results.json").write_text("{}")
    (run / "index").mkdir()
    (run / "index" / "who.faiss").write_bytes(b"1")
    assert contents(run) == before


@pytest.mark.parametrize("name", [name for name in PARTS if name != "manifest.json"])
def test_a_part_of_another_run_is_refused(name: str, run: Path) -> None:
    path = run / name
    path.write_bytes(path.read_bytes() + b" ")
    assert f"{path}: is not the file that this run was trained with; restore" in refused(lambda: contents(run))
    path.unlink()
    assert f"{path}: is missing; restore" in refused(lambda: contents(run))


def test_a_manifest_of_another_run_or_an_altered_one_is_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "other")
    rewritten(tmp_path / "other", "metrics.json", {"rows": 41})
    manifest = read_json(tmp_path / "other" / "manifest.json")
    (tmp_path / "other" / "manifest.json").unlink()
    manifest = sealed({key: manifest[key] for key in manifest if key not in ("parts", "digest")}, tmp_path / "other")
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "metrics.json: is not the file" in refused(lambda: feat2vec.load(run))
    changes: list[dict[str, Any]] = [
        {"seed": 1}, {"parts": {}}, {"parts": None}, {"parts": {"../x": "0" * 64}}, {"digest": 5},
    ]  # fmt: skip
    for change in changes:
        (run / "manifest.json").write_text(json.dumps(manifest))
        rewritten(run, "manifest.json", change)
        assert "manifest.json: was changed after training; restore" in refused(lambda: feat2vec.load(run))


def test_a_run_without_digests_is_not_mixed_either(old: Path) -> None:
    """The archive has the sums of the encoder's files."""
    path = old / "vocabulary" / "who.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "key", [[f"x{key}" for key in table["key"].to_pylist()]]), path)
    assert "who.parquet: is not the file that model.keras was trained with" in refused(lambda: feat2vec.load(old).model)


def test_training_seals_a_run_and_refuses_to_resume_a_mixed_one(tmp_path: Path) -> None:
    schema = {
        "version": 1,
        "groups": {"a": {"column": "a"}, "b": {"column": "b"}},
        "training": {"validation": 0, "epochs": 1},
    }
    table = pa.table({"a": ["x", "y", "z", "x"], "b": ["p", "q", None, "q"]})
    first, other = (
        train(schema, table, tmp_path / name, settings=[f"training.seed={seed}"], quiet=True)
        for name, seed in (("first", 0), ("other", 1))
    )
    written = {path.relative_to(first.folder).as_posix() for path in first.folder.rglob("*") if path.is_file()}
    assert set(first.manifest["parts"]) == written - {"manifest.json", MARK}
    feat2vec.train(schema, table, first.folder, settings=["training.seed=0"], quiet=True, resume=True)
    for name in ("model.keras", "history.csv", "vocabulary/a.parquet"):
        mixed = Path(shutil.copytree(first.folder, tmp_path / "mixed"))
        shutil.copy(other.folder / "model.keras", mixed / name)
        said = refused(lambda: feat2vec.train(schema, table, tmp_path / "mixed", quiet=True, resume=True))
        assert f"{mixed / name}: is not the file that this run was trained with" in said
        shutil.rmtree(mixed)


def tried(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """What a run holds, or the lines that say why it is refused."""
    try:
        return contents(folder), []
    except UserError as error:
        return {}, str(error).replace(str(folder), "RUN").splitlines()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PARTS)
def test_an_altered_run_loads_to_the_same_or_is_refused(name: str, run: Path) -> None:
    rng, path, whole = random.Random(name), run / name, contents(run)
    content = path.read_bytes()
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(content, name, rng))
        loaded, said = tried(run)
        assert said or loaded == whole


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PARTS)
def test_an_altered_run_without_digests_loads_or_is_refused(name: str, old: Path) -> None:
    rng, path = random.Random(name), old / name
    content = path.read_bytes()
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(content, name, rng))
        loaded, said = tried(old)
        assert loaded or 1 <= len(said) <= 5
        assert all(len(line) <= 200 for line in said), said
