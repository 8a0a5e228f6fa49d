"""Training rows with what they answer to the question for a group's values: what methods that rank learn from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from feat2vec.arrays import Array
from feat2vec.evaluation.baselines.base import BaselineRequest
from feat2vec.evaluation.baselines.items import sampled_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEIGHBOURS = 50  # training rows whose values are summed
SIMILARITIES_IN_MEMORY = 1 << 23  # of rows with training rows
LARGEST_POPULARITY = 1e-6  # what popularity adds, where neighbours say nothing


def answered_rows(
    request: BaselineRequest, target: str, given: Sequence[str], candidates: int
) -> Iterator[tuple[Mapping[str, Array], csr_array]]:
    """Training rows that have a value of the target, a batch at a time.

    Args:
        request: What to learn from; of more than 100,000 training rows so many are drawn.
        target: The group to rank.
        given: The groups to rank it by.
        candidates: The number of the target's values.

    Yields:
        The entries [rows, width] of each given group, and the answers [rows, candidates], 1 for a row's values.

    """
    from scipy import sparse

    from feat2vec.evaluation.queries import query_batches

    is_sampled, first_row = sampled_rows(request.training_rows), 0
    for batch in query_batches(request.run, request.training_rows, target, given):
        rows = len(batch.entries[given[0]])
        ones = np.ones(len(batch.rows))
        answers = sparse.csr_array((ones, (batch.rows, batch.true_candidates)), shape=(rows, candidates))
        is_kept = is_sampled[first_row : first_row + rows] & (np.diff(answers.indptr) > 0)
        yield {name: entries[is_kept] for name, entries in batch.entries.items()}, answers[is_kept]
        first_row += rows
