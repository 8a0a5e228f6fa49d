"""The coupon collector's probability against inclusion and exclusion in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from feat2vec.evaluation.coupons import chance_of_all, draws_for
from tests import reference


@pytest.mark.parametrize(
    "counts", [(1, 1), (1, 99), (1, 2, 3), (5, 5, 5, 5), (1, 1, 2, 30, 400), (1,) * 7, (3, 3, 1000)]
)
def test_the_probability_of_all_classes_is_that_of_inclusion_and_exclusion(counts: tuple[int, ...]) -> None:
    shares = [Fraction(count, sum(counts)) for count in counts]
    for draws in (1, 2, 3, 4, 5, 6, 7, 8, 11, 20, 57, 200, 1000):
        expected = float(reference.chance_of_all(shares, draws))
        assert chance_of_all(counts, draws) == pytest.approx(expected, rel=1e-9, abs=0), draws


def test_of_equal_classes_it_counts_surjections() -> None:
    """30 classes: 2^30 terms of inclusion and exclusion fold into 30."""
    for draws in (29, 30, 31, 60, 100, 300):
        total = sum((-1) ** j * math.comb(30, j) * (30 - j) ** draws for j in range(31))
        assert chance_of_all(np.ones(30), draws) == pytest.approx(float(Fraction(total, 30**draws)), rel=1e-9, abs=0)


def test_many_classes_and_draws() -> None:
    """Beside draws; and what it approaches, exp(-C exp(-N / C)) for C equal classes."""
    rng = np.random.default_rng(0)
    counts = 1 + rng.geometric(0.2, 40)
    drawn = rng.choice(40, p=counts / counts.sum(), size=(4_000, 300))
    share = np.mean([len(set(row)) == 40 for row in drawn.tolist()])
    assert chance_of_all(counts, 300) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4_000))
    many = chance_of_all(np.ones(1_000), 9_000)
    assert many == pytest.approx(math.exp(-1_000 * math.exp(-9)), abs=1e-3)
    assert many == pytest.approx(math.exp(-1_000 * (1 - 1 / 1_000) ** 9_000), abs=1e-4)


def test_the_draws_that_it_takes() -> None:
    counts = [1, 2, 3, 4]
    draws = draws_for(counts, 0.9, most=1_000)
    assert draws is not None
    assert chance_of_all(counts, draws - 1) < 0.9 <= chance_of_all(counts, draws)
    assert draws_for(counts, 0.9, most=draws) == draws
    assert draws_for(counts, 0.9, most=draws - 1) is None
    assert draws_for([1, 1], 0.4, most=10) == 2
