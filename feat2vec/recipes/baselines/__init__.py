"""The baselines that a recipe can put beside a run (its key `beside`), one file each.

`BASELINES` is the one list of them: recipes are checked by it, and `running.py` calls what it holds. TensorFlow and the
libraries of the baselines are imported only when a baseline is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from feat2vec.recipes.baselines.base import Baseline, BaselineRequest, Metrics
from feat2vec.recipes.baselines.gradient_boosting import GRADIENT_BOOSTING
from feat2vec.recipes.baselines.popularity import POPULARITY
from feat2vec.recipes.baselines.word2vec import WORD2VEC

BASELINES: Mapping[str, Baseline] = {baseline.name: baseline for baseline in (POPULARITY, GRADIENT_BOOSTING, WORD2VEC)}

if TYPE_CHECKING:
    BaselineName: TypeAlias = str
else:
    BaselineName = Literal[tuple(BASELINES)]  # pydantic checks recipes by it

__all__ = ["BASELINES", "Baseline", "BaselineName", "BaselineRequest", "Metrics"]
