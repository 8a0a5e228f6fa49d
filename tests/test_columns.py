"""Columns as keys, numbers and vectors; each mistake is named with its file, row, column and value."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.columns import Stage, kind_of_type, stages
from feat2vec.errors import UserError
from feat2vec.keys import Items, items_of, respell, tokens_of
from feat2vec.numbers import numbers_of, vectors_of
from feat2vec.specs import Lookup, TextCnn
from feat2vec.table import open_table
from tests import reference


def stage_of(cells: Any, kind: pa.DataType | None = None, **others: Any) -> Stage:
    """A stage whose column `a` holds the cells."""
    column = cells if isinstance(cells, (pa.Array, pa.ChunkedArray)) else pa.array(cells, kind)
    return next(stages(open_table(pa.table({"a": column, **others})), ["a", *others]))


def csv_stage(folder: Path, *cells: str) -> Stage:
    """The same from a CSV file."""
    (folder / "t.csv").write_text("a,b\n" + "".join(f'"{cell}",b\n' for cell in cells), encoding="utf-8")
    return next(stages(open_table(folder / "t.csv"), ["a"]))


def bags(items: Items) -> list[list[str]]:
    keys = items.keys.take(pa.array(items.codes)).to_pylist()
    ends = np.cumsum(items.lengths)
    return [keys[end - length : end] for end, length in zip(ends, items.lengths, strict=True)]


def refuse(match: str, call: Callable[[], object]) -> None:
    with pytest.raises(UserError, match=match) as caught:
        call()
    assert len(caught.value.problems) == 1


# --- keys -----------------------------------------------------------------------------------------------------------


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
        ([Decimal(10**17), Decimal(10**17 + 1)], pa.decimal128(18), [str(10**17), str(10**17 + 1)]),
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
)  # fmt: skip
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


NAN, INF = float("nan"), float("inf")


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


def test_respelling_twice_is_respelling_once() -> None:
    keys = pa.array(["5.0", "5", "1e3", "0.10", "x", "1.5-3", "TRUE", "-0.0"])
    once = respell(keys, "number")
    assert once.to_pylist() == ["5", "5", "1000", "0.1", "x", "1.5-3", "TRUE", "0"]
    assert respell(once, "number").equals(once)
    assert respell(keys, "text").equals(respell(keys, "date"))
    assert respell(keys, "boolean").to_pylist()[6] == "true"


def test_kinds_of_types() -> None:
    kinds = {pa.string(): "text", pa.int64(): "number", pa.list_(pa.float32()): "number", pa.bool_(): "boolean"}
    kinds |= {
        pa.date32(): "date",
        pa.timestamp("us", "UTC"): "date",
        pa.list_(pa.bool_(), 2): "boolean",
        pa.null(): "text",
    }
    assert {kind: kind_of_type(kind) for kind in kinds} == kinds


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "type_", "numbers", "kind"),
    [
        ([1, None], pa.int64(), [1, NAN], "number"),
        ([2**60 + 1], pa.int64(), [2.0**60], "number"),
        ([2**64 - 1], pa.uint64(), [2.0**64], "number"),
        ([0.5, None], pa.float32(), [0.5, NAN], "number"),
        ([True, None, False], pa.bool_(), [1, NAN, 0], "boolean"),
        ([date(1970, 1, 2), date(1969, 12, 31), None], pa.date32(), [1, -1, NAN], "date"),
        ([datetime(1970, 1, 1, 6), datetime(9999, 1, 1)], pa.timestamp("us"), [0.25, 2932532], "date"),
        ([datetime(1970, 1, 1, 12)], pa.timestamp("us", "America/New_York"), [0.5], "date"),
        ([None], pa.null(), [NAN], "number"),
        (["1970-01-03", "", None], pa.string(), [2, NAN, NAN], "date"),
        (["1970-01-01T12:00:00Z", "1970-01-01 13:00:00+01:00"], pa.string(), [0.5, 0.5], "date"),
    ],
)
def test_typed_numbers(cells: list[Any], type_: pa.DataType, numbers: list[float], kind: str) -> None:
    found, found_kind = numbers_of(stage_of(cells, type_), "a")
    np.testing.assert_array_equal(found, np.array(numbers, np.float64))
    assert (found.dtype, found_kind) == (np.dtype(np.float64), kind)


@pytest.mark.parametrize(
    ("cells", "numbers", "kind"),
    [
        (["1", " 2.5 ", "", "1e3", "-0"], [1, 2.5, NAN, 1000, 0], "number"),
        (["NA", "7", "NaN", "nan", "null", "NULL", "N/A", "None", "<NA>"], [NAN, 7, *[NAN] * 7], "number"),
        (["true", "False", "", "TRUE"], [1, 0, NAN, 1], "boolean"),
        (["", "1970-01-02", "1970-01-01 12:00:00"], [NAN, 1, 0.5], "date"),
        (["", "NA"], [NAN, NAN], "number"),
        (["2024"], [2024], "number"),
    ],
)
def test_numbers_from_text(cells: list[str], numbers: list[float], kind: str, tmp_path: Path) -> None:
    found, found_kind = numbers_of(csv_stage(tmp_path, *cells), "a")
    np.testing.assert_array_equal(found, numbers)
    assert found_kind == kind


def test_text_is_read_as_before(tmp_path: Path) -> None:
    """An earlier stage, or the training rows, say what text is."""
    assert numbers_of(csv_stage(tmp_path, "1", "0"), "a", "boolean")[0].tolist() == [1, 0]
    assert numbers_of(csv_stage(tmp_path, "true"), "a", "boolean")[0].tolist() == [1]
    stage = csv_stage(tmp_path, "3", "1970-01-02")
    refuse("row 2: column 'a': received '1970-01-02'; a number is needed", lambda: numbers_of(stage, "a", "number"))
    refuse("row 1: column 'a': received '3'; a date such as", lambda: numbers_of(stage, "a", "date"))


@pytest.mark.parametrize(
    ("cells", "match"),
    [
        ([0.5, NAN, NAN], "the table: row 2: column 'a': received nan; write null .*, or set `nan: missing`"),
        ([0.5, None, INF], "row 3: column 'a': received inf; numbers must be finite"),
        ([-INF], "row 1: column 'a': received -inf"),
        (["x", "1"], "row 1: column 'a': received 'x'; a number is needed, and the column holds text; cast it"),
        ([None, "1.5"], "row 2: column 'a': received '1.5'; a number is needed"),
        (["2024-01-01", "NA"], "row 2: column 'a': received 'NA'; a date such as 2024-01-31 is needed"),
        (["2024-01-01", "2023-02-29"], "row 2: column 'a': received '2023-02-29'; a date"),
        ([[1.0]], r"row 1: column 'a' holds list<.*double>; a number is needed"),
    ],
)  # fmt: skip
def test_what_is_no_number(cells: list[Any], match: str) -> None:
    refuse(match, lambda: numbers_of(stage_of(cells), "a"))


@pytest.mark.parametrize(
    "cells", [("1", "x"), ("1", "inf"), ("1", "-Infinity"), ("1", "1,5"), ("1", "0x10"), ("1", "true")]
)
def test_what_is_no_number_in_text(cells: tuple[str, ...], tmp_path: Path) -> None:
    stage = csv_stage(tmp_path, *cells)
    refuse(r"t\.csv: row 2: column 'a': received .*; .*number", lambda: numbers_of(stage, "a"))


def test_nan_may_be_missing() -> None:
    found, _ = numbers_of(stage_of([NAN, 1.0]), "a", nan="missing")
    np.testing.assert_array_equal(found, [NAN, 1])
    refuse("row 2: .* received inf", lambda: numbers_of(stage_of([NAN, INF]), "a", nan="missing"))


def test_the_row_of_a_later_batch() -> None:
    cells = pa.chunked_array([[1.0] * 70_000, [1.0] * 70_000, [1.0, NAN]])
    refuse("row 140002: column 'a'", lambda: [numbers_of(each, "a") for each in [stage_of(cells)]])


# --- vectors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([[1, 2.5], None, [], [0, -1]], pa.list_(pa.float64())),
        ([[1, 2.5], None, None, [0, -1]], pa.list_(pa.float32(), 2)),
        (["[1, 2.5]", None, "", "(0; -1)"], pa.string()),
        (["1 2.5", " ", "[]", "0,-1"], pa.string()),
    ],
)
def test_vectors(cells: list[Any], kind: pa.DataType) -> None:
    present, vectors = vectors_of(stage_of(cells, kind), "a", None)
    assert present.tolist() == [True, False, False, True]
    assert vectors.tolist() == [[1, 2.5], [0, -1]]
    assert vectors.dtype == np.float32
    assert vectors_of(stage_of(cells, kind), "a", 2)[1].tolist() == vectors.tolist()


def test_vectors_of_integers() -> None:
    assert vectors_of(stage_of([[2**30 + 1, 0]]), "a", 2)[1].tolist() == [[2.0**30, 0.0]]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.null(), pa.string(), pa.list_(pa.null())])
def test_no_vectors(kind: pa.DataType) -> None:
    cells: list[Any] = [None, [] if pa.types.is_list(kind) else None]
    for size in (None, 3):
        present, vectors = vectors_of(stage_of(cells, kind), "a", size)
        assert (present.tolist(), len(vectors)) == ([False, False], 0)


def test_a_number_is_the_same_in_text() -> None:
    """Rounded to 64 bits first, as typed columns are."""
    number = 1 + 2**-24 + 2**-53
    _, typed = vectors_of(stage_of([[number]]), "a", 1)
    _, text = vectors_of(stage_of([f"[{number!r}]"]), "a", 1)
    assert typed.tobytes() == text.tobytes()


@pytest.mark.parametrize(
    ("cells", "size", "match"),
    [
        (
            [[1.0, 2.0], [1.0]],
            None,
            r"row 2: column 'a': received \[1.0\]; a vector of 2 .* needed, this has 1",
        ),
        ([[1.0, 2.0]], 3, r"row 1: column 'a': received \[1.0, 2.0\]; a vector of 3 numbers is needed, this has 2"),
        ([None, [1.0, NAN]], None, r"row 2: column 'a': received \[1.0, nan\]; a vector's numbers must be finite"),
        ([[1.0, None]], None, r"row 1: column 'a': received \[1.0, None\]; a vector's numbers must be finite"),
        ([[1e39]], None, r"row 1: column 'a': received \[1e\+39\]; a vector's numbers must be finite"),
        (["[1, 2]", "[1, x]"], None, r"row 2: column 'a': received '\[1, x\]'; a list of numbers is needed"),
        (["[1, nan]"], None, r"row 1: column 'a': received '\[1, nan\]'; a vector's numbers must be finite"),
        ([1.0], None, "row 1: column 'a' holds double; a list of numbers is needed"),
        ([["a"]], None, r"column 'a' holds list<.*string>; a list of numbers is needed"),
    ],
)
def test_what_is_no_vector(cells: list[Any], size: int | None, match: str) -> None:
    refuse(match, lambda: vectors_of(stage_of(cells), "a", size))
