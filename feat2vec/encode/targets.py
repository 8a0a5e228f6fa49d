"""What stands beside the groups: the target, the weight and the rows' names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from feat2vec.encode.entry_tables import Array, ArrayFile
from feat2vec.encode.vocabulary import FIRST, Vocabulary, VocabularyFit
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.options import Schema
from feat2vec.table.keys import Items, items_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.stages import Ints, Stage, is_list, kind_of_keys
from feat2vec.table.table import Table

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30  # of a row: a mean of losses of 32 bits holds neither less nor more


class Beside:
    """Writes target.npy, weight.npy and names.parquet; given a connection, it fits the softmax classes."""

    def __init__(
        self,
        schema: Schema,
        table: Table,
        folder: Path,
        classes: Vocabulary | None,
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        self.schema, self.table, self.folder, self.classes = schema, table, folder, classes
        self.columns = [c for c in (schema.id, schema.target, schema.weight) if c is not None and c in table.columns]
        self.files: dict[str, ArrayFile] = {}
        self.names: Any = None
        self.counted = None if connection is None else VocabularyFit(connection, "classes")
        typed = table.typed and schema.target in self.columns
        self.kind = kind_of_keys(table.columns[str(schema.target)]) if typed else None
        self.staged: list[Ints] = []

    def stage(self, stage: Stage) -> None:
        schema = self.schema
        if schema.id in self.columns:
            self._names(stage, str(schema.id))
        if schema.weight in self.columns:
            self._append(
                "weight",
                _numbers(stage, str(schema.weight), lambda x: (x >= 0) & (x <= LARGEST_WEIGHT), "from 0 to 1e30"),
            )
        if schema.target in self.columns:
            if schema.objective.has_classes:
                self._classes(stage, str(schema.target))
            else:
                self._append("target", target_of(schema, stage))

    def finish(self) -> None:
        for file in self.files.values():
            file.close()
        if self.names is not None:
            self.names.close()
        if self.staged and self.counted is not None:
            self.classes = self.counted.finish(1, None, self.kind or self.counted.spell())
            file = self.files["target"] = ArrayFile(self.folder / "target.npy", np.int32)
            for i, codes in enumerate(self.staged):
                file.append(self.counted.ids(i)[codes] - FIRST)
            file.close()
        self._refuse_no_weight()

    def _refuse_no_weight(self) -> None:
        """Rows all of which weigh nothing have nothing to be learnt from, or to be measured by."""
        weights = self.files.get("weight")
        if weights is not None and not any((piece >= LEAST_WEIGHT).any() for piece in weights.pieces()):
            column = f"column {self.schema.weight!r}, which objective.weight names"
            raise UserError(
                f"{self.table.name}: {column}, is 0 in every row, or nearly; give rows with weights above 0"
            )
        of_classes, targets = self._class_weights(), self.files.get("target")
        if of_classes is None or targets is None or not targets.rows:
            return
        of_rows = itertools.repeat(np.ones(1, np.float32)) if weights is None else weights.pieces()
        for target, weight in zip(targets.pieces(), of_rows, strict=False):
            ids = target.astype(np.int32)
            if (weight * np.where(ids >= 0, of_classes[ids], 0)).any():
                return
        raise UserError(
            f"{self.table.name}: objective.class_weights gives every row the weight 0; "
            f"raise that of a class which column {self.schema.target!r} has"
        )

    def _class_weights(self) -> Array | None:
        """What the rows of each class weigh by the schema, [classes]; None where it names no numbers."""
        given = self.schema.objective.class_weighting
        if not isinstance(given, Mapping):
            return None
        names = ["0", "1"] if self.classes is None else self.classes.keys.to_pylist()
        return np.array([given.get(name, 1.0) for name in names], np.float32)

    def _append(self, name: str, array: Array) -> None:
        if name not in self.files:
            self.files[name] = ArrayFile(self.folder / f"{name}.npy", array.dtype)
        self.files[name].append(array)

    def _classes(self, stage: Stage, column: str) -> None:
        if self.counted is not None:
            items = _class_items(stage, column)
            self.counted.add(items.keys, np.bincount(items.codes, minlength=len(items.keys)))
            self.staged.append(items.codes)
        elif self.classes is not None:
            self._append("target", target_of(self.schema, stage, self.classes))

    def _names(self, stage: Stage, column: str) -> None:
        import pyarrow.parquet as pq

        items = _keys(stage, column)
        if not items.lengths.all():
            stage.refuse(int(np.flatnonzero(items.lengths == 0)[0]), column, None, "the `id` column names every row")
        table = pa.table({"name": items.keys.take(pa.array(items.codes))})
        if self.names is None:
            self.names = pq.ParquetWriter(self.folder / "names.parquet", table.schema)
        self.names.write_table(table)


def target_of(schema: Schema, stage: Stage, classes: Vocabulary | None = None) -> Array:
    """The target of each row: float32, or int32 classes, -1 for one that training has not seen."""
    column = str(schema.target)
    if classes is not None:
        items = _class_items(stage, column)
        return classes.ids(items.keys)[items.codes] - np.int32(FIRST)
    return _numbers(stage, column, schema.objective.is_valid_target, schema.objective.valid_targets)


def _numbers(stage: Stage, column: str, good: Any, wanted: str) -> Array:
    with np.errstate(over="ignore"):
        numbers = numbers_of(stage, column)[0].astype(np.float32)
    bad = np.flatnonzero(~(good(numbers) & np.isfinite(numbers)))
    if len(bad):
        value = stage.column(column)[int(bad[0])]
        shown = str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else value.as_py()
        stage.refuse(int(bad[0]), column, shown, f"the objective needs it to be {wanted}, in every row")
    return numbers


def _keys(stage: Stage, column: str) -> Items:
    """A key for each row."""
    if is_list(stage.column(column).type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds lists; a single value a row is needed")
    return items_of(stage, column, Lookup())


def _class_items(stage: Stage, column: str) -> Items:
    items = _keys(stage, column)
    if not items.lengths.all():
        row = int(np.flatnonzero(items.lengths == 0)[0])
        stage.refuse(row, column, None, "the objective needs a class in every row")
    return items
