"""Films whose director says their genre, actors and year, for tests of what completes rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

GENRES = ("drama", "comedy", "western")
SCHEMA: dict[str, Any] = {
    "version": 1,
    "model": {"dim": 8},
    "groups": {
        "director": {"column": "director"},
        "genre": {"column": "genre"},
        "actors": {"column": "actors", "extractor": {"type": "lookup", "multi": True}},
        "decade": {"column": "year", "extractor": {"type": "lookup", "bins": 5}},
    },
    "noise": {"negatives": 16, "sharing": "batch"},
    "objective": {"type": "contrastive", "unit": True, "temperature": 0.3, "correction": False},
    "training": {"epochs": 12, "batch_size": 64, "optimizer": {"type": "adam", "learning_rate": 0.05}},
}


def films(rows: int = 400, seed: int = 0) -> pa.Table:
    """Rows; every seventh has no director, and a genre is another one than the director's in every tenth."""
    rng = np.random.default_rng(seed)
    directors = np.minimum(rng.geometric(0.2, rows) - 1, 11)
    genres = np.where(rng.random(rows) < 0.9, directors % 3, rng.integers(0, 3, rows))
    return pa.table(
        {
            "director": [None if i % 7 == 0 else f"d{d}" for i, d in enumerate(directors)],
            "genre": [GENRES[g] for g in genres],
            "actors": [[f"a{d * 2 + x}" for x in rng.permutation(4)[: rng.integers(1, 3)]] for d in directors],
            "year": pa.array(1930 + directors * 6 + rng.integers(0, 6, rows)),
        }
    )
