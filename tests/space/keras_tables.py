"""A table for tests of runs as Keras models, with columns that can be a label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 0.5}},
    "the/row of tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "item_dropout": 0.5}},
    "title": {
        "column": "title",
        "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2], "dropout": 0.5},
    },
    "row": {"column": "size", "extractor": {"type": "numeric", "hidden": [5]}},
}
QUIET: dict[str, Any] = {"verbose": 0, "shuffle": False}  # Keras warns of its own default, as `dataset` shuffles
MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6, "bias": True},
    "rafm": {"ranks": [2, 6]},
    "truncate": {"ranks": [2, 6], "level_sharing": "truncate", "bias": True},
}


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    who = rng.zipf(1.3, rows) % 40
    return pa.table(
        {
            "who": [None if i % 7 == 3 else f"w{w}" for i, w in enumerate(who)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "title": [f"the {rng.integers(6)} of {rng.integers(9)}" for _ in range(rows)],
            "size": rng.integers(0, 9, rows).astype(float),
            "price": who * 0.1,
            "odd": [bool(w % 2) for w in who],
            "kind": [("c", "a", "b", "b")[w % 4] for w in who],
        }
    )
