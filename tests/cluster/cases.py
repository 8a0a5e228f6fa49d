"""Schemas of every objective, model and extractor, and their table, for trainings on a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

LOOKUPS: dict[str, Any] = {name: {"column": name} for name in ("who", "place", "film")}
LISTS: dict[str, Any] = {
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "combiner": "mean", "item_dropout": 0.2}}
}
TEXTS: dict[str, Any] = {
    "title": {
        "column": "title",
        "extractor": {"type": "text_cnn", "max_tokens": 4, "token_dim": 4, "filters": 4, "dropout": 0.3},
    },
    "plot": {
        "column": "title",
        "extractor": {"type": "text_attention", "max_tokens": 4, "token_dim": 4, "heads": 2, "units": 3},
    },
}
NUMBERS: dict[str, Any] = {
    "size": {"column": "size", "extractor": {"type": "numeric"}},
    "image": {"column": "image", "extractor": {"type": "vector"}},
}
TRAINING = {"epochs": 2, "batch_size": 64, "validation": 0}


def schema(groups: dict[str, Any], objective: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """A schema of these groups."""
    training = {**TRAINING, **keys.pop("training", {})}
    document = {"version": 1, "groups": groups, "model": {"dim": 6}, "training": training, **keys}
    return document if objective is None else {**document, "objective": objective}


GOOD = {"type": "logistic", "target": "good"}
CASES: dict[str, dict[str, Any]] = {
    "nce": schema(LOOKUPS, {"type": "nce"}, noise={"joint": [["who", "place"]]}),
    "contrastive": schema({**LOOKUPS, **LISTS}, {"type": "contrastive"}, training={"group_dropout": 0.2}),
    "negative_sampling": schema(
        {**LOOKUPS, **LISTS}, {"type": "negative_sampling"}, noise={"lists": "items"}, training={"optimizer": "adam"}
    ),
    "texts": schema({**LOOKUPS, **TEXTS, **NUMBERS}, {"type": "contrastive"}),
    "rafm": schema(
        {**LOOKUPS, **LISTS},
        GOOD,
        model={"ranks": [2, 6], "bias": True, "levels": {"counts": [12]}},
        training={"dependent_rate": 0.05, "interaction_dropout": 0.1, "l2": 1e-4, "l2_linear": 1e-4},
    ),
    "decayed": schema(
        {**LOOKUPS, **LISTS},
        GOOD,
        model={"ranks": [2, 6], "bias": True},
        training={"l2": 0.01, "l2_over": "tables", "l2_linear": 1e-3, "dependent_rate": 0.05, "optimizer": "adam"},
    ),
    "normal_weights": schema(
        {
            **LOOKUPS,
            "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
            "friend": {"column": "friend", "share": "who"},
        },
        {"type": "regression", "target": "stars"},
        model={"dim": 4, "bias": True, "posterior": "gaussian", "members": 2},
        training={"epochs": 3, "l2": 0.5, "optimizer": "adam"},
    ),
    "rafm_noise": schema(LOOKUPS, {"type": "nce"}, model={"ranks": [2, 4], "bias": True}),
    "whole_models": schema(LOOKUPS, GOOD, model={"ranks": [2, 3], "level_sharing": "all", "bias": True}),
    "linear": schema(LOOKUPS, GOOD, model={"pairs": False}),
    "implicit": schema(LOOKUPS, {**GOOD, "implicit": "film"}, model={"dim": 6, "bias": True}),
    "sparse": schema(
        {**LOOKUPS, **LISTS},
        GOOD,
        model={"dim": 4, "bias": True, "activation": {"count": 8, "linear": True}},
        training={"optimizer": {"type": "ftrl", "learning_rate": 0.5, "l1": 1.0, "l2": 0.5}},
    ),
    "momentum": schema(
        LOOKUPS,
        {"type": "regression", "target": "stars"},
        model={"dim": 4, "bias": True},
        training={"optimizer": {"type": "sgd", "learning_rate": 0.1, "momentum": 0.9}},
    ),
    "network": schema(
        {**LOOKUPS, **NUMBERS},
        {"type": "softmax", "target": "kind"},
        head={"type": "mlp", "hidden": [8], "dropout": 0.1},
    ),
    "glove": schema({name: LOOKUPS[name] for name in ("who", "film")}, {"type": "glove", "target": "seen"}),
    "shared": schema(
        {"who": {"column": "who"}, "friend": {"column": "friend", "share": "who"}, **LISTS}, {"type": "nce"}
    ),
    "validated": schema(
        LOOKUPS, GOOD, model={"dim": 4, "bias": True}, training={"epochs": 4, "validation": 0.2, "patience": 1}
    ),
    "averaged": schema(LOOKUPS, GOOD, model={"dim": 4, "bias": True}, training={"epochs": 4, "averaging": 0.5}),
    "completed": schema(LOOKUPS, {"type": "contrastive"}, training={"epochs": 4, "validation": 0.3, "patience": 1}),
}

# Adam makes large steps of tiny gradients, which the rewriting of a graph rounds otherwise.
WITH_GRAPHS = frozenset({"normal_weights"})


def table(rows: int = 400, seed: int = 0) -> pa.Table:
    """Rows in which place, film, tags and title follow who; some lack a value."""
    rng = np.random.default_rng(seed)
    who, film = rng.zipf(1.3, rows) % 150, rng.zipf(1.5, rows) % 60
    tags = [[f"t{(w + int(x)) % 30}" for x in rng.integers(0, 3, 1 + w % 3)] for w in who]
    title = [f"word{w % 9} word{w % 7} word{int(x)}" for w, x in zip(who, rng.integers(0, 30, rows), strict=True)]
    return pa.table(
        {
            "who": [None if i % 9 == 0 else f"w{w}" for i, w in enumerate(who)],
            "friend": [f"w{w}" for w in rng.permutation(who)],
            "place": [f"p{w % 13}" for w in who],
            "film": [f"f{f}" for f in film],
            "tags": [None if i % 9 == 1 else tag for i, tag in enumerate(tags)],
            "title": title,
            "size": rng.normal(size=rows),
            "image": pa.array(list(rng.normal(size=(rows, 3))), pa.list_(pa.float64(), 3)),
            "kind": [f"k{w % 5}" for w in who],
            "good": (who % 2).astype(np.int64),
            "stars": (film % 5).astype(np.float64),
            "seen": 1.0 + (who * film) % 7,
        }
    )
