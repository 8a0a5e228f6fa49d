"""`StoredModel`: a run's model that stays in its file, from which tables are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from feat2vec.arrays import Array, Ints
from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.vocabulary import FIRST, UNSEEN
from feat2vec.model.answer_scale import AnswerScale, LaterScale
from feat2vec.model.coarse_table import CODES, CoarseTable, coarse_name
from feat2vec.model.lookup_arrays import BagSums, KeyRows, bag_sums, distinct_ids, item_weights, places_of_items
from feat2vec.model.model_file import read_model
from feat2vec.model.sizes import key_sizes, table_sizes
from feat2vec.model.stored_table import StoredTable, stays_in_file
from feat2vec.model.weights_file import Lookup, ModelFile, StoredArrays, damage_as_user_error
from feat2vec.schema.extractor_options import Lookup as LookupOptions
from feat2vec.schema.training_options import Mlp
from feat2vec.writing.digests import Pieces

if TYPE_CHECKING:
    import tensorflow as tf

    from feat2vec.model.keras_model import Feat2Vec

SumsOfRows: TypeAlias = Callable[[slice], dict[str, BagSums]]


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
        if not stays_in_file(sum(size * dim for size, dim in shapes)):
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

    def later_scale_value(self) -> LaterScale:
        """What rows of a time that training has not seen have for themselves."""
        if self.schema.target is None or self.schema.training.time is None:
            return LaterScale()
        with self._open() as file:
            arrays = file.model_arrays()
            key = str(int(self.schema.model.bias) + 1)  # it comes after `answer_scale`
            return LaterScale(*map(float, arrays[key])) if key in arrays else LaterScale()

    def _is_plain_lookup(self, group: str) -> bool:
        """Whether the group's extractor is `lookup` itself; one that derives from it has a type of its own."""
        return self.schema.groups[group].extractor.type == "lookup"

    @contextmanager
    def _open(self) -> Iterator[ModelFile]:
        with damage_as_user_error(self.path), self._open_for_reading() as file:
            yield file

    def _open_for_reading(self) -> ModelFile:
        with damage_as_user_error(self.path):
            return ModelFile(self.path, self.schema, sealed=self.sealed, pieces=self.pieces)
