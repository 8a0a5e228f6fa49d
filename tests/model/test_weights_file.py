"""`model.keras`: what Keras writes and reads without copies; nothing is read but what is asked for and is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import warnings
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
from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.errors import UserError
from feat2vec.model import weights_file
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.model_file import read_model, write_model
from feat2vec.model.stored_model import StoredModel
from feat2vec.model.weights_file import WEIGHTS, ModelFile
from feat2vec.run import Run
from feat2vec.training.run_folder import write_run
from tests.child_memory import peak_growth_mb

GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0}},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "split": " "}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 3, "filters": 2, "widths": [1, 2]}},
    "size": {"column": "size", "extractor": {"type": "numeric", "hidden": [4]}},
}
CASES: dict[str, dict[str, Any]] = {
    "bias": {"model": {"dim": 4, "bias": True}, "objective": "nce"},
    "ranks": {"model": {"ranks": [2, 3, 5], "bias": True}, "objective": {"type": "logistic", "target": "hit"}},
    "head": {"objective": {"type": "softmax", "target": "who2"}, "head": {"type": "mlp", "normalize": True}},
    "truncate": {"model": {"ranks": [2, 4], "level_sharing": "truncate"}, "objective": {"type": "contrastive"}},
}


def encoded(case: str) -> Encoded:
    rng = np.random.default_rng(0)
    rows = pa.table(
        {
            "who": [f"w{int(i**0.5)}" for i in range(200)],
            "tags": [f"a{i % 5} b{i % 11}" for i in range(200)],
            "title": [f"the {i % 13} of {i % 7}" for i in range(200)],
            "size": rng.normal(size=200),
            "who2": [f"k{i % 6}" for i in range(200)],
            "hit": [i % 2 for i in range(200)],
        }
    )
    return feat2vec.fit({"version": 1, "groups": GROUPS, **CASES[case]}, rows)


def random_model(case: str) -> Feat2Vec:
    """A model whose weights are all different, compiled, with slots that are not new."""
    rng = np.random.default_rng(1)
    model = Feat2Vec.from_encoder(encoded(case).encoder)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    for variable in (*model.weights, *model.optimizer.variables[2:]):  # not the learning rate
        variable.assign(rng.uniform(1, 2, variable.shape).astype(variable.dtype))
    return model


@pytest.fixture(scope="module", params=CASES)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feat2Vec, Path]:
    folder = tmp_path_factory.mktemp("model")
    model = random_model(request.param)
    write_model(model, folder / "model.keras")
    assert [path.name for path in folder.iterdir()] == ["model.keras"]
    return model, folder / "model.keras"


def encoder_of(model: Feat2Vec) -> Encoder:
    assert model.encoder is not None
    return model.encoder


def assert_same_weights(model: Any, other: Any) -> None:
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.thinned(2)
def test_keras_and_we_read_what_is_written(written: tuple[Feat2Vec, Path]) -> None:
    model, path = written
    assert_same_weights(model, read_model(path, encoder_of(model)))
    loaded = keras.models.load_model(path)  # warnings are errors
    assert_same_weights(model, loaded)
    assert loaded.encoder is None  # it is in the folder of the run


def test_the_slots_are_not_in_the_file_and_begin_anew(written: tuple[Feat2Vec, Path]) -> None:
    model, path = written
    with ModelFile(path, encoder_of(model).schema) as file:
        assert not [name for name in _datasets(file.weights) if name.startswith("optimizer")]
    loaded = keras.models.load_model(path)
    new = Feat2Vec.from_encoder(encoder_of(model))
    new.compile()
    new.optimizer.build(new.trainable_variables)
    for ours, theirs in zip(new.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert model.optimizer.saves_slots


def _datasets(group: Any) -> list[str]:
    names: list[str] = []
    group.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def test_a_file_that_keras_wrote_is_read(tmp_path: Path) -> None:
    model = random_model("ranks")
    model.save(tmp_path / "model.keras")  # with slots, as runs had them
    with ModelFile(tmp_path / "model.keras", encoder_of(model).schema) as file:
        assert [name for name in _datasets(file.weights) if name.startswith("optimizer")]
    assert_same_weights(model, read_model(tmp_path / "model.keras", encoder_of(model)))


def test_a_stored_model_gives_the_tables_of_the_model(written: tuple[Feat2Vec, Path]) -> None:
    model, path = written
    stored = StoredModel(path, encoder_of(model), sealed=False)
    assert stored.bias_value() == model.bias_value()
    for group in model.groups:
        assert stored.is_lookup(group) == model.is_lookup(group) == (group in ("who", "tags"))
        if not model.is_lookup(group):
            continue
        ours, theirs = stored.lookup(group), model.lookup(group)
        for our_table, their_table in zip(ours.tables, theirs.tables, strict=True):
            np.testing.assert_array_equal(our_table, their_table)
        assert (ours.linear is None) == (theirs.linear is None)
        if ours.linear is not None:
            np.testing.assert_array_equal(ours.linear, theirs.linear)


def test_a_groups_vectors_are_the_same_from_the_file_and_from_the_model(tmp_path: Path) -> None:
    model = random_model("ranks")
    write_run(tmp_path / "run", model, {}, [], {})
    stored, loaded = feat2vec.load(tmp_path / "run"), feat2vec.load(tmp_path / "run")
    _ = loaded.model
    for group in GROUPS:
        for to in (None, "tags", "title"):
            for similarity in ("cosine", "score"):
                neighbours = [
                    run.vectors(group).search(
                        [run.vectors(group).index_to_key[0]], topn=3, to=to, similarity=similarity
                    )
                    for run in (stored, loaded)
                ]
                assert neighbours[0] == neighbours[1]
    assert "model" not in vars(stored)


def test_only_the_groups_own_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, dim = 20_000, 32
    rows = pa.table({name: [f"{name}{i}" for i in range(keys)] for name in "abcd"})
    schema = {"version": 1, "model": {"dim": dim}, "groups": {name: {"column": name} for name in "abcd"}}
    model = Feat2Vec.from_encoder(feat2vec.fit(schema, rows).encoder)
    model.compile()
    write_run(tmp_path / "run", model, {}, [], {})
    read: list[int] = []
    readinto = weights_file.FileSlice.readinto

    def counted(self: Any, buffer: Any) -> int:
        read.append(readinto(self, buffer))
        return read[-1]

    monkeypatch.setattr(weights_file.FileSlice, "readinto", counted)
    run: Run = feat2vec.load(tmp_path / "run")
    run.vectors("b").most_similar("b7")
    assert 1 < sum(read) / (4 * keys * dim) < 1.1


def test_similar_among_keys_does_without_tensorflow(tmp_path: Path) -> None:
    write_run(tmp_path / "run", random_model("bias"), {}, [], {})
    code = (
        "import sys\nfrom feat2vec.cli import main\nsys.argv[0] = 'feat2vec'\n"
        "try: main()\nfinally: print([m for m in ('tensorflow', 'keras') if m in sys.modules], file=sys.stderr)"
    )
    words = ["similar", "run", "who", "w3", "--to", "tags", "--similarity", "score"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"
    assert len(done.stdout.splitlines()) == 11


# --- what is no model -----------------------------------------------------------------------------------------------


def changed(path: Path, change: Callable[[Any], None]) -> Path:
    """A model's file with other weights."""
    out, weights = path.with_name("changed.keras"), path.with_name("weights.h5")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        weights.write_bytes(old.read(WEIGHTS))
        with h5py.File(weights, "r+") as file:
            change(file)
        for name in old.namelist():
            new.writestr(name, weights.read_bytes() if name == WEIGHTS else old.read(name))
    return out


TABLE = "extractors/lookup_extractor/vars/0"


def _replace(name: str, make: Callable[[Any], Any]) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[name]
        replacement = make(file)
        if replacement is not None:
            file[name] = replacement

    return change


def _external(file: Any) -> None:
    file.create_dataset(TABLE, (16, 4), np.float32, external=[("/etc/passwd", 0, 256)])


def _group(file: Any) -> None:
    file.create_group(TABLE)


def _virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((16, 4), np.float32)
    layout[:] = h5py.VirtualSource("other.h5", "x", (16, 4))
    file.create_virtual_dataset(TABLE, layout)


def _bomb(file: Any) -> None:
    file.create_dataset(TABLE, (1 << 40, 4), np.float32, chunks=(1 << 10, 4), compression="gzip")


def _second_name(file: Any) -> None:
    for name in "abcd":
        file["extractors"][name] = file["/"]  # a way that has no end


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "external": (_replace(TABLE, _external), "is no plain array"),
    "virtual": (_replace(TABLE, _virtual), "is no plain array"),
    "external link": (_replace(TABLE, lambda _: h5py.ExternalLink("/tmp/x.h5", "/x")), "is a link"),
    "soft link": (_replace(TABLE, lambda _: h5py.SoftLink("/vars/0")), "is a link"),
    "a group": (_replace(TABLE, _group), "is no array|ask for"),
    "more than there is": (_replace(TABLE, _bomb), "is no plain array"),
    "another shape": (_replace(TABLE, lambda _: np.zeros((30, 4), np.float32)), r"is float32 \(30, 4\) in place of"),
    "another type": (_replace(TABLE, lambda _: np.zeros((16, 4))), "is float64"),
    "no table": (_replace(TABLE, lambda _: None), "KeyError|ask for"),
    "no layer": (_replace("extractors/lookup_extractor", lambda _: None), "has no layer|KeyError|ask for"),
    "a linked layer": (_replace("extractors/lookup_extractor", lambda _: h5py.SoftLink("/vars")), "is a link"),
    "a second name": (_second_name, "is a second name"),
    "not finite": (_replace(TABLE, lambda _: np.full((16, 4), np.nan, np.float32)), "the group 'who' has weights"),
}  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CHANGES)
def test_weights_that_are_elsewhere_or_others_are_refused(name: str, tmp_path: Path) -> None:
    change, problem = CHANGES[name]
    model = random_model("bias")
    write_model(model, tmp_path / "model.keras")
    path = changed(tmp_path / "model.keras", change)
    with pytest.raises(UserError, match=rf"changed\.keras: .*({problem})"):
        StoredModel(path, encoder_of(model), sealed=False).lookup("who")
    with pytest.raises(UserError, match=rf"changed\.keras: .*({problem})"):
        read_model(path, encoder_of(model))


def test_a_number_that_a_weight_cannot_hold_is_refused(tmp_path: Path) -> None:
    model = random_model("bias")
    write_model(model, tmp_path / "model.keras")
    path = changed(tmp_path / "model.keras", _replace("vars/0", lambda _: np.array(1e300)))
    with pytest.raises(UserError, match="what stands beside the groups has weights that are not finite"):
        read_model(path, encoder_of(model))


def test_numbers_that_are_called_bfloat16_are_refused(tmp_path: Path) -> None:
    def tag(file: Any) -> None:
        file["vars/0"].attrs["dtype"] = "bfloat16"

    model = random_model("bias")
    write_model(model, tmp_path / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match="holds float32 in place of bfloat16"):
            read_model(changed(tmp_path / "model.keras", tag), encoder_of(model))


def test_a_model_has_the_same_bytes_whenever_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model("bias")
    write_model(model, tmp_path / "first.keras")
    monkeypatch.setattr(time, "time", lambda: 2e9)
    write_model(model, tmp_path / "second.keras")
    assert (tmp_path / "first.keras").read_bytes() == (tmp_path / "second.keras").read_bytes()


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    model = random_model("bias")
    write_model(model, tmp_path / "model.keras")
    content = (tmp_path / "model.keras").read_bytes()
    for damage in (content[: len(content) // 2], b"words", content.replace(b"\x89HDF", b"\x89HDX")):
        (tmp_path / "model.keras").write_bytes(damage)
        with pytest.raises(UserError, match=r"model\.keras: cannot be read"):
            StoredModel(tmp_path / "model.keras", encoder_of(model), sealed=False).lookup("who")
    (tmp_path / "model.keras").unlink()
    with pytest.raises(UserError, match=r"model\.keras: cannot be read, as it is missing"):
        StoredModel(tmp_path / "model.keras", encoder_of(model), sealed=False).lookup("who")


WRITE_AND_READ = """
import gc, sys
from pathlib import Path
import numpy as np, pyarrow as pa, tensorflow as tf
import feat2vec
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.model_file import read_model, write_model

def work(keys):
    rows = pa.table({"a": [f"a{i}" for i in range(keys)], "b": ["x", "y"] * (keys // 2)})
    schema = {"version": 1, "model": {"dim": 512}, "groups": {name: {"column": name} for name in "ab"}}
    encoder = feat2vec.fit(schema, rows).encoder
    model = Feat2Vec.from_encoder(encoder)
    model.compile()
    tf.gather(model.extractors[0].tables[0].value, [0])
    write_model(model, Path(f"{keys}.keras"))
    del model
    gc.collect()
    read = read_model(Path(f"{keys}.keras"), encoder)
    tf.gather(read.extractors[0].tables[0].value, [0])
"""


@pytest.mark.slow
def test_a_model_is_written_and_read_without_a_copy_of_its_table(tmp_path: Path) -> None:
    assert peak_growth_mb(WRITE_AND_READ, 100, 200_000, tmp_path) < 391 + 150  # MB; the table has 391
    shutil.rmtree(tmp_path)
