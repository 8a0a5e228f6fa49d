"""Alias tables against exact probabilities and the slow twin in tests/reference.py."""

from __future__ import annotations

import math
import time

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.sampling.alias_table import alias_table, log_probabilities, pack
from tests import reference


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 20), st.integers(0, 10**12)), min_size=1, max_size=80).filter(any),
    st.sampled_from([0.0, 0.3, 0.75, 1.0, 1.7]),
)
def test_the_table_gives_back_every_probability(counts: list[int], alpha: float) -> None:
    exact = reference.noise_probabilities(counts, alpha)
    keep, alias = alias_table(np.exp(log_probabilities(np.array(counts), alpha)))
    assert ((keep >= 0) & (keep <= 1)).all()
    rebuilt = reference.alias_probabilities(keep, alias)
    np.testing.assert_allclose(rebuilt, exact, rtol=1e-12, atol=0)
    assert not rebuilt[np.array(counts) == 0].any()
    check_packed(keep, alias)


def check_packed(keep: npt.NDArray[np.float64], alias: npt.NDArray[np.int64]) -> None:
    """Rounding a threshold to 2^-bits moves 2^-(bits + 1) / V, so a value that is no alias is as exact as this."""
    if len(keep) < 2:
        return
    packed, other = reference.alias_unpack(pack(keep, alias))
    bits = 63 - (len(keep) - 1).bit_length()
    np.testing.assert_array_equal(other, alias)
    alone = alias == np.arange(len(keep))
    np.testing.assert_allclose(packed[~alone], keep[~alone], rtol=2**-53, atol=1.01 * 2.0**-bits)
    assert (keep[alone] == 1).all()
    assert not packed[keep == 0].any()


@pytest.mark.parametrize("counts", [[10**9, 1], [1, 10**9], [1] * 7, [5, 5], [3], [10**15, 1, 0, 1]])
def test_the_table_at_the_edges(counts: list[int]) -> None:
    exact = reference.noise_probabilities(counts, 1.0)
    keep, alias = alias_table(exact)
    np.testing.assert_allclose(reference.alias_probabilities(keep, alias), exact, rtol=1e-12, atol=0)
    check_packed(keep, alias)
    if len(counts) > 1:  # what the draws really use
        packed = reference.alias_probabilities(*reference.alias_unpack(pack(keep, alias)))
        np.testing.assert_allclose(packed, exact, rtol=1e-6, atol=2.0**-60)


@pytest.mark.slow
@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_the_table_of_many_values(size: int) -> None:
    counts = np.maximum(1e7 / np.arange(1, size + 1), 0).astype(np.int64)
    counts[counts == 0] = np.random.default_rng(0).integers(0, 3, np.sum(counts == 0))
    counts = np.random.default_rng(1).permutation(counts)
    began = time.perf_counter()
    exact = np.exp(log_probabilities(counts, 0.75))
    keep, alias = alias_table(exact)
    words = pack(keep, alias)
    assert time.perf_counter() - began < 2 + size / 5e5  # a loop over values takes a minute
    exact /= math.fsum(exact)
    given_away = 1 - keep
    whole = np.floor(np.ldexp(given_away, 30))  # integers, so that their sums are exact
    rest = np.floor(np.ldexp(np.ldexp(given_away, 30) - whole, 30))
    sums = [np.ldexp(np.bincount(alias, part, size), -bits) for part, bits in ((whole, 30), (rest, 60))]
    rebuilt = (keep + sums[0] + sums[1]) / size
    seen = counts > 0
    np.testing.assert_allclose(rebuilt[seen], exact[seen], rtol=1e-12, atol=0)
    assert not rebuilt[~seen].any()
    low = (size - 1).bit_length()
    packed = np.ldexp((words >> low).astype(np.float64), low - 63)
    moved = np.where(alias == np.arange(size), 0, np.abs(packed - keep))
    assert moved.max() <= 1.01 * 2.0 ** (low - 63)
    assert moved.sum() / size <= 2.0 ** (low - 63)  # what Q2 as a whole is off by


def test_log_q_of_five_million_equal_values_is_exact_to_1e_6() -> None:
    exact = -math.log(5_000_000)
    assert abs(log_probabilities(np.ones(5_000_000, np.int64), 0.75)[7].astype(np.float32) - exact) < 1e-6
