"""What a schema with a target is trained with: every number that `init --target` writes is decided here.

The head is a network of several members (TabM) on the vectors of the groups side by side. Numbers come to it piece by
piece, between their quantiles; texts come as words; keys that few rows have share the vector of unseen ones.

Where two columns of many keys stand together in many rows, such as users with the apps that they use, a label of two
values depends on the pair, and a network of small vectors cannot tell one pair of thousands from another: it is learnt
by a factorization machine.
"""

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


DIM = 16
HIDDEN = [128, 128]
MOST_PIECES, ROWS_PER_PIECE = 48, 10
LEARNING_RATE = 0.005
STEPS = 4_000  # about so many are enough, and for large tables as long as ten minutes
FEWEST_EPOCHS, MOST_EPOCHS = 8, 25
AVERAGING = 0.5
PATIENCE = 12
BATCH_SIZES = ((500, 32), (3_000, 64), (20_000, 128), (60_000, 256), (150_000, 512))  # up to so many rows
LARGEST_BATCH = 1024
MEMBERS = ((3_000, 8), (60_000, 4))  # up to so many rows
FEWEST_MEMBERS = 2
DROPOUTS = ((1_000, 0.2), (5_000, 0.1))  # up to so many rows
LEAST_DROPOUT = 0.1  # of more rows; a number that follows from quantities is smooth, and learnt best without
FEWEST_ROWS_OF_PAIRS, FEWEST_KEYS_OF_PAIRS = 20_000, 200  # rows, and keys of each of two columns whose pairs are learnt
RARE = 10  # rows of a key, on average: with fewer, keys of one row are unseen
MOST_WORDS = 64


def supervised_defaults(
    rows: int,
    objective: str,
    groups: Mapping[str, GroupFacts],
    classes: int = 0,
    *,
    pairs_come_again: bool = False,
) -> SupervisedDefaults:
    """Return what a schema with a target is trained with.

    Args:
        rows: The rows that have a label.
        objective: regression, logistic or softmax.
        groups: The groups to predict from, by name.
        classes: The number of classes, of softmax.
        pairs_come_again: Whether the values of two columns of many keys stand together in several rows.

    Returns:
        Sections, extractors and reasons.

    Example:
        >>> groups = {"year": GroupFacts("number", {"type": "numeric"})}
        >>> supervised_defaults(1000, "regression", groups).extractors["year"]["scale"]
        'quantile'

    """
    del classes
    if pairs_come_again and objective == "logistic" and rows >= FEWEST_ROWS_OF_PAIRS and _are_keys(groups):
        return _factorization_machine(groups)
    batch_size = _by_rows(rows, BATCH_SIZES, LARGEST_BATCH)
    epochs = max(FEWEST_EPOCHS, min(MOST_EPOCHS, STEPS * batch_size // max(rows, 1)))
    settings: dict[str, object] = {
        "model": {"dim": DIM, "bias": objective != "softmax"},
        "head": {
            "type": "mlp",
            "hidden": HIDDEN,
            "inputs": ["vectors"],
            "members": _by_rows(rows, MEMBERS, FEWEST_MEMBERS),
            "pairs": False,
            "dropout": _by_rows(rows, DROPOUTS, 0.0 if _is_smooth(rows, objective, groups) else LEAST_DROPOUT),
        },
        "training": {
            "epochs": epochs,
            "batch_size": batch_size,
            "optimizer": {"type": "adam", "learning_rate": LEARNING_RATE},
            "averaging": AVERAGING,
            "patience": PATIENCE,
            "seed": 0,
        },
    }
    reasons = {
        "model": "small vectors, as a label says little of each value; linear terms learn a value's own effect",
        "head": f"networks that share their matrices, whose mean predicts; {rows:,} rows have a label",
        "training": "at most so many epochs: held-out rows say when to stop",
    }
    extractors: dict[str, Mapping[str, object]] = {}
    for name, group in groups.items():
        extractors[name], reason = _extractor(group, rows)
        if reason:
            reasons[f"groups.{name}"] = reason
    return SupervisedDefaults(settings, extractors, reasons)


def _are_keys(groups: Mapping[str, GroupFacts]) -> bool:
    return len(groups) >= 2 and all(group.kind == "keys" for group in groups.values())


def _factorization_machine(groups: Mapping[str, GroupFacts]) -> SupervisedDefaults:
    """The defaults of labels that pairs of keys tell."""
    settings: dict[str, object] = {
        "model": {"dim": 256, "members": 2, "bias": True, "scale": 0.01},
        "training": {
            "epochs": 16,
            "batch_size": 256,
            "optimizer": {"type": "adagrad", "learning_rate": 0.15},
            "l2": 0.005,
            "interaction_dropout": 0.5,
            "patience": 0,
            "refit": "continue",
            "seed": 0,
        },
    }
    reasons = {
        "model": "pairs of keys come again and tell the label: a factorization machine, two members of 128 dimensions",
        "training": "small steps; half of each pair's product is dropped, so that rare pairs are not learnt by heart",
    }
    return SupervisedDefaults(settings, {name: dict(group.extractor) for name, group in groups.items()}, reasons)


def _by_rows(rows: int, steps: tuple[tuple[int, int], ...] | tuple[tuple[int, float], ...], largest: float) -> float:
    """The number of the first step that is not below the rows."""
    return next((number for most_rows, number in steps if rows <= most_rows), largest)


def _is_smooth(rows: int, objective: str, groups: Mapping[str, GroupFacts]) -> bool:
    """Whether a number is predicted from groups none of which has rare keys."""
    return objective == "regression" and not any(
        group.kind in ("list", "text") or _has_rare_keys(group, rows) for group in groups.values()
    )


def _has_rare_keys(group: GroupFacts, rows: int) -> bool:
    return group.kind == "keys" and group.distinct * RARE > rows


def _extractor(group: GroupFacts, rows: int) -> tuple[Mapping[str, object], str]:
    """A group's extractor, and the reason for what differs."""
    options = dict(group.extractor)
    if options.get("type") == "numeric":
        pieces = max(4, min(MOST_PIECES, rows // ROWS_PER_PIECE))
        numeric: dict[str, object] = {"type": "numeric", "scale": "quantile", "pieces": pieces}
        kept = {key: options[key] for key in ("nan",) if key in options}
        return {**numeric, **kept}, ""
    if group.kind == "text":
        words = options.get("max_items", options.get("max_tokens", 32))
        most_words = min(MOST_WORDS, int(words)) if isinstance(words, int) else MOST_WORDS
        text = {"type": "lookup", "split": "words", "max_items": most_words, "min_count": 2, "combiner": "sqrtn"}
        return text, "words alone predict about as well as their order, and faster"
    if options.get("type") == "lookup" and group.kind == "list":
        return {**options, "combiner": "sqrtn"}, ""
    if options.get("type") == "lookup" and _has_rare_keys(group, rows):
        return {**options, "min_count": 2}, "keys of a single row are one, the unseen"
    return options, ""
