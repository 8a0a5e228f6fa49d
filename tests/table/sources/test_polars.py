"""Frames of polars."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from feat2vec.table.table import open_table
from tests.table.tables import S, rows


def test_polars_types() -> None:
    frame = pl.DataFrame(
        {"a": ["x", None], "f": [float("nan"), None], "v": pl.Series([[1.0, 2.0]] * 2, dtype=pl.Array(pl.Float32, 2))}
    ).with_columns(c=pl.col("a").cast(pl.Categorical), e=pl.col("a").cast(pl.Enum(["x"])))
    table = open_table(frame)
    assert list(table.columns.values()) == [S, pa.float64(), pa.list_(pa.float32(), 2), S, S]
    first, second = rows(table)
    assert first.pop("f") != first.get("f")  # NaN stays NaN: polars has a null of its own
    assert first == {"a": "x", "v": [1.0, 2.0], "c": "x", "e": "x"}
    assert second == {"a": None, "f": None, "v": [1.0, 2.0], "c": None, "e": None}
