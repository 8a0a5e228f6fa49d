"""What a schema with a target is trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class GroupFacts:
    """What is known of a group to predict from.

    Attributes:
        kind: What its column holds.
        extractor: The extractor that fits it.
        distinct: Its distinct keys, items or numbers.

    """

    kind: Literal["keys", "list", "text", "number", "date", "vector"]
    extractor: Mapping[str, object]
    distinct: int = 0


@dataclass(frozen=True)
class SupervisedDefaults:
    """What a schema with a target is trained with.

    Attributes:
        settings: The sections model, head and training.
        extractors: The options of each group's extractor, by the group's name.
        reasons: Why, by the key of a section or of an option in it, or by `groups.NAME`.

    """

    settings: Mapping[str, object]
    extractors: Mapping[str, Mapping[str, object]]
    reasons: Mapping[str, str]


def supervised_defaults(
    rows: int, objective: str, groups: Mapping[str, GroupFacts], classes: int = 0
) -> SupervisedDefaults:
    """Return what a schema with a target is trained with.

    Args:
        rows: The rows that have a label.
        objective: regression, logistic or softmax.
        groups: The groups to predict from, by name.
        classes: The number of classes, of softmax.

    Returns:
        Sections, extractors and reasons.

    Example:
        >>> groups = {"year": GroupFacts("number", {"type": "numeric"})}
        >>> supervised_defaults(1000, "regression", groups).extractors["year"]["scale"]
        'quantile'

    """
    del classes  # as yet
    extractors: dict[str, Mapping[str, object]] = {}
    for name, group in groups.items():
        is_number = group.kind == "number"
        extractors[name] = {**group.extractor, "scale": "quantile"} if is_number else group.extractor
    batch_size = 64 if rows < 10_000 else 512
    settings: dict[str, object] = {
        "model": {"dim": 16, "bias": objective != "softmax"},
        "head": {"type": "mlp", "hidden": [64]},
        "training": {
            "epochs": 30,
            "batch_size": batch_size,
            "optimizer": {"type": "adam", "learning_rate": 0.003},
            "l2": 0.0001,
            "seed": 0,
        },
    }
    return SupervisedDefaults(settings, extractors, {"training.batch_size": f"{rows:,} rows have a label"})
