"""Matrix completion against closed forms and dense matrices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from feat2vec.evaluation import matrix_completion
from feat2vec.evaluation.matrix_completion import (
    KnownEntries,
    LowRank,
    MethodName,
    Setting,
    alternating_step,
    choose,
    complete_matrix,
    factorize,
    filled_in,
    first_factors,
    fit_biases,
    known_entries,
    leading_triplets,
    noise_level,
)
from tests.reference import (
    best_of_rank,
    biases_of_entries,
    completion_objective,
    ridge_solution,
    shrink,
    singular_value_thresholding,
)

Matrix = npt.NDArray[np.float64]
METHODS: tuple[MethodName, ...] = ("svd", "als", "soft_impute")


def low_rank(rows: int, columns: int, rank: int, seed: int = 0) -> Matrix:
    """A matrix whose singular vectors are spread over all rows and columns, as random ones are."""
    rng = np.random.default_rng(seed)
    matrix: Matrix = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
    return matrix


def entries_of(matrix: Matrix, known: npt.NDArray[np.bool_]) -> KnownEntries:
    rows, columns = np.nonzero(known)
    return known_entries(rows, columns, matrix[rows, columns], (matrix.shape[0], matrix.shape[1]))


def dense(estimate: LowRank) -> Matrix:
    return estimate.rows @ estimate.columns.T


def test_entries_of_one_place_count_as_their_mean() -> None:
    entries = known_entries(np.array([2, 0, 2]), np.array([1, 3, 1]), np.array([1.0, 5.0, 4.0]), (3, 4))
    assert (entries.rows.tolist(), entries.columns.tolist(), entries.numbers.tolist()) == ([0, 2], [3, 1], [5.0, 2.5])


@pytest.mark.parametrize("damping", [0.5, 10.0])
def test_biases_are_the_solution_of_one_dense_system(damping: float) -> None:
    rng = np.random.default_rng(2)
    known = rng.random((9, 7)) < 0.5
    known[3] = False  # a row without an entry has no bias
    matrix = rng.normal(size=(9, 1)) * 2 + rng.normal(size=(1, 7)) + rng.normal(size=(9, 7)) + 4
    biases = fit_biases(entries_of(matrix, known), damping)
    listed = [(int(i), int(j), float(matrix[i, j])) for i, j in zip(*np.nonzero(known), strict=True)]
    expected = biases_of_entries(listed, (9, 7), damping)
    np.testing.assert_allclose(np.concatenate([biases.rows, biases.columns]), expected, atol=1e-6)
    assert biases.rows[3] == 0
    at = biases.at(np.array([0, -1, -1]), np.array([1, 1, -1]))
    np.testing.assert_allclose(
        at, [biases.mean + biases.rows[0] + biases.columns[1], biases.mean + biases.columns[1], biases.mean]
    )


def test_without_damping_a_first_sweep_has_the_means_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_completion, "BIAS_SWEEPS", 1)
    matrix, known = np.arange(12.0).reshape(3, 4), np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 1]], bool)
    biases = fit_biases(entries_of(matrix, known), 0.0)
    np.testing.assert_allclose(biases.mean + biases.rows, [0.5, 6.0, 9.5])  # mu_i of seed 003


def test_products_are_those_of_the_matrix_that_is_never_made() -> None:
    rng = np.random.default_rng(3)
    matrix, known = rng.normal(size=(8, 6)), rng.random((8, 6)) < 0.4
    estimate = LowRank(rng.normal(size=(8, 3)), rng.normal(size=(6, 3)))
    operator = filled_in(entries_of(matrix, known), estimate)
    filled = np.where(known, matrix, dense(estimate))
    left, right = rng.normal(size=(8, 2)), rng.normal(size=(6, 2))
    np.testing.assert_allclose(operator.matmat(right), filled @ right)
    np.testing.assert_allclose(operator.rmatmat(left), filled.T @ left)
    np.testing.assert_allclose(operator.matvec(right[:, 0]), filled @ right[:, 0])
    np.testing.assert_allclose(operator.rmatvec(left[:, 0]), filled.T @ left[:, 0])


def test_a_matrix_far_larger_than_memory_costs_what_its_entries_do() -> None:
    rng = np.random.default_rng(4)
    rows, columns = rng.integers(0, 60_000, 3000), rng.integers(0, 50_000, 3000)
    entries = known_entries(rows, columns, rng.normal(size=3000), (60_000, 50_000))
    estimate = factorize("soft_impute", entries, Setting(2, 1.0), steps=1)
    assert estimate.rows.shape == (60_000, 10)


# --- closed forms -------------------------------------------------------------------------------------------------


def test_of_a_known_matrix_svd_is_the_best_of_its_rank() -> None:
    matrix = np.random.default_rng(5).normal(size=(20, 15))
    entries = entries_of(matrix, np.ones((20, 15), bool))
    values = np.linalg.svd(matrix, compute_uv=False)
    start = first_factors("svd", entries, Setting(4)).columns
    nothing = LowRank(np.zeros((20, 1)), np.zeros((15, 1)))
    left, found_values, right = leading_triplets(filled_in(entries, nothing), start, 4, 1e-14)
    np.testing.assert_allclose(found_values[:4], values[:4], rtol=1e-6)
    np.testing.assert_allclose((left * found_values)[:, :4] @ right[:, :4].T, best_of_rank(matrix, 4), atol=1e-4)
    estimate = dense(factorize("svd", entries, Setting(4), steps=12))
    assert np.linalg.matrix_rank(estimate) == 4
    np.testing.assert_allclose(np.square(matrix - estimate).sum(), np.square(values[4:]).sum(), rtol=1e-6)
    for seed in range(20):  # no other matrix of rank 4 is nearer
        other = low_rank(20, 15, 4, seed) * 0.3 + estimate
        assert np.square(matrix - best_of_rank(other, 4)).sum() >= np.square(matrix - estimate).sum()


def test_a_step_of_als_solves_a_ridge_regression_for_each_row_and_never_raises_the_loss() -> None:
    rng = np.random.default_rng(6)
    matrix, known = low_rank(12, 9, 2, 6) + rng.normal(size=(12, 9)), rng.random((12, 9)) < 0.6
    entries, setting = entries_of(matrix, known), Setting(3, 0.7)

    def loss(estimate: LowRank) -> float:
        squares = np.square(estimate.rows).sum() + np.square(estimate.columns).sum()
        return float(np.square((matrix - dense(estimate))[known]).sum() / 2 + setting.shrinkage / 2 * squares)

    before = first_factors("als", entries, setting)
    losses = []
    for _ in range(6):
        after = alternating_step(entries, before, setting)
        for i in range(12):
            of_row = known[i]
            expected = ridge_solution(
                before.columns[of_row], matrix[i, of_row], np.ones(of_row.sum()), np.full(3, 0.7), np.zeros(3)
            )
            np.testing.assert_allclose(after.rows[i], expected, rtol=1e-8, atol=1e-10)
        for j in range(9):
            of_column = known[:, j]
            expected = ridge_solution(
                after.rows[of_column], matrix[of_column, j], np.ones(of_column.sum()), np.full(3, 0.7), np.zeros(3)
            )
            np.testing.assert_allclose(after.columns[j], expected, rtol=1e-8, atol=1e-10)
        losses.append(loss(after))
        before = after
    assert all(np.diff(losses) <= 1e-9)


def test_soft_impute_ends_where_shrinking_changes_nothing_and_als_there_too() -> None:
    rng = np.random.default_rng(7)
    matrix, known = low_rank(14, 11, 3, 7) + 0.3 * rng.normal(size=(14, 11)), rng.random((14, 11)) < 0.6
    entries, threshold = entries_of(matrix, known), 2.0
    estimate = dense(factorize("soft_impute", entries, Setting(11, threshold), steps=400))
    again = shrink(np.where(known, matrix, estimate), threshold)
    np.testing.assert_allclose(estimate, again, atol=1e-3)
    least = completion_objective(matrix, known, estimate, threshold)
    for seed in range(20):
        other = estimate + 0.05 * low_rank(14, 11, 1, seed)
        assert completion_objective(matrix, known, other, threshold) > least
    by_als = dense(factorize("als", entries, Setting(11, threshold), steps=400))
    np.testing.assert_allclose(by_als, estimate, atol=5e-3)


@pytest.mark.parametrize(("method", "setting", "steps"), [
    ("svd", Setting(2), 300), ("als", Setting(2, 1e-3), 100), ("soft_impute", Setting(20, 0.02), 1500),
])  # fmt: skip
def test_an_incoherent_matrix_of_low_rank_is_recovered_from_enough_entries(
    method: MethodName, setting: Setting, steps: int
) -> None:
    matrix = low_rank(40, 30, 2, 8)
    known = np.random.default_rng(8).random((40, 30)) < 0.6
    assert known.sum() > 5 * 2 * (40 + 30 - 2)  # degrees of freedom, (n + m - k) k
    assert incoherence(matrix, 2) < 8  # of 28 at worst
    estimate = dense(factorize(method, entries_of(matrix, known), setting, steps))
    assert np.abs(estimate - matrix)[~known].max() < 0.02 * np.abs(matrix).max()


def incoherence(matrix: Matrix, rank: int) -> float:
    """The least mu of definition 14 of seed 003, with the larger side for n: 1 at best."""
    left, _, right = np.linalg.svd(matrix)
    left, right, size = left[:, :rank], right[:rank].T, max(matrix.shape)
    largest = float(np.abs(left @ right.T).max())
    for side in (left, right):
        projection = side @ side.T - np.eye(len(side)) * rank / len(side)
        largest = max(largest, float(np.abs(projection).max()))
    return largest * size / float(np.sqrt(rank))


def test_what_is_in_one_unknown_entry_is_not_recovered() -> None:
    matrix = np.zeros((30, 30))
    matrix[4, 7] = 10.0  # of rank 1
    assert incoherence(matrix, 1) == 30  # as coherent as can be
    known = np.ones((30, 30), bool)
    known[4, 7] = False
    estimate = dense(factorize("soft_impute", entries_of(matrix, known), Setting(8, 0.02), 50))
    assert abs(estimate[4, 7]) < 0.01


def test_singular_value_thresholding_recovers_it_too_and_minimises_what_it_should() -> None:
    matrix, known = low_rank(14, 12, 1, 9), np.random.default_rng(9).random((14, 12)) < 0.7
    threshold = 40.0
    estimate = singular_value_thresholding(matrix, known, threshold, steps=400, rate=1.2)
    np.testing.assert_allclose(estimate[known], matrix[known], atol=0.02)
    np.testing.assert_allclose(estimate, matrix, atol=0.03 * np.abs(matrix).max())

    def objective(of: Matrix, share: float) -> float:
        return float(threshold * np.linalg.svd(of, compute_uv=False).sum() + share * np.square(of).sum())

    small = singular_value_thresholding(matrix, known, 1.0, steps=3000, rate=1.0)
    threshold = 1.0
    for seed in range(20):  # other matrices with the same known entries
        other = small + np.where(known, 0, 0.1 * low_rank(14, 12, 3, seed))
        assert objective(other, 0.5) > objective(small, 0.5) - 1e-6


# --- what is chosen -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_rank_and_shrinkage_are_those_that_are_best_on_held_out_entries(method: MethodName) -> None:
    rng = np.random.default_rng(10)
    matrix = low_rank(60, 50, 2, 10) + 0.3 * rng.normal(size=(60, 50)) + 3 * rng.normal(size=(60, 1)) + 7
    known = rng.random((60, 50)) < 0.5
    completed = complete_matrix(method, entries_of(matrix, known))
    rows, columns = np.nonzero(~known)
    errors = completed.at(rows, columns) - matrix[rows, columns]
    biases = completed.biases.at(rows, columns) - matrix[rows, columns]
    assert np.sqrt(np.square(errors).mean()) < 0.55
    assert np.sqrt(np.square(biases).mean()) > 1.2
    assert completed.chosen.steps > 0
    if method == "svd":
        assert completed.chosen.setting.rank in (2, 4)  # biases are of rank 2, and hold some of the factors


@pytest.mark.parametrize("method", METHODS)
def test_where_there_is_nothing_but_biases_there_are_no_factors(method: MethodName) -> None:
    rng = np.random.default_rng(11)
    matrix, known = rng.normal(size=(80, 1)) + rng.normal(size=(1, 60)), rng.random((80, 60)) < 0.5
    completed = complete_matrix(method, entries_of(matrix + rng.normal(size=(80, 60)), known))
    unknown = completed.at(np.array([-1, 3, -1]), np.array([2, -1, -1]))
    np.testing.assert_allclose(unknown, completed.biases.at(np.array([-1, 3, -1]), np.array([2, -1, -1])))
    rows, columns = np.nonzero(~known)
    of_biases = np.square(completed.biases.at(rows, columns) - matrix[rows, columns]).mean()
    assert np.square(completed.at(rows, columns) - matrix[rows, columns]).mean() < of_biases + 0.02


def test_one_entry_is_completed_by_itself() -> None:
    completed = complete_matrix("als", known_entries(np.array([0]), np.array([1]), np.array([3.5]), (2, 2)))
    np.testing.assert_allclose(completed.at(np.array([0, 1, -1]), np.array([0, 1, 1])), 3.5)


def test_a_setting_that_gains_nothing_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    entries = entries_of(low_rank(30, 30, 1, 12), rng.random((30, 30)) < 0.6)
    held_out = entries_of(low_rank(30, 30, 1, 12), rng.random((30, 30)) < 0.1)
    tried: list[Setting] = []
    step = matrix_completion.STEPS["svd"]

    def counted(entries: KnownEntries, estimate: LowRank, setting: Setting) -> LowRank:
        tried.append(setting)
        return step(entries, estimate, setting)

    monkeypatch.setattr(matrix_completion, "STEPS", {"svd": counted})
    monkeypatch.setattr(matrix_completion, "MOST_STEPS", 5)
    assert choose("svd", entries, held_out).setting.rank == 1
    assert [setting.rank for setting in dict.fromkeys(tried)] == [1, 2, 4]


def test_the_level_of_noise_is_the_largest_singular_value_of_noise() -> None:
    rng = np.random.default_rng(13)
    known = rng.random((300, 200)) < 0.1
    entries = entries_of(rng.normal(size=(300, 200)), known)
    assert np.linalg.norm(entries.sparse(entries.numbers).toarray(), 2) == pytest.approx(noise_level(entries), rel=0.1)
