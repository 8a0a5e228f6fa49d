"""Distinct entries and their numbers: packing and sorting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.arrays import Array, Ints
from feat2vec.encode.arrays_on_disk import ArrayFile
from feat2vec.encode.value_tables import MISSING, MOST_WORD_COLUMNS, Packing, number_entries, padded, write_rows
from feat2vec.encode.workspace import PieceSizes, Workspace

SETTINGS = settings(max_examples=40, derandomize=True, deadline=None)


@st.composite
def packings(draw: st.DrawFn) -> tuple[Packing, Array]:
    """Entries, all of whose numbers fit into some bits."""
    bits, width, count = draw(st.integers(1, 32)), draw(st.integers(1, 40)), draw(st.integers(0, 30))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    entries = random.integers(0, min(2**bits, draw(st.sampled_from([2, 2**32]))), (count, width), np.uint32)
    dtype = draw(st.sampled_from([np.int32, np.float32]))
    return Packing(dtype, width, bits), entries.view(dtype)


@SETTINGS
@given(packings())
def test_packing_can_be_undone(packed: tuple[Packing, Array]) -> None:
    packing, entries = packed
    words = packing.pack(entries)
    assert words.shape == (packing.words, len(entries))
    assert packing.words == -(-packing.width // (64 // packing.bits))
    assert packing.unpack(words).tobytes() == entries.tobytes()
    assert packing.unpack(words).dtype == entries.dtype


def cut(rows: Array, entries: Array, size: int) -> Iterator[tuple[Array, Array]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size], entries[start : start + size]


def number(
    tmp_path: Path, packing: Packing, rows: Array, entries: Array, total: int, size: int, known: int = 0
) -> tuple[Array, Array, Array]:
    """The rows' numbers, the new entries and the counts of a feed in pieces."""
    new, counts = (
        ArrayFile(tmp_path / "new.npy", packing.dtype, packing.width),
        ArrayFile(tmp_path / "counts.npy", np.int64),
    )
    ids = np.full(total, -1, np.int32)
    with duckdb.connect() as connection:
        number_entries(connection, cut(rows, entries, size), packing, new, ids, None if known else counts, known)
    new.close()
    counts.close()
    return ids, np.load(tmp_path / "new.npy"), np.load(tmp_path / "counts.npy")


@SETTINGS
@given(packings(), st.integers(1, 12), st.data())
def test_numbers_of_entries(
    tmp_path_factory: Any, packed: tuple[Packing, Array], size: int, data: st.DataObject
) -> None:
    packing, some = packed
    picked = data.draw(st.lists(st.integers(0, len(some) - 1), max_size=60)) if len(some) else []
    entries = np.ascontiguousarray(some[picked])
    total = len(entries) + data.draw(st.integers(0, 5))
    rows = np.array(sorted(data.draw(st.permutations(range(total)))[: len(entries)]), np.int64)
    ids, values, counts = number(tmp_path_factory.mktemp("values"), packing, rows, entries, total, size)
    texts = [entry.tobytes() for entry in entries]
    assert sorted(value.tobytes() for value in values) == sorted(set(texts))
    assert [values[i].tobytes() for i in ids[rows]] == texts
    assert sorted(np.flatnonzero(ids < 0)) == sorted(set(range(total)) - set(rows.tolist()))
    assert counts.tolist() == [texts.count(value.tobytes()) for value in values]


@pytest.mark.parametrize("width", [1, 2, 2 * MOST_WORD_COLUMNS, 2 * MOST_WORD_COLUMNS + 1, 50])
def test_known_entries_keep_their_numbers(width: int, tmp_path: Path) -> None:
    random = np.random.default_rng(width)
    all_entries = np.unique(random.integers(0, 3, (400, width)).astype(np.int32), axis=0)
    random.shuffle(all_entries)
    known = len(all_entries) // 2
    picks = random.integers(0, len(all_entries), 1000)
    entries = np.concatenate([all_entries[:known], all_entries[picks]])
    ids, new, _ = number(tmp_path, Packing(np.int32, width, 32), np.arange(len(entries)), entries, 1000, 97, known)
    values = np.concatenate([all_entries[:known], new])
    assert (values[ids] == all_entries[picks]).all()
    assert (ids[picks < known] == picks[picks < known]).all()
    assert len({value.tobytes() for value in values}) == len(values)
    assert len(new) == len(set(picks[picks >= known].tolist()))


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
