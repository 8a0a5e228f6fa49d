"""Many least-squares problems at once against one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from feat2vec.space import small_ridges
from feat2vec.space.small_ridges import SmallRidges
from tests.reference import ridge_solution


@pytest.mark.parametrize("numbers_in_memory", [1 << 21, 8])
def test_each_problem_is_solved_as_if_alone(numbers_in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_ridges, "NUMBERS_IN_MEMORY", numbers_in_memory)
    rng = np.random.default_rng(0)
    problem_of_item = rng.permutation(np.repeat(np.arange(7), [1, 9, 0, 4, 5, 30, 2]))
    items = len(problem_of_item)
    vectors, vector_of_item = rng.normal(size=(12, 3)), rng.integers(0, 12, items)
    factors, weights, sides = rng.normal(size=items), rng.random(items), rng.normal(size=items)
    ridge, pull = rng.random((7, 3)) + 0.1, rng.normal(size=(7, 3))
    ridges = SmallRidges(problem_of_item, vector_of_item, 7, factors)
    solutions = ridges.solve(vectors, sides, ridge, weights, pull)
    for problem in range(7):
        chosen = problem_of_item == problem
        features = factors[chosen, None] * vectors[vector_of_item[chosen]]
        expected = ridge_solution(features, sides[chosen], weights[chosen], ridge[problem], pull[problem])
        np.testing.assert_allclose(solutions[problem], expected, rtol=1e-9, atol=1e-12)


def test_without_weights_it_is_ridge_regression_and_without_items_the_ridge_alone() -> None:
    rng = np.random.default_rng(1)
    features, targets = rng.normal(size=(20, 4)), rng.normal(size=20)
    solution = SmallRidges(np.zeros(20, int), np.arange(20), 1).solve(features, targets, np.full(4, 0.5))
    expected = np.linalg.lstsq(
        np.concatenate([features, np.sqrt(0.5) * np.eye(4)]), np.concatenate([targets, np.zeros(4)]), rcond=None
    )[0]
    np.testing.assert_allclose(solution[0], expected, rtol=1e-9)
    none = SmallRidges(np.zeros(0, int), np.zeros(0, int), 2)
    np.testing.assert_array_equal(none.solve(features, np.zeros(0), np.ones(4), pull=np.full((2, 4), 3.0)), 3.0)
