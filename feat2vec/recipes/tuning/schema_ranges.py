"""Ranges around a schema's own values, for a study of a schema that has no recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from feat2vec.recipes.ranges import Range
from feat2vec.schema.document import Data
from feat2vec.schema.options import Schema

SMALL_L2 = (0.0, 0.003, 0.03, 0.3)  # tried where a schema has none
MOST_GROUP_DROPOUT, MOST_DROPOUT = 0.6, 0.5
FEWEST_EPOCHS, LEAST_DIM, LEAST_UNITS = 2, 4, 8
OTHER_OBJECTIVE: dict[str, Data] = {"type": "contrastive", "unit": True, "temperature": 0.5}  # where it is nce
SHARED_NEGATIVES = (64, 256)
# Settings that a linear model has not.
OF_VECTORS = ("model.dim", "training.l2", "training.interaction_dropout", "training.group_dropout")


def ranges_around(schema: Schema) -> dict[str, Range]:
    """Ranges of the settings that matter most, each of which holds the schema's own value.

    Args:
        schema: Its objective decides which settings are tried.

    Returns:
        The ranges by the keys of the schema.

    """
    settings: dict[str, Data] = schema.model_dump(mode="json")
    ranges: dict[str, Range] = {}
    for key, range_around in _keys(schema):
        value = _value_at(settings, key)
        is_of_vectors = key in OF_VECTORS and not schema.model.pairs
        tried = None if value is None or is_of_vectors else range_around(value)
        if tried is not None:
            ranges[key] = tried
    return ranges


RangeAround = Callable[[Data], Range | None]


def _keys(schema: Schema) -> Iterator[tuple[str, RangeAround]]:
    """The keys that are tried, and the range around each one's value."""
    if schema.target is None:
        if schema.objective.compares_candidates:
            yield "objective.temperature", lambda value: _factors(value, 3)
            yield "noise.negatives", _negatives
        elif schema.objective.needs_noise:
            yield "objective", _other_objective
            yield "noise", _other_noise
    else:
        yield "head.hidden", _layers
        yield "head.dropout", lambda value: _share(value, MOST_DROPOUT)
        yield "training.interaction_dropout", lambda value: _share(value, MOST_DROPOUT)
    if schema.model.ranks is None:
        yield "model.dim", lambda value: _doubled(value, LEAST_DIM)
    yield "training.optimizer.learning_rate", lambda value: _factors(value, 5)
    yield "training.l2", _l2
    yield "training.group_dropout", lambda value: _share(value, MOST_GROUP_DROPOUT)
    yield "training.epochs", _epochs


def _value_at(settings: Data, key: str) -> Data:
    """The value at a key with dots; None if the schema has no such key."""
    for word in key.split("."):
        settings = settings.get(word) if isinstance(settings, dict) else None
    return settings


def _factors(value: Data, factor: float) -> Range | None:
    """From a part of a number to a multiple."""
    if not isinstance(value, (int, float)) or value <= 0:
        return None
    return Range(log=(value / factor, float(value * factor)))


def _l2(value: Data) -> Range | None:
    return Range(choice=SMALL_L2) if value == 0 else _factors(value, 10)


def _share(value: Data, most: float) -> Range | None:
    """A share from 0 on."""
    if not isinstance(value, (int, float)):
        return None
    return Range(uniform=(0.0, max(most, float(value))))


def _epochs(value: Data) -> Range | None:
    if not isinstance(value, int):
        return None
    return Range(integer=(min(max(value // 3, FEWEST_EPOCHS), value), max(2 * value, FEWEST_EPOCHS)))


def _doubled(value: Data, least: int) -> Range | None:
    """A half of a whole number, itself and twice as much."""
    if not isinstance(value, int):
        return None
    return Range(choice=tuple(dict.fromkeys([min(max(value // 2, least), value), value, 2 * value])))


def _negatives(value: Data) -> Range | None:
    if not isinstance(value, int):
        return None
    return Range(choice=tuple(dict.fromkeys([max(value // 4, 1), max(value // 2, 1), value, 2 * value])))


def _layers(value: Data) -> Range | None:
    """The layers of a head, and as many of half and of twice the size."""
    if not isinstance(value, list):
        return None
    sizes = [units for units in value if isinstance(units, int)]
    layers: list[Data] = [value]
    layers += [[min(max(units // 2, LEAST_UNITS), units) for units in sizes], [2 * units for units in sizes]]
    return Range(choice=tuple(layers if layers[1] != value else layers[::2]))


def _other_objective(value: Data) -> Range:
    return Range(choice=(value, OTHER_OBJECTIVE))


def _other_noise(value: Data) -> Range | None:
    """The schema's own negatives, and those that a batch shares, of which the contrastive loss needs many."""
    if not isinstance(value, dict):
        return None
    shared = [{**value, "sharing": "batch", "negatives": negatives} for negatives in SHARED_NEGATIVES]
    return Range(choice=(value, *(noise for noise in shared if noise != value)))
