"""Rows of lookups by NumPy from the model's file, against the Keras model with the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.ranking import rank
from feat2vec.model import weights_file
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.model_file import write_model
from feat2vec.model.stored_model import StoredModel
from feat2vec.model.weights_file import StoredArrays
from feat2vec.space.embed import Embedder
from feat2vec.space.geometry import dense, extract
from feat2vec.space.predict import Predictor
from feat2vec.training.run_folder import write_run

GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 0.5, "min_count": 3}},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "combiner": "mean"}},
    "words": {"column": "words", "extractor": {"type": "lookup", "split": "words", "combiner": "sqrtn"}},
    "bag": {"column": "bag", "extractor": {"type": "lookup", "multi": True, "weights": "shares"}},
    "mean": {"column": "bag", "extractor": {"type": "lookup", "multi": True, "weights": "shares", "combiner": "mean"}},
    "root": {"column": "bag", "extractor": {"type": "lookup", "multi": True, "weights": "shares", "combiner": "sqrtn"}},
}
REGRESSION = {"objective": {"type": "regression", "target": "number"}}
CASES: dict[str, dict[str, Any]] = {
    "fm": {"model": {"dim": 5, "bias": True}},
    "no bias": {"model": {"dim": 5, "bias": False}, "objective": "contrastive"},
    "ranks": {"model": {"ranks": [2, 3, 5], "bias": True}},
    "truncate": {"model": {"ranks": [2, 3, 5], "level_sharing": "truncate", "bias": True}},
    "activation": {"model": {"dim": 5, "bias": True, "activation": {"count": 8}}},
    "activation, ranks": {"model": {"ranks": [2, 5], "activation": {"count": 8}}, "objective": "contrastive"},
    "together": {"model": {"ranks": [2, 5], "bias": True, "together": [["tags", "words"]]}, **REGRESSION},
}


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    bags = [[f"b{x % 9}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)]
    return pa.table(
        {
            "who": [None if i % 7 == 3 else f"w{rng.zipf(1.3) % 40 + seed}" for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 5)] for i in range(rows)],
            "words": [
                None if i % 5 == 2 else f"the {rng.integers(6)} of {rng.integers(9 + seed)}" for i in range(rows)
            ],
            "bag": bags,
            "number": [i % 2 for i in range(rows)],
            "shares": [rng.uniform(-1, 2, len(bag)).tolist() for bag in bags],
        }
    )


@pytest.fixture(scope="module", params=CASES)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feat2Vec, StoredModel]:
    """A model whose weights are all different, and its file."""
    schema = {"version": 1, "groups": GROUPS, **CASES[request.param]}
    model = Feat2Vec.from_encoder(feat2vec.fit(schema, table(300, 0)).encoder)
    rng = np.random.default_rng(1)
    for variable in model.weights:
        variable.assign(rng.normal(size=variable.shape).astype(variable.dtype))
    path = tmp_path_factory.mktemp("model") / "model.keras"
    write_model(model, path)
    assert model.encoder is not None
    return model, StoredModel(path, model.encoder, sealed=True)


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a whole table nor a model is read."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a whole table is read")

    monkeypatch.setattr(StoredArrays, "table", refuse)
    monkeypatch.setattr("feat2vec.model.stored_model.read_model", refuse)


@pytest.mark.thinned(2)
@pytest.mark.usefixtures("no_tables", "no_graphs")
def test_vectors_of_rows_are_those_of_the_model(models: tuple[Feat2Vec, StoredModel]) -> None:
    model, stored = models
    rows = table(90, 1)  # with keys that training has not seen
    for level in range(1, len(model.dims) + 1):
        for groups in (list(GROUPS), ["tags"]):
            expected = Embedder(stored.encoder, model, groups, level).embed(rows, by_group=True)
            by_numpy = Embedder(stored.encoder, stored, groups, level, rows_per_batch=37)
            vectors = by_numpy.embed(rows, by_group=True)
            for name in groups:
                assert np.any(expected[name])
                np.testing.assert_allclose(vectors[name], expected[name], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(by_numpy.embed(rows), sum(vectors.values()), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("no_tables", "no_graphs")
def test_queries_are_those_of_the_model(models: tuple[Feat2Vec, StoredModel]) -> None:
    model, stored = models
    (batch,) = stored.encoder.entries(table(90, 1))
    entries = {name: dense(batch[name]) for name in GROUPS}
    expected, queries = extract(model, entries), extract(stored, entries)
    for part, expected_part in zip(
        [*queries.free, *queries.dependent], [*expected.free, *expected.dependent], strict=True
    ):
        np.testing.assert_allclose(part, expected_part, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("no_tables", "no_graphs")
def test_scores_of_rows_are_those_of_the_model(models: tuple[Feat2Vec, StoredModel]) -> None:
    model, stored = models
    rows = table(90, 1)
    levels = range(1, model.schema.model.levels.submodels + 1)
    for level in (None, *levels):
        expected = np.concatenate([part.scores for part in Predictor(stored.encoder, model, level).batches(rows)])
        scores = np.concatenate([part.scores for part in Predictor(stored.encoder, stored, level).batches(rows)])
        assert np.std(expected) > 0.2  # answers stay within what training saw
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)


def test_what_adds_to_the_scores_of_lookups_needs_the_model(tmp_path: Path) -> None:
    rows = table(60, 0).append_column("label", pa.array([f"c{i % 3}" for i in range(60)]))
    for options in (
        {"head": {"type": "mlp"}, "objective": {"type": "logistic", "target": "number"}},
        {"objective": {"type": "softmax", "target": "label"}},
    ):
        schema = {"version": 1, "groups": {"tags": GROUPS["tags"], "words": GROUPS["words"]}, **options}
        encoder = feat2vec.fit(schema, rows).encoder
        stored = StoredModel(tmp_path, encoder, sealed=True)
        assert stored.has_lookups(["tags", "words"])
        assert not stored.has_scores()
    assert not StoredModel(tmp_path, encoder, sealed=False).has_lookups(["tags"])


def test_rows_of_a_table_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_file, "BYTES_PER_READ", 5 * 3 * 4)  # five rows
    numbers = np.array([0, 1, 4, 5, 17, 18, 31], np.int32)
    with h5py.File("table", "w", driver="core", backing_store=False) as file:
        table = np.arange(32 * 3, dtype=np.float32).reshape(32, 3)
        table[30, 1] = np.nan  # a row that is not named
        file["0"] = table
        arrays = StoredArrays(Path("model.keras"), "the group 'who'", file)
        np.testing.assert_array_equal(arrays.table_rows("0", (32, 3), numbers), table[numbers])
        assert arrays.table_rows("0", (32, 3), numbers[:0]).shape == (0, 3)
        with pytest.raises(UserError, match=r"^model\.keras: the group 'who' has weights that are not finite"):
            arrays.table_rows("0", (32, 3), np.array([30], np.int32))
        with pytest.raises(ValueError, match="in place of float32"):
            arrays.table_rows("0", (31, 3), numbers)


def test_commands_on_lookups_need_no_tensorflow(tmp_path: Path) -> None:
    rows = table(60, 0)
    schema = {"version": 1, "groups": {"tags": GROUPS["tags"], "who": GROUPS["who"]}, "model": {"dim": 3}}
    write_run(tmp_path / "run", Feat2Vec.from_encoder(feat2vec.fit(schema, rows).encoder), {}, [], {})
    pq.write_table(rows, tmp_path / "rows.parquet")
    commands = [
        ["embed", "run", "--data", "rows.parquet", "--out", "vectors.parquet"],
        ["predict", "run", "--data", "rows.parquet", "--out", "scores.parquet"],
        ["export", "run", "--format", "npz", "--out", "npz"],
        ["evaluate", "run", "--data", "rows.parquet", "--task", "rank", "--target", "who", "--json"],
    ]
    without_tensorflow = """
import json, sys
sys.modules["tensorflow"] = sys.modules["keras"] = None
from feat2vec.cli import feat2vec
for words in json.loads(sys.argv[1]):
    feat2vec(words, standalone_mode=False)
"""
    done = subprocess.run(
        [sys.executable, "-c", without_tensorflow, json.dumps(commands)], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    run = feat2vec.load(tmp_path / "run")
    _ = run.model
    facts = rank(run, rows, "who")
    assert json.loads(done.stdout.splitlines()[-1]) == facts
    written = pq.read_table(tmp_path / "vectors.parquet")["row"].to_pylist()
    np.testing.assert_allclose(written, run.embed(rows), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        pq.read_table(tmp_path / "scores.parquet")["score"], run.predict(rows)["score"], rtol=1e-5, atol=1e-6
    )
