"""How values are spelled as keys, and which key a value of another type finds."""

from __future__ import annotations

import decimal
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import fit
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN, Vocabulary
from feat2vec.export.graph.keys import GraphVocabulary
from feat2vec.schema.extractor_options import Lookup
from feat2vec.space.geometry import dense
from feat2vec.table.keys import items_of
from feat2vec.table.spelling import DATE, instants, respell
from feat2vec.table.types import MISSING_NUMBERS
from tests.table.stages import stage_of


@pytest.mark.parametrize("text", ["2020-13-01", "2020-00-10", "2020-01-32", "2020-01-01T24:00", "2020-01-01 10:60Z"])
def test_times_that_do_not_exist_are_told_by_their_form(text: str) -> None:
    """To search a column for those that Arrow refuses takes fifty times as long."""
    assert re.match(DATE, text) is None
    assert instants(pa.array([text, "1970-01-01"])).to_pylist() == [None, "0"]


def test_respelling_twice_is_respelling_once() -> None:
    keys = pa.array(["5.0", "5", "1e3", "0.10", "x", "1.5-3", "TRUE", "-0.0", "+09007199254740993.0", "1e400"])
    once = respell(keys, "number")
    assert once.to_pylist() == ["5", "5", "1000", "0.1", "x", "1.5-3", "TRUE", "0", str(2**53 + 1), "1e400"]
    assert respell(once, "number").equals(once)
    assert respell(keys, "text").equals(respell(keys, "date"))
    assert respell(keys, "boolean").to_pylist()[6] == "true"


def typed(kind: pa.DataType, *cells: Any) -> pa.Table:
    return pa.table({"a": pa.array(cells, kind), "b": ["x"] * len(cells)})


INT64, FLOAT, DEC = pa.int64(), pa.float64(), pa.decimal128(38)
LARGE, LARGER = str(2**53), str(2**53 + 1)
SPELLINGS = ["007", " 7", "7", "7.0", "1e5", "100000", "1e05", "1e400", LARGE, LARGER, "+7"]


# what a run was trained on, its keys, and of what it is asked about: each value and the key that it finds
CASES: list[tuple[Any, list[str], list[tuple[Any, list[str | None]]]]] = [
    (
        ["7", "7.0", "1e5", "100000", "1e05", "1e400", LARGE, LARGER, "NA"],
        ["7", "7.0", "1e5", "100000", "1e05", "1e400", LARGE, LARGER],
        [
            (["7", "7.0", "1e05", "1E5", "1e401", "007", " 7", "NA", LARGER],
             ["7", "7.0", "1e05", "unseen", "unseen", "unseen", "unseen", None, LARGER]),
            (typed(INT64, 7, 100_000, 2**53 + 1, 8), ["7", "100000", LARGER, "unseen"]),
            (typed(FLOAT, 7.0, 1e5), ["7", "100000"]),
            (typed(DEC, Decimal(7), Decimal(2**53 + 1)), ["7", LARGER]),
        ],
    ),
    (SPELLINGS, SPELLINGS, [(typed(INT64, 7, 100_000), ["7", "100000"]), (["007", "7", "NA"], ["007", "7", "unseen"])]),
    (
        typed(INT64, 7, 100_000, 2**53, 2**53 + 1),
        ["7", "100000", LARGE, LARGER],
        [
            (["7", "7.0", "7.", "1e5", "1e05", "007", LARGER, f"{LARGER}.0", f"{LARGE}.0", "1e400", "NA"],
             ["7", "7", "7", "100000", "100000", "unseen", LARGER, LARGER, LARGE, "unseen", None]),
            (typed(FLOAT, 7.0, 7.5), ["7", "unseen"]),
            (typed(DEC, Decimal(2**53 + 1)), [LARGER]),
        ],
    ),
    (
        typed(DEC, Decimal(2**53), Decimal(2**53 + 1), Decimal(10**30)),
        [LARGE, LARGER, str(10**30)],
        [
            (typed(INT64, 2**53 + 1, 2**53 + 2), [LARGER, "unseen"]),
            ([f"{LARGER}.0", str(10**30)], [LARGER, str(10**30)]),
        ],
    ),
    (
        typed(FLOAT, 7.0, 0.5, 1e20, 2.0**53),
        ["7", "0.5", "1e+20", "9.007199254740992e+15"],
        [
            (["7", "7.00", ".50", "1e20", "100000000000000000000.0", f"{LARGER}.0", f"{LARGE}.0"],
             ["7", "7", "0.5", "1e+20", "1e+20", "unseen", "9.007199254740992e+15"]),
            (typed(INT64, 7), ["7"]),
            (typed(pa.decimal128(20, 2), Decimal("7.00"), Decimal("0.50")), ["7", "0.5"]),
        ],
    ),
    (
        typed(pa.timestamp("ns"), *(np.datetime64(text, "ns") for text in (
            "2020-01-01", "2020-01-01T10:30:00", "1970-01-01T00:00:01.000000001"))),
        ["2020-01-01", "2020-01-01 10:30:00", "1970-01-01 00:00:01.000000001"],
        [(["2020-01-01 00:00:00", "2020-01-01T00:00", "2020-01-01T10:30:00.000", "2020-01-01T10:30:00.000Z",
           "1970-01-01T00:00:01.000000001", "1970-01-01T00:00:01", "2020-02-30 00:00:00", "NA"],
          ["2020-01-01", "2020-01-01", "2020-01-01 10:30:00", "unseen",
           "1970-01-01 00:00:01.000000001", "unseen", "unseen", "unseen"]),
         (typed(pa.timestamp("s"), datetime(2020, 1, 1, 10, 30)), ["2020-01-01 10:30:00"])],
    ),
    (
        typed(pa.timestamp("us", "Europe/Berlin"), datetime(2020, 1, 1, 10, 30), datetime(2020, 7, 1, 10)),
        ["2020-01-01 10:30:00Z", "2020-07-01 10:00:00Z"],
        [(["2020-01-01T10:30:00Z", "2020-07-01T10:00:00.000Z", "2020-07-01T12:00:00+02:00", "2020-07-01T12:00:00"],
          ["2020-01-01 10:30:00Z", *["2020-07-01 10:00:00Z"] * 2, "unseen"]),
         (["2020-01-01 11:30:00.000000+0100"], ["2020-01-01 10:30:00Z"]),
         (typed(pa.timestamp("us", "UTC"), datetime(2020, 7, 1, 10)), ["2020-07-01 10:00:00Z"])],
    ),
    (  # in 1900 clocks in Paris were 9 minutes and 21 seconds ahead
        typed(pa.timestamp("us", "Europe/Paris"), datetime(1900, 1, 1)),
        ["1900-01-01 00:00:00Z"],
        [(["1900-01-01T00:00:00Z", "1900-01-01T00:00:21Z"], ["1900-01-01 00:00:00Z", "unseen"]),
         (typed(pa.timestamp("us", "UTC"), datetime(1900, 1, 1)), ["1900-01-01 00:00:00Z"])],
    ),
    (
        typed(pa.date32(), date(2020, 1, 1)),
        ["2020-01-01"],
        [(["2020-01-01 00:00:00", "2020-01-01T10:30:00", "2020-01-01T00:00:00Z"], ["2020-01-01", "unseen", "unseen"])],
    ),
    (
        typed(pa.float32(), 0.1, 2**24, 2.0**60, 0.0),
        ["0.1", "16777216", "1.1529215e+18", "0"],
        [(["0.1", "0.10", "0.10000000149011612", "0.1000001", "16777216.0", "1152921504606846976", "1e-60", "-0",
           "1e60", "00.1", "016777216", "NA", "+0.1"],
          ["0.1", "0.1", "0.1", "unseen", "16777216", "1.1529215e+18", "unseen", "0", "unseen",
           "0.1", "unseen", None, "0.1"]),
         (typed(FLOAT, float(np.float32(0.1)), 0.1, 0.1000001, 2.0**60), ["0.1", "0.1", "unseen", "1.1529215e+18"]),
         (typed(pa.float32(), 0.1, 0.2), ["0.1", "unseen"])],
    ),
    (typed(FLOAT, 0.0, 0.5), ["0", "0.5"], [(["-0", "-0.0", "0", "-00"], ["0", "0", "0", "unseen"])]),
    (typed(INT64, 0, 5), ["0", "5"], [(["-0", "-0.0", "-5"], ["0", "0", "unseen"]), (typed(FLOAT, -0.0), ["0"])]),
    (
        typed(FLOAT, 0.1, 0.3, 1e-7),
        ["0.1", "0.3", "1e-7"],
        [(["0.10000000000000001", "0.29999999999999999", "9.9999999999999995e-08", "0.10000000000000002",
           "0.100000000000000001"], ["0.1", "0.3", "1e-7", "unseen", "unseen"])],
    ),
    (
        typed(pa.decimal128(20, 18), Decimal("0.1"), Decimal("0.3")),
        ["0.1", "0.3"],
        [(["0.1", "0.10000000000000001", "0.30"], ["0.1", "unseen", "0.3"])],
    ),
    (typed(pa.string(), "7", "7.0"), ["7", "7.0"], [(["7.0"], ["7.0"]), (typed(FLOAT, 7.0), ["7"])]),
    (["True", "true", "FALSE"], ["true", "false"], [(["TRUE"], ["true"]), (typed(pa.bool_(), False), ["false"])]),
]  # fmt: skip


def source_of(given: Any, path: Path) -> Any:
    """A typed table as it is; a list of text as a CSV."""
    if isinstance(given, pa.Table):
        return given
    path.write_text("a,b\n" + "".join(f'"{text}",x\n' for text in given))
    return path


@pytest.mark.parametrize("case", range(len(CASES)))
def test_which_key_a_value_finds(case: int, tmp_path: Path) -> None:
    """By type and text: the rule is that of `spelling.py`, in the encoder and in the graph of a saved model."""
    trained, keys, asked = CASES[case]
    encoder = fit(
        {"version": 1, "groups": {name: {"column": name} for name in "ab"}}, source_of(trained, tmp_path / "a.csv")
    ).encoder
    codec = encoder.codecs["a"]
    assert isinstance(codec, ItemsCodec)
    vocabulary = codec.vocabulary
    assert sorted(vocabulary.keys.to_pylist()) == sorted(keys)
    for rows, expected in asked:
        (batch,) = encoder.entries(source_of(rows, tmp_path / "new.csv"))
        ids = dense(batch["a"])[:, 0].tolist()
        assert [None if id_ == PADDING else vocabulary.key(id_) or "unseen" for id_ in ids] == expected
        if not isinstance(rows, pa.Table):
            graph = GraphVocabulary(vocabulary, as_text=True)(tf.constant(rows)).numpy()
            assert [None if id_ == PADDING else vocabulary.key(id_) or "unseen" for id_ in graph] == expected


NUMBERS = st.builds("{}e-{}".format, st.integers(-(10**30), 10**30), st.integers(0, 25)).map(Decimal)


def neighbours(number: Decimal) -> list[Decimal]:
    """The number, and others that are nearly the same float."""
    with decimal.localcontext(prec=80):
        small = Decimal("1e-25")
        return [number, number + small, number + 1, Decimal(repr(float(number))).quantize(small)]


NEIGHBOURS = st.lists(NUMBERS, min_size=1, max_size=4).map(
    lambda numbers: [some for number in numbers for some in neighbours(number)]
)
CELLS: st.SearchStrategy[tuple[pa.DataType | None, list[Any]]] = st.one_of(
    st.tuples(st.just(pa.decimal256(70, 25)), NEIGHBOURS),
    st.tuples(st.just(pa.int64()), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)),
    st.tuples(st.just(pa.uint64()), st.lists(st.integers(0, 2**64 - 1), min_size=1)),
    st.tuples(st.just(FLOAT), st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1)),
    st.tuples(st.just(pa.float32()), st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1)),
    st.tuples(st.none(), st.lists(st.one_of(NUMBERS, st.floats(), st.integers()).map(str), min_size=1)),
)


@given(CELLS)
@settings(deadline=None, max_examples=100)
def test_a_key_finds_itself(cells: tuple[pa.DataType | None, list[Any]]) -> None:
    """What a value is called in training, it is called later; its digits as text find it too, and nothing else."""
    with decimal.localcontext(prec=400):
        kind, values = cells
        stage = stage_of(values, kind or pa.string())
        keys = pc.unique(items_of(stage, "a", Lookup()).keys)
        if kind is None:  # as fitting leaves them out
            keys = keys.filter(pc.invert(pc.is_in(keys, pa.array(MISSING_NUMBERS))))
        counts = np.ones(len(keys), np.int64)
        vocabulary = Vocabulary(keys, counts, 0, "number" if kind is not None else "numeral")
        ids = np.arange(len(keys)) + FIRST
        assert vocabulary.ids(keys).tolist() == ids.tolist()
        assert GraphVocabulary(vocabulary, as_text=True)(tf.constant(keys.to_pylist())).numpy().tolist() == ids.tolist()
        if kind is None:
            assert vocabulary.ids(pa.array(MISSING_NUMBERS)).tolist() == [PADDING] * len(MISSING_NUMBERS)
        if kind is not None:
            digits = pa.array([f"{Decimal(key):f}" for key in keys.to_pylist()])
            if kind != pa.float32():  # whose large keys are rounded: 9.007199e+15 is 2**53
                assert vocabulary.ids(digits).tolist() == ids.tolist()
            others = [key for key in keys.to_pylist() if abs(Decimal(key)) > Decimal("1e-20")]
            nudged = [f"{Decimal(key) + Decimal('1e-30'):f}" for key in others]
            assert vocabulary.ids(pa.array(nudged, pa.string())).tolist() == [UNSEEN] * len(others)
            assert GraphVocabulary(vocabulary, as_text=True)(tf.constant(nudged, tf.string)).numpy().tolist() == [
                UNSEEN
            ] * len(others)
