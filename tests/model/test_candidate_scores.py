"""Candidates in a row's context have the scores of whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.model.candidate_scores import score_candidates, split_context, sum_context
from feat2vec.model.extractors import Extracted
from feat2vec.model.group_vectors import map_level, stack_linear, stack_vectors
from feat2vec.model.pair_scores import Level, Submodels, submodels
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema

ROWS, GROUPS, DIMS, BIAS = 4, 3, (2, 5), 0.5
MODELS: dict[str, dict[str, Any]] = {
    "separate": {"ranks": [2, 5]},
    "strict": {"ranks": [2, 5], "dependents": "strict"},
    "truncate": {"ranks": [2, 7], "level_sharing": "truncate"},
}


def schema_of_model(model: dict[str, Any], objective: Any = "nce") -> Schema:
    groups = {name: {"column": name} for name in "abc"}
    return read_schema({"version": 1, "groups": groups, "objective": objective, "model": {**model, "bias": True}})


def random_group(rng: np.random.Generator, rows: int) -> Extracted:
    """A group's vectors, whose values all reach the second level, and linear terms."""
    first, second = (tf.constant(rng.normal(size=(rows, dim))) for dim in DIMS)
    levels = (Level(tf.zeros_like(first), first), Level(second))
    return Extracted(levels, tf.constant(rng.normal(size=rows)), 0.0)


def whole_scores(schema: Schema, groups: list[Extracted]) -> Submodels:
    """The scores of rows by all of their groups."""
    linear = tf.reduce_sum(stack_linear(groups, bias=True), axis=1) + BIAS
    return submodels(stack_vectors(groups, truncated=schema.model.levels.nested), linear, schema.model.dependents)


def rows_at(group: Extracted, places: list[int]) -> Extracted:
    levels = tuple(map_level(lambda part: tf.gather(part, places), level) for level in group.levels)
    return Extracted(levels, tf.gather(group.linear, places), 0.0)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("unit", [(1,), (0, 2)])
@pytest.mark.parametrize("model", MODELS)
def test_a_candidates_score_is_that_of_the_whole_row(model: str, unit: tuple[int, ...], shared: bool) -> None:
    schema, rng, k = schema_of_model(MODELS[model]), np.random.default_rng(0), 3
    groups = [random_group(rng, ROWS) for _ in range(GROUPS)]
    candidates = [random_group(rng, k if shared else ROWS * k) for _ in unit]
    keep = np.ones((ROWS, GROUPS))
    keep[:, list(unit)] = 0
    context = sum_context(schema, groups, tf.constant(keep), BIAS)
    found = score_candidates(schema, context, candidates, (k,) if shared else (ROWS, k))
    for j in range(k):
        places = [j if shared else row * k + j for row in range(ROWS)]
        replaced = list(groups)
        for g, candidate in zip(unit, candidates, strict=True):
            replaced[g] = rows_at(candidate, places)
        expected = whole_scores(schema, replaced)
        for ours, theirs in zip(found.scores, expected.scores, strict=True):
            np.testing.assert_allclose(ours[:, j], theirs)
        for ours, theirs in zip(found.targets, expected.targets, strict=True):
            np.testing.assert_allclose(ours[:, j], theirs)


def test_candidates_of_a_unit_objective_have_length_1() -> None:
    rng = np.random.default_rng(0)
    groups = [random_group(rng, ROWS) for _ in range(GROUPS)]
    candidate = random_group(rng, ROWS)
    keep = tf.constant(np.array([[0.0, 1.0, 1.0]] * ROWS))
    unit, plain = (schema_of_model(MODELS["truncate"], {"type": "contrastive", "unit": unit}) for unit in (True, False))
    longer = candidate._replace(levels=tuple(map_level(lambda part: 3 * part, level) for level in candidate.levels))
    context = sum_context(unit, groups, keep, 0.0)
    ours, theirs = (score_candidates(unit, context, [vectors], (ROWS, 1)).scores[-1] for vectors in (candidate, longer))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert not np.allclose(ours, score_candidates(plain, context, [candidate], (ROWS, 1)).scores[-1])


def test_a_split_context_is_that_of_its_rows() -> None:
    schema, rng = schema_of_model(MODELS["separate"]), np.random.default_rng(0)
    groups = [random_group(rng, ROWS) for _ in range(GROUPS)]
    keep = tf.constant(rng.integers(0, 2, (ROWS, GROUPS)).astype(float))
    parts = split_context(sum_context(schema, groups, keep, BIAS), tf.constant([1, 3]))
    for part, places in zip(parts, ([0], [1, 2, 3]), strict=True):
        expected = sum_context(schema, [rows_at(group, places) for group in groups], tf.gather(keep, places), BIAS)
        for ours, theirs in zip(part.scores.scores, expected.scores.scores, strict=True):
            np.testing.assert_allclose(ours, theirs)
        for our_sum, their_sum in zip(part.sums, expected.sums, strict=True):
            np.testing.assert_allclose(our_sum.free, their_sum.free)
