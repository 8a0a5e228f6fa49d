"""`model.keras`: a model in the file format of Keras, with tables that are written and read in pieces.

The file is what `model.save` writes, without the optimizer's slots and the encoder, and what `keras.models.load_model`
loads. Keras itself would hold all weights three times to write or read it. A model that is read here is built from the
run's own schema, not from what the file says of itself; see `weights_file`.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import h5py
import numpy as np

from feat2vec.arrays import Array, Ints
from feat2vec.encode.arrays_on_disk import file_name
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST, UNSEEN
from feat2vec.errors import RESTORE, UserError
from feat2vec.model.answer_scale import AnswerScale
from feat2vec.model.coarse_table import COARSE, CODES, CoarseTable, write_coarse
from feat2vec.model.lookup_arrays import BagSums, KeyRows, bag_sums, distinct_ids, item_weights, places_of_items
from feat2vec.model.sizes import key_sizes, least_weights, table_sizes
from feat2vec.model.stored_table import LEAST_STORED_BYTES, StoredTable
from feat2vec.model.weights_file import (
    WEIGHTS,
    Lookup,
    ModelFile,
    StoredArrays,
    damage_as_user_error,
    extractor_groups,
)
from feat2vec.schema.extractor_options import Lookup as LookupOptions
from feat2vec.schema.options import Mlp
from feat2vec.writing import scratch_folder
from feat2vec.writing.digests import Pieces
from feat2vec.writing.signatures import BLOCK_BYTES

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from feat2vec.model.extractors import Extractor
    from feat2vec.model.keras_model import Feat2Vec

Container: TypeAlias = "keras.layers.Layer | list[object] | tuple[object, ...] | dict[str, object]"
SumsOfRows: TypeAlias = Callable[[slice], dict[str, BagSums]]
METADATA, NO_DATE = "metadata.json", "1980-01-01@00:00:00"
SCRATCH = ".model"  # the folder, beside the file, in which Keras writes what is not a table
BESIDE_GROUPS = "what stands beside the groups"  # in messages: the weights of bias, classes and head


# --- writing --------------------------------------------------------------------------------------------------------


def write_model(model: Feat2Vec, path: Path) -> None:
    """Write a model that `keras.models.load_model` loads, without its optimizer's slots and without its encoder.

    The file is a part of a run, and the run's folder holds the encoder: `model.encoder` is None after
    `keras.models.load_model`. `Encoder.load(folder)` reads it.
    """
    with scratch_folder(path.parent, SCRATCH) as folder:
        _save_without_tables(model, folder)
        _write_tables(model, folder / WEIGHTS)
        _remove_date(folder / METADATA)
        _pack(folder, path)


def _save_without_tables(model: Feat2Vec, folder: Path) -> None:
    """Let Keras write all but the tables and the optimizer's slots."""
    from feat2vec.model.large_variables import tables_aside

    optimizer = getattr(model, "optimizer", None)  # Keras gives a model none before `compile`
    try:
        if optimizer is not None:
            optimizer.saves_slots = False
        with tables_aside():
            model.save(folder, zipped=False)
    finally:
        if optimizer is not None:
            del optimizer.saves_slots


def _write_tables(model: Feat2Vec, path: Path) -> None:
    """Write the tables in place of the empty ones that Keras wrote."""
    from feat2vec.model.large_variables import pieces

    with h5py.File(path, "r+") as file:
        groups = dict(extractor_groups(file))
        for extractor in model.distinct_extractors():
            for key, variable in extractor.saved_tables().items():
                group = groups[extractor.name]
                del group[key]
                dataset = group.create_dataset(key, tuple(variable.shape), np.float32)
                for rows, values in pieces(variable):
                    if values.size:
                        dataset[rows] = values


def write_coarse_tables(model: Feat2Vec, folder: Path) -> None:
    """Write the coarse copies of large tables, by which `similar` reads a quarter of a table instead of all of it.

    Args:
        model: The model, each of whose lookups has one table.
        folder: The run's folder.

    """
    from feat2vec.model.large_variables import pieces

    if len(model.dims) != 1:
        return
    for owner, extractor in zip(model.schema.owners, model.distinct_extractors(), strict=True):
        table = extractor.saved_tables().get("0")
        is_lookup = model.schema.groups[owner].extractor.type == "lookup"
        if is_lookup and table is not None and 4 * int(np.prod(table.shape)) >= LEAST_STORED_BYTES:
            write_coarse((values for _, values in pieces(table)), folder / coarse_name(owner))


def coarse_name(owner: str) -> str:
    """The path of a group's coarse files below the run's folder, without their endings."""
    return f"{COARSE}/{file_name(owner)}"


def _remove_date(path: Path) -> None:
    """Replace the time of saving by a fixed one, so that equal models have equal bytes."""
    metadata = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**metadata, "date_saved": NO_DATE}), encoding="utf-8")


def _pack(folder: Path, path: Path) -> None:
    """Write the files of a folder as a zip archive, not compressed, as Keras does."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            info = zipfile.ZipInfo(file.relative_to(folder).as_posix())  # dated 1980
            with file.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, BLOCK_BYTES)


# --- reading --------------------------------------------------------------------------------------------------------


def read_model(
    path: Path,
    encoder: Encoder,
    *,
    sealed: bool = False,
    pieces: Pieces | None = None,
    groups: Sequence[str] | None = None,
) -> Feat2Vec:
    """Build the encoder's model, not compiled, and read its weights from a file.

    Args:
        path: A file that `write_model` or `Feat2Vec.save` wrote.
        encoder: That of the run. Its schema must be the one in the file.
        sealed: Whether the file's digest has been checked. If not, the archive's checksums are checked.
        pieces: The digests of its pieces, each of which is compared when it is read; None if nothing is left to check.
        groups: The groups whose tables are read, by default all. Other tables are left uninitialized.

    Returns:
        A model with the weights of the file.

    Raises:
        UserError: If the file is damaged, belongs to another run, or holds weights that are not finite.

    """
    import tensorflow as tf

    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.large_variables import tables_aside
    from feat2vec.model.vector_model import shapes_of

    with damage_as_user_error(path), _opened(path, encoder, sealed, pieces) as file, tables_aside():
        _refuse_too_few(path, file.size, encoder)
        classes = 0 if encoder.classes is None else len(encoder.classes.keys)
        model = Feat2Vec(encoder.schema.resolved(), shapes_of(encoder), classes)
        model.encoder = encoder
        model.build()
        try:
            _load_weights(path, model, file.weights, model.groups if groups is None else groups)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(str(error)) from None
    return model


def _opened(path: Path, encoder: Encoder, sealed: bool, pieces: Pieces | None) -> ModelFile:
    return ModelFile(path, encoder.schema, sealed=sealed, pieces=pieces)


def _refuse_too_few(path: Path, size: int, encoder: Encoder) -> None:
    """Raise, before any weight is made, if the file cannot hold as many as schema and vocabularies ask for."""
    needed = least_weights(encoder)
    if size < needed:
        raise UserError(
            f"{path}: holds {size:,} numbers, and the schema and vocabularies beside it ask for {needed:,}; {RESTORE}"
        )


@dataclass
class _SavedLayer:
    """A layer, what its weights are called in messages, and the paths at which Keras may have saved them."""

    layer: keras.layers.Layer
    owner: str
    paths: list[str] = field(default_factory=list)


def _load_weights(path: Path, model: Feat2Vec, weights: h5py.Group, groups: Sequence[str]) -> None:
    """Give each layer its arrays, and the extractors of these groups their tables.

    A layer that lacks an array raises, as Keras has it.
    """
    group_names = dict(zip(map(id, model.distinct_extractors()), model.schema.owners, strict=True))
    owners = {key: f"the group {name!r}" for key, name in group_names.items()}
    read_groups = {model.schema.owner(name) for name in groups}
    layers: dict[int, _SavedLayer] = {}
    _collect_layers(model, "", BESIDE_GROUPS, owners, frozenset(), layers)
    for key, saved in layers.items():
        arrays_of_layer = None
        for layer_path in saved.paths:
            arrays_of_layer = _group_at(weights, f"{layer_path}/vars".removeprefix("/")) or arrays_of_layer
        arrays = StoredArrays(path, saved.owner, arrays_of_layer or {})
        saved.layer.load_own_variables(arrays)
        if group_names.get(key) in read_groups:
            _load_tables(saved.layer, arrays)


def _load_tables(extractor: Extractor, arrays: StoredArrays) -> None:
    """Read an extractor's tables into memory that becomes the variables'."""
    from feat2vec.model.large_variables import empty
    from feat2vec.model.optimizers import resource_of

    for key, variable in extractor.saved_tables().items():
        tensor, array = empty(variable.shape, np.float32)
        arrays.table(key, tuple(variable.shape), array)
        resource_of(variable).assign(tensor)


def _collect_layers(
    item: Container,
    path: str,
    owner: str,
    owners: Mapping[int, str],
    above: frozenset[int],
    layers: dict[int, _SavedLayer],
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
        layers.setdefault(id(item), _SavedLayer(item, owner)).paths.append(path)
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


def _group_at(weights: h5py.Group, path: str) -> h5py.Group | None:
    """The group of the file at a path, None where there is none."""
    item = weights
    for name in path.split("/"):
        item = item[name] if isinstance(item, h5py.Group) and name in item else None
    return item if isinstance(item, h5py.Group) else None


# --- a model that stays in its file ---------------------------------------------------------------------------------


class StoredModel:
    """A run's model that stays in its file, from which tables are read when they are needed.

    It has what `space` asks of a `Feat2Vec`. A lookup's tables are read without TensorFlow; for other groups a model is
    built that has no tables but theirs.

    Args:
        path: The file.
        encoder: That of the run.
        sealed: Whether the file's digest has been checked.
        pieces: The digests of its pieces, each of which is compared when it is read; None if nothing is left to check.
        coarse_files: Of the coarse copies of large tables, the digests of the pieces of each file.

    """

    def __init__(
        self,
        path: Path,
        encoder: Encoder,
        *,
        sealed: bool,
        pieces: Pieces | None = None,
        coarse_files: Mapping[str, Pieces | None] | None = None,
    ) -> None:
        self.path, self.encoder, self.schema, self.sealed, self.pieces = path, encoder, encoder.schema, sealed, pieces
        self.coarse_files = coarse_files or {}
        self.groups = list(self.schema.groups)
        self._models: dict[str, Feat2Vec] = {}

    def is_lookup(self, group: str) -> bool:
        """Whether a group has a vector for each key, not for each entry of its training rows."""
        return self._is_plain_lookup(group) or self.model_of_group(group).is_lookup(group)

    def lookup(self, group: str) -> Lookup:
        """A lookup group's tables."""
        if not self._is_plain_lookup(group):
            return self.model_of_group(group).lookup(group)
        shapes = self._table_shapes(group)
        with self._open() as file:
            arrays = self._lookup_arrays(file, group)
            tables = [arrays.table(str(level), shape) for level, shape in enumerate(shapes)]
            terms_shape = (self._number_of_terms(group), 1)
            linear = arrays.table(str(len(tables)), terms_shape)[:, 0] if self.schema.model.bias else None
        return Lookup(tables, linear)

    def stored_tables(self, group: str) -> list[StoredTable] | None:
        """The tables of a lookup group, with the unseen key's row, which stay in the file.

        None is returned for small ones, which are better read at once, and for groups that are no lookups.
        """
        if not self.has_lookups([group]):
            return None
        shapes = self._table_shapes(group)
        if sum(4 * size * dim for size, dim in shapes) < LEAST_STORED_BYTES:
            return None
        tables = []
        for level, shape in enumerate(shapes):
            file = self._open_for_reading()
            file.close_when_forgotten()
            coarse = self._coarse_table(group, shape) if len(shapes) == 1 else None
            tables.append(StoredTable(file, self._lookup_arrays(file, group), str(level), shape, coarse=coarse))
        return tables

    def _coarse_table(self, group: str, shape: tuple[int, int]) -> CoarseTable | None:
        name = coarse_name(self.schema.owner(group))
        if f"{name}{CODES}" not in self.coarse_files:
            return None
        return CoarseTable(self.path.parent, name, shape, self.coarse_files.get)

    def has_lookups(self, groups: Iterable[str]) -> bool:
        """Whether `lookup_sums` can take rows of these groups.

        The file must have a digest: without one it is believed only after everything in it was looked at.
        """
        return self.sealed and all(name in self.groups and self._is_plain_lookup(name) for name in groups)

    def has_scores(self) -> bool:
        """Whether the scores of rows follow from `lookup_sums`: no head and no classes add to them."""
        has_more = self.schema.objective.has_classes or isinstance(self.schema.head, Mlp)
        return not has_more and self.has_lookups(self.groups)

    @contextmanager
    def lookup_sums(self) -> Iterator[Callable[[Mapping[str, Array]], SumsOfRows]]:
        """What the vectors of rows are made of, without TensorFlow; the file stays open meanwhile.

        The value is a function that takes the entries [rows, width] of lookup groups, as many rows as there are, reads
        the keys that they name, and returns a function from a slice of these rows to each group's sums.
        """
        with self._open_for_reading() as file:

            def sums_of_entries(entries: Mapping[str, Array]) -> SumsOfRows:
                with damage_as_user_error(self.path):  # not around what the caller does with the sums
                    bags = {name: self._bags(file, name, array) for name, array in entries.items()}
                return lambda rows: {name: of_group(rows) for name, of_group in bags.items()}

            yield sums_of_entries

    def _bags(self, file: ModelFile, group: str, entries: Array) -> Callable[[slice], BagSums]:
        """A function from a slice of entries [rows, width] to the sums of their bags; the keys are read here."""
        codec, options = self._items_codec(group), self.schema.groups[group].extractor
        assert isinstance(options, LookupOptions)
        keys = self._key_rows(file, group, distinct_ids(entries, len(codec.vocabulary), weighted=codec.weighted))
        places = places_of_items(keys, entries, len(codec.vocabulary), weighted=codec.weighted)
        weights = item_weights(entries) if codec.weighted else None

        def sums(rows: slice) -> BagSums:
            return bag_sums(keys, places[rows], None if weights is None else weights[rows], options)

        return sums

    def _key_rows(self, file: ModelFile, group: str, ids: Ints) -> KeyRows:
        """The vectors of keys by their ids, ascending."""
        shapes, arrays = self._table_shapes(group), self._lookup_arrays(file, group)
        tables = []
        for level, shape in enumerate(shapes):
            first = UNSEEN if level == 0 else FIRST  # the id of the table's first row
            numbers = ids[(ids >= first) & (ids < first + shape[0])] - first
            tables.append(arrays.table_rows(str(level), shape, numbers))
        sizes = tuple(size for size, _ in shapes)
        linear = np.zeros(len(ids), np.float32)
        if self.schema.model.bias:
            terms_shape = (self._number_of_terms(group), 1)
            linear = arrays.table_rows(str(len(shapes)), terms_shape, ids - UNSEEN)[:, 0]
        return KeyRows(ids, sizes, tables, linear)

    def _table_shapes(self, group: str) -> list[tuple[int, int]]:
        """The shape of a lookup's table at each level."""
        sizes = table_sizes(self._items_codec(group), self.schema)
        return list(zip(sizes, self.schema.model.levels.dims, strict=True))

    def _number_of_terms(self, group: str) -> int:
        """The number of a lookup's linear terms: of all keys, and of the unseen one."""
        return key_sizes(self._items_codec(group), self.schema)[0]

    def _items_codec(self, group: str) -> ItemsCodec:
        codec = self.encoder.codecs[group]
        assert isinstance(codec, ItemsCodec)
        return codec

    def _lookup_arrays(self, file: ModelFile, group: str) -> StoredArrays:
        owner = self.schema.owner(group)
        return file.lookup_layer(f"group_{self.groups.index(owner)}", f"the group {owner!r}")

    def model_of_group(self, group: str) -> Feat2Vec:
        """A model that has the tables of this group, and no others."""
        group = self.schema.owner(group)
        if group not in self._models:
            self._models[group] = self._read([group])
        return self._models[group]

    def full_model(self) -> Feat2Vec:
        """The model with the tables of all groups."""
        return self._read()

    def model_without_tables(self, groups: Sequence[str]) -> Feat2Vec:
        """The model with the tables of all groups but these, whose tables hold nothing."""
        without = {self.schema.owner(name) for name in groups}
        other_groups = [name for name in self.schema.owners if name not in without]
        return self._read(other_groups)

    def _read(self, groups: Sequence[str] | None = None) -> Feat2Vec:
        return read_model(self.path, self.encoder, sealed=self.sealed, pieces=self.pieces, groups=groups)

    def table(self, group: str, level: int) -> tf.Tensor:
        """A lookup's table at a level, counted from 0, read into memory that is TensorFlow's."""
        from feat2vec.model.large_variables import empty

        shape = self._table_shapes(group)[level]
        tensor, array = empty(shape, np.float32)
        with self._open() as file:
            self._lookup_arrays(file, group).table(str(level), shape, array)
        return tensor

    def bias_value(self) -> float:
        """The number that every score has, 0 without bias."""
        if not self.schema.model.bias:
            return 0.0
        with self._open() as file:
            return float(file.model_arrays()["0"])

    def answer_scale_value(self) -> AnswerScale:
        """What turns scores without classes and a head into answers."""
        if self.schema.target is None:
            return AnswerScale()
        with self._open() as file:
            arrays = file.model_arrays()
            key = str(int(self.schema.model.bias))  # it is the last one, and comes after the bias
            return AnswerScale(*map(float, arrays[key])) if key in arrays else AnswerScale()

    def _is_plain_lookup(self, group: str) -> bool:
        """Whether the group's extractor is `lookup` itself; one that derives from it has a type of its own."""
        return self.schema.groups[group].extractor.type == "lookup"

    @contextmanager
    def _open(self) -> Iterator[ModelFile]:
        with damage_as_user_error(self.path), self._open_for_reading() as file:
            yield file

    def _open_for_reading(self) -> ModelFile:
        with damage_as_user_error(self.path):
            return _opened(self.path, self.encoder, self.sealed, self.pieces)
