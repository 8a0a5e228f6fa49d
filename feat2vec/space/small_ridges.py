"""Many small least-squares problems at once, whose features are rows of one array.

An item i of problem p = `problem_of_item[i]` has the features f_i = factors[i] * vectors[vector_of_item[i]].
With weights h_i, sides s_i and a ridge r_d for each coordinate, its solution is

    x_p = (sum_i h_i f_i f_i' + diag(r))^-1 (sum_i s_i f_i + pull_p)

With h = 1 and s the targets it is ridge regression; with the second and first derivatives of losses a step of Newton's
method. Problems of about as many items are padded to the same number and solved by one call of LAPACK, so no loop goes
over problems or items.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from feat2vec.arrays import Array, Floats, Integers

NUMBERS_IN_MEMORY = 1 << 21  # of the features of problems that are solved at a time: 16 MB
MATRIX_NUMBERS = 1 << 20  # of their matrices


class SmallRidges:
    """Least-squares problems, sorted once and solved for several sides.

    Args:
        problem_of_item: [items], from 0.
        vector_of_item: [items], a row of the vectors.
        problems: How many there are; those without items are solved by their ridge alone.
        factors: What the features of each item are multiplied by, [items]; None where it is 1.

    >>> ridges = SmallRidges(np.array([0, 0]), np.array([0, 1]), problems=1)
    >>> ridges.solve(np.array([[1.0], [2.0]]), np.array([3.0, 6.0]), ridge=np.zeros(1)).round(6)
    array([[3.]])

    """

    def __init__(
        self, problem_of_item: Integers, vector_of_item: Integers, problems: int, factors: Floats | None = None
    ) -> None:
        self.problem_of_item, self.vector_of_item, self.problems = problem_of_item, vector_of_item, problems
        self.factors = factors
        self.order = np.argsort(problem_of_item, kind="stable")  # items, problem by problem
        self.counts = np.bincount(problem_of_item, minlength=problems)  # [problems]
        self.starts = np.cumsum(self.counts) - self.counts  # [problems], in `order`

    def solve(
        self,
        vectors: Array,
        sides: Floats,
        ridge: Floats,
        weights: Floats | None = None,
        pull: Floats | None = None,
    ) -> Floats:
        """The solution of each problem.

        Args:
            vectors: [vectors, D].
            sides: s, [items].
            ridge: r, [D] or [problems, D].
            weights: h, [items]; None where each is 1.
            pull: What is added to the right sides, [problems, D].

        Returns:
            [problems, D].

        """
        dim = vectors.shape[1]
        ridges = np.broadcast_to(ridge, (self.problems, dim))
        solutions = np.zeros((self.problems, dim)) if pull is None else pull / ridges
        if not len(self.order):
            return solutions
        for chosen in self._problems_of_like_size(dim):
            features, items, is_item = self._features(vectors, chosen)
            weighted = features if weights is None else features * weights[items][..., None]
            matrices = weighted.transpose(0, 2, 1) @ features  # [problems, D, D]
            matrices[:, np.arange(dim), np.arange(dim)] += ridges[chosen]
            right = np.einsum("pid,pi->pd", features, np.where(is_item, sides[items], 0.0))
            if pull is not None:
                right += pull[chosen]
            solutions[chosen] = np.linalg.solve(matrices, right[..., None])[..., 0]
        return solutions

    def _problems_of_like_size(self, dim: int) -> Iterator[Integers]:
        """Problems whose numbers of items are within a factor of two, as many at a time as memory is for."""
        with_items = np.flatnonzero(self.counts)
        classes = np.ceil(np.log2(self.counts[with_items])).astype(int)
        for size_class in np.unique(classes):
            problems_of_class = with_items[classes == size_class]
            padded = (1 << int(size_class)) * dim
            at_once = max(1, min(NUMBERS_IN_MEMORY // padded, MATRIX_NUMBERS // dim**2))
            for start in range(0, len(problems_of_class), at_once):
                yield problems_of_class[start : start + at_once]

    def _features(self, vectors: Array, chosen: Integers) -> tuple[Floats, Integers, Array]:
        """Features [problems, items, D] with zeros where a problem has fewer items, the items, and which are there."""
        counts = self.counts[chosen]
        places = np.arange(int(counts.max()))
        is_item = places < counts[:, None]  # [problems, items]
        items = self.order[np.minimum(self.starts[chosen][:, None] + places, len(self.order) - 1)]
        factors = is_item.astype(np.float64) if self.factors is None else is_item * self.factors[items]
        return vectors[self.vector_of_item[items]] * factors[..., None], items, is_item
