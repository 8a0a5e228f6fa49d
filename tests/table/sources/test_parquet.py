"""Parquet files: dictionaries, memory, and columns with dots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feat2vec.table.table import open_table
from tests.table.tables import S, rows


def test_parquet_strings_that_repeat_come_as_dictionaries(tmp_path: Path) -> None:
    table = pa.table({"few": [f"artist {i % 5}" for i in range(5000)], "many": [f"title {i}" for i in range(5000)]})
    pq.write_table(table, tmp_path / "a.parquet")
    batch = next(open_table(tmp_path / "a.parquet").batches())
    assert batch.data.schema.types == [pa.dictionary(pa.int32(), S), S]
    assert rows(tmp_path / "a.parquet") == table.to_pylist()


def test_parquet_is_not_held_in_memory(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 2**40, 4_000_000)
    pq.write_table(pa.table({"a": numbers}), tmp_path / "a.parquet", row_group_size=100_000)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in open_table(tmp_path / "a.parquet").batches()]
    assert max(held) < numbers.nbytes / 4


def test_parquet_columns_with_dots(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1], "a": [{"b": 2, "c": 3}]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet", ["a.b"]) == [{"a.b": 1}]


def test_a_folder_called_tilde_is_not_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, value in (("~", "named"), ("home", "at home")):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"a": [value]}), tmp_path / folder / "a.parquet")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert rows("~/a.parquet") == [{"a": "named"}]
