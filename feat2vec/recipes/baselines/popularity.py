"""Popularity: every row gets the same ranking, the target's values by descending count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from feat2vec.arrays import Array
from feat2vec.recipes.baselines.base import Baseline, BaselineRequest, Metrics

if TYPE_CHECKING:
    from feat2vec.evaluation.metrics import ScoresOfRows


def popularity(request: BaselineRequest) -> Metrics:
    """Rank the target's values by how often training has seen them, whatever is given."""
    from feat2vec.evaluation.ranking import ranked
    from feat2vec.space.geometry import is_keyed

    run, target = request.run, str(request.target)
    has_keys = is_keyed(run.model, target)
    vocabulary = run.fitted.codecs[target].vocabulary if has_keys else None
    value_counts = run.fitted.values[target].counts if vocabulary is None else vocabulary.counts
    counts = np.asarray(value_counts, np.float64)  # [values]

    def scores_of_batch(entries: Mapping[str, Array]) -> ScoresOfRows:
        del entries
        return lambda rows: np.broadcast_to(counts, (len(rows), len(counts)))

    return ranked(run, request.test, target, request.given, len(counts), scores_of_batch)


POPULARITY = Baseline("popularity", "rank", popularity)
