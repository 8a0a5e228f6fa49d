"""Columns as keys; each mistake is named with its file, row, column and value."""

from __future__ import annotations

import unicodedata
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.schema.extractor_options import Lookup, TextCnn
from feat2vec.table.keys import DistinctCounter, items_of, tokens_of
from feat2vec.table.table import Stage
from tests import reference
from tests.table.stages import INF, NAN, bags, csv_stage, refuse, stage_of


@pytest.mark.parametrize(
    ("cells", "kind", "keys"),
    [
        (["a", None, "", " "], pa.string(), ["a", None, None, " "]),
        ([5, -1, None], pa.int16(), ["5", "-1", None]),
        ([2**64 - 1], pa.uint64(), ["18446744073709551615"]),
        ([5.0, 0.1, -0.0, 2.0**53 - 1, 1e-7, None], pa.float64(), ["5", "0.1", "0", str(2**53 - 1), "1e-7", None]),
        ([5.0, 0.1, 16777216.0], pa.float32(), ["5", "0.1", "16777216"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        ([date(2024, 2, 29), None], pa.date32(), ["2024-02-29", None]),
        ([datetime(2024, 2, 29, 1, 2, 3), None], pa.timestamp("s"), ["2024-02-29 01:02:03", None]),
        ([datetime(2024, 2, 29, 1, 2, 3, 4)], pa.timestamp("us"), ["2024-02-29 01:02:03.000004"]),
        (
            [datetime(2024, 2, 29), datetime(2024, 2, 29, 0, 1)],
            pa.timestamp("us"),
            ["2024-02-29", "2024-02-29 00:01:00"],
        ),
        ([datetime(2024, 2, 29)], pa.timestamp("us", "UTC"), ["2024-02-29 00:00:00Z"]),
        (
            [0, 1, 1000, 1001, 10**9, None],
            pa.timestamp("ns"),
            [
                "1970-01-01",
                "1970-01-01 00:00:00.000000001",
                "1970-01-01 00:00:00.000001",
                "1970-01-01 00:00:00.000001001",
                "1970-01-01 00:00:01",
                None,
            ],
        ),
        ([-1, 0], pa.timestamp("ns", "UTC"), ["1969-12-31 23:59:59.999999999Z", "1970-01-01 00:00:00Z"]),
        ([Decimal(10**17), Decimal(10**17 + 1)], pa.decimal128(18), [str(10**17), str(10**17 + 1)]),
        (
            [Decimal(2**53), Decimal(2**53 + 1), Decimal(-7), None],
            pa.decimal128(38),
            [str(2**53), str(2**53 + 1), "-7", None],
        ),
        ([Decimal(10**70 + 1)], pa.decimal256(76), [str(10**70 + 1)]),
        ([Decimal("1.50"), Decimal("-5.00"), Decimal("0.01")], pa.decimal128(20, 2), ["1.5", "-5", "0.01"]),
        ([Decimal("9007199254740993.5")], pa.decimal128(20, 2), ["9007199254740993.5"]),
        ([Decimal("0.0000001"), Decimal("1.5e-7"), Decimal(0)], pa.decimal128(20, 8), ["1e-7", "1.5e-7", "0"]),
        ([None, None], pa.null(), [None, None]),
        (["a", "b", "a"], pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]),
    ],
)
def test_keys(cells: list[Any], kind: pa.DataType, keys: list[str | None]) -> None:
    items = items_of(stage_of(cells, kind), "a", Lookup())
    assert bags(items) == [[] if key is None else [key] for key in keys]
    assert items.truncated == 0
    assert all(key is None or isinstance(key, str) for key in items.keys.to_pylist())


@pytest.mark.parametrize(
    ("cells", "spec", "expected", "truncated"),
    [
        ([["a", None, "", "b", "a"], None, [], [None]], Lookup(multi=True), ["a b a", "", "", ""], 0),
        ([["", None, "a", "b", "c"], ["a", "b"]], Lookup(multi=True, max_items=2), ["a b", "a b"], 1),
        ([[1, None], [2]], Lookup(multi=True), ["1", "2"], 0),
        ([[1.0, 2.5]], Lookup(multi=True), ["1 2.5"], 0),
        ([[True, False]], Lookup(multi=True), ["true false"], 0),
        (["a| b||c ", None, "", "|"], Lookup(split="|"), ["a b c", "", "", ""], 0),
        (["a, b;c", "a"], Lookup(split=", "), ["a b;c", "a"], 0),
        (["a.b"], Lookup(split="."), ["a b"], 0),
        ([["a", " b"], ["c"]], Lookup(split="|"), ["a b", "c"], 0),
        ([["a|b", None, "c"], None, [], ["", "d||e"]], Lookup(split="|"), ["a b c", "", "", "d e"], 0),
        ([["A b", "c"], ["d e f"]], Lookup(split="words", max_items=2), ["a b", "d e"], 2),
        (["Straße STRASSE", "e\u0301 É", None], Lookup(split="words"), ["strasse strasse", "é é", ""], 0),
        (["x_1, 42!", "—"], Lookup(split="words"), ["x_1 42", ""], 0),
        (["a b", "c"], Lookup(multi=True), ["a b", "c"], 0),
        ([None, None], Lookup(split="words"), ["", ""], 0),
    ],
)
def test_bags(cells: list[Any], spec: Lookup, expected: list[str], truncated: int) -> None:
    items = items_of(stage_of(cells), "a", spec)
    assert [" ".join(bag) for bag in bags(items)] == expected
    assert items.truncated == truncated


LETTERS = st.characters(categories=["L", "M", "N", "P", "S", "Z"], max_codepoint=0x2FFF)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.text(LETTERS, max_size=12), min_size=1, max_size=4))
def test_words_are_those_of_the_reference(texts: list[str]) -> None:
    """Of letters that both Unicode tables know."""
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    items = tokens_of(stage_of(texts), "a", TextCnn(max_tokens=4))
    assert bags(items) == [reference.words(text)[:4] for text in texts]


@pytest.mark.parametrize("text", ["Ångström", "한국어", "हिन्दी", "\u1e9b\u0323", "≠x", "\u212b", "ẛ̣ a≠b"])
def test_words_do_not_depend_on_the_normal_form(text: str) -> None:
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    one, other = bags(tokens_of(stage_of(forms), "a", TextCnn()))
    assert one == other


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_texts_of_every_type(kind: pa.DataType) -> None:
    cells = pa.array(["The Kid", None, "kid"]).cast(kind)
    assert bags(tokens_of(stage_of(cells), "a", TextCnn())) == [["the", "kid"], [], ["kid"]]


def test_parts() -> None:
    times = [datetime(2024, 2, 29, 13), None, datetime(1969, 12, 31, 23)]
    spec = Lookup(parts=("year", "quarter", "month", "day", "weekday", "hour"))
    expected = [
        ["year=2024", "quarter=1", "month=2", "day=29", "weekday=Thursday", "hour=13"],
        [],
        ["year=1969", "quarter=4", "month=12", "day=31", "weekday=Wednesday", "hour=23"],
    ]
    assert bags(items_of(stage_of(times), "a", spec)) == expected
    assert bags(items_of(stage_of([time and str(time) for time in times]), "a", spec)) == expected


def test_parts_of_zoned_times_are_those_of_utc() -> None:
    spec = Lookup(parts=("day", "hour"))
    utc = datetime(2024, 3, 1, 2)
    for stage in (
        stage_of([utc], pa.timestamp("us", "America/New_York")),
        stage_of(["2024-02-29 21:00:00-05:00"]),
        stage_of(["2024-03-01T02:00:00Z"]),
    ):
        assert bags(items_of(stage, "a", spec)) == [["day=1", "hour=2"]]


def test_parts_of_text(tmp_path: Path) -> None:
    spec = Lookup(parts=("day", "hour"))
    items = items_of(csv_stage(tmp_path, " 2024-02-29 ", "", "NA", "2024-03-01T05:00:00"), "a", spec)
    assert bags(items) == [["day=29", "hour=0"], [], [], ["day=1", "hour=5"]]
    stage = csv_stage(tmp_path, "2024-02-29", "2024-02-30")
    refuse(r"t\.csv: row 2: column 'a': received '2024-02-30'; a date such as", lambda: items_of(stage, "a", spec))
    refuse(
        "the table: row 2: column 'a': received 'NA'; a date",
        lambda: items_of(stage_of(["2024-01-01", "NA"]), "a", spec),
    )


def test_weights() -> None:
    spec = Lookup(multi=True, weights="w", max_items=2)
    stage = stage_of([["a", "", "b", "c"], None, ["d"]], w=[[1, 2, 3, 4], None, [-0.0]])
    items = items_of(stage, "a", spec)
    assert bags(items) == [["a", "b"], [], ["d"]]
    assert items.weights is not None
    assert items.weights.tolist() == [1.0, 3.0, 0.0]
    assert not np.signbit(items.weights).any()
    whole = items_of(stage_of([["a"], ["b"]], w=[[2**40 + 1], [0]]), "a", spec)
    assert whole.weights is not None
    assert whole.weights.tolist() == [2.0**40, 0.0]


@pytest.mark.parametrize(
    ("stage", "spec", "match"),
    [
        (
            stage_of([0.5, NAN]),
            Lookup(),
            "the table: row 2: column 'a': received nan; a key must be .*; write null",
        ),
        (stage_of([[0.5], [1.0, INF]]), Lookup(multi=True), "row 2: column 'a': received inf; a key must be finite"),
        (stage_of([["a"]]), Lookup(), r"row 1: column 'a' holds lists \(list<.*string>\); set `multi: true`"),
        (stage_of([[["a"]]]), Lookup(multi=True), r"column 'a' holds lists of lists .*; flatten it first"),
        (stage_of([5]), Lookup(split="|"), "column 'a' holds int64; only text can be split"),
        (stage_of([[5]]), Lookup(split="|"), "column 'a' holds int64; only text can be split"),
        (stage_of([5]), Lookup(parts=("day",)), "column 'a' holds int64; a date is needed"),
        (stage_of(["soon"]), Lookup(parts=("day",)), "row 1: column 'a': received 'soon'; a date such as"),
        (
            stage_of([["a"], ["b", "c"]], w=[[1.0], [1.0]]),
            Lookup(multi=True, weights="w"),
            r"row 2: column 'w': received \[1.0\]; 2 weights are needed, one an item of 'a'",
        ),
        (
            stage_of([["a"], ["b", "c"]], w=[[1.0], [1.0, NAN]]),
            Lookup(multi=True, weights="w"),
            r"row 2: column 'w': received \[1.0, nan\]; weights must be finite numbers",
        ),
        (stage_of([["a"]], w=[1.0]), Lookup(multi=True, weights="w"), "column 'w' holds double; weights need a list"),
        (
            stage_of(["x" * 99 + "y"], w=["t"]),
            Lookup(parts=("day",)),
            r"received 'x{56}\.\.\.; a date",
        ),
    ],
)
def test_what_is_no_key(stage: Stage, spec: Lookup, match: str) -> None:
    refuse(match, lambda: items_of(stage, "a", spec))


def test_numbers_are_no_text() -> None:
    refuse("row 1: column 'a' holds int64; text_cnn needs text", lambda: tokens_of(stage_of([1]), "a", TextCnn()))


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
