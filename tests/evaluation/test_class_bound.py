"""The bound of a label column."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.class_bound import class_bounds, labelled_vectors
from tests.evaluation.tables import people


def test_the_contrastive_loss_bounds_the_classifiers(people_run: feat2vec.Run) -> None:
    vectors, labels, without = labelled_vectors(people_run.model, people_run.fitted, people(), "kind")
    assert (len(vectors), without) == (245, 5)
    kinds = [kind for kind in people()["kind"].to_pylist() if kind is not None]
    assert len(set(zip(kinds, labels.tolist(), strict=True))) == 3
    labelled = [kind is not None for kind in people()["kind"].to_pylist()]
    np.testing.assert_allclose(vectors, people_run.embed(people())[labelled], atol=1e-6)
    for one in class_bounds(people_run.model, people_run.fitted, people(), "kind", ((1, 1), (2, None)), draws=20_000):
        assert (one.classes, one.rows) == (3, 245)
        assert one.k == (1 if one.negatives == 1 else 2)
        assert one.bound.tau == pytest.approx(3.0**-one.negatives)
        inside = one.bound.contrastive - one.bound.tau * math.log(one.negatives + 1)
        assert one.bound.bound == pytest.approx(one.k / (1 - one.bound.tau) * inside)
        assert one.bound.mean_classifier <= one.bound.bound
    own, _, _ = labelled_vectors(
        people_run.model, people_run.fitted, people(), "who"
    )  # without the group that holds the label
    there = [who is not None for who in people()["who"].to_pylist()]
    np.testing.assert_allclose(own, people_run.embed(people(), ["tags", "title", "score"])[there], atol=1e-6)
    for label, message in (("kinds", "did you mean 'kind'"), ("tags", "holds lists"), ("one", "has 1 class; two")):
        rows = people().append_column("one", pa.array(["x"] * 250))
        with pytest.raises(UserError, match=message):
            class_bounds(people_run.model, people_run.fitted, rows, label)
