"""Two-step noise against exact probabilities and the slow twin in tests/reference.py."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.sampling.noise import Noise, alias_table, log_probabilities, pack
from tests import reference
from tests.sampling.exact_noise import chi_square, find_tuple, p_values
from tests.sampling.tables import COUNTS, JOINT, JOINT_COUNTS, PARAMS, random_rows


def make(sharing: str = "record", negatives: int = 5, joint: bool = False, alpha: float = 0.75) -> Noise:
    return Noise(COUNTS, PARAMS, 0.25, alpha, negatives, sharing, [((0, 2), JOINT, JOINT_COUNTS)] if joint else ())


def test_targets_limit_the_units() -> None:
    joint = [((0, 2), JOINT, JOINT_COUNTS)]
    assert [unit.groups for unit in Noise(COUNTS, PARAMS, targets=[2, 1]).units] == [(1,), (2,)]
    assert [unit.groups for unit in Noise(COUNTS, PARAMS, joint=joint, targets=[0, 2]).units] == [(0, 2)]
    (only,) = Noise(COUNTS, PARAMS, targets=[1]).units
    assert only.probability == 1
    with pytest.raises(ValueError, match="a unit with two or more counted values"):
        Noise(COUNTS, PARAMS, joint=joint, targets=[0])


def test_shares_are_what_q1_is_in_proportion_to() -> None:
    joint = [((0, 2), JOINT, JOINT_COUNTS)]
    for targets, shares, sets, expected in (
        (None, [1, 2, 5], (), {(0,): 1 / 8, (1,): 2 / 8, (2,): 5 / 8}),
        ([2, 1], [0, 0.3, 0.1], (), {(1,): 3 / 4, (2,): 1 / 4}),
        (None, [1, 2, 5], joint, {(1,): 2 / 8, (0, 2): 6 / 8}),  # a joint set has its members' weights
        ([0, 2], [1, 0, 5], joint, {(0, 2): 1}),
    ):
        units = Noise(COUNTS, PARAMS, targets=targets, shares=shares, joint=sets).units
        assert {unit.groups: unit.probability for unit in units} == pytest.approx(expected)
    noise = Noise(COUNTS, PARAMS, alpha_groups=7, shares=[1, 2, 5])
    assert [len(draw.rows) for draw in noise.sample(tf.constant(random_rows(800)), (0, 0))] == [100, 200, 500]


def digest() -> str:
    """What another process must find as well."""
    arrays = []
    for sharing in ("record", "batch"):
        noise = make(sharing, 7, joint=True)
        for step in (3, 4):
            for draw in noise.sample(tf.constant(random_rows(100, columns=4)), (11, step)):
                arrays += [draw.rows, *draw.values, draw.log_q, draw.log_q_positive, draw.hits]
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("alpha", [0.0, 0.75, 1.0])
@pytest.mark.parametrize("sharing", ["record", "batch"])
@pytest.mark.parametrize("joint", [False, True])
def test_a_million_draws_have_the_exact_probabilities(alpha: float, sharing: str, joint: bool) -> None:
    negatives = 5 if sharing == "record" else 500_000
    assert all(1e-4 < p < 1 - 1e-4 for p in p_values(make(sharing, negatives, joint, alpha), alpha))
    assert min(p_values(make(sharing, negatives, joint, alpha + 0.02), alpha)) < 1e-4  # the test can fail


@pytest.mark.parametrize("alpha", [0.0, 0.75])
def test_the_slow_twin_draws_the_same_distribution(alpha: float) -> None:
    units = [
        reference.NoiseUnit((g,), g, count.tolist(), [[v] for v in range(len(count))], PARAMS[g])
        for g, count in enumerate(COUNTS)
    ]
    rows, seconds = random_rows(30_000), []
    twin = reference.noise_sample(units, rows, 0.25, alpha, 5, "record", np.random.default_rng(1))
    for slow, fast, count in zip(twin, make(alpha=alpha).sample(tf.constant(rows), (1, 0)), COUNTS, strict=True):
        assert abs(len(slow.rows) - fast.rows.shape[0]) <= 1
        n = min(len(slow.rows), fast.rows.shape[0])
        both = [np.bincount(np.ravel(x), minlength=len(count)) for x in (slow.drawn[:n], fast.values[0][:n])]
        pooled = (both[0] + both[1])[count > 0]
        statistic = ((both[0] - both[1])[count > 0] ** 2 / pooled).sum()
        seconds.append(float(tf.math.igammac(np.float64((len(pooled) - 1) / 2), statistic / 2)))
        assert both[1][count == 0].sum() == 0
        assert abs(np.mean(slow.hits) - np.mean(fast.hits)) < 0.01
    assert all(1e-3 < p < 1 - 1e-3 for p in seconds)


def test_joint_groups_are_resampled_together_and_alone_in_their_unit() -> None:
    noise = make(joint=True)
    assert [unit.groups for unit in noise.units] == [(1,), (0, 2)]
    draw = noise.sample(tf.constant(random_rows(400, columns=4)), (0, 0))[1]
    pairs = np.stack([np.asarray(value).ravel() for value in draw.values], 1)
    assert {tuple(pair) for pair in pairs.tolist()} == {tuple(pair) for pair in JOINT.tolist()}


def test_a_value_without_a_count_is_never_drawn() -> None:
    noise = Noise([np.array([0, 7, 0, 0, 2, 0])], [1], alpha_values=0.0, negatives=100_000, sharing="batch")
    values = np.asarray(noise.sample(tf.zeros([1, 1], tf.int32), (0, 0))[0].values[0])
    assert set(values.tolist()) == {1, 4}
    assert abs(np.mean(values == 1) - 0.5) < 0.01


def test_extreme_skew_draws_the_rare_value_as_often_as_it_should() -> None:
    noise = Noise([np.array([10**9, 1])], [1], alpha_values=0.5, negatives=3_000_000, sharing="batch")
    draw = noise.sample(tf.zeros([1, 1], tf.int32), (0, 0))[0]
    expected = 3_000_000 / (1 + math.sqrt(1e9))  # 95
    assert abs(np.sum(draw.values[0]) - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize("batch", [1, 7, 2048])
def test_the_sizes_expect_the_exact_share_and_sum_to_the_batch(batch: int) -> None:
    steps = 20_000
    noise = Noise([np.array([1, 1])] * 4, [1, 16, 81, 10_000])
    allocate = tf.function(
        lambda: tf.map_fn(lambda step: noise.allocate(batch, (3, step)), tf.range(steps), parallel_iterations=1)
    )
    sizes = allocate().numpy()
    share = batch * np.array([1, 2, 3, 10]) / 16  # the fourth roots
    assert (sizes.sum(axis=1) == batch).all()
    assert (sizes >= np.floor(share)).all()
    assert (sizes <= np.ceil(share)).all()
    assert np.abs(sizes.mean(axis=0) - share).max() < 5 * 0.5 / math.sqrt(steps)


def test_the_sizes_follow_the_reference_number_by_number() -> None:
    q1 = reference.noise_probabilities(PARAMS, 0.25)
    noise = make()
    np.testing.assert_allclose([unit.probability for unit in noise.units], q1, rtol=1e-14)
    for step in range(60):
        u = float(tf.random.stateless_uniform([], (1, step), dtype=tf.float64, alg="philox"))
        np.testing.assert_array_equal(noise.allocate(101, (1, step)), reference.noise_sizes(101, q1, u))
    grid = [reference.noise_sizes(101, q1, (j + 0.5) / 4000) for j in range(4000)]
    np.testing.assert_allclose(np.mean(grid, axis=0), 101 * q1, atol=1 / 4000)  # the expectation, by enumeration


def test_the_slices_cover_the_batch_in_order() -> None:
    rows = random_rows(333)
    draws = make().sample(tf.constant(rows), (0, 5))
    np.testing.assert_array_equal(np.concatenate([draw.rows for draw in draws]), rows)


def test_a_unit_with_one_value_is_no_target() -> None:
    counts = [np.array([5, 0, 0]), np.array([1, 1]), np.array([9]), np.array([2, 0, 2])]
    noise = Noise(counts, [9, 1, 9, 16], alpha_groups=0.5)
    assert [unit.groups for unit in noise.units] == [(1,), (3,)]
    assert [unit.probability for unit in noise.units] == pytest.approx([0.2, 0.8])
    assert [len(draw.rows) for draw in noise.sample(tf.zeros([100, 4], tf.int32), (0, 0))] == [20, 80]


def test_a_joint_unit_has_the_weights_of_all_its_groups() -> None:
    q1 = reference.noise_probabilities([PARAMS[1], PARAMS[0] + PARAMS[2]], 0.25)
    assert [unit.probability for unit in make(joint=True).units] == pytest.approx(q1.tolist())


@pytest.mark.parametrize("sharing", ["record", "batch"])
@pytest.mark.parametrize("joint", [False, True])
def test_present_hits_and_log_q_against_plain_loops(sharing: str, joint: bool) -> None:
    rows = random_rows(300, columns=4)
    rows[::7, 1], rows[1::7, 3] = 12, 6  # a value and a tuple that training never saw
    rows = rows if joint else rows[:, :3]
    noise = make(sharing, 6, joint)
    for unit, draw in zip(noise.units, noise.sample(tf.constant(rows), (2, 2)), strict=True):
        counts = (JOINT_COUNTS if len(unit.groups) > 1 else COUNTS[unit.groups[0]]).tolist()
        index = np.asarray(draw.values[0])
        if len(unit.groups) > 1:
            pairs = np.stack([np.asarray(value) for value in draw.values], -1).reshape(-1, 2)
            index = np.array([find_tuple(pair) for pair in pairs.tolist()]).reshape(index.shape)
        assert index.shape == ((len(draw.rows), 6) if sharing == "record" else (6,))
        log_q = np.vectorize(lambda v, c=counts: reference.noise_log_q(c, 0.75, v))
        np.testing.assert_allclose(draw.log_q, log_q(index), atol=1e-6, rtol=0)
        own = np.asarray(draw.rows)[:, unit.column]
        np.testing.assert_allclose(draw.log_q_positive, log_q(own), atol=1e-6, rtol=0)
        for r, row in enumerate(np.asarray(draw.rows)):
            assert bool(draw.present[r]) == (row[unit.column] >= 0)
            for k in range(6):
                drawn = index[r, k] if sharing == "record" else index[k]
                assert bool(draw.hits[r, k]) == (drawn == row[unit.column])
        assert draw.log_q.dtype == draw.log_q_positive.dtype == tf.float32
        assert np.any(draw.hits)
        q2 = reference.noise_probabilities(counts, 0.75)
        assert unit.mean_log_q == pytest.approx(sum(q * math.log(q) for q in q2 if q > 0))


def test_the_rows_that_count_have_the_exact_share_of_their_unit() -> None:
    """Theorem 1 for missing groups: E [rows with a positive of i] / batch = Q1(i) times the share that has i."""
    rng = np.random.default_rng(0)
    table, noise = random_rows(1000), make()
    totals = np.zeros(3)
    for step in range(200):
        draws = noise.sample(tf.constant(table[rng.permutation(1000)[:256]]), (0, step))
        totals += [np.sum(draw.present) for draw in draws]
    share = np.array([unit.probability for unit in noise.units]) * (table >= 0).mean(axis=0)
    spread = np.sqrt(share / (200 * 256))
    assert (np.abs(totals / (200 * 256) - share) < 4 * spread).all()


def test_the_same_seed_gives_the_same_draws_in_any_order() -> None:
    noise, rows = make("record", 50), tf.constant(random_rows(64))
    first = {step: [draw.values[0].numpy() for draw in noise.sample(rows, (1, step))] for step in (0, 1, 2)}
    again = {step: [draw.values[0].numpy() for draw in noise.sample(rows, (1, step))] for step in (2, 0, 1)}
    other = [draw.values[0].numpy() for draw in make("record", 50).sample(rows, tf.constant([1, 2]))]
    for step in (0, 1, 2):
        for a, b in zip(first[step], again[step], strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(first[2], other, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0][1][:40], first[1][1][:40])
    assert not np.array_equal(first[0][1][:40], noise.sample(rows, (2, 0))[1].values[0][:40])


@pytest.mark.slow
def test_another_process_draws_the_same() -> None:
    code = "from tests.sampling.test_noise import digest; print(digest())"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == digest()


@pytest.mark.parametrize("sharing", ["record", "batch"])
def test_steps_units_and_neighbours_are_independent(sharing: str) -> None:
    size, batch, negatives = 6, 60_000 if sharing == "record" else 2, 2 if sharing == "record" else 60_000
    noise = Noise([np.array([9, 5, 3, 2, 2, 1])] * 2, [1, 1], negatives=negatives, sharing=sharing)
    q2 = reference.noise_probabilities([9, 5, 3, 2, 2, 1], 0.75)
    rows = tf.zeros([batch, 2], tf.int32)
    steps = [[np.asarray(draw.values[0]).ravel() for draw in noise.sample(rows, (8, step))] for step in (0, 1)]
    a, b = steps[0]
    pairs = {"units": (a, b), "steps": (a, steps[1][0]), "across": (a, steps[1][1]), "neighbours": (a[:-1], a[1:])}
    for name, (x, y) in pairs.items():
        # the last pair overlaps, so every second pair of it only
        step = 2 if name == "neighbours" else 1
        both = np.bincount((x * size + y)[::step], minlength=size * size)
        assert 1e-4 < chi_square(both, np.outer(q2, q2).ravel()) < 1 - 1e-4, name


def test_the_allocation_says_nothing_about_the_draws() -> None:
    # With 2^20 equal values the value's leading bit would be that of `u`, were their seeds the same.
    noise = Noise([np.ones(1 << 20, np.int64)] * 2, [1, 1], negatives=64, sharing="batch")
    rows = tf.zeros([1, 2], tf.int32)
    sample = tf.function(lambda step: [(tf.shape(d.rows)[0], d.values[0]) for d in noise.sample(rows, (4, step))])
    drawn = [sample(tf.constant(step)) for step in range(1500)]
    rounding = np.array([int(draws[0][0]) for draws in drawn])
    values = np.array([draws[0][1] for draws in drawn])
    correlation = np.abs(np.corrcoef(np.column_stack([rounding, values]).T)[0, 1:])
    assert correlation.max() < 4.5 / math.sqrt(1500)


@pytest.mark.parametrize("sharing", ["record", "batch"])
def test_the_traced_graph_gathers_and_holds_no_table(sharing: str) -> None:
    size = 50_000
    noise = Noise([np.arange(1, size + 1)] * 3, [5, 6, 7], sharing=sharing, joint=[((0, 2), JOINT, JOINT_COUNTS)])
    sample = tf.function(lambda rows, step: noise.sample(rows, (1, step)))
    graph = sample.get_concrete_function(tf.TensorSpec([None, 4], tf.int32), tf.TensorSpec([], tf.int64)).graph
    handles = {id(inner) for _, inner in graph.captures if inner.dtype == tf.resource}
    users = {op.type for op in graph.get_operations() for x in op.inputs if id(x) in handles}
    assert users == {"ResourceGather"}
    assert len(handles) == 3
    assert "ReadVariableOp" not in {op.type for op in graph.get_operations()}
    assert all(inner.dtype == tf.resource for _, inner in graph.captures)
    assert graph.as_graph_def().ByteSize() < 100_000


def test_steps_and_batch_sizes_do_not_retrace() -> None:
    noise = make()
    sample = tf.function(
        lambda rows, step: noise.sample(rows, (1, step))[0].values,
        input_signature=[tf.TensorSpec([None, 3], tf.int32), tf.TensorSpec([], tf.int64)],
    )
    for step, batch in enumerate((64, 64, 9, 1, 0)):
        rows = tf.constant(random_rows(batch))
        eager = noise.sample(rows, (1, step))[0].values
        np.testing.assert_array_equal(sample(rows, tf.constant(step, tf.int64))[0], eager[0])
    assert sample.experimental_get_tracing_count() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": [1]}, r"params for each of 2 groups\. Received: \[1\]"),
        ({"params": [1, 0]}, r"params of one or more\. Received: \[1, 0\]"),
        ({"counts": [np.array([1, -2]), np.array([1])]}, r"counts of zero or more\. Received: -2"),
        ({"alpha_groups": -0.1}, r"finite alpha_groups of zero or more\. Received: -0.1"),
        ({"alpha_values": math.nan}, r"finite alpha_values of zero or more\. Received: nan"),
        ({"alpha_values": math.inf}, r"finite alpha_values of zero or more\. Received: inf"),
        ({"negatives": 0}, r"one or more negatives\. Received: 0"),
        ({"sharing": "row"}, r"sharing 'record' or 'batch'\. Received: 'row'"),
        ({"joint": [((0,), JOINT[:, :1], JOINT_COUNTS)]}, r"of two or more of the groups 0\.\.1\. Received: \[0\]"),
        ({"joint": [((0, 2), JOINT, JOINT_COUNTS)]}, r"of two or more of the groups 0\.\.1\. Received: \[0, 2\]"),
        ({"joint": [((0, 1), JOINT, JOINT_COUNTS)] * 2}, r"one joint set at most\. Received: \[0, 1, 0, 1\]"),
        (
            {"joint": [((0, 1), JOINT[1:], JOINT_COUNTS)]},
            r"counts \[tuples\]\. Received: \[\(\(0, 1\), \(5, 2\), \(6,\)",
        ),
        ({"counts": [np.array([4, 0]), np.array([1])]}, r"two or more counted values\. Received: \[1, 1\] values"),
    ],
)
def test_an_error_says_what_was_needed_and_received(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"counts": [np.array([1, 2]), np.array([1, 1])], "params": [1, 1]}
    with pytest.raises(ValueError, match=message):
        Noise(**{**arguments, **change})


@pytest.mark.parametrize(
    ("rows", "received"),
    [
        (np.zeros([4, 2], np.int32), r"int32 \(4, 2\)"),
        (np.zeros([4, 3], np.int64), r"int64 \(4, 3\)"),
        (np.zeros(3, np.int32), r"int32 \(3,\)"),
    ],
)
def test_rows_of_another_shape_are_refused(rows: npt.NDArray[Any], received: str) -> None:
    with pytest.raises(ValueError, match=rf"rows must be int32 \[batch, 3\].*Received: {received}"):
        make().sample(tf.constant(rows), (0, 0))


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
