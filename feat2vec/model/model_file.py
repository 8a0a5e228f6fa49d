"""`model.keras`: Keras' file of a model, whose tables are written and read in pieces.

The file is what `model.save` writes, without the optimizer's slots and the encoder, and what `keras.models.load_model`
loads. Keras alone would hold all weights three times to write or to read it. What a model that is read is follows from
the run's own schema; see `weights_file.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError
from feat2vec.model.sizes import key_sizes, least_weights
from feat2vec.model.weights_file import WEIGHTS, Lookup, ModelFile, StoredArrays, layers_of, readable
from feat2vec.schema.levels import dims_of
from feat2vec.writing import scratch_folder
from feat2vec.writing.run_files import BUFFER, RESTORE

if TYPE_CHECKING:
    import keras

    from feat2vec.model.keras_model import Feat2Vec

METADATA, NO_DATE = "metadata.json", "1980-01-01@00:00:00"
SCRATCH = ".model"  # the folder, beside the file, in which Keras writes what is not a table


def write_model(model: Feat2Vec, path: Path) -> None:
    """Write a model that `keras.models.load_model` loads, without its optimizer's slots and without its encoder.

    The file is a part of a run, and the run's folder holds the encoder: `model.encoder` is None after
    `keras.models.load_model`. `Encoder.load(folder)` reads it.
    """
    from feat2vec.model.large_variables import tables_aside

    slots = getattr(model, "optimizer", None)
    with scratch_folder(path.parent, SCRATCH) as folder:
        try:
            if slots is not None:
                slots.saves_slots = False
            with tables_aside():
                model.save(folder, zipped=False)
        finally:
            if slots is not None:
                del slots.saves_slots
        _write_tables(model, folder / WEIGHTS)
        _without_date(folder / METADATA)
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                info = zipfile.ZipInfo(file.relative_to(folder).as_posix())  # dated 1980
                with file.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, BUFFER)


def _without_date(path: Path) -> None:
    """Take the time of saving out of what Keras says of the file, so that equal models have equal bytes."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**facts, "date_saved": NO_DATE}), encoding="utf-8")


def _write_tables(model: Feat2Vec, path: Path) -> None:
    from feat2vec.model.large_variables import pieces

    with h5py.File(path, "r+") as file:
        layers = dict(layers_of(file))
        for extractor in model.extractors:
            for key, variable in extractor.saved_tables().items():
                group = layers[extractor.name]
                del group[key]  # Keras wrote an empty one
                dataset = group.create_dataset(key, tuple(variable.shape), np.float32)
                for rows, values in pieces(variable):
                    if values.size:
                        dataset[rows] = values


def read_model(path: Path, encoder: Encoder, *, sealed: bool = False, groups: Sequence[str] | None = None) -> Feat2Vec:
    """Build the encoder's model, not compiled, and read its weights from a file.

    Args:
        path: A file that `write_model` or `Feat2Vec.save` wrote.
        encoder: The run's own; its schema must be the one in the file.
        sealed: Whether the file's digest was checked. If not, the sums within the archive are.
        groups: Those whose tables are read; the tables of others hold anything. None is all of them.

    Raises:
        UserError: If the file is damaged, belongs to another run, or holds weights that are not finite.

    """
    import tensorflow as tf

    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.large_variables import tables_aside
    from feat2vec.model.network import shapes_of

    with readable(path), ModelFile(path, encoder.schema, sealed=sealed) as file, tables_aside():
        _refuse_too_few(path, file.held, encoder)
        classes = 0 if encoder.classes is None else len(encoder.classes.keys)
        model = Feat2Vec(encoder.schema.resolved(), shapes_of(encoder), classes)
        model.encoder = encoder
        model.build()
        try:
            _load_weights(path, model, file.weights, model.groups if groups is None else groups)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(str(error)) from None
    return model


def _refuse_too_few(path: Path, held: int, encoder: Encoder) -> None:
    """Raise, before any weight is made, if the file cannot hold as many as schema and vocabularies ask for."""
    needed = least_weights(encoder)
    if held < needed:
        raise UserError(
            f"{path}: holds {held:,} numbers, and the schema and vocabularies beside it ask for {needed:,}; {RESTORE}"
        )


@dataclass
class _Place:
    """A layer, whose weights it holds, and the paths by which Keras may have saved it."""

    layer: keras.layers.Layer
    owner: str
    paths: list[str] = field(default_factory=list)


def _load_weights(path: Path, model: Feat2Vec, stored: Any, groups: Sequence[str]) -> None:
    """Give every layer its arrays, and the extractors of some groups their tables; Keras' layers say what they lack."""
    names = {id(extractor): name for name, extractor in _by_group(model)}
    owners = {key: f"the group {name!r}" for key, name in names.items()}
    places: dict[int, _Place] = {}
    _find_layers(model, "", "what stands beside the groups", owners, frozenset(), places)
    for key, place in places.items():
        found = None
        for at in place.paths:
            found = _group_at(stored, f"{at}/vars".removeprefix("/")) or found
        arrays = StoredArrays(path, place.owner, found or {})
        place.layer.load_own_variables(arrays)
        if names.get(key) in groups:
            _load_tables(place.layer, arrays)


def _load_tables(extractor: Any, arrays: StoredArrays) -> None:
    """Read an extractor's tables into memory that becomes the variables'."""
    from feat2vec.model.large_variables import empty
    from feat2vec.model.optimizers import resource_of

    for key, variable in extractor.saved_tables().items():
        tensor, array = empty(variable.shape, np.float32)
        arrays.table(key, tuple(variable.shape), array)
        resource_of(variable).assign(tensor)


def _by_group(model: Feat2Vec) -> Iterator[tuple[str, keras.layers.Layer]]:
    return zip(model.groups, model.extractors, strict=True)


def _find_layers(
    item: Any, path: str, owner: str, owners: Mapping[int, str], above: frozenset[int], places: dict[int, _Place]
) -> None:
    """Collect the layers below an attribute, with their paths: attributes' names, and in lists the classes' names."""
    if id(item) in above:
        return
    above = above | {id(item)}
    import keras

    if isinstance(item, keras.layers.Layer):
        owner = owners.get(id(item), owner)
        places.setdefault(id(item), _Place(item, owner)).paths.append(path)
        children = list(vars(item).items())
    else:
        children = list(_named(item.values() if isinstance(item, dict) else item))
    for name, child in children:
        if isinstance(child, keras.layers.Layer | list | tuple | dict):
            _find_layers(child, f"{path}/{name}".removeprefix("/"), owner, owners, above, places)


def _named(items: Any) -> Iterator[tuple[str, Any]]:
    """What a list or dictionary holds, by the names that Keras saves it under: dense, dense_1, ..."""
    import keras

    seen: Counter[str] = Counter()
    for item in items:
        if isinstance(item, keras.layers.Layer):
            name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", type(item).__name__)
            name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
        elif isinstance(item, list | tuple | dict):
            name = "container"
        else:
            continue
        yield f"{name}_{seen[name]}" if seen[name] else name, item
        seen[name] += 1


def _group_at(stored: Any, path: str) -> Any:
    """A group of the file, None where there is none."""
    for name in path.split("/"):
        stored = stored[name] if isinstance(stored, h5py.Group) and name in stored else None
    return stored if isinstance(stored, h5py.Group) else None


class StoredModel:
    """A run's model that stays in its file: a lookup's tables are read alone, of other groups a model without tables.

    It has what `space.candidates` and its like ask of a model.
    """

    def __init__(self, path: Path, encoder: Encoder, *, sealed: bool) -> None:
        self.path, self.encoder, self.schema, self.sealed = path, encoder, encoder.schema, sealed
        self.groups = list(self.schema.groups)
        self._parts: dict[str, Feat2Vec] = {}

    def is_lookup(self, group: str) -> bool:
        """Whether a group's vectors are its keys'."""
        return self.schema.groups[group].extractor.type == "lookup" or self.part(group).is_lookup(group)

    def lookup(self, group: str) -> Lookup:
        """A lookup group's tables."""
        if self.schema.groups[group].extractor.type != "lookup":
            return self.part(group).lookup(group)
        codec, layer = self.encoder.codecs[group], f"group_{self.groups.index(group)}"
        assert isinstance(codec, ItemsCodec)
        sizes, dims = key_sizes(codec, self.schema), dims_of(self.schema)
        with readable(self.path), ModelFile(self.path, self.schema, sealed=self.sealed) as file:
            arrays = file.lookup_layer(layer)
            shapes = list(zip(sizes, dims, strict=True))
            tables = [arrays.table(str(level), shape) for level, shape in enumerate(shapes)]
            linear = arrays.table(str(len(tables)), (sizes[0], 1))[:, 0] if self.schema.model.bias else None
        return Lookup(tables, linear)

    def part(self, group: str) -> Feat2Vec:
        """A model that has no other group's tables."""
        if group not in self._parts:
            self._parts[group] = read_model(self.path, self.encoder, sealed=self.sealed, groups=[group])
        return self._parts[group]

    def whole(self) -> Feat2Vec:
        """The model with every group's tables."""
        return read_model(self.path, self.encoder, sealed=self.sealed)

    def bias_value(self) -> float:
        """What every score has."""
        if not self.schema.model.bias:
            return 0.0
        with readable(self.path), ModelFile(self.path, self.schema, sealed=self.sealed) as file:
            return float(file.own()["0"])
