"""Tables, schemas and comparisons that the tests of training share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import feat2vec
from feat2vec.model.keras_model import Feat2Vec


def table(rows: int, seed: int = 0) -> pa.Table:
    """Tags and places follow who; a row in nine lacks one of them."""
    rng = np.random.default_rng(seed)
    who = rng.zipf(1.4, rows) % 40
    tags = [[f"t{(w + int(x)) % 30}" for x in rng.integers(0, 3, 1 + w % 3)] for w in who]
    title = [f"word{w % 9} word{w % 7} word{int(x)}" for w, x in zip(who, rng.integers(0, 30, rows), strict=True)]
    columns = {
        "who": [None if i % 9 == 0 else f"w{w}" for i, w in enumerate(who)],
        "tags": [None if i % 9 == 1 else tag for i, tag in enumerate(tags)],
        "place": [f"p{w % 13}" for w in who],
        "title": title,
        "good": (who % 2).astype(np.int64),
    }
    return pa.table(columns)


SCHEMA: dict[str, Any] = {
    "version": 1,
    "name": "people",
    "model": {"dim": 8},
    "groups": {
        "who": {"column": "who"},
        "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
        "place": {"column": "place"},
        "title": {
            "column": "title",
            "extractor": {"type": "text_cnn", "max_tokens": 4, "token_dim": 4, "filters": 4, "dropout": 0.3},
        },
    },
    "noise": {"negatives": 4},
    "training": {"validation": 0, "epochs": 4, "batch_size": 64, "group_dropout": 0.2},
}  # fmt: skip
LABELLED = {
    **SCHEMA,
    "objective": {"type": "logistic", "target": "good"},
    "model": {"ranks": [2, 8], "bias": True},
    "training": {"validation": 0, "epochs": 4, "batch_size": 64, "interaction_dropout": 0.1, "optimizer": "adam"},
}
AVERAGED = {**SCHEMA, "training": {**SCHEMA["training"], "averaging": 0.6}}
NORMAL = {
    **SCHEMA,
    "groups": {name: SCHEMA["groups"][name] for name in ("who", "tags", "place")},
    "objective": {"type": "regression", "target": "good"},
    "model": {"dim": 8, "bias": True, "posterior": "gaussian"},
    "training": {"validation": 0, "epochs": 4, "batch_size": 64, "l2": 3.0, "optimizer": "adam"},
}
CASES = {"noise": SCHEMA, "labels": LABELLED, "averaged": AVERAGED, "normal": NORMAL}


def weights(run: feat2vec.Run) -> list[Any]:
    return [variable.numpy() for variable in run.model.trainable_variables]


def losses(run: feat2vec.Run) -> list[dict[str, float]]:
    """The losses of each epoch."""
    return [{key: value for key, value in row.items() if key.endswith("loss")} for row in run.history]


def same(run: feat2vec.Run, expected: feat2vec.Run) -> bool:
    """Whether two runs have the same losses and the same bytes of weights."""
    pairs = zip(weights(run), weights(expected), strict=True)
    return losses(run) == losses(expected) and all(a.tobytes() == b.tobytes() for a, b in pairs)


def small_model() -> Feat2Vec:
    """A model of two groups that was not trained."""
    groups = {name: {"column": name} for name in ("who", "place")}
    return Feat2Vec.from_encoder(feat2vec.fit({"version": 1, "groups": groups, "model": {"dim": 2}}, table(40)).encoder)
