"""Rows with planted structure, and models of them: what the tests of the model share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema

GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "max_items": 4}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 3, "widths": [2, 3]}},
    "size": {"column": "size", "extractor": {"type": "numeric", "hidden": [3]}},
}
UNTARGETED = {name: GROUPS[name] for name in ("who", "tags", "size")}
LOOKUPS = {name: GROUPS[name] for name in ("who", "tags")} | {"place": {"column": "place"}}
CASES: dict[str, dict[str, Any]] = {
    "nce": {"objective": "nce"},
    "nce, joint": {"objective": "nce", "noise": {"joint": [["who", "tags"]]}, "model": {"bias": True, "dim": 6}},
    "contrastive pool, ranks": {
        "objective": "contrastive", "noise": {"sharing": "batch", "negatives": 8}, "model": {"ranks": [2, 4, 8]},
    },
    "strict, joint, ranks": {
        "objective": "negative_sampling", "noise": {"joint": [["who", "title"]]},
        "model": {"ranks": [2, 6], "dependents": "strict", "bias": True},
    },
    "truncated": {"objective": "nce", "model": {"ranks": [2, 6], "level_sharing": "truncate", "bias": True}},
    "regularized": {
        "objective": {"type": "contrastive", "correction": False}, "model": {"dim": 4},
        "training": {"l2": 0.1, "group_dropout": 0.3, "optimizer": {"type": "adam", "learning_rate": 0.01}},
    },
    "logistic": {
        "objective": {"type": "logistic", "target": "label", "weight": "count"},
        "model": {"ranks": [2, 4], "bias": True}, "training": {"interaction_dropout": 0.2},
    },
    "regression": {"objective": {"type": "regression", "target": "score"}, "model": {"bias": True, "dim": 4}},
    "softmax": {"objective": {"type": "softmax", "target": "place"}, "model": {"ranks": [2, 4]}},
    "implicit": {
        "objective": {"type": "logistic", "target": "label", "implicit": "who", "class_weights": "balanced"},
        "model": {"ranks": [2, 4], "bias": True}, "noise": {"negatives": 3},
    },
    "network": {
        "objective": {"type": "logistic", "target": "label"}, "model": {"ranks": [2, 4]},
        "head": {"type": "mlp", "hidden": [6, 3], "dropout": 0.2, "normalize": True}, "training": {"l2": 0.01},
    },
    "softmax, network, whole tables": {
        "objective": {"type": "softmax", "target": "place", "class_weights": {"p1": 2.0}}, "model": {"dim": 4},
        "head": {"type": "mlp", "hidden": [6], "inputs": ["interactions"]},
        "training": {"l2": 1e-4, "l2_over": "tables", "optimizer": {"type": "adam", "learning_rate": 0.01}},
    },
    "glove": {"objective": {"type": "glove", "target": "count"}, "model": {"bias": True, "dim": 4}},
}  # fmt: skip


def table(rows: int = 192) -> pa.Table:
    """Rows with planted structure: tags follow who, and some entries are missing."""
    rng = np.random.default_rng(0)
    who = rng.zipf(1.5, rows) % 12
    tags = [[f"t{(w + int(x)) % 9}" for x in rng.integers(0, 2, rng.integers(0, 4))] for w in who]
    return pa.table(
        {
            "who": [None if i % 17 == 0 else f"w{w}" for i, w in enumerate(who)],
            "tags": tags,
            "place": [f"p{w % 4}" for w in who],
            "title": [" ".join(f"word{int(x)}" for x in rng.integers(0, 9, 1 + w % 4)) for w in who],
            "size": [None if i % 13 == 0 else float(w) for i, w in enumerate(who)],
            "label": (who % 2 == 0).astype(np.int64),
            "score": (who / 10).astype(np.float64),
            "count": rng.integers(1, 5, rows),
        }
    )


TABLE = table()


def encoded(case: dict[str, Any], groups: dict[str, Any] | None = None) -> Encoded:
    training = {"batch_size": 48, **case.get("training", {})}
    return fit(read_schema({"version": 1, "groups": groups or GROUPS, **case, "training": training}), TABLE)


def with_options(groups: dict[str, Any], **options: dict[str, Any]) -> dict[str, Any]:
    """The groups with `option={group: value}` of their extractors."""
    changed = {}
    for name, group in groups.items():
        of_group = {option: values[name] for option, values in options.items() if name in values}
        changed[name] = {**group, "extractor": {**group.get("extractor", {"type": "lookup"}), **of_group}}
    return changed


def one_batch(model: Feat2Vec, rows: Encoded) -> Any:
    return next(iter(model.dataset(rows, batch_size=len(rows), shuffle=False)))
