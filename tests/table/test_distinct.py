"""Numbers of distinct values, over one stage and over several."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from feat2vec.table.distinct import DistinctCounter


@pytest.mark.parametrize("stage_count", [1, 3])
def test_values_of_all_stages_are_counted_once(stage_count: int, tmp_path: Path) -> None:
    counter = DistinctCounter(str(tmp_path))
    for i in range(stage_count):
        counter.add(0, pa.array([f"key {j}" for j in range(i, i + 10)]))
        counter.add(1, pa.array([1.5, 2.5]))
        counter.add(2, pa.array([Decimal(10**70)], pa.decimal256(76)))
        counter.add(3, pa.array([], pa.string()))
    counts = counter.counts()
    assert [counts[column] for column in range(4)] == [9 + stage_count, 2, 1, 0]
