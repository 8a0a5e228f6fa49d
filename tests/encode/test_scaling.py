"""Numbers to scales: against the reference, and what cannot be scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.arrays import Floats
from feat2vec.encode.codecs.numbers import KNOTS, ColumnFeed, ColumnScale, Scale, fit_scale, quantiles
from feat2vec.errors import UserError
from tests import reference

SCALES: list[Scale] = ["standard", "minmax", "log1p", "quantile", "none"]
EIGHTHS = st.integers(-7, 4000).map(lambda n: n / 8)


class Pieces(ColumnFeed):
    """A column's numbers in pieces of some size."""

    def __init__(self, numbers: Sequence[float], size: int = 3) -> None:
        self.numbers, self.size = np.array(numbers, np.float64), size

    def __call__(self) -> Iterator[Floats]:
        for start in range(0, len(self.numbers), self.size):
            yield self.numbers[start : start + self.size]


def fitted(scale: Scale, numbers: Sequence[float], size: int = 3) -> ColumnScale:
    with duckdb.connect() as connection:
        return fit_scale(connection, "x", "number", scale, Pieces(numbers, size), indicator=False)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.sampled_from(SCALES), st.lists(EIGHTHS, min_size=1, max_size=40), st.lists(EIGHTHS), st.integers(1, 50))
def test_as_the_reference(scale: Scale, training: list[float], new: list[float], size: int) -> None:
    with_gaps = [number for each in training for number in (each, np.nan)]
    column = fitted(scale, with_gaps, size)
    expected = [reference.scale_number(number, training, scale) for number in [*training, *new]]
    scaled = column.apply(np.array([*training, *new]))
    np.testing.assert_allclose(scaled, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(column.fill, np.mean(training), rtol=1e-12, atol=1e-12)
    filled = column.apply(np.array([np.nan]))
    assert filled.tolist() == column.apply(np.array([column.fill])).tolist()
    np.testing.assert_allclose(column.invert(scaled[: len(training)]), training, rtol=1e-9, atol=1e-6)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.lists(EIGHTHS, min_size=1), st.integers(2, 30), st.integers(1, 9))
def test_quantiles_are_exact(numbers: list[float], knots: int, size: int) -> None:
    with duckdb.connect() as connection:
        found = quantiles(connection, Pieces(numbers, size), knots)
    assert list(found) == [reference.quantile(numbers, Fraction(i, knots - 1)) for i in range(knots)]


@pytest.mark.parametrize("count", [4, 7, 50, 1000])
def test_whole_ranks_are_numbers_of_the_column(count: int) -> None:
    """A rank that is whole is not between two numbers: 3 is no 3.0000000000000004."""
    with duckdb.connect() as connection:
        for knots in range(2, 60):
            found = quantiles(connection, Pieces(range((knots - 1) * count + 1), 10**6), knots)
            assert list(found) == [i * count for i in range(knots)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("number", [0.1, 0.0, -0.0, 1e300, 5e-324])
@pytest.mark.parametrize("count", [1, 3, 7, 10_007])
def test_constants(scale: Scale, number: float, count: int) -> None:
    """Equal numbers have no deviation, although the mean of many of them may differ in its last bit."""
    column = fitted(scale, [number] * count, 10**6)
    assert column.fill == number
    if scale in ("standard", "minmax"):
        assert column.knots == (number, 1.0)
        assert column.apply(np.array([number, number + 1])).tolist() == [0.0, (number + 1) - number]
    if scale == "quantile":
        assert column.knots == (number,) * KNOTS
        assert column.apply(np.array([number])).tolist() == [0.5]


def test_quantiles_of_ties_and_beyond() -> None:
    column = fitted("quantile", [1.0] * 600 + [2.0] * 300 + [3.0] * 101)
    scaled = column.apply(np.array([-9.0, 1.0, 2.0, 3.0, 99.0]))
    np.testing.assert_allclose(scaled, [0.0, 0.2995, 0.7495, 0.95, 1.0])
    assert column.invert(scaled).tolist() == [1.0, 1.0, 2.0, 3.0, 3.0]


def test_minmax_and_standard_reach_beyond_training() -> None:
    assert fitted("minmax", [1.0, 3.0]).apply(np.array([0.0, 5.0])).tolist() == [-0.5, 2.0]
    assert fitted("standard", [1.0, 3.0]).apply(np.array([0.0, 5.0])).tolist() == [-2.0, 3.0]


@pytest.mark.parametrize(
    ("scale", "numbers", "match"),
    [
        ("standard", [], "column 'x': has no number in any row; remove it from its group"),
        ("minmax", [np.nan, np.nan], "column 'x': has no number in any row"),
        ("standard", [1e200, -1e200], r"from -1e\+200 to 1e\+200 are too far apart for `scale: standard`; divide them"),
        ("minmax", [1.5e308, -1.5e308], "too far apart for `scale: minmax`"),
        ("quantile", [1.5e308, -1.5e308], "too far apart for `scale: quantile`"),
        ("log1p", [1.5e308, 1.7e308], "too far apart for `scale: log1p`"),
    ],
)
def test_what_cannot_be_scaled(scale: Scale, numbers: list[float], match: str) -> None:
    with pytest.raises(UserError, match=match):
        fitted(scale, numbers, 10)


def test_large_numbers_that_can_be_scaled() -> None:
    assert fitted("log1p", [1e300, 1e10]).apply(np.array([1e300])).tolist() == [np.log1p(1e300)]
    assert fitted("minmax", [1e300, 0.0]).apply(np.array([1e300, 0.0])).tolist() == [1.0, 0.0]
