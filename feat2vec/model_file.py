"""`model.keras`: Keras' file of a model, whose tables are written and read in pieces.

The file is what `model.save` writes, without the optimizer's slots, and what `keras.models.load_model` loads. Keras
alone would hold all weights three times to write or to read it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from feat2vec.codecs import ItemsCodec
from feat2vec.encode import Encoder
from feat2vec.memory import dims_of, key_sizes
from feat2vec.tables import WEIGHTS, Lookup, ModelFile, layers_of, readable

if TYPE_CHECKING:
    from feat2vec.model import Feat2Vec


def write_model(model: Feat2Vec, path: Path) -> None:
    """Write a model that `keras.models.load_model` loads, without its optimizer's slots."""
    from feat2vec.pieces import tables_aside

    folder = path.absolute().with_name(f".{path.name}-{os.urandom(8).hex()}")
    slots = getattr(model, "optimizer", None)
    try:
        folder.mkdir()
        with tables_aside():
            if slots is not None:
                slots.saves_slots = False
            model.save(folder, zipped=False)
        _write_tables(model, folder / WEIGHTS)
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                archive.write(file, file.relative_to(folder).as_posix())
    finally:
        if slots is not None:
            del slots.saves_slots
        shutil.rmtree(folder, ignore_errors=True)


def _write_tables(model: Feat2Vec, path: Path) -> None:
    from feat2vec.pieces import pieces

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


def read_model(path: Path, groups: Sequence[str] | None = None) -> Any:
    """The model of a file, not compiled; with `groups`, the tables of the others are not read and hold anything."""
    import keras

    from feat2vec.optimizers import resource_of
    from feat2vec.pieces import empty, tables_aside
    from feat2vec.scores import Scores

    with ModelFile(path) as file, tables_aside():
        model = keras.saving.deserialize_keras_object({**file.config, "compile_config": None})
        if not isinstance(model, Scores):
            return model
        tables = {(one.name, key): table for one in model.extractors for key, table in one.saved_tables().items()}
        with tempfile.TemporaryDirectory() as folder:
            others = Path(folder) / WEIGHTS
            file.others(others, tables)
            model.load_weights(others)
        names = model.groups if groups is None else groups
        wanted = {one.name for name, one in zip(model.groups, model.extractors, strict=True) if name in names}
        for (layer, key), table in tables.items():
            if layer in wanted:
                tensor, array = empty(table.shape, np.float32)
                file.table(layer, key, tuple(table.shape), array)
                resource_of(table).assign(tensor)
    return model


class StoredModel:
    """A run's model that stays in its file: a lookup's tables are read alone, of other groups a model without tables.

    It has what `space.candidates` and its like ask of a model.
    """

    def __init__(self, path: Path, encoder: Encoder) -> None:
        self.path, self.encoder, self.schema = path, encoder, encoder.schema
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
        with readable(self.path), ModelFile(self.path) as file:
            shapes = list(zip(sizes, dims, strict=True))
            tables = [file.table(layer, str(level), shape) for level, shape in enumerate(shapes)]
            linear = file.table(layer, str(len(tables)), (sizes[0], 1))[:, 0] if self.schema.model.bias else None
        return Lookup(tables, linear)

    def part(self, group: str) -> Feat2Vec:
        """A model that has no other group's tables."""
        if group not in self._parts:
            with readable(self.path):
                self._parts[group] = read_model(self.path, [group])
        return self._parts[group]

    def whole(self) -> Feat2Vec:
        """The model with every group's tables."""
        with readable(self.path):
            model: Feat2Vec = read_model(self.path)
        return model

    def bias_value(self) -> float:
        """What every score has."""
        with readable(self.path), ModelFile(self.path) as file:
            return file.number("0") if self.schema.model.bias else 0.0
