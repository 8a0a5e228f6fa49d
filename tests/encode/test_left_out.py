"""Rows that are left out: arrays without them are those that `np.delete` gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feat2vec.encode.left_out import LeftOut


@pytest.mark.parametrize("places", [[], [0], [9], [0, 1, 2], [3, 4, 8], list(range(9)), [1, 3, 5, 7, 9]])
def test_kept_rows_are_those_that_are_not_left_out(places: list[int]) -> None:
    rows = np.arange(20).reshape(10, 2)
    left_out = LeftOut(np.array(places, np.int64))
    kept = np.delete(rows, places, axis=0)
    assert [left_out.row(i) for i in range(len(kept))] == [int(row[0]) // 2 for row in kept]
    for start in range(len(kept) + 1):
        for stop in range(start, len(kept) + 1):
            np.testing.assert_array_equal(left_out.take(rows, start, stop), kept[start:stop])
    np.testing.assert_array_equal(left_out.all_of(rows), kept)
    for size in (1, 3, 20):
        np.testing.assert_array_equal(np.concatenate(list(left_out.pieces(rows, size))), kept)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_more_rows_are_left_out_by_a_file(size: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(20):
        both = rng.permutation(30)[: rng.integers(0, 30)]
        split = int(rng.integers(0, len(both) + 1))
        before, more = (np.sort(part).astype(np.int64) for part in (both[:split], both[split:]))
        left_out = LeftOut(before).with_more(more, tmp_path / f"{i}.npy", size)
        assert left_out.places.tolist() == sorted(both.tolist())
