"""The levels of a model: the rule for counts, and what nested and separate spaces store."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from feat2vec.schema.levels import Levels
from feat2vec.schema.model_options import ModelSpec


def test_a_count_has_the_level_of_the_nearest_rank() -> None:
    """Near by the logarithm; the lower level where two are as near."""
    ranks, counts = (2, 8, 32), [10**6, 32, 16, 15, 8, 4, 3, 1]
    expected = []
    for count in counts:
        distances = [round(abs(math.log(count) - math.log(rank)), 9) for rank in ranks]
        expected.append(1 + distances.index(min(distances)))
    assert Levels(ranks).of_counts(np.array(counts)).tolist() == expected == [3, 3, 2, 2, 2, 1, 1, 1]
    # 8 is as near to 4 as to 16
    assert Levels((4, 16, 64)).of_counts(np.array([7, 8, 9, 31, 32, 33])).tolist() == [1, 1, 2, 2, 2, 3]
    assert Levels((50,)).of_counts(np.arange(1, 9)).tolist() == [1] * 8


def test_the_keys_of_a_level_are_the_first_ids() -> None:
    descending = np.sort(np.random.default_rng(0).zipf(1.3, 1000))[::-1]
    assert (np.diff(Levels((2, 8, 32, 256)).of_counts(descending)) <= 0).all()


@pytest.mark.parametrize(
    ("model", "ranks", "dims", "default", "submodels"),
    [
        ({"dim": 5}, (5,), (5,), 1, 1),
        ({"ranks": (2, 6, 8)}, (2, 6, 8), (2, 6, 8), 1, 3),
        ({"ranks": (2, 6, 8), "level_sharing": "truncate"}, (2, 6, 8), (2, 4, 2), 3, 1),
    ],
)
def test_the_levels_of_a_model(
    model: dict[str, Any], ranks: tuple[int, ...], dims: tuple[int, ...], default: int, submodels: int
) -> None:
    levels = ModelSpec(**model).levels
    assert (levels.ranks, levels.dims, levels.default, levels.submodels) == (ranks, dims, default, submodels)
    # what is stored for a level, side by side, has the rank of the level
    assert [sum(levels.dims[levels.parts_of(level)]) for level in range(1, len(levels) + 1)] == list(ranks)


@pytest.mark.parametrize("level", [0, 3, -1, 1.0, True, "1", None, [1]])
def test_what_is_no_level(level: object) -> None:
    assert not Levels((2, 6)).has(level)


@pytest.mark.parametrize("level", [1, 2, np.int8(2), np.int64(1)])
def test_what_is_a_level(level: object) -> None:
    assert Levels((2, 6)).has(level)
