"""`pairs` on typed columns; the correlation itself is in test_metrics.py."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from feat2vec.evaluation.key_pairs import pair_similarities


def test_pairs_of_typed_columns_find_their_keys() -> None:
    class Known(dict[str, float]):
        def similarity(self, a: str, b: str) -> float:
            return self[a] * self[b]

    times = [datetime(2020, 1, 1), datetime(2020, 1, 2, 10, 30), None]
    known = Known({"2020-01-01": 1.0, "2020-01-02 10:30:00": 2.0, "5": 3.0})
    facts = pair_similarities(pa.table({"a": times, "b": [5.0, 5.0, 5.0], "n": [1, 2, 3]}), known)
    assert facts == {"n": 2, "skipped_unseen": 1, "spearman": pytest.approx(1)}
