"""Vectors of new values that solve their own labelled rows, with all else held.

The score of a row is s = s_0 + sum_i b_i x_v(i) . f with f = (gain C, 1), and x = (vector, linear term) of each of its
new values. Training makes the sum over rows of w loss(s, y) small, and for each occurrence of a value l2 / 2 |v|^2 +
l2_linear / 2 l^2. So the x of a value minimises

    sum over its rows of w loss(s, y) + n / 2 (l2 |v|^2 + l2_linear l^2)

which for the squared errors of `regression` and `glove` is one ridge regression. For `logistic` it is one after the
other: at s the log loss lies below the parabola of curvature tanh(s / 2) / 2 s that touches it (Jaakkola and Jordan,
2000), whose minimum is a ridge regression; each lowers the loss.

`interaction_dropout` of a share p adds in expectation h / 2 p / (1 - p) times the sum of the squares of the coordinates
of the row's pairs, with h the curvature of the loss (Wager et al., 2013). It is a part of the objective here, too.

`class_weights` that are named multiply w; what `balanced` ones are, new rows do not tell.

Where a row holds several new values, each step is divided by their number, so that the loss still falls (Richtárik and
Takáč, 2016).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Array, Floats
from feat2vec.schema.options import Schema
from feat2vec.space.new_values import NewRows
from feat2vec.space.small_ridges import SmallRidges

MOST_STEPS, TOLERANCE = 100, 1e-6
LEAST_RIDGE = 1e-6  # relative to the curvature; without l2 the shortest of the vectors that solve the rows


class Ridge(NamedTuple):
    """What holds the numbers of a value back: half of it times their squares is added to the loss of its rows.

    Of a vector it is the squares of what it differs by from `centre`, which is 0 but where the prior has another mean.
    """

    vector: Array  # [values]
    term: Array  # [values]
    centre: Floats  # [D_1]


class Parabolas(NamedTuple):
    """What the loss of each row is taken for, as a function of its score: [rows] each."""

    slopes: Floats
    curvatures: Floats


def parabolas(schema: Schema, scores: Floats, targets: Floats) -> Parabolas:
    """The parabolas that touch the losses of rows at their scores and are nowhere below them.

    Args:
        schema: That of the run.
        scores: [rows].
        targets: In the unit of scores, [rows]; counts for `glove`.

    """
    return Parabolas(*schema.objective.touching_parabolas(scores, targets))


def solve_labelled(schema: Schema, new: NewRows, ridge: Ridge, gain: float) -> tuple[Floats, Floats]:
    """The vectors [values, D_1] and linear terms [values] of new values.

    Args:
        schema: That of the run.
        new: Their rows, with targets in the unit of scores.
        ridge: What holds each value back.
        gain: That of the group.

    """
    assert new.targets is not None
    items, values, dim = new.items, len(new.keys), new.contexts.shape[1]
    features = gain * new.contexts  # [rows, D_1 or one more]
    ridges, centre = np.repeat(ridge.vector[:, None], dim, axis=1), ridge.centre
    if schema.model.bias:
        features = np.concatenate([features, np.ones((len(features), 1))], axis=1)
        ridges, centre = np.concatenate([ridges, ridge.term[:, None]], axis=1), np.append(centre, 0)
    least_squares = SmallRidges(items.values, items.rows, values, items.factors)
    ridges += LEAST_RIDGE * float(np.square(features).mean()) if len(features) else 0
    rate = schema.training.interaction_dropout
    odds = rate / (1 - rate) if new.pairs is not None else 0.0
    most_values = int(np.bincount(items.rows).max(initial=1))  # of a row
    solution = np.zeros(ridges.shape)
    for _ in range(MOST_STEPS):
        of_items = items.factors * np.einsum("ij,ij->i", solution[items.values], features[items.rows])
        scores = new.scores + np.bincount(items.rows, of_items, len(features))
        slopes, curvatures = parabolas(schema, scores, new.targets)
        slopes, curvatures = slopes * new.weights, curvatures * new.weights
        step_ridges, pull = ridges, -ridges * (solution - centre)
        if odds:
            of_dropout = _dropout(new, features[:, :dim], solution[:, :dim], odds * curvatures)
            step_ridges, pull = ridges.copy(), pull
            step_ridges[:, :dim] += of_dropout[0]
            pull[:, :dim] -= of_dropout[1]
        step = least_squares.solve(features, -slopes[items.rows], step_ridges, curvatures[items.rows], pull)
        solution += step / most_values
        if np.abs(step).max(initial=0) <= TOLERANCE * np.abs(solution).max(initial=0):
            break
    return solution[:, :dim], solution[:, dim] if schema.model.bias else np.zeros(values)


def _dropout(new: NewRows, features: Floats, vectors: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The curvature and the slope of what dropout adds, by each coordinate of each value: [values, D_1] each.

    Args:
        new: The rows.
        features: gain C, [rows, D_1].
        vectors: As they are, [values, D_1].
        weights: What the squares of the rows' coordinates are multiplied by, twice: [rows].

    """
    assert new.pairs is not None
    items, shape = new.items, vectors.shape
    of_items = items.factors[:, None] * features[items.rows]  # [items, D_1]
    coordinates = new.pairs.copy()  # [rows, D_1]
    np.add.at(coordinates, items.rows, of_items * vectors[items.values])
    weighted = weights[items.rows, None] * of_items
    curvature, slope = np.zeros(shape), np.zeros(shape)
    np.add.at(curvature, items.values, weighted * of_items)
    np.add.at(slope, items.values, weighted * coordinates[items.rows])
    return curvature, slope
