"""What the RaFM paper (seed 004) proves of its submodels and of how they are trained, on small models item by item.

Equation numbers are the paper's. Models keep their inactive factors where a submodel B_{l,k} with l > 1 reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf
from scipy.optimize import least_squares
from tensorflow.python.framework import op_callbacks

from feat2vec.model.pair_scores import Level, submodels
from feat2vec.model.pair_scores_by_key import submodels_by_key
from tests import reference
from tests.model.test_pair_scores import dense, keyed
from tests.reference import Array, BagRow, Item

RANKS = [2, 3, 5, 8]
LEVELS = range(1, len(RANKS) + 1)


def rows_with_inactive_factors(seed: int, rows: int = 4, groups: int = 4) -> list[BagRow]:
    return reference.random_rows(np.random.default_rng(seed), rows, groups, RANKS, inactive=True)


def raised(row: BagRow, low: int) -> BagRow:
    """The same items in a model of the levels from `low` on: who is below begins there, by its inactive factors."""
    return [
        [Item(max(i.level, low) - low + 1, i.x, i.vectors[low - 1 : max(i.level, low)]) for i in bag] for bag in row
    ]


# --- equation 8, proposition 2, theorem 3 ---------------------------------------------------------------------------


@pytest.mark.parametrize("low", LEVELS)
def test_b_of_equation_8_is_what_the_code_computes(low: int) -> None:
    """B_{l,k} for every l <= k: the package's submodels of the levels from l on."""
    rows = rows_with_inactive_factors(low)
    levels = dense(reference.levels([raised(row, low) for row in rows], RANKS[low - 1 :]))
    scores = submodels(levels, tf.zeros(len(rows), tf.float64)).scores
    for high in range(low, len(RANKS) + 1):
        expected = [reference.b(row, low, high) for row in rows]
        np.testing.assert_allclose(scores[high - low], expected, rtol=1e-10, atol=1e-10)
        assert np.abs(expected).max() > 0.1
    if low > 1:  # they are other models than those of level 1
        assert reference.b(rows[0], low, len(RANKS)) != pytest.approx(reference.b(rows[0], 1, len(RANKS)))


def test_proposition_2() -> None:
    """A_{k,1} and B_{k,k} are the k-th FM of (2), and B_{1,m} is RaFM, (1) with (4)."""
    for row in rows_with_inactive_factors(0):
        for k in LEVELS:
            fm = sum(reference.meet(i, j, k) for i, j in reference.pairs(row))
            assert reference.a(row, k, 1) == pytest.approx(fm, abs=1e-10)
            assert reference.b(row, k, k) == pytest.approx(fm, abs=1e-10)
        assert reference.b(row, 1, len(RANKS)) == pytest.approx(reference.score(row), abs=1e-10)


def test_theorem_3_for_every_l() -> None:
    """B_{l,k+1} = B_{l,k} - A_{k,k+1} + A_{k+1,k+1}."""
    for row, low in itertools.product(rows_with_inactive_factors(1), LEVELS):
        for k in range(low, len(RANKS)):
            step = reference.a(row, k + 1, k + 1) - reference.a(row, k, k + 1)
            assert reference.b(row, low, k + 1) == pytest.approx(reference.b(row, low, k) + step, abs=1e-10)


# --- corollary 4: operations are counted ----------------------------------------------------------------------------


def test_corollary_4_by_equation_7_and_theorem_3() -> None:
    """B_{l,k} takes at most 3 D_l |F| + 6 sum_{p = l + 1 .. k} D_p |F_p| multiplications, and is the same number."""
    most_saved = 0.0
    for row in reference.random_rows(np.random.default_rng(2), 30, 12, RANKS, inactive=True):
        items = [item for bag in row for item in bag]
        reach = [sum(item.level >= p for item in items) for p in LEVELS]  # |F_p|
        for low, high in itertools.combinations_with_replacement(LEVELS, 2):
            score, multiplications = reference.counted_b(row, low, high)
            assert score == pytest.approx(reference.b(row, low, high), abs=1e-9)
            above = sum(RANKS[p - 1] * reach[p - 1] for p in range(low + 1, high + 1))
            assert multiplications <= 3 * RANKS[low - 1] * len(items) + 6 * above
            pairs = sum(RANKS[reference.clipped(i, j, low, high) - 1] for i, j in reference.pairs(row))
            most_saved = max(most_saved, pairs / multiplications)
        for low, top in itertools.product(LEVELS, LEVELS):  # proposition 2, of A_{l,k}
            assert reference.counted_a(row, low, top)[1] <= 3 * RANKS[low - 1] * reach[top - 1]
    assert most_saved > 4  # all pairs one by one take several times as many


@pytest.mark.parametrize("ranks_grow", ["linearly", "exponentially"])
@pytest.mark.parametrize("values_fall", ["linearly", "exponentially"])
def test_table_1(ranks_grow: str, values_fall: str) -> None:
    """How the operations of RaFM compare with those of an FM, D |F|, by how fast ranks grow and values fall."""
    dim, values, ratios = 120, 120, []
    for m in (2, 3, 4, 5, 6):
        ranks = [dim * k // m if ranks_grow == "linearly" else max(1, dim >> (m - k)) for k in range(1, m + 1)]
        sizes = [values * (m - k + 1) // m if values_fall == "linearly" else values >> (k - 1) for k in range(1, m + 1)]
        counts = [low - high for low, high in itertools.pairwise([*sizes, 0])]
        (row,) = rows_of_levels(1, counts, ranks)
        claimed = {
            ("linearly", "linearly"): m,
            ("linearly", "exponentially"): 1,
            ("exponentially", "linearly"): 1,
            ("exponentially", "exponentially"): m / 2 ** (m - 1),
        }[ranks_grow, values_fall]
        ratios.append(reference.counted_b(row, 1, m)[1] / (claimed * dim * values))
    assert 0.3 < min(ratios) <= max(ratios) < 6
    assert max(ratios) / min(ratios) < 3


def multiplications_of_the_code(rows: Sequence[BagRow], ranks: Sequence[int]) -> int:
    """How many numbers the package multiplies for the scores of rows, from vectors that are read once a key."""
    levels = keyed(dense(reference.levels(rows, ranks)))
    count = 0

    def callback(op_type: str, _inputs: object, _attrs: object, outputs: Sequence[tf.Tensor], *_: object) -> None:
        nonlocal count
        if op_type in ("Mul", "Square"):
            count += sum(int(tf.size(output)) for output in outputs)

    op_callbacks.add_op_callback(callback)
    try:
        submodels_by_key(levels, tf.zeros(len(rows), tf.float64))
    finally:
        op_callbacks.remove_op_callback(callback)
    return count


def rows_of_levels(rows: int, counts: Sequence[int], ranks: Sequence[int]) -> list[BagRow]:
    """Rows with so many items of each level, each a group of its own."""
    levels = np.repeat(np.arange(1, len(counts) + 1), counts)
    return [[[Item(int(k), 1.0, [np.ones(rank) for rank in ranks[: int(k)]])] for k in levels] for _ in range(rows)]


def test_corollary_4_of_the_code() -> None:
    """It multiplies at most 6 sum_k D_k n(F_k) numbers a row; with twice the items twice as many, not four times."""
    ranks = [4, 16, 64]
    counted = {}
    for counts in ((8, 4, 2), (16, 8, 4), (32, 16, 8), (30, 4, 2)):
        reach = np.cumsum(np.array(counts)[::-1])[::-1]  # n(F_k)
        counted[counts] = multiplications_of_the_code(rows_of_levels(5, counts, ranks), ranks) / 5
        assert 0 < counted[counts] <= 6 * (ranks @ reach)
    assert counted[16, 8, 4] < 2.01 * counted[8, 4, 2]
    assert counted[32, 16, 8] < 2.01 * counted[16, 8, 4]
    # 22 items more of level 1 cost of its rank alone, a sixteenth of the highest
    assert counted[30, 4, 2] - counted[8, 4, 2] <= 6 * 4 * 22
    fm = multiplications_of_the_code(rows_of_levels(5, (36,), [64]), [64]) / 5  # one rank for the same 36 items
    assert counted[30, 4, 2] < fm / 2


# --- theorem 6: the gradient of free factors ------------------------------------------------------------------------

Loss: TypeAlias = Callable[[float, float], float]
Keys: TypeAlias = Sequence[tuple[int, int]]  # of an item and a level
LEVEL_OF_ITEM = (1, 2, 2, 3, 3, 1, 2)
SMALL_RANKS = (1, 2, 3)


def square_loss(score: float, target: float) -> float:
    return (score - target) ** 2


def soft_log_loss(score: float, target: float) -> float:
    """Against the probability of another score, as a level learns from the one above."""
    return reference.binary_loss(score, reference.sigmoid(target), reference.sigmoid(-target))


@dataclass
class SmallRafm:
    """Items with levels, each with a value x in each of 12 samples, which have labels."""

    seed: int
    loss: Loss = square_loss
    is_mixed: bool = False  # whether vectors of two levels meet as well, which never happens in RaFM

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        keys = [(i, k) for i, top in enumerate(LEVEL_OF_ITEM) for k in range(1, top + 1)]
        self.vectors = {(i, k): rng.normal(size=SMALL_RANKS[k - 1]) for i, k in keys}
        self.samples = rng.normal(size=(12, len(LEVEL_OF_ITEM)))
        self.labels = rng.integers(2, size=12) * 4.0 - 2

    def submodel(self, x: Array, high: int) -> float:
        """B_{1,high} of a sample."""
        total = 0.0
        for i, j in itertools.combinations(range(len(x)), 2):
            level = min(high, LEVEL_OF_ITEM[i], LEVEL_OF_ITEM[j])
            total += float(self.vectors[i, level] @ self.vectors[j, level]) * x[i] * x[j]
            if self.is_mixed and high > 1 and min(LEVEL_OF_ITEM[i], LEVEL_OF_ITEM[j]) > 1:
                total += 0.5 * float(self.vectors[i, 1].sum() * self.vectors[j, 2].sum()) * x[i] * x[j]
        return total

    def with_numbers(self, keys: Keys, numbers: Array) -> SmallRafm:
        """The same model with these numbers for some vectors."""
        other = replace(self)
        ends = np.cumsum([len(self.vectors[key]) for key in keys])[:-1]
        other.vectors = {**self.vectors, **dict(zip(keys, np.split(numbers, ends), strict=True))}
        return other

    def top_loss(self, sample: int) -> float:
        """L(B_{1,m}, y)."""
        return self.loss(self.submodel(self.samples[sample], len(SMALL_RANKS)), float(self.labels[sample]))

    def low_loss(self, sample: int, p: int) -> float:
        """L(B_{1,p-1}, B_{1,p})."""
        x = self.samples[sample]
        return self.loss(self.submodel(x, p - 1), self.submodel(x, p))

    def slopes(self, keys: Keys, function: Callable[[SmallRafm], Any], step: float) -> Array:
        """The derivatives of a function by some vectors, by central differences: a row for each number of these."""
        numbers, rows = np.concatenate([self.vectors[key] for key in keys]), []
        for move in step * np.eye(len(numbers)):
            high, low = (function(self.with_numbers(keys, numbers + sign * move)) for sign in (1, -1))
            rows.append((high - low) / (2 * step))
        return np.array(rows)


def both_terms(p: int, rafm: SmallRafm) -> tuple[Array, Array]:
    """The two terms of (16) for the free factors of level p, of the first sample."""
    dependent = [(i, p - 1) for i, top in enumerate(LEVEL_OF_ITEM) if top >= p]  # v^(p-1)|F_p
    free = [(i, p) for i, top in enumerate(LEVEL_OF_ITEM) if top == p]  # v^(p)|F_p - F_{p+1}
    samples = range(len(rafm.samples))

    def low_slopes(model: SmallRafm, chosen: Sequence[int]) -> Array:
        return model.slopes(dependent, lambda moved: np.mean([moved.low_loss(n, p) for n in chosen]), 1e-3)

    g = rafm.slopes(dependent, lambda moved: low_slopes(moved, samples), 1e-3)
    to_dependent = rafm.slopes(dependent, lambda moved: np.mean([moved.top_loss(n) for n in samples]), 1e-5)
    mixed = rafm.slopes(free, lambda moved: low_slopes(moved, [0]), 1e-3)  # [free numbers, dependent numbers]
    first = rafm.slopes(free, lambda moved: moved.top_loss(0), 1e-5)
    return first, mixed @ np.linalg.solve(g, to_dependent)


def cosine(first: Array, second: Array) -> float:
    return abs(float(first @ second)) / float(np.linalg.norm(first) * np.linalg.norm(second))


@pytest.mark.parametrize("loss", [square_loss, soft_log_loss])
@pytest.mark.parametrize("p", [2, 3])
def test_theorem_6(p: int, loss: Loss) -> None:
    """The second term of (16) is parallel to the first, so SGD may do without it."""
    first, second = both_terms(p, SmallRafm(p, loss))
    assert np.linalg.norm(first) > 1e-2
    assert np.linalg.norm(second) > 1e-4
    assert cosine(first, second) == pytest.approx(1, abs=1e-5)


def test_theorem_6_is_of_levels_that_do_not_meet() -> None:
    """Once vectors of two levels meet, the last line of (S1) is not 0, and the terms are not parallel."""
    first, second = both_terms(2, SmallRafm(2, is_mixed=True))
    assert cosine(first, second) < 0.999


def test_the_code_follows_the_first_term() -> None:
    """What the top loss gives the free factors of each level, in `strict`, is the first term of (16)."""
    for p in (2, 3):
        rafm = SmallRafm(p)
        first, _ = both_terms(p, rafm)
        x, y, row = rafm.samples[0], rafm.labels[0], []
        for i, top in enumerate(LEVEL_OF_ITEM):
            row.append([Item(top, float(x[i]), [rafm.vectors[i, k] for k in range(1, top + 1)])])
        levels: list[Level] = dense(reference.levels([row], SMALL_RANKS))
        with tf.GradientTape() as tape:
            tape.watch(levels[p - 1].free)
            score = submodels(levels, tf.zeros(1, tf.float64), "strict").scores[-1]
            loss = tf.reduce_sum((score - y) ** 2)
        of_groups = tape.gradient(loss, levels[p - 1].free).numpy()[0] * x[:, None]  # by each item's vector
        free = [i for i, top in enumerate(LEVEL_OF_ITEM) if top == p]
        np.testing.assert_allclose(of_groups[free].ravel(), first, rtol=1e-6, atol=1e-8)


# --- lemma S2 -------------------------------------------------------------------------------------------------------


def padded(row: BagRow, low: int, *, everywhere: bool) -> BagRow:
    """The same items with [0; v^(low - 1)] for v^(low), in all of them or in those that reach the level alone."""

    def vectors(item: Item) -> list[Array]:
        below = item.vectors[low - 2]
        own = np.concatenate([np.zeros(RANKS[low - 1] - len(below)), below])
        keeps = not everywhere and item.level < low
        return [own if k == low - 1 and not keeps else vector for k, vector in enumerate(item.vectors)]

    return [[Item(item.level, item.x, vectors(item)) for item in bag] for bag in row]


def test_lemma_s2_of_padded_factors() -> None:
    """B_{l,k} = B_{l-1,k} where v^(l) is v^(l-1) with zeros, inactive factors included: so its loss can be as small."""
    for row, low in itertools.product(rows_with_inactive_factors(5), LEVELS[1:]):
        same = padded(row, low, everywhere=True)
        for high in range(low, len(RANKS) + 1):
            assert reference.b(same, low, high) == pytest.approx(reference.b(same, low - 1, high), abs=1e-10)
    rows = rows_with_inactive_factors(5)
    of_active = [padded(row, 2, everywhere=False) for row in rows]  # as the lemma is printed, for i in F_l
    assert any(reference.b(row, 2, 2) != pytest.approx(reference.b(row, 1, 2)) for row in of_active)


def test_lemma_s2_is_of_such_models_alone() -> None:
    """A RaFM that meets constraint (12b) may be no FM of the higher rank, which then has the greater loss.

    Items 0 to 5 have the ranks 1 and 2, item 6 has rank 1; a row has two items. v^(1) of items 0 to 5 is the argmin of
    (12b), the best product of rank 1 for their pairs. The pairs' scores of an FM of rank 2 have no 3 x 3 minor off the
    diagonal but 0. This RaFM has one, so on its own scores its loss is 0 and that of every FM of rank 2 is not.
    """
    high = np.random.default_rng(0).normal(size=(6, 2))  # v^(2) of items 0 to 5
    pairs = list(itertools.combinations(range(6), 2))

    def misses(low: Array) -> Array:
        return np.array([low[i] * low[j] - high[i] @ high[j] for i, j in pairs])

    starts = np.random.default_rng(1).normal(size=(20, 6))
    fits = [least_squares(misses, start, xtol=1e-14, ftol=1e-14, gtol=1e-14) for start in starts]
    low = min(fits, key=lambda fit: float(fit.cost)).x  # v^(1) of items 0 to 5; that of item 6 is 1
    products = np.array([[low[j] if k == i else low[i] if k == j else 0.0 for k in range(6)] for i, j in pairs])
    assert np.abs(misses(low) @ products).max() < 1e-6  # the slope of the squares

    def minor(scores: Callable[[int, int], float]) -> float:
        return float(np.linalg.det([[scores(i, j) for j in (2, 3, 4)] for i in (6, 0, 1)]))

    of_rafm = minor(lambda i, j: low[j] if i == 6 else float(high[i] @ high[j]))
    fm = np.random.default_rng(2).normal(size=(7, 2))
    assert minor(lambda i, j: float(fm[i] @ fm[j])) == pytest.approx(0, abs=1e-12)
    assert abs(of_rafm) > 0.01

    def of_fm(flat: Array) -> Array:
        vectors = flat.reshape(7, 2)
        inside = [vectors[i] @ vectors[j] - high[i] @ high[j] for i, j in pairs]
        return np.array([*inside, *(vectors[6] @ vectors[j] - low[j] for j in range(6))])

    best = min(float(least_squares(of_fm, start).cost) for start in np.random.default_rng(3).normal(size=(10, 14)))
    assert best > 1e-3
