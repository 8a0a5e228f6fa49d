"""Neighbours that two runs share, counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.stability import stability
from feat2vec.run import train
from tests.evaluation.tables import people, people_schema


@pytest.mark.slow
def test_neighbours_that_stay_are_counted(people_run: feat2vec.Run, tmp_path: Path) -> None:
    assert stability(people_run, people_run, "who").overlap == 1
    rows = people().slice(20)  # and some keys are in one run only
    settings = ["training.seed=7"]
    model = people_run.schema.model.model_dump(exclude_unset=True)
    other = train(people_schema("fm") | {"model": model}, rows, tmp_path / "run", settings=settings, quiet=True)
    found = stability(people_run, other, "who", topn=3)
    one, two = people_run.vectors("who", 1), other.vectors("who", 1)
    common = [key for key in one.index_to_key if key in two]
    shares = []
    for key in common:
        near = []
        for v in (one, two):
            scores = {other: v.similarity(key, other) for other in common if other != key}
            near.append(set(sorted(scores, key=lambda other, scores=scores: -scores[other])[:3]))  # type: ignore[misc]
        shares.append(len(near[0] & near[1]) / len(near[0] | near[1]))
    assert found.common == found.asked == len(common)
    assert found.overlap == pytest.approx(np.mean(shares), abs=0.02)
    assert stability(people_run, other, "who", topn=3, sample=5).asked == 5
    with pytest.raises(UserError, match="no group 'whom'; did you mean 'who'"):
        stability(people_run, other, "whom")
    with pytest.raises(UserError, match="'title' has no keys to be compared by"):
        stability(people_run, other, "title")
