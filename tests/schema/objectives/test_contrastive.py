"""The N-pair loss: its formula, and negatives that are the row's own value."""

from __future__ import annotations

import numpy as np
import pytest

from feat2vec.schema.objectives import Contrastive
from tests.schema.objectives.cases import NOISE_OBJECTIVES, Case


@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_hits_are_masked_where_the_correction_is_on(target: bool) -> None:
    """A masked negative changes neither loss nor gradient; where none is left, both are 0."""
    case, other = Case(seed=2), Case(seed=2)
    other.scores[:, 1:][case.hits] += 3.0
    for objective in NOISE_OBJECTIVES:
        loss, moved = (x.loss(objective, "float64", target).numpy() for x in (case, other))
        assert np.allclose(loss, moved, atol=1e-15) == getattr(objective, "correction", False)
    gradient = case.gradient(Contrastive(), "float64", target)
    assert (gradient[:, 1:][case.hits] == 0).all()
    assert (gradient[-1] == 0).all()
    assert case.loss(Contrastive(), "float64", target)[-1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_n_pair_form(seed: int) -> None:
    """log(1 + sum exp(f(x).(f(x_i^-) - f(x^+))))."""
    case = Case(seed=seed)
    expected = np.log1p(np.exp(case.scores[:, 1:] - case.scores[:, :1]).sum(1))
    np.testing.assert_allclose(case.loss(Contrastive(correction=False), "float64", False), expected)
