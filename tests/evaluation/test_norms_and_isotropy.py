"""Norms, isotropy and levels against loops and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.norms_and_isotropy import isotropy, levels, norms


def test_norms_are_of_each_value_at_its_own_level(people_run: feat2vec.Run) -> None:
    vocabulary = people_run.fitted.codecs["who"].vocabulary
    assert vocabulary is not None
    tables = [2.0 * table.numpy().astype(float) for table in people_run.model.extractors[0].tables]
    tables[0] = tables[0][1:]
    truncate = people_run.schema.model.level_sharing == "truncate"
    by_count: dict[int, list[float]] = {}
    for i, count in enumerate(vocabulary.counts):
        own = [table[i] for table in tables if i < len(table)]
        vector = np.concatenate(own) if truncate else own[-1]
        by_count.setdefault(math.ceil(math.log2(count)), []).append(float(np.sqrt(vector @ vector)))
    found = norms(people_run.model, people_run.fitted, "who")
    assert sum(one.values for one in found) == len(vocabulary.counts)
    for one, (place, lengths) in zip(found, sorted(by_count.items()), strict=True):
        assert 2 ** (place - 1) < one.low <= one.high <= 2**place
        np.testing.assert_allclose(one.quantiles, np.quantile(lengths, (0.05, 0.25, 0.5, 0.75, 0.95)), rtol=1e-5)
    assert sum(one.values for one in norms(people_run.model, people_run.fitted, "title")) == len(
        people_run.fitted.values["title"].entries
    )


def test_isotropy_follows_its_formula() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 5)) + 0.5
    directions = np.linalg.eigh(vectors.T @ vectors)[1].T
    sums = [sum(math.exp(c @ v) for v in vectors) for one in directions for c in (one, -one)]
    pairs = itertools.combinations(vectors, 2)
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]
    found = isotropy(np.concatenate([vectors, np.zeros((3, 5))]))
    assert found.partition == pytest.approx(min(sums) / max(sums), rel=1e-9)
    assert found.mean_cosine == pytest.approx(np.mean(cosines), rel=1e-9)
    even = isotropy(np.concatenate([np.eye(4), -np.eye(4)]))
    assert even.partition == pytest.approx(1)
    assert even.mean_cosine == pytest.approx(-1 / 7)
    assert isotropy(np.array([[300.0, 0.0], [300.0, 1.0]])).partition == pytest.approx(0, abs=1e-9)  # no overflow
    with pytest.raises(UserError, match="two vectors or more; received 1"):
        isotropy(np.ones((1, 2)))


def test_levels_add_up_to_values_and_weights(people_run: feat2vec.Run) -> None:
    model, model_levels = people_run.model, people_run.schema.model.levels
    for name, group in zip(model.groups, model.extractors, strict=True):
        vocabulary = people_run.fitted.codecs[name].vocabulary
        values = len(people_run.fitted.values[name].entries) if name in ("title", "score") else len(vocabulary.counts)  # type: ignore[union-attr]
        found = levels(model, name, values)
        assert sum(one.parameters for one in found) == group.params()
        assert sum(one.values for one in found) == values
        if name == "who":
            own = model_levels.of_counts(vocabulary.counts)  # type: ignore[union-attr]
            expected = [int((own == level).sum()) for level in range(1, len(model_levels) + 1)]
            assert [one.values for one in found if one.level] == expected
