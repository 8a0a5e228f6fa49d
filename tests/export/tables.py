"""Tables and runs for tests of exports, and keys that formats find hard to write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import feat2vec
from feat2vec.export.exported_group import ExportedGroup
from feat2vec.export.format_base import FORMATS, GroupFiles
from feat2vec.space.vectors import Vectors
from tests.short_trainings import train

NAMES = [
    "Agnès Varda", "李安", "a b", "a_b", "a\tb", "a\u00a0b", "a_b#2", "line\nbreak",
    'x\'y"z', "back\\slash\\n", "🎬 studio", "\\.", " edge ", "cr\rlf", "\x1c", "comma,quote",
]  # fmt: skip
GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": "lookup"},
    'a/"tag" №1': {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2]}},
    "score": {"column": "score", "extractor": {"type": "numeric", "hidden": [4]}},
}
MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6},
    "rafm": {"ranks": [3, 6, 8]},
    "truncate": {"ranks": [3, 6, 8], "level_sharing": "truncate"},
}
HARD = [
    "a", "a\0b", "\0a", "a\ufffdb", "a\tb", "a\nb", "a\\nb", "a\rb", "a b", "a_b", "\ufeffa", "a\u2028b", "\U0010ffff",
    "e\u0301", "\u00e9", "\u200b", "-", "\\.", "NULL", "'", '"', "a#2", "a;b", " a", "a ", "None", "\x7f", "\u202ea",
]  # fmt: skip


def table(rows: int = 300) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "who": [NAMES[i % len(NAMES)] if i < 40 else NAMES[i % 5] for i in range(rows)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "title": [f"The {rng.integers(0, 6)} of Tōkyō {rng.integers(0, 3)}" for _ in range(rows)],
            "score": rng.integers(0, 9, rows) / 8,
        }
    )


def trained(model: str, folder: Path) -> feat2vec.Run:
    schema = {
        "version": 1, "model": MODELS[model], "groups": GROUPS if model == "fm" else {"who": GROUPS["who"]} | {
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}}},
        "training": {"validation": 0,
                     "epochs": 1, "batch_size": 100, "optimizer": {"type": "adam", "learning_rate": 0.05}},
    }  # fmt: skip
    return train(schema, table(), folder, quiet=True)


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def check_nearest(v: Vectors, key: str, neighbours: Sequence[str]) -> None:
    """As near as the nearest ones: some are equally near."""
    cosines = [v.similarity(key, neighbour) for neighbour in neighbours]
    np.testing.assert_allclose(cosines, [score for _, score in v.most_similar(key, topn=len(neighbours))], atol=1e-5)
    assert len({key, *neighbours}) == len(neighbours) + 1


def write_keys(format_name: str, keys: Sequence[str], folder: Path) -> list[str]:
    """Write a group with these keys in a format; the names of its files."""
    folder.mkdir()
    vectors = np.arange(2.0 * len(keys), dtype=np.float32).reshape(-1, 2)
    ones = np.ones(len(keys), np.int64)
    export_format = FORMATS[format_name]
    assert isinstance(export_format, GroupFiles)
    return export_format.write_group(folder, ExportedGroup("who", pa.array(keys, pa.string()), vectors, ones, ones))
