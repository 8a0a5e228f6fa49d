"""Films whose directors follow from their other groups, and people with words, tags and a kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA: dict[str, Any] = {
    "version": 1,
    "groups": {
        "director": {"column": "director", "extractor": {"type": "lookup", "multi": True}},
        "cast": {"column": "cast", "extractor": {"type": "lookup", "multi": True, "min_count": 2}},
        "year": {"column": "year"},
        "score": {"column": "score", "extractor": "numeric"},
        "both": {"columns": ["score", "votes"], "extractor": "numeric"},
        "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    },
    "training": {"validation": 0, "epochs": 1, "optimizer": {"type": "adam", "learning_rate": 0.01}},
}


def films(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    director = rng.zipf(1.3, rows) % 60
    return pa.table(
        {
            "director": [[f"d{d}", *([f"d{d + 1}"] if i % 5 == 0 else [])] for i, d in enumerate(director)],
            "cast": [[f"c{d + int(x)}" for x in rng.integers(0, 4, i % 4)] for i, d in enumerate(director)],
            "year": [None if i % 13 == 0 else 1990 + int(d) % 20 for i, d in enumerate(director)],
            "score": director / 7,
            "votes": rng.integers(0, 30, rows).astype(float),
            "title": [f"the {int(d) % 6} of {int(x)}" for d, x in zip(director, rng.integers(0, 4, rows), strict=True)],
        }
    )


MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6},
    "rafm": {"ranks": [3, 6, 8], "bias": True},
    "difacto": {"ranks": [3, 6, 8], "level_sharing": "truncate"},
}


def people(rows: int = 250) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [None if i % 11 == 0 else f"w{min(rng.zipf(1.4), 30)}" for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, 1 + i % 3)] for i in range(rows)],
            "title": [f"the {rng.integers(0, 6)} of {rng.integers(0, 3)}" for _ in range(rows)],
            "score": rng.integers(0, 9, rows) / 8,
            "kind": [None if i % 50 == 0 else i % 3 for i in range(rows)],
        }
    )


def people_schema(model: str) -> dict[str, Any]:
    return {
        "version": 1, "model": MODELS[model],
        "groups": {
            "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0}},
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
            "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4}},
            "score": {"column": "score", "extractor": "numeric"},
        },
        "training": {"validation": 0, "epochs": 1, "batch_size": 50},
    }  # fmt: skip
