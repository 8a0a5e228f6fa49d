"""Texts of numbers: which follow from the numbers, and that they are made again letter by letter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feat2vec.table.number_texts import NumberTexts, numbers_of_texts, texts_of_numbers


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["1", "-20", "", "NA"], "integer"),
        (["1.0", "2.5", "1e-05", "1e+16"], "point"),
        (["1.50", "2.25", "-0.75"], "places 2"),
        (["1", "2.5"], "shortest"),
        (["1.5", "1.50"], None),
        (["007", "8"], None),
        (["+5"], None),
        ([" 5"], None),
        (["1_000"], None),
        (["0.00", "-0.00"], None),
        (["1", "inf"], None),
        (["9007199254740993", "1"], None),
        (["12345678901234567890"], None),
        (["0.10000000000000001"], None),
        (["NA", ""], None),
        (["a"], None),
    ],
)
def test_forms(texts: list[str], form: str | None) -> None:
    column = NumberTexts()
    for text in texts:
        column.add(pa.array([text]))
    column.add(pa.array([None], pa.string()))
    assert column.form == form
    whole = NumberTexts()
    whole.add(pa.chunked_array([pa.array(texts).dictionary_encode()]))
    assert whole.form == form


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_what_python_writes_is_made_again(numbers: list[float]) -> None:
    texts = pa.array([repr(number) for number in numbers])
    column = NumberTexts()
    column.add(texts)
    assert column.form is not None or max(map(abs, numbers)) > 1.7e308
    if column.form is not None:
        assert texts_of_numbers(numbers_of_texts(texts, column.form), column.form).equals(texts)


def test_places_are_kept() -> None:
    texts = pa.array([f"{number:.3f}" for number in np.random.default_rng(0).normal(size=500) * 1e4])
    column = NumberTexts()
    column.add(texts)
    assert column.form == "places 3"
    assert texts_of_numbers(numbers_of_texts(texts, "places 3"), "places 3").equals(texts)
