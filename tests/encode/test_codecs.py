"""Entries: how keys, tokens, numbers and vectors are laid out, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.encode.codecs import (
    ItemsCodec,
    NumbersCodec,
    Tally,
    VectorCodec,
    binned,
    check_entries,
    codec_from_facts,
)
from feat2vec.encode.codecs.items import pack
from feat2vec.encode.codecs.numbers import ColumnScale
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.schema.extractor_options import Lookup, Numeric, Vector
from feat2vec.schema.options import Group
from feat2vec.table.keys import Items
from tests import reference


def items_of(rows: Sequence[Sequence[int]], weights: Sequence[Sequence[float]] | None = None) -> tuple[Items, Any]:
    """Items whose keys are their ids."""
    ids = np.array([id_ for row in rows for id_ in row], np.int32)
    flat = None if weights is None else np.array([weight for row in weights for weight in row], np.float32)
    lengths = np.array([len(row) for row in rows], np.int32)
    return Items(lengths, ids, pa.array([], pa.string()), flat, 0), ids


EIGHTHS = st.integers(-40, 40).map(lambda n: n / 8)
BAGS = st.lists(st.lists(st.integers(1, 9), max_size=5), max_size=8)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(BAGS, st.integers(5, 7), st.booleans())
def test_bags_are_sorted_and_texts_are_not(rows: list[list[int]], width: int, ordered: bool) -> None:
    entries = pack(*items_of(rows), width, ordered=ordered)
    assert entries.present.tolist() == [len(row) > 0 for row in rows]
    assert entries.rows.dtype == np.int32
    assert entries.rows.shape == (int(entries.present.sum()), width)
    expected = [(row if ordered else sorted(row)) + [0] * (width - len(row)) for row in rows if row]
    assert entries.rows.tolist() == expected


@settings(max_examples=60, derandomize=True, deadline=None)
@given(BAGS, st.integers(5, 7), st.data())
def test_weights_are_sorted_with_their_keys(rows: list[list[int]], width: int, data: st.DataObject) -> None:
    number = st.floats(-4, 4, width=32)
    weights = [data.draw(st.lists(number, min_size=len(row), max_size=len(row))) for row in rows]
    entries = pack(*items_of(rows, weights), width, ordered=False)
    padding = [(0, 0.0)] * width
    pairs = [
        (sorted(zip(row, of_row, strict=True)) + padding)[:width]
        for row, of_row in zip(rows, weights, strict=True)
        if row
    ]
    assert entries.rows[:, :width].tolist() == [[id_ for id_, _ in row] for row in pairs]
    bits = np.ascontiguousarray(entries.rows[:, width:])
    assert bits.view(np.float32).tolist() == [[weight for _, weight in row] for row in pairs]


def test_one_weighted_item_a_row() -> None:
    entries = pack(*items_of([[3], [], [2]], [[0.5], [], [2.0]]), 1, ordered=False)
    assert entries.rows.tolist() == [[3, np.float32(0.5).view(np.int32)], [2, np.float32(2).view(np.int32)]]


def test_tallies_add_up() -> None:
    tally = Tally(1, 2, 3, 4)
    tally.add(Tally(10, 20, 30, 40))
    assert tally == Tally(11, 22, 33, 44)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.lists(st.integers(-40, 40).map(lambda n: n / 8)),
    st.lists(st.integers(-32, 32).map(lambda n: n / 8), unique=True),
)
def test_bins(numbers: list[float], edges: list[float]) -> None:
    edges.sort()
    items = binned(np.array([*numbers, np.nan]), edges)
    assert items.lengths.tolist() == [1] * len(numbers) + [0]
    assert items.keys.take(pa.array(items.codes)).to_pylist() == [reference.bin_of(number, edges) for number in numbers]


def test_names_of_bins() -> None:
    keys = binned(np.zeros(0), [-0.5, 1 / 3, 2.0, 1e20]).keys.to_pylist()
    assert keys == [
        "[-inf, -0.5)",
        "[-0.5, 0.3333333333333333)",
        "[0.3333333333333333, 2)",
        "[2, 1e+20)",
        "[1e+20, inf)",
    ]


KEYS = Vocabulary(pa.array(["a", "b"]), np.array([2, 1]))


def test_decoding() -> None:
    assert ItemsCodec(KEYS, 3, 3).decode(np.array([[1, 2, 3], [2, 0, 0]])) == [[None, "a", "b"], ["a"]]
    weighted = np.array([[2, 3, *np.array([0.5, -1], np.float32).view(np.int32)], [2, 0, 0, 0]], np.int32)
    assert ItemsCodec(KEYS, 2, 2, weighted=True).decode(weighted) == [[("a", 0.5), ("b", -1.0)], [("a", 0.0)]]
    scales = (
        ColumnScale("x", "number", "standard", (10.0, 2.0), 10.0, indicator=False),
        ColumnScale("y", "number", "none", (), 1.5, indicator=True),
    )
    codec = NumbersCodec(scales, "error")
    assert codec.width == 3
    assert codec.decode(np.array([[1, 1.5, 1], [-1, 4, 0]], np.float32)) == [[12.0, None], [8.0, 4.0]]
    np.testing.assert_array_equal(codec.numbers(np.array([[1, 1.5, 1], [-1, 4, 0]])), [[12, np.nan], [8, 4]])
    dates = NumbersCodec((ColumnScale("d", "date", "none", (), 0.0, indicator=False),), "error")
    assert dates.decode(np.array([[0.5]])) == [[datetime(1970, 1, 1, 12)]]
    assert dates.decode(np.array([[-1e6], [3e6]])) == [[datetime.min], [datetime.max]]  # a float32 may be days away
    entries = codec.pack(np.array([[12, np.nan], [np.nan, np.nan], [np.nan, 4], [8, -0.0]]))
    assert entries.present.tolist() == [True, False, True, True]
    assert entries.rows.tolist() == [[1, 1.5, 1], [0, 4, 0], [-1, 0, 0]]
    assert not np.signbit(entries.rows[2, 1])
    assert (entries.tally.missing, entries.tally.filled) == (1, 2)
    assert VectorCodec(2).decode(np.array([[1, 2]], np.float32)) == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("codec", "spec"),
    [
        (ItemsCodec(KEYS, 1, 1, edges=(0.5, 1.5), kind="date"), Lookup(bins=3)),
        (
            ItemsCodec(Vocabulary(KEYS.keys, KEYS.counts, 7, "number"), 3, 5, weighted=True),
            Lookup(multi=True, weights="w"),
        ),
        (
            NumbersCodec((ColumnScale("x", "date", "minmax", (0.0, 2.0), 1.0, indicator=True),), "missing"),
            Numeric(scale="minmax", nan="missing"),
        ),
        (VectorCodec(5), Vector()),
    ],
)
def test_facts_are_all_there_is(codec: Any, spec: Any) -> None:
    keys = None if codec.vocabulary is None else codec.vocabulary.table([1])
    loaded: Any = codec_from_facts(Group(columns=("x",), extractor=spec), codec.facts(), keys)
    assert loaded.facts() == codec.facts()
    assert (loaded.width, loaded.training_width, loaded.bits) == (codec.width, codec.training_width, codec.bits)
    assert loaded.dtype == codec.dtype
    assert type(loaded) is type(codec)
    if keys is None:
        assert loaded == codec


@pytest.mark.parametrize(
    ("keys", "bits"), [(0, 1), (1, 2), (2, 2), (3, 3), (6, 3), (7, 4), (2**16 - 2, 16), (2**16 - 1, 17)]
)
def test_enough_bits_for_the_largest_id(keys: int, bits: int) -> None:
    codec = ItemsCodec(Vocabulary(pa.array([""] * keys, pa.string()), np.zeros(keys, np.int64)), 2, 2)
    assert codec.bits == bits
    assert keys + 1 < 2**bits


def test_a_group_has_values() -> None:
    for codec, entries in ((ItemsCodec(KEYS, 1, 1), np.zeros((0, 1), np.int32)), (VectorCodec(2), np.zeros((0, 2)))):
        with pytest.raises(ValueError, match="a group has no values"):
            check_entries(codec, entries)
