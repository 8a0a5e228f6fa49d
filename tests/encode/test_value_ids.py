"""Value ids of groups, side by side in one array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

from feat2vec.arrays import Ints
from feat2vec.encode.value_ids import MISSING, padded, write_rows
from feat2vec.encode.workspace import PieceSizes, Workspace


def pieces_of(ids: Ints, size: int, taken: list[int]) -> Iterator[Ints]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
    taken.append(len(ids))


@pytest.mark.parametrize("rows_per_block", [1, 7, 1000])
@pytest.mark.parametrize("sizes", [(1, 50), (3, 4), (1000, 2)])
def test_columns_of_any_pieces_are_put_side_by_side(
    rows_per_block: int, sizes: tuple[int, int], tmp_path: Path
) -> None:
    long, short = np.arange(50, dtype=np.int32), np.arange(30, dtype=np.int32)
    taken: list[int] = []
    with duckdb.connect() as connection:
        workspace = Workspace(tmp_path, connection, PieceSizes(rows_per_block=rows_per_block))
        groups = [pieces_of(ids, size, taken) for ids, size in zip((long, short), sizes, strict=True)]
        write_rows(workspace, groups, 50)
    rows = np.load(tmp_path / "rows.npy")
    assert rows.dtype == np.int32
    assert rows[:, 0].tolist() == long.tolist()
    assert rows[:, 1].tolist() == [*short.tolist(), *[MISSING] * 20]  # a group that ends early is missing
    assert sorted(taken) == [30, 50]  # to their ends, where the files of a group are completed


def test_entries_are_padded_to_a_width() -> None:
    entries = np.array([[1, 2], [3, 4]], np.int32)
    assert padded(entries, 2) is entries
    assert padded(entries, 4).tolist() == [[1, 2, 0, 0], [3, 4, 0, 0]]
