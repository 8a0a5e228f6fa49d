"""Noise of tables on servers has the exact probabilities, and the log Q2 of noise with one table."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.cluster.spread_noise import SpreadNoise
from feat2vec.sampling.noise import Noise
from tests import reference
from tests.sampling.exact_noise import chi_square, find_tuple, p_values
from tests.sampling.tables import COUNTS, JOINT, JOINT_COUNTS, PARAMS, random_rows

SERVERS = {1: ["CPU:0"], 2: ["CPU:0"] * 2, 5: ["CPU:0"] * 5}  # with 5, some server has no value of a group of 3


def make(servers: int, sharing: str, negatives: int, joint: bool, alpha: float = 0.75) -> SpreadNoise:
    joints = [((0, 2), JOINT, JOINT_COUNTS)] if joint else ()
    return SpreadNoise(COUNTS, PARAMS, 0.25, alpha, negatives, sharing, joints, devices=SERVERS[servers])


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("servers", "sharing", "joint", "alpha"),
    [(2, "record", False, 0.75), (5, "batch", True, 0.75), (5, "record", True, 0.0), (2, "batch", False, 1.0)],
)
def test_a_million_draws_have_the_exact_probabilities(servers: int, sharing: str, joint: bool, alpha: float) -> None:
    negatives = 5 if sharing == "record" else 500_000
    assert all(1e-4 < p < 1 - 1e-4 for p in p_values(make(servers, sharing, negatives, joint, alpha), alpha))
    assert min(p_values(make(servers, sharing, negatives, joint, alpha + 0.02), alpha)) < 1e-4  # the test can fail


def test_a_large_table_has_the_exact_probabilities() -> None:
    counts = np.random.default_rng(2).zipf(1.3, 3000).clip(max=10**6)
    counts[::7] = 0
    noise = SpreadNoise([counts], [1], negatives=2_000_000, sharing="batch", devices=SERVERS[5])
    values = np.asarray(noise.sample(tf.zeros([1, 1], tf.int32), (3, 4))[0].values[0])
    observed, exact = np.bincount(values, minlength=3000), reference.noise_probabilities(counts.tolist(), 0.75)
    mass_of_servers = np.array([exact[server::5].sum() for server in range(5)])
    assert 1e-4 < chi_square(observed, exact) < 1 - 1e-4
    assert 1e-4 < chi_square(np.bincount(values % 5, minlength=5), mass_of_servers) < 1 - 1e-4


@pytest.mark.parametrize("sharing", ["record", "batch"])
def test_log_probabilities_are_those_of_one_table(sharing: str) -> None:
    rows = random_rows(400, columns=4)
    rows[:20, 1] = 99  # values of new rows
    joints = [((0, 2), JOINT, JOINT_COUNTS)]
    plain, spread = Noise(COUNTS, PARAMS, joint=joints, sharing=sharing), make(5, sharing, 5, True)
    for unit, spread_unit in zip(plain.units, spread.units, strict=True):
        assert unit[:4] == spread_unit[:4]
        assert unit.mean_log_q == pytest.approx(spread_unit.mean_log_q)
    draws = zip(
        plain.units, plain.sample(tf.constant(rows), (1, 2)), spread.sample(tf.constant(rows), (1, 2)), strict=True
    )
    for unit, expected, draw in draws:
        if sharing == "record":  # slices have the same rows
            np.testing.assert_array_equal(draw.rows, expected.rows)
            np.testing.assert_array_equal(draw.present, expected.present)
            np.testing.assert_allclose(draw.log_q_positive, expected.log_q_positive, rtol=1e-6)
        counts = JOINT_COUNTS if len(unit.groups) > 1 else COUNTS[unit.groups[0]]
        exact = np.log(np.maximum(reference.noise_probabilities(counts.tolist(), 0.75), 1e-300))
        drawn = np.asarray(draw.values[0])
        if len(unit.groups) > 1:
            drawn = np.array([find_tuple(p) for p in np.stack([np.ravel(v) for v in draw.values], 1)]).reshape(
                drawn.shape
            )
        np.testing.assert_allclose(draw.log_q, exact[drawn], rtol=1e-5)


def test_the_same_seed_gives_the_same_draws_in_a_graph() -> None:
    noise, rows = make(2, "record", 3, True), tf.constant(random_rows(50, columns=4))
    sample = tf.function(lambda step: noise.sample_all(rows, (7, step)).values)
    first, second = (np.asarray(sample(tf.constant(step))) for step in (0, 1))
    np.testing.assert_array_equal(first, noise.sample_all(rows, (7, 0)).values)
    assert (first != second).any()
