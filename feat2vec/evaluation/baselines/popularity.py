"""Popularity: every row gets the same ranking, the target's values by descending count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from feat2vec.arrays import Array
from feat2vec.evaluation.baselines.base import Baseline, BaselineRequest, Metrics

if TYPE_CHECKING:
    from feat2vec.evaluation.metrics import ScoresOfRows


def popularity(request: BaselineRequest) -> Metrics:
    """Rank the target's values by how often training has seen them, whatever is given."""
    from feat2vec.evaluation.ranking import candidate_counts, ranked

    run, target = request.run, str(request.target)
    counts = candidate_counts(run, target)  # [values]

    def scores_of_batch(entries: Mapping[str, Array]) -> ScoresOfRows:
        del entries
        return lambda rows: np.broadcast_to(counts, (len(rows), len(counts)))

    return ranked(run, request.test, target, request.given, len(counts), scores_of_batch)


POPULARITY = Baseline("popularity", "rank", popularity, needs_rows=False)
