"""Rows whose texts would harm a careless page, and a schema of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

IMAGE, SCRIPT, QUOTES = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "a \"b\" 'c' & {{facts}}"
ROWS = 240


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    who = [IMAGE, SCRIPT, QUOTES, *(f"w{i}" for i in range(30))]
    return pa.table(
        {
            "id": [f"r{i}" for i in range(ROWS)],
            "who": [None if i % 17 == 0 else who[min(rng.zipf(1.3), len(who)) - 1] for i in range(ROWS)],
            "tags": ["|".join(f"t{x % 40}" for x in rng.zipf(1.4, 1 + i % 3)) for i in range(ROWS)],
            "title": [f"the {rng.integers(0, 9)} of {rng.integers(0, 5)}" for _ in range(ROWS)],
            "year": [None if i % 13 == 0 else int(rng.integers(1900, 2000)) for i in range(ROWS)],
            "day": pa.array([i if i % 7 else None for i in range(ROWS)], pa.date32()),
            "good": [bool(x) for x in rng.integers(0, 2, ROWS)],
            "kinds": [[f"k{x}" for x in rng.integers(0, 12, i % 4)] for i in range(ROWS)],
            "vector": pa.array([[0.0, 1.0]] * ROWS, pa.list_(pa.float32(), 2)),
        }
    )


SCHEMA: dict[str, Any] = {
    "version": 1, "name": "<b>people</b>", "id": "id", "model": {"ranks": [3, 6]},
    "groups": {
        "who": {"column": "who"},
        "a <group>": {"column": "tags", "extractor": {"type": "lookup", "split": "|"}},
        "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4}},
    },
    "training": {"validation": 0, "epochs": 2, "batch_size": 80},
}  # fmt: skip
