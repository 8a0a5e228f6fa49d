"""Vectors of new rows against the model's own extraction row by row, and against sums over tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import fit
from feat2vec.encode.vocabulary import FIRST
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from feat2vec.space.embed import Embedder
from feat2vec.space.geometry import dense
from tests.commands import feat2vec as command
from tests.short_trainings import train

GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "min_count": 2, "gain": 0.5}},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "combiner": "mean"}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    "size": {"columns": ["size", "age"], "extractor": "numeric"},
}
MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6},
    "rafm": {"ranks": [2, 4, 6]},
    "truncate": {"ranks": [2, 4, 6], "level_sharing": "truncate"},
}


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "key": [f"row {i}" for i in range(rows)],
            "who": [None if i % 7 == 3 else f"w{rng.zipf(1.3) % 40}" for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "title": [None if i % 5 == 2 else f"the {rng.integers(6)} of {rng.integers(9)}" for i in range(rows)],
            "size": rng.integers(0, 9, rows).astype(float),
            "age": [None if i % 6 == 1 else int(rng.integers(30)) for i in range(rows)],
        }
    )


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name == "rafm" else pytest.mark.slow) for name in MODELS]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {
        "version": 1, "id": "key", "model": MODELS[request.param], "groups": GROUPS,
        "training": {"validation": 0, "epochs": 1, "optimizer": {"type": "adam", "learning_rate": 0.05}},
    }  # fmt: skip
    return train(schema, table(300, 0), tmp_path_factory.mktemp("runs") / "run", quiet=True)


def expected(run: feat2vec.Run, rows: pa.Table, level: int) -> dict[str, Any]:
    """One row at a time through `model.extract`, as training does."""
    vectors_of_group: dict[str, list[Any]] = {name: [] for name in GROUPS}
    for i in range(len(rows)):
        (batch,) = run.fitted.entries(rows.slice(i, 1))
        inputs = {name: dense(entries) for name, entries in batch.items()}
        for name, extracted in zip(run.model.groups, run.model.extract(inputs, training=False), strict=True):
            parts = [
                np.asarray(part.free)[0] + (0 if part.dependent is None else np.asarray(part.dependent)[0])
                for part in extracted.levels
            ]
            truncate = run.schema.model.level_sharing == "truncate"
            vectors_of_group[name].append(np.concatenate(parts[:level]) if truncate else parts[level - 1])
    return {name: np.array(vectors) for name, vectors in vectors_of_group.items()}


def lookup(run: feat2vec.Run, name: str, bag: list[str], level: int) -> Any:
    """A lookup group's vector of one row, from its tables."""
    codec, extractor = run.fitted.codecs[name], run.model.extractors[run.model.groups.index(name)]
    assert isinstance(codec, ItemsCodec)
    truncate = run.schema.model.level_sharing == "truncate"
    total: Any = 0
    for key in bag:
        id_ = codec.vocabulary.key_to_id.get(key, 1)
        level_vectors = [extractor.tables[0].numpy()[id_ - 1]]
        for higher in extractor.tables[1:]:
            there = 0 <= id_ - FIRST < higher.shape[0]
            level_vectors.append(higher.numpy()[id_ - FIRST] if there else np.zeros(higher.shape[1]))
        total = total + (np.concatenate(level_vectors[:level]) if truncate else level_vectors[level - 1])
    return total * extractor.spec["gain"] / (len(bag) if extractor.spec["combiner"] == "mean" else 1)


@pytest.mark.usefixtures("no_graphs")
def test_vectors_are_those_of_the_forward_pass(run: feat2vec.Run) -> None:
    new = table(40, 1)  # with keys that training has not seen
    for level in range(1, len(run.model.dims) + 1):
        rows, group_vectors = expected(run, new, level), run.embed(new, level=level, by_group=True)
        dim = (run.schema.model.ranks or (6,))[level - 1]
        for name in GROUPS:
            assert group_vectors[name].dtype == np.float32
            assert group_vectors[name].shape == (40, dim)
            np.testing.assert_allclose(group_vectors[name], rows[name], atol=1e-6)
        np.testing.assert_allclose(run.embed(new, level=level), sum(rows.values()), atol=1e-5)
        two_groups = run.embed(new, ["title", "who"], level)
        np.testing.assert_allclose(two_groups, rows["who"] + rows["title"], atol=1e-5)
        for i, row in enumerate(new.to_pylist()):
            for name, bag in (("who", [row["who"]] if row["who"] else []), ("tags", row["tags"])):
                wanted = lookup(run, name, bag, level) if bag else np.zeros(dim)
                np.testing.assert_allclose(group_vectors[name][i], wanted, atol=1e-6)
    default = run.embed(new)
    assert default.shape[1] == (2 if run.schema.model.level_sharing == "separate" and run.schema.model.ranks else 6)


def test_unseen_keys_partial_rows_and_missing_groups(run: feat2vec.Run) -> None:
    extractor = run.model.extractors[0]
    unseen = extractor.tables[0].numpy()[0] * 0.5
    assert np.any(unseen)  # rare keys have taught it
    group_vectors = run.embed(pa.table({"who": ["nobody", None, "w1"]}), level=1, by_group=True)
    np.testing.assert_allclose(group_vectors["who"][0], unseen, rtol=1e-6)
    assert not group_vectors["who"][1].any()
    assert group_vectors["who"][2].any()
    assert not group_vectors["tags"].any()
    assert not group_vectors["size"].any()
    pair = run.embed(pa.table({"size": [3.0], "tags": [["t1", "t2"]]}), by_group=True)  # `size` without its `age`
    whole = run.embed(pa.table({"size": [3.0], "age": pa.array([None], pa.int64()), "tags": [["t1", "t2"]]}))
    assert pair["size"].any()
    np.testing.assert_allclose(sum(pair.values()), whole, rtol=1e-6)
    wide = run.embed(pa.table({"tags": [[f"t{i}" for i in range(9)], ["t1"]]}))  # wider than any training row
    np.testing.assert_allclose(wide[1], run.embed(pa.table({"tags": [["t1"]]}))[0], rtol=1e-6)
    with pytest.raises(UserError, match="has none of the columns who"):
        run.embed(pa.table({"x": [1]}))


def test_a_file_has_the_same_vectors(run: feat2vec.Run, tmp_path: Path) -> None:
    new, out = table(100, 2), tmp_path / "vectors.parquet"
    assert Embedder(run.fitted, run.model, rows_per_batch=7).write(new, out, bytes_per_row_group=2000) == 100
    file = pq.ParquetFile(out)
    written = file.read()
    assert file.num_row_groups >= 3
    assert list(tmp_path.iterdir()) == [out]
    assert written.column_names == ["id", "row", *GROUPS]
    assert written["id"].to_pylist() == new["key"].to_pylist()
    rows, group_vectors = run.embed(new), run.embed(new, by_group=True)
    dim = rows.shape[1]
    np.testing.assert_array_equal(np.array(written["row"].to_pylist(), np.float32), rows)
    for name, vectors in group_vectors.items():
        assert pa.types.is_fixed_size_list(written.schema.field(name).type)
        for vector, wanted, source in zip(written[name].to_pylist(), vectors, new.to_pylist(), strict=True):
            gone = not source[name] if name != "size" else False
            assert (vector is None) == gone
            if not gone:
                np.testing.assert_array_equal(np.array(vector, np.float32), wanted)
    facts = json.loads(written.schema.metadata[b"feat2vec"])
    level = 3 if run.schema.model.level_sharing == "truncate" else 1
    assert facts == {
        "dim": dim, "level": level, "similarity": "cosine", "normalised": False, "groups": {n: n for n in GROUPS},
    }  # fmt: skip
    assert pl.read_parquet(out)["row"].dtype == pl.Array(pl.Float32, dim)
    with duckdb.connect() as connection:
        counts = connection.execute(f"select count(who), count(*) from '{out}'").fetchall()
    assert counts == [(100 - new["who"].null_count, 100)]


def test_columns_of_the_file(run: feat2vec.Run, tmp_path: Path) -> None:
    out = tmp_path / "vectors.parquet"
    run.embedder(["tags"]).write(table(3, 0).drop_columns(["key"]), out)
    assert pq.read_schema(out).names == ["row", "tags"]
    rows = pa.table({"key": [5, 6], "tags": [["t1"], ["t2"]]})
    run.embedder(["tags"]).write(rows, out, force=True)
    assert pq.read_table(out)["id"].to_pylist() == [5, 6]  # the type that the rows have
    with pytest.raises(UserError, match=r"exists already; .*--force"):
        run.embedder().write(rows, out)
    with pytest.raises(UserError, match="is a folder; choose another name"):
        run.embedder().write(rows, tmp_path, force=True)
    with pytest.raises(UserError, match="there is no folder"):
        run.embedder().write(rows, tmp_path / "no" / "file.parquet")
    bad = tmp_path / "bad.csv"
    bad.write_text("size\n1\n2\nmany\n")
    before = out.read_bytes()
    with pytest.raises(UserError, match=r"bad\.csv: row 3"):
        run.embedder().write(bad, out, force=True)
    assert out.read_bytes() == before  # whole or not at all
    assert sorted(tmp_path.iterdir()) == [bad, out]


def test_what_cannot_be_embedded_is_said(run: feat2vec.Run) -> None:
    levels = len(run.model.dims)
    with pytest.raises(UserError, match=f"there is no level {levels + 1}; "):
        run.embed(table(2, 0), level=levels + 1)
    with pytest.raises(UserError, match="there is no level 0; "):
        run.embed(table(2, 0), level=0)
    with pytest.raises(UserError, match="there is no group 'tag'; did you mean 'tags'"):
        run.embed(table(2, 0), ["tag"])
    with pytest.raises(UserError, match="expected a list of groups"):
        run.embed(table(2, 0), "tags")
    with pytest.raises(UserError, match="expected a list of groups"):
        run.embed(table(2, 0), [])


def test_any_width_and_number_of_rows_is_one_trace(run: feat2vec.Run) -> None:
    embedder = Embedder(run.fitted, run.model)
    with mock.patch.object(Feat2Vec, "vectors", autospec=True, side_effect=Feat2Vec.vectors) as traced:
        for rows in (1, 2, 50):
            embedder.embed(table(rows, rows))
    assert traced.call_count == len(run.schema.groups)
    assert run.embedder() is run.embedder()
    assert run.embedder(["who"]) is run.embedder(("who",))


def test_weighted_bags_and_vectors() -> None:
    groups = {
        "bag": {"column": "bag", "extractor": {"type": "lookup", "multi": True, "weights": "shares"}},
        "image": {"column": "image", "extractor": {"type": "vector"}},
    }
    rows = pa.table(
        {
            "bag": [["a", "b"], ["b"], []],
            "shares": [[0.5, 2.0], [1.0], []],
            "image": pa.array([[1, 2, 3], None, [0, 1, 0]], pa.list_(pa.float32(), 3)),
        }
    )
    fitted = fit(read_schema({"version": 1, "model": {"dim": 4}, "groups": groups}), rows).encoder
    model = Feat2Vec.from_encoder(fitted)
    group_vectors = Embedder(fitted, model).embed(rows, by_group=True)
    vectors = {key: model.extractors[0].tables[0].numpy()[id_ - 1] for key, id_ in {"b": 2, "a": 3}.items()}
    np.testing.assert_allclose(group_vectors["bag"][0], 0.5 * vectors["a"] + 2 * vectors["b"], rtol=1e-5)
    np.testing.assert_allclose(group_vectors["bag"][1:], [vectors["b"], np.zeros(4)], rtol=1e-5)
    weights = model.extractors[1].heads[0].kernel.numpy()
    np.testing.assert_allclose(group_vectors["image"][[0, 2]], np.array([[1, 2, 3], [0, 1, 0]]) @ weights, rtol=1e-5)
    assert not group_vectors["image"][1].any()


def test_the_command_writes_a_file(run: feat2vec.Run, tmp_path: Path) -> None:
    pq.write_table(table(30, 3), tmp_path / "new.parquet")
    words = ["embed", run.folder, "--data", tmp_path / "new.parquet", "--out", tmp_path / "v.parquet"]
    done = command(*words, "--groups", "who, title", "--level", "1")
    assert (done.returncode, done.stderr) == (0, "")
    dim = (run.schema.model.ranks or (6,))[0]
    assert done.stdout == f"{tmp_path / 'v.parquet'}: 30 rows, {dim} dimensions\n"
    written = pq.read_table(tmp_path / "v.parquet")
    assert written.column_names == ["id", "row", "who", "title"]
    np.testing.assert_array_equal(
        np.array(written["row"].to_pylist(), np.float32), run.embed(table(30, 3), ["who", "title"], 1)
    )
    again = command(*words, code=2)
    assert again.stderr.count("\n") == 1
    assert "exists already" in again.stderr
