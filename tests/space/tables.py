"""A table of every kind of group for tests of vectors, and the vectors of its values by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import feat2vec

MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6, "bias": True},
    "rafm": {"ranks": [3, 6, 8], "bias": True},
    "difacto": {"ranks": [3, 6, 8], "bias": True, "level_sharing": "truncate"},
}
GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 2.0}},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "year": {"column": "year"},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    "score": {"column": "score", "extractor": "numeric"},
    "both": {"columns": ["score", "votes"], "extractor": {"type": "numeric", "nan": "missing"}},
    "image": {"column": "image", "extractor": "vector"},
}
NAMES = ["Ørsted", "李安", "Жанна", "Agnès Varda", "a b", "🎬 studio", "Christopher Nolan", "x'y\"z", "O\\n"]


def table(rows: int = 300) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "name": [f"row {i // 2 if i < 4 else i}" for i in range(rows)],
            "who": [None if i % 11 == 0 else NAMES[min(rng.zipf(1.7) - 1, 8)] for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "year": 1990 + rng.integers(0, 20, rows),
            "title": [f"The {rng.integers(0, 6)} of Tōkyō {rng.integers(0, 3)}" for _ in range(rows)],
            "score": rng.integers(0, 9, rows) / 8,
            "votes": [None if i % 7 == 0 else float(rng.integers(1, 4)) for i in range(rows)],
            "image": [rng.integers(0, 3, 6).astype(np.float32) for _ in range(rows)],
        }
    )


def is_fm(run: feat2vec.Run) -> bool:
    return run.schema.model.ranks is None


def truncates(run: feat2vec.Run) -> bool:
    return run.schema.model.level_sharing == "truncate"


def parts(run: feat2vec.Run, group: str) -> list[list[Any]]:
    """Each value's vectors at its levels 1..k, float64, by definition."""
    layer = run.model.extractors[run.model.groups.index(group)]
    if group in ("who", "tags", "year"):
        gain = 2.0 if group == "who" else 1.0
        tables = [table.numpy().astype(float) * gain for table in layer.tables]
        tables[0] = tables[0][1:]
        return [[table[i] for table in tables if i < len(table)] for i in range(len(tables[0]))]
    levels = run.model.vectors(group, np.asarray(run.fitted.values[group].entries)).levels
    vectors_of_level = [
        level.free.numpy() + (0 if level.dependent is None else level.dependent.numpy()) for level in levels
    ]
    return [[level[i].astype(float) for level in vectors_of_level] for i in range(len(vectors_of_level[0]))]


def met(run: feat2vec.Run, a: list[Any], b: list[Any]) -> tuple[Any, Any]:
    """The two vectors by which a pair meets."""
    level = min(len(a), len(b))
    return (np.concatenate(a[:level]), np.concatenate(b[:level])) if truncates(run) else (a[level - 1], b[level - 1])


def cosine(a: Any, b: Any) -> float:
    return float(a @ b / np.sqrt(a @ a * (b @ b)))
