"""The layers of a model, with the paths at which Keras saves their weights in a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import h5py

if TYPE_CHECKING:
    import keras

Container: TypeAlias = "keras.layers.Layer | list[object] | tuple[object, ...] | dict[str, object]"


@dataclass
class SavedLayer:
    """A layer, what its weights are called in messages, and the paths at which Keras may have saved them."""

    layer: keras.layers.Layer
    owner: str
    paths: list[str] = field(default_factory=list)


def saved_layers(model: keras.layers.Layer, owner: str, owners: Mapping[int, str]) -> dict[int, SavedLayer]:
    """The layers inside of a model, and itself, by id.

    Args:
        model: The model.
        owner: What its weights are called in messages.
        owners: Other names for the weights of some layers, by id.

    """
    layers: dict[int, SavedLayer] = {}
    _collect_layers(model, "", owner, owners, frozenset(), layers)
    return layers


def _collect_layers(
    item: Container,
    path: str,
    owner: str,
    owners: Mapping[int, str],
    above: frozenset[int],
    layers: dict[int, SavedLayer],
) -> None:
    """Collect a layer and those inside of it, with the paths by which Keras saves them.

    Args:
        item: A layer, or a container of layers.
        path: Its own path: the names of attributes, and inside of containers those of classes.
        owner: What the weights are called in messages.
        owners: Other names for the weights of some layers, by id.
        above: The ids of the items that it is inside of; a layer may refer to one of them.
        layers: What is collected, by id.

    """
    import keras

    if id(item) in above:
        return
    if isinstance(item, keras.layers.Layer):
        owner = owners.get(id(item), owner)
        layers.setdefault(id(item), SavedLayer(item, owner)).paths.append(path)
        children = list(_attributes(item))
    else:
        children = list(_children_of_container(item.values() if isinstance(item, dict) else item))
    for name, child in children:
        if isinstance(child, keras.layers.Layer | list | tuple | dict):
            _collect_layers(child, f"{path}/{name}".removeprefix("/"), owner, owners, above | {id(item)}, layers)


def _attributes(layer: keras.layers.Layer) -> Iterator[tuple[str, Any]]:
    """A layer's attributes by name; one that a property of the layer shows also by the name of the property.

    Keras saves the attribute `_query_dense` of its attention under the name of the property `query_dense`.
    """
    for name, child in vars(layer).items():
        yield name, child
        public_name = name.removeprefix("_")
        if public_name != name and isinstance(getattr(type(layer), public_name, None), property):
            yield public_name, child


def _children_of_container(items: Iterable[object]) -> Iterator[tuple[str, Container]]:
    """The layers and containers in a list or dictionary, by the names under which Keras saves them: dense, dense_1."""
    import keras

    uses_of_name: Counter[str] = Counter()
    for item in items:
        if isinstance(item, keras.layers.Layer):
            name = _snake_case(type(item).__name__)
        elif isinstance(item, list | tuple | dict):
            name = "container"
        else:
            continue
        yield f"{name}_{uses_of_name[name]}" if uses_of_name[name] else name, item
        uses_of_name[name] += 1


def _snake_case(name: str) -> str:
    """A class name as Keras writes it in paths: LookupExtractor is lookup_extractor."""
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def group_at(weights: h5py.Group, path: str) -> h5py.Group | None:
    """The group of the file at a path, None where there is none."""
    item = weights
    for name in path.split("/"):
        item = item[name] if isinstance(item, h5py.Group) and name in item else None
    return item if isinstance(item, h5py.Group) else None
