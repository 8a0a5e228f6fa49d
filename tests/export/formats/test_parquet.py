"""Parquet files are read back by DuckDB, pandas and polars."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import feat2vec
from tests.export.tables import GROUPS, HARD, check_nearest, write_keys


def test_parquet_opens_in_duckdb_pandas_and_polars(run: feat2vec.Run, tmp_path: Path) -> None:
    facts = run.export("parquet", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")) == facts
    assert {k: facts[k] for k in ("format", "metric", "normalised", "dimension", "level")} == {
        "format": "parquet", "metric": "cosine", "normalised": False, "dimension": 6, "level": 1
    }  # fmt: skip
    assert list(facts["groups"]) == list(GROUPS)
    assert [facts["groups"][name]["of"] for name in GROUPS] == ["keys", "keys", "values", "values"]
    for name, group in facts["groups"].items():
        v, (file,) = run.vectors(name), group["files"]
        path = tmp_path / "out" / file
        assert group["rows"] == len(v)
        assert pq.read_schema(path).field("vector").type == pa.list_(pa.float32(), 6)
        assert pl.read_parquet(path).schema["vector"] == pl.Array(pl.Float32, 6)
        frame = pd.read_parquet(path)
        assert list(frame["key"]) == v.index_to_key
        np.testing.assert_array_equal(np.stack(list(frame["vector"])), v.vectors)
        np.testing.assert_array_equal(frame["count"], v.counts)
        np.testing.assert_array_equal(frame["level"], v.levels)
        closest = duckdb.execute(
            f"select b.key from '{path}' a, '{path}' b where a.key = $key and b.key <> a.key"
            " order by list_cosine_similarity(a.vector, b.vector) desc limit 3",
            {"key": v.index_to_key[0]},
        ).fetchall()
        check_nearest(v, v.index_to_key[0], [key for (key,) in closest])


def test_every_key_is_kept(tmp_path: Path) -> None:
    keys = [*HARD, "a\0", "a\0\0", "\0", "x" * 100_000]
    (name,) = write_keys("parquet", keys, tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet" / name)["key"].to_pylist() == keys
