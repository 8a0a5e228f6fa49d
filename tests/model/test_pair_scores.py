"""Scores and gradients against loops over pairs of items."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.model import pair_scores, pair_scores_by_key
from feat2vec.model.pair_scores import (
    Level,
    Submodels,
    context,
    cross,
    interaction,
    pairwise,
    replaced,
    submodels,
    truncated,
)
from feat2vec.model.pair_scores_by_key import (
    BagPairs,
    KeyVectors,
    LevelByKey,
    Occurrences,
    side_by_side,
    submodels_by_key,
)
from tests import reference
from tests.reference import Array, BagRow

Tensor = Any
RANKS = [2, 3, 5, 7]
MODES: list[pair_scores.Dependents] = ["joint", "strict"]


def close(got: Tensor, expected: Tensor) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-10, atol=1e-10)


def dense(parts: Sequence[tuple[Array, Array]]) -> list[Level]:
    """The top level has no dependents, as the model gives it."""
    last = len(parts) - 1
    return [Level(tf.constant(f), None if p == last else tf.constant(d)) for p, (f, d) in enumerate(parts)]


def active(part: Tensor) -> npt.NDArray[np.bool_]:
    """[rows, groups]: where there is a vector."""
    found: npt.NDArray[np.bool_] = (np.asarray(part) != 0).any(-1)
    return found


def keyed(levels: Sequence[Level]) -> list[LevelByKey]:
    """Each vector as a key's, in the order of rows; the last level has only the rows that reach it."""
    found = []
    for level in levels:
        free, dependent = (None if part is None else active(part) for part in level)
        assert free is not None
        parts, count = [level.free.numpy()[free]], int(free.sum())
        own = occurrences(free, 0)
        if dependent is None:
            reach, rows = tf.unique(own.rows)
            found.append(LevelByKey(tf.constant(parts[0]), own._replace(rows=rows), reach=reach))
            continue
        assert level.dependent is not None
        parts.append(level.dependent.numpy()[dependent])
        places = [np.cumsum(free).reshape(free.shape) - 1, np.cumsum(dependent).reshape(free.shape) - 1 + count]
        bags = free & dependent
        both = BagPairs(
            *(tf.constant(x.astype(np.int32)) for x in (places[0][bags], places[1][bags], np.nonzero(bags)[0]))
        )
        vectors = tf.constant(np.concatenate(parts))
        found.append(LevelByKey(vectors, own, occurrences(dependent, count), both if bags.any() else None))
    return found


def occurrences(there: npt.NDArray[np.bool_], start: int) -> Occurrences:
    places = np.arange(start, start + there.sum(), dtype=np.int32)
    return Occurrences(tf.constant(places), tf.constant(np.nonzero(there)[0].astype(np.int32)))


def scored(levels: Sequence[Level] | Sequence[LevelByKey], *args: Any) -> Submodels:
    """`submodels` of vectors in either form."""
    if isinstance(levels[0], LevelByKey):
        return submodels_by_key(cast(list[LevelByKey], levels), *args)
    return submodels(cast(list[Level], levels), *args)


def spread(levels: Sequence[Level], grads: Sequence[Tensor]) -> list[Array]:
    """Gradients of keys back in their dense places, zeros elsewhere."""
    found = []
    for level, grad in zip(levels, grads, strict=True):
        at = 0
        for part in level:
            if part is not None:
                place = active(part)
                found.append(np.zeros((*place.shape, grad.shape[-1])))
                found[-1][place] = grad[at : at + place.sum()]
                at += place.sum()
    return found


def parts_of(levels: Sequence[Level] | Sequence[LevelByKey]) -> list[Tensor]:
    if isinstance(levels[0], LevelByKey):
        return [level.vectors for level in cast(list[LevelByKey], levels)]
    return [part for level in cast(list[Level], levels) for part in level if part is not None]


def gradients(function: Callable[..., Tensor], sources: Sequence[Tensor], *args: Any) -> list[Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(list(sources))
        value = function(*args)
    return [np.asarray(g) for g in tape.gradient(value, list(sources), unconnected_gradients="zero")]


def central(function: Callable[[], Tensor], array: Array, step: float = 1e-5) -> Array:
    """Central differences of a function that reads `array`."""
    found = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        kept = array[index]
        array[index] = kept + step
        above = float(function())
        array[index] = kept - step
        found[index] = (above - float(function())) / (2 * step)
        array[index] = kept
    return found


def case(seed: int, m: int, rows: int = 6, groups: int = 4) -> tuple[list[BagRow], list[Level], Tensor]:
    rng = np.random.default_rng(seed)
    items = reference.random_rows(rng, rows, groups, RANKS[:m])
    return items, dense(reference.levels(items, RANKS[:m])), tf.constant(rng.normal(size=rows))


# Pairs


def test_pairwise_and_interaction_are_sums_over_pairs() -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    expected = sum(vectors[..., i, :] * vectors[..., j, :] for i in range(4) for j in range(i + 1, 4))
    close(interaction(vectors), expected)
    close(pairwise(vectors), np.sum(expected, axis=-1))
    assert interaction(vectors).shape == (2, 3, 5)
    assert pairwise(vectors).shape == (2, 3)
    close(pairwise(vectors), 0.5 * ((vectors.sum(-2) ** 2).sum(-1) - (vectors**2).sum((-2, -1))))


@pytest.mark.parametrize("groups", [0, 1])
def test_without_a_pair_the_score_is_exactly_zero(groups: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, groups, 5))
    np.testing.assert_array_equal(pairwise(vectors), np.zeros(3))
    if groups:
        np.testing.assert_array_equal(pairwise(np.pad(vectors, ((0, 0), (1, 2), (0, 0)))), np.zeros(3))


def test_gradients_of_pairwise_and_interaction_by_central_differences() -> None:
    rng = np.random.default_rng(1)
    vectors, weights, wide = rng.normal(size=(2, 3, 4)), rng.normal(size=2), rng.normal(size=(2, 4))

    def one() -> Tensor:
        return tf.reduce_sum(pairwise(tf.constant(vectors)) * weights)

    def each() -> Tensor:
        return tf.reduce_sum(interaction(tf.constant(vectors)) * wide)

    source = tf.constant(vectors)
    np.testing.assert_allclose(
        gradients(lambda: tf.reduce_sum(pairwise(source) * weights), [source])[0], central(one, vectors), atol=1e-8
    )
    np.testing.assert_allclose(
        gradients(lambda: tf.reduce_sum(interaction(source) * wide), [source])[0], central(each, vectors), atol=1e-8
    )


# Submodels: values


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dependents", MODES)
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_submodels_are_those_of_the_paper(m: int, dependents: pair_scores.Dependents, packed: bool) -> None:
    items, levels, linear = case(m, m, rows=8, groups=5)
    items[0], items[1] = [[] for _ in items[0]], [*items[1][:1], *([] for _ in items[1][1:])]  # empty, one group only
    levels = dense(reference.levels(items, RANKS[:m]))
    result = scored(keyed(levels) if packed else levels, linear, dependents)
    assert len(result.scores) == m
    for p, got in enumerate(result.scores, start=1):
        close(got, [reference.b(row, 1, p) + float(w) for row, w in zip(items, linear, strict=True)])
    close(result.scores[-1] - linear, [reference.score(row) for row in items])
    for target, got in zip(result.targets, result.scores[1:], strict=True):
        np.testing.assert_array_equal(target, got)


def test_theorem_3_holds_on_items_and_gives_the_parts() -> None:
    items, levels, _ = case(3, 3)
    for r, row in enumerate(items):
        for p in (1, 2):
            step = reference.a(row, p + 1, p + 1) - reference.a(row, p, p + 1)
            assert reference.b(row, 1, p + 1) == pytest.approx(reference.b(row, 1, p) + step, abs=1e-10)
            free, dependent = (np.asarray(part)[r] for part in levels[p - 1][:2])
            assert float(pairwise(dependent)) == pytest.approx(reference.a(row, p, p + 1), abs=1e-10)
            assert float(pairwise(free + dependent)) == pytest.approx(reference.a(row, p, p), abs=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dependents", MODES)
def test_one_level_is_the_plain_fm_bit_for_bit(dependents: pair_scores.Dependents, dtype: str) -> None:
    rng = np.random.default_rng(0)
    vectors = tf.constant(rng.normal(size=(50, 5, 16)), dtype)
    linear, weights = tf.constant(rng.normal(size=50), dtype), tf.constant(rng.normal(size=50), dtype)
    result = submodels([Level(vectors)], linear, dependents)
    assert (len(result.scores), result.targets) == (1, [])
    np.testing.assert_array_equal(result.scores[0], linear + pairwise(vectors))
    np.testing.assert_array_equal(truncated([Level(vectors)], linear), linear + pairwise(vectors))
    fm = gradients(lambda: tf.reduce_sum(weights * (linear + pairwise(vectors))), [vectors, linear])
    ours = gradients(
        lambda: tf.reduce_sum(weights * submodels([Level(vectors)], linear, dependents).scores[0]), [vectors, linear]
    )
    for got, expected in zip(ours, fm, strict=True):
        np.testing.assert_array_equal(got, expected)


# Submodels: gradients


def test_the_joint_top_score_has_its_true_gradient() -> None:
    _, levels, linear = case(7, 3, rows=2, groups=3)
    weights = np.random.default_rng(0).normal(size=2)
    grads = gradients(lambda: tf.reduce_sum(submodels(levels, linear).scores[-1] * weights), parts_of(levels))
    arrays = [part.numpy() for part in parts_of(levels)]

    def function() -> Tensor:
        parts = [tf.constant(array) for array in arrays]
        return tf.reduce_sum(
            submodels([Level(*parts[:2]), Level(*parts[2:4]), Level(parts[4])], linear)[0][-1] * weights
        )

    for got, array in zip(grads, arrays, strict=True):
        np.testing.assert_allclose(got, central(function, array), atol=1e-8)


def sigmoid(scores: Tensor) -> Tensor:
    return 1 / (1 + np.exp(-np.asarray(scores)))


def loss_of(result: Submodels, labels: Tensor, p: int, kind: str) -> Tensor:
    """The loss of B_{1,p}, p from 1; the last one has the labels."""
    top = p == len(result.scores)
    score = result.scores[p - 1]
    if kind == "square":
        return tf.reduce_sum(0.5 * (score - (labels if top else result.targets[p - 1])) ** 2)
    target = labels if top else tf.sigmoid(result.targets[p - 1])
    return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=score))


def slope_of(scores: Sequence[Array], labels: Array, p: int, kind: str) -> Array:
    """The derivative of that loss by B_{1,p}, by hand."""
    link = sigmoid if kind == "log" else np.asarray
    return np.asarray(link(scores[p - 1]) - (labels if p == len(scores) else link(scores[p])))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["square", "log"])
@pytest.mark.parametrize("dependents", MODES)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_each_loss_reaches_the_factors_that_it_trains(
    m: int, dependents: pair_scores.Dependents, kind: str, packed: bool
) -> None:
    items, levels, linear = case(10 + m, m)
    labels = np.random.default_rng(m).integers(0, 2, size=len(items)).astype(float)
    given_levels = keyed(levels) if packed else levels
    scores = [np.array([reference.b(row, 1, p) for row in items]) + linear.numpy() for p in range(1, m + 1)]
    reached: set[tuple[bool, bool]] = set()
    for p in range(1, m + 1):  # one loss at a time
        sources = [*parts_of(given_levels), linear]

        def loss(p: int) -> Tensor:
            return loss_of(scored(given_levels, linear, dependents), labels, p, kind)

        *grads, to_linear = gradients(loss, sources, p)
        grads = spread(levels, grads) if packed else grads
        slope = slope_of(scores, labels, p, kind)
        slopes = [slope if q == p else np.zeros_like(slope) for q in range(1, m + 1)]
        close(to_linear, slope if p == m or dependents == "joint" else np.zeros_like(slope))
        for r, row in enumerate(items):
            for g, bag in enumerate(row):
                for item in bag:
                    for level in range(1, item.level + 1):
                        expected = reference.algorithm_1(row, g, item, level, [s[r] for s in slopes], dependents)
                        got = grads[2 * (level - 1) + (level < item.level)][r, g] * item.x
                        close(got, expected)
                        reached |= {(level == item.level, p == m)} if np.abs(expected).max() > 1e-3 else set()
    free_top, dependent_low, dependent_top = (True, True), (False, False), (False, True)
    classes = {free_top} | ({dependent_low} if m > 1 else set())
    assert reached == classes | ({dependent_top} if m > 1 and dependents == "joint" else set())


@pytest.mark.parametrize("dependents", MODES)
def test_no_dependents_are_zero_dependents(dependents: pair_scores.Dependents) -> None:
    """At a level below the top, and a zero part at the top level."""
    _, levels, linear = case(6, 3)
    zeros = [level._replace(dependent=tf.zeros_like(level.free)) for level in levels]
    without = [Level(level.free) for level in levels]
    around, own = context(levels), tf.zeros([6, 1], tf.float64)
    for p in range(3):
        frees = [*(level.free for level in levels), linear]
        found = [
            gradients(
                lambda parts, p: tf.reduce_sum(submodels(parts, linear, dependents).scores[p] ** 2), frees, parts, p
            )
            for parts in (zeros, without)
        ]
        for one, other in zip(*found, strict=True):
            close(one, other)
        close(submodels(zeros, linear).scores[p], submodels(without, linear).scores[p])
        base = submodels(levels, linear, dependents)
        one, other = (
            replaced(base, [Level(*(x if x is None else x[:, :1] for x in level[:2])) for level in parts], around, own)
            for parts in (zeros, without)
        )
        close(one.scores[p], other.scores[p])


@pytest.mark.parametrize("dependents", MODES)
def test_targets_carry_no_gradient(dependents: pair_scores.Dependents) -> None:
    _, levels, linear = case(5, 3)
    sources = [*parts_of(levels), linear]
    for p in range(2):
        for got in gradients(lambda p: tf.reduce_sum(submodels(levels, linear, dependents).targets[p]), sources, p):
            close(got, np.zeros_like(got))


def test_all_losses_together_are_one_step_of_algorithm_1() -> None:
    items, levels, linear = case(21, 3)
    labels = np.random.default_rng(0).normal(size=len(items))

    def loss() -> Tensor:
        result = submodels(levels, linear, "strict")
        return tf.add_n([loss_of(result, labels, p, "square") for p in (1, 2, 3)])

    grads = gradients(loss, parts_of(levels))
    scores = [np.array([reference.b(row, 1, p) for row in items]) + linear.numpy() for p in (1, 2, 3)]
    slopes = [slope_of(scores, labels, p, "square") for p in (1, 2, 3)]
    for r, row in enumerate(items):
        for g, bag in enumerate(row):
            for item in bag:
                for level in range(1, item.level + 1):
                    expected = reference.algorithm_1(row, g, item, level, [s[r] for s in slopes], "strict")
                    close(grads[2 * (level - 1) + (level < item.level)][r, g] * item.x, expected)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dependents", MODES)
def test_masks_scale_the_coordinates_of_the_interaction_vector(
    dependents: pair_scores.Dependents, packed: bool
) -> None:
    _, levels, linear = case(9, 3)
    rng = np.random.default_rng(0)
    masks = [tf.constant(rng.integers(0, 2, size=(6, rank)) * 1.25) for rank in RANKS[:3]]
    scaled = [
        Level(*(None if part is None else part * tf.sqrt(mask)[:, None] for part in level))
        for level, mask in zip(levels, masks, strict=True)
    ]
    given_levels = keyed(levels) if packed else levels
    expected, got = submodels(scaled, linear, dependents), scored(given_levels, linear, dependents, masks)
    plain = submodels(levels, linear, dependents)
    close(got.scores[-1], expected.scores[-1])
    for one, other in zip(got.targets, plain.targets, strict=True):  # a level learns from what has lost nothing
        close(one, other)

    def below(levels: Sequence[Level], p: int) -> Tensor:
        """The pairs that meet below level p."""
        pairs = [(level.free + level.dependent, level.dependent) for level in levels[:p]]
        return sum(
            (pair_scores.pairwise(whole) - pair_scores.pairwise(rest) for whole, rest in pairs),
            tf.zeros(6, tf.float64),
        )

    for p in range(2):  # nor is what is constant at a level masked
        close(got.scores[p], expected.scores[p] - below(scaled, p) + below(levels, p))
    upstream = tf.constant(rng.normal(size=6))
    for p in range(3):
        grads = gradients(
            lambda p: tf.reduce_sum(scored(given_levels, linear, dependents, masks).scores[p] * upstream),
            parts_of(given_levels),
            p,
        )
        grads = spread(levels, grads) if packed else grads
        roots = [tf.sqrt(masks[q])[:, None] for q in (0, 0, 1, 1, 2)]
        wanted = gradients(
            lambda p: tf.reduce_sum(submodels(scaled, linear, dependents).scores[p] * upstream), parts_of(scaled), p
        )
        places = [active(part)[..., None] | (not packed) for part in parts_of(levels)]
        for one, other, root, place in zip(grads, wanted, roots, places, strict=True):
            close(one, other * root * place)


# Noise


def split(levels: Sequence[Level], target: int) -> tuple[list[Level], list[Level]]:
    """The target group's vectors, [n, rank], and the other groups', [n, groups - 1, rank]."""
    keep = [g for g in range(levels[0].free.shape[1]) if g != target]
    one = [Level(*(None if part is None else part[:, target] for part in level)) for level in levels]
    rest = [Level(*(None if p is None else tf.gather(p, keep, axis=1) for p in level)) for level in levels]
    return one, rest


def rescored(rest: Sequence[Level], candidates: Sequence[Level], shared: bool) -> list[Level]:
    """Whole rows with each candidate in place, [n, k, groups, rank]."""

    def whole(others: Tensor, candidate: Tensor) -> Tensor:
        n, k = others.shape[0], candidate.shape[-2]
        own = tf.broadcast_to(candidate[None] if shared else candidate, [n, k, candidate.shape[-1]])
        return tf.concat([tf.repeat(others[:, None], k, axis=1), own[:, :, None]], axis=2)

    return [
        Level(*(None if part is None else whole(part, candidate[i]) for i, part in enumerate(level[:2])))
        for level, candidate in zip(rest, candidates, strict=True)
    ]


def candidates_of(seed: int, m: int, k: int, shared: bool, n: int = 6) -> tuple[list[Level], Tensor]:
    rng = np.random.default_rng(seed)
    rows = reference.random_rows(rng, k if shared else n * k, 1, RANKS[:m])
    parts = [[part[:, 0] for part in pair] for pair in reference.levels(rows, RANKS[:m])]
    shape = (k,) if shared else (n, k)
    levels = dense([(f.reshape(*shape, -1), d.reshape(*shape, -1)) for f, d in parts])
    return levels, tf.constant(rng.normal(size=shape))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("m", [1, 2, 4])
def test_cross_is_the_difference_to_rescoring_whole_rows(m: int, shared: bool) -> None:
    _, levels, linear = case(30 + m, m)
    _, rest = split(levels, target=2)
    candidates, _ = candidates_of(m, m, 3, shared)
    got = submodels(rest, linear).scores[-1][:, None] + cross(candidates, context(rest))
    expected = submodels(rescored(rest, candidates, shared), linear[:, None]).scores[-1]
    close(got, expected)
    assert got.shape == (6, 3)
    sources = [*parts_of(rest), *parts_of(candidates)]
    weights = np.random.default_rng(0).normal(size=(6, 3))
    ours = gradients(
        lambda: tf.reduce_sum(
            weights * (submodels(rest, linear).scores[-1][:, None] + cross(candidates, context(rest)))
        ),
        sources,
    )
    theirs = gradients(
        lambda: tf.reduce_sum(weights * submodels(rescored(rest, candidates, shared), linear[:, None]).scores[-1]),
        sources,
    )
    for one, other in zip(ours, theirs, strict=True):
        close(one, other)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dependents", MODES)
@pytest.mark.parametrize("m", [1, 3])
def test_replaced_equals_rescored_rows_in_values_and_routed_gradients(
    m: int, dependents: pair_scores.Dependents, shared: bool
) -> None:
    _, levels, linear = case(40 + m, m)
    _, rest = split(levels, target=1)
    candidates, own = candidates_of(m, m, 3, shared)
    weights = np.random.default_rng(0).normal(size=(6, 3))
    sources = [*parts_of(rest), *parts_of(candidates), linear, own]

    def fast() -> Submodels:
        return replaced(submodels(rest, linear, dependents), candidates, context(rest), own, dependents)

    def slow() -> Submodels:
        return submodels(rescored(rest, candidates, shared), linear[:, None] + own, dependents)

    for p in range(m):
        close(fast().scores[p], slow().scores[p])
        ours = gradients(lambda p: tf.reduce_sum(weights * fast().scores[p]), sources, p)
        theirs = gradients(lambda p: tf.reduce_sum(weights * slow().scores[p]), sources, p)
        for one, other in zip(ours, theirs, strict=True):
            close(one, other)
    assert len(fast().targets) == m - 1
    for p, target in enumerate(fast().targets):
        np.testing.assert_array_equal(target, fast().scores[p + 1])
        for got in gradients(lambda p: tf.reduce_sum(fast().targets[p]), sources, p):
            close(got, np.zeros_like(got))


@pytest.mark.parametrize("shared", [False, True])
def test_cross_in_strict_mode_gives_nothing_to_dependents(shared: bool) -> None:
    _, levels, _ = case(35, 3)
    candidates, _ = candidates_of(35, 3, 3, shared)
    around = context(levels)
    sources = [*parts_of(candidates), *parts_of(around)]
    close(cross(candidates, around, "strict"), cross(candidates, around))
    joint = gradients(lambda: tf.reduce_sum(cross(candidates, around)), sources)
    strict = gradients(lambda: tf.reduce_sum(cross(candidates, around, "strict")), sources)
    for index, (one, other) in enumerate(zip(strict, joint, strict=True)):
        assert np.abs(other).max() > 0
        close(one, np.zeros_like(one) if index in (1, 3, 6, 8) else other)


def test_cross_of_one_level_is_the_plain_dot_product() -> None:
    rng = np.random.default_rng(0)
    around = [Level(tf.constant(rng.normal(size=(6, 5)), tf.float32))]
    own, pool = tf.constant(rng.normal(size=(6, 3, 5)), tf.float32), tf.constant(rng.normal(size=(4, 5)), tf.float32)
    np.testing.assert_array_equal(cross([Level(own)], around), tf.reduce_sum(own * around[0].free[:, None], axis=-1))
    np.testing.assert_array_equal(cross([Level(pool)], around), tf.matmul(around[0].free, tf.transpose(pool)))


def test_a_shared_pool_takes_one_matrix_product() -> None:
    candidates, _ = candidates_of(0, 4, 3, shared=True)
    _, levels, _ = case(0, 4)
    around = context(levels)
    graph = tf.function(lambda: cross(candidates, around)).get_concrete_function().graph
    assert [op.type for op in graph.get_operations()].count("MatMul") == 1


# DiFacto


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_truncated_pairs_use_the_common_prefix(m: int, packed: bool) -> None:
    items, _, linear = case(50 + m, m)
    levels = [Level(tf.constant(part)) for part in reference.blocks(items, RANKS[:m])]
    expected = [reference.truncated(row, RANKS[:m]) + float(w) for row, w in zip(items, linear, strict=True)]
    close(scored(keyed(levels), linear).scores[-1] if packed else truncated(levels, linear), expected)
    _, rest = split(levels, target=0)
    candidates = [Level(tf.reverse(split(levels, target=0)[0][p].free, [0])[:, None]) for p in range(m)]
    got = truncated(rest, linear)[:, None] + cross(candidates, context(rest))
    swapped = [[items[len(items) - 1 - r][0], *row[1:]] for r, row in enumerate(items)]
    close(got[:, 0], [reference.truncated(row, RANKS[:m]) + float(w) for row, w in zip(swapped, linear, strict=True)])


def test_truncated_has_its_true_gradient() -> None:
    items, _, linear = case(60, 2, rows=2, groups=3)
    arrays = reference.blocks(items, RANKS[:2])

    def function() -> Tensor:
        return tf.reduce_sum(truncated([Level(tf.constant(array)) for array in arrays], linear) ** 2)

    sources = [tf.constant(array) for array in arrays]
    grads = gradients(lambda: tf.reduce_sum(truncated([Level(s) for s in sources], linear) ** 2), sources)
    for got, array in zip(grads, arrays, strict=True):
        np.testing.assert_allclose(got, central(function, array), rtol=1e-7, atol=1e-7)


# Properties


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[BagRow], int, int]:
    m = draw(st.integers(1, 4))
    rows, groups = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    seed, present = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.3, 0.8, 1.0]))
    return reference.random_rows(np.random.default_rng(seed), rows, groups, RANKS[:m], present), m, seed


@settings(max_examples=40, deadline=None, derandomize=True)
@given(drawn())
def test_properties(drawing: tuple[list[BagRow], int, int]) -> None:
    items, m, seed = drawing
    parts = reference.levels(items, RANKS[:m])
    rng = np.random.default_rng(seed)
    linear = rng.normal(size=len(items))
    scores = submodels(dense(parts), linear).scores

    def equal(others: Sequence[tuple[Array, Array]], pack: bool = False) -> None:
        levels = keyed(dense(others)) if pack else dense(others)
        for got, expected in zip(scored(levels, linear).scores, scores, strict=True):
            close(got, expected)

    close(scores[-1] - linear, [reference.score(row) for row in items])  # pair by pair at the lower level
    order = rng.permutation(parts[0][0].shape[1])
    equal([(f[:, order], d[:, order]) for f, d in parts])
    equal([(np.pad(f, ((0, 0), (1, 0), (0, 0))), np.pad(d, ((0, 0), (1, 0), (0, 0)))) for f, d in parts])
    equal(parts, pack=True)
    for r in range(len(items)):  # a batch equals its rows
        row = submodels(dense([(f[r : r + 1], d[r : r + 1]) for f, d in parts]), linear[r : r + 1])
        for got, expected in zip(row.scores, scores, strict=True):
            close(got[0], expected[r])


# Keys


@pytest.fixture(params=[1, 1_000], ids=["sorted", "row by row"])
def each_way_of_adding_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of keys are added up over sorted places from a rank on, and row by row below it."""
    monkeypatch.setattr(pair_scores_by_key, "SORTED_RANK", request.param)


@pytest.mark.usefixtures("each_way_of_adding_up")
def test_levels_without_occurrences_and_without_rows() -> None:
    none = Occurrences(tf.zeros([0], tf.int32), tf.zeros([0], tf.int32))
    nobody = tf.zeros([0], tf.int32)
    levels = [
        LevelByKey(tf.zeros([0, 2], tf.float64), none, none),
        LevelByKey(tf.zeros([0, 3], tf.float64), none, reach=nobody),
    ]
    for batch in (0, 3):
        linear = tf.ones([batch], tf.float64)
        for score in submodels_by_key(levels, linear).scores:
            np.testing.assert_array_equal(score, np.ones(batch))
        grads = gradients(
            lambda linear: tf.reduce_sum(submodels_by_key(levels, linear).scores[-1]), parts_of(levels), linear
        )
        assert [grad.shape for grad in grads] == [(0, 2), (0, 3)]


@pytest.mark.usefixtures("each_way_of_adding_up")
@pytest.mark.parametrize("masked", [False, True])
def test_keys_that_occur_in_no_row_learn_nothing(masked: bool) -> None:
    none = tf.zeros([3], tf.int32)
    masks = [tf.ones([3, 64], tf.float64), tf.ones([3, 32], tf.float64)] if masked else None
    for _ in range(5):
        stale = tf.fill([20, 64], tf.constant(np.nan, tf.float64))  # what freed memory may hold
        vectors = [tf.ones([20, 64], tf.float64), tf.ones([20, 32], tf.float64)]
        del stale

        def total(*vectors: Tensor) -> Tensor:
            levels = [
                side_by_side([KeyVectors(vectors[0], none, none)]),
                side_by_side([KeyVectors(vectors[1], none)], sparse=True),
            ]
            scores = submodels_by_key(levels, tf.zeros([3], tf.float64), "joint", masks).scores
            return tf.add_n([tf.reduce_sum(score) for score in scores])

        for grad in gradients(total, vectors, *vectors):
            np.testing.assert_array_equal(grad, np.zeros_like(grad))


@pytest.mark.usefixtures("each_way_of_adding_up")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dependents", MODES)
def test_a_key_learns_from_all_of_its_rows(dependents: pair_scores.Dependents, masked: bool) -> None:
    """Columns, whose keys come again and again, against dense vectors made of them."""
    rng = np.random.default_rng(4)
    rows, keys, groups, ranks = 30, 5, 4, (3, 6)
    tables = [[tf.constant(rng.normal(size=(keys, rank))) for rank in ranks] for _ in range(groups)]
    ids = rng.integers(0, keys + 1, (rows, groups))  # 0 is none
    tops = rng.integers(0, 2, (groups, keys + 1)) * (np.arange(keys + 1) > 0)
    top = np.stack([tops[g][ids[:, g]] for g in range(groups)], axis=1)
    linear, upstream = tf.constant(rng.normal(size=rows)), tf.constant(rng.normal(size=(2, rows)))
    masks = [tf.constant(rng.integers(0, 2, (rows, rank)) * 2.0) for rank in ranks] if masked else None

    def by_columns(tables: Sequence[Sequence[Tensor]]) -> Submodels:
        levels = []
        for k in range(2):
            free, dependent = ([tf.constant(np.where(chosen, ids, 0)[:, g], tf.int32) for g in range(groups)]
                               for chosen in (top == k, top > k))  # fmt: skip
            some = [KeyVectors(tables[g][k], free[g], dependent[g] if k == 0 else None) for g in range(groups)]
            levels.append(side_by_side(some, sparse=k > 0))
        return submodels_by_key(levels, linear, dependents, masks)

    def by_vectors(tables: Sequence[Sequence[Tensor]]) -> Submodels:
        levels = []
        for k in range(2):
            whole = tf.stack([tf.gather(tf.pad(tables[g][k], [[1, 0], [0, 0]]), ids[:, g]) for g in range(groups)], 1)
            free, dependent = (whole * chosen[..., None] for chosen in (top == k, top > k))
            levels.append(Level(free, dependent if k == 0 else None))
        return submodels(levels, linear, dependents, masks)

    flat = [table for tables_of in tables for table in tables_of]
    found = []
    for scores_of in (by_columns, by_vectors):
        scores = scores_of(tables)
        slopes = gradients(
            lambda scores_of=scores_of: tf.add_n(
                [tf.reduce_sum(score * up) for score, up in zip(scores_of(tables).scores, upstream, strict=True)]
            ),
            flat,
        )
        found.append([*scores.scores, *scores.targets, *slopes])
    for one, other in zip(*found, strict=True):
        close(one, other)


def test_of_a_sparse_level_only_the_rows_that_reach_it_are_computed() -> None:
    """At 3 occurrences, 1,000 rows and rank 64, nothing of rank 64 may have more than the 3 occurrences' rows."""
    seen: list[int] = []
    kept = tf.sparse.segment_sum

    def watched(data: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result = kept(data, *args, **kwargs)
        seen.append(int(np.prod(result.shape)))
        return result

    place = np.zeros(1000, np.int32)
    place[[5, 900]] = [1, 2]
    again = np.where(place == 1, 1, 0).astype(np.int32)
    vectors = tf.random.stateless_normal([2, 64], [0, 0])
    level = side_by_side(
        [KeyVectors(vectors, tf.constant(place)), KeyVectors(vectors, tf.constant(again))], sparse=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.sparse, "segment_sum", watched)
        (score,) = submodels_by_key([level], tf.zeros([1000])).scores
    assert max(seen) == 2 * 64
    assert np.flatnonzero(score).tolist() == [5]
    assert float(score[5]) == pytest.approx(float(tf.reduce_sum(vectors[0] ** 2)), rel=1e-5)


# Numbers at the edge, graphs, mistakes


@pytest.mark.parametrize("value", [1e-30, 1.0, 1e15, 1e18])
def test_large_and_small_float32_stay_finite(value: float) -> None:
    vectors = tf.constant([[[value, -value], [value, value], [0.0, 0.0]]], tf.float32)
    levels = [Level(vectors, vectors[:, ::-1]), Level(vectors)]
    for result in (submodels(levels, tf.zeros([1])), submodels(levels, tf.zeros([1]), "strict")):
        assert all(np.isfinite(score).all() for score in result.scores)
        np.testing.assert_array_equal(pairwise(vectors), [0.0])


def test_a_huge_vector_alone_scores_zero_though_its_square_overflows() -> None:
    vectors = tf.constant([[[1e38, -1e30], [0.0, 0.0]]], tf.float32)
    np.testing.assert_array_equal(pairwise(vectors), [0.0])
    (grad,) = gradients(lambda: tf.reduce_sum(pairwise(vectors)), [vectors])
    np.testing.assert_array_equal(grad, np.asarray(vectors)[:, ::-1])
    for score in submodels([Level(vectors, vectors), Level(vectors)], tf.zeros([1])).scores:
        np.testing.assert_array_equal(score, [0.0])


def test_float32_is_as_exact_as_its_terms() -> None:
    vectors = np.random.default_rng(0).normal(size=(100, 20, 64))
    error = np.abs(pairwise(vectors.astype(np.float32)) - np.asarray(pairwise(vectors)))
    assert error.max() < 1e-6 * np.square(vectors).sum((-2, -1)).max()


def test_new_batch_sizes_are_not_traced_again() -> None:
    traces = []
    template = case(0, 2)[1]

    def traced(parts: list[Tensor], linear: Tensor) -> Tensor:
        traces.append(1)
        rest = iter(parts)
        levels = [Level(*(None if part is None else next(rest) for part in level)) for level in template]
        with tf.GradientTape() as tape:
            tape.watch(parts_of(levels))
            result = submodels(levels, linear)
            loss = tf.reduce_sum(result.scores[-1]) + tf.reduce_sum((result.scores[0] - result.targets[0]) ** 2)
        return tape.gradient(loss, parts_of(levels))

    specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in parts_of(template)]
    step = tf.function(traced, input_signature=[specs, tf.TensorSpec([None], tf.float64)])
    traces.clear()
    for rows in (7, 9, 3, 7):
        _, levels, linear = case(rows, 2, rows=rows)
        for got, part in zip(step(parts_of(levels), linear), parts_of(levels), strict=True):
            assert got.shape == part.shape
    assert len(traces) == 1


def test_mistakes_have_messages() -> None:
    _, levels, linear = case(0, 2)
    around = context(levels)
    with pytest.raises(ValueError, match=r"`dependents` must be 'joint' or 'strict'. Received: dependents='both'"):
        submodels(levels, linear, cast(Any, "both"))
    base = submodels(levels, linear)
    with pytest.raises(ValueError, match="'joint' or 'strict'"):
        replaced(base, around, around, linear, cast(Any, "free"))
    with pytest.raises(ValueError, match="argument 2 is longer"):
        cross(around[:1], around)


def test_it_imports_keras_and_of_feat2vec_only_how_gradients_are_given() -> None:
    tree = ast.parse(Path(pair_scores.__file__).read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    found |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = "feat2vec.custom_gradients"
    assert found == {"__future__", "collections.abc", "functools", "itertools", "typing", "keras", ours}
