"""Arrays on disk: files that grow, and arrays that are read back once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feat2vec.encode.arrays_on_disk import ArrayFile, SpilledArray, file_name, is_finite, open_array


@pytest.mark.parametrize("width", [None, 1, 3])
@pytest.mark.parametrize("sizes", [[], [0], [1], [0, 3, 0, 12_345]])
def test_array_files(width: int | None, sizes: list[int], tmp_path: Path) -> None:
    path = tmp_path / "below" / "a.npy"
    file = ArrayFile(path, np.int32, width)
    parts = [np.arange(size * (width or 1), dtype=np.int64).reshape((size, width) if width else size) for size in sizes]
    for part in parts:
        file.append(part)
    file.close()
    assert file.rows == sum(sizes)
    empty = np.zeros((0, width) if width else 0, np.int32)
    whole = np.concatenate([empty, *(part.astype(np.int32) for part in parts)])
    for found in (open_array(path), np.load(path, allow_pickle=False)):
        assert found.dtype == np.int32
        assert found.shape == whole.shape
        assert found.tobytes() == whole.tobytes()
    assert isinstance(open_array(path), np.memmap) == (len(whole) > 0)
    for rows in (1, 1000, 10**6):
        read = list(file.pieces(rows))
        assert all(0 < len(piece) <= rows for piece in read)
        assert np.concatenate([whole[:0], *read]).tobytes() == whole.tobytes()
        if rows == 1:
            break


@pytest.mark.parametrize("rows_per_block", [1, 4, 100])
@pytest.mark.parametrize("shape", [(10,), (10, 3), (0, 3)])
def test_spilled_arrays_are_read_once(shape: tuple[int, ...], rows_per_block: int, tmp_path: Path) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    whole = SpilledArray(array, tmp_path / "whole").take()
    blocks = list(SpilledArray(array, tmp_path / "blocks").take_blocks(rows_per_block))
    assert all(0 < len(block) <= rows_per_block for block in blocks)
    for read in (whole, np.concatenate([array[:0], *blocks])):
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("numbers_per_piece", [1, 3, 100])
def test_finite_numbers_in_any_pieces(numbers_per_piece: int) -> None:
    array = np.ones((4, 3), np.float32)
    assert is_finite(array, numbers_per_piece)
    for bad in (np.nan, np.inf):
        array[3, 2] = bad
        assert not is_finite(array, numbers_per_piece)


def test_long_names_of_groups_stay_distinct() -> None:
    names = ["a/b", "a b", "é" * 300, "é" * 301]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert max(map(len, files)) <= 200
