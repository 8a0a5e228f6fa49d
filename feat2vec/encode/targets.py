"""What a row has besides its groups: its target, its weight and its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Float32s, Ints
from feat2vec.encode.arrays_on_disk import ArrayFile
from feat2vec.encode.class_weights import named_class_weights
from feat2vec.encode.vocabulary import FIRST, Vocabulary, VocabularyFit
from feat2vec.encode.workspace import Workspace
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.options import Schema
from feat2vec.table.keys import Items, items_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage, Table
from feat2vec.table.types import is_list, kind_of_keys

if TYPE_CHECKING:
    import pyarrow.parquet as pq

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30  # of a row: a mean of losses of 32 bits holds neither less nor more


class TargetFiles:
    """Writes target.npy, weight.npy and names.parquet, as far as the table has these columns.

    Args:
        schema: The schema; its columns `objective.target`, `objective.weight` and `id` are read.
        table: The table.
        workspace: The folder that the files are written into, and DuckDB.
        classes: The classes of a softmax target; None to fit them to the table.

    """

    def __init__(self, schema: Schema, table: Table, workspace: Workspace, classes: Vocabulary | None) -> None:
        self.schema, self.table, self.workspace, self.classes = schema, table, workspace, classes
        named_columns = (schema.id, schema.target, schema.weight)
        self.columns = [column for column in named_columns if column is not None and column in table.columns]
        self.files: dict[str, ArrayFile] = {}  # `target` and `weight`
        self.names_file: pq.ParquetWriter | None = None
        sizes = workspace.sizes
        self.class_fit = (
            VocabularyFit(workspace.connection, "classes", sizes.held_key_bytes) if classes is None else None
        )
        is_typed = table.typed and schema.target in self.columns
        self.kind = kind_of_keys(table.columns[str(schema.target)]) if is_typed else None
        self.class_codes: list[Ints] = []  # of each stage's rows, while classes are fitted

    def stage(self, stage: Stage) -> None:
        """Write what a stage's rows have of these columns."""
        schema = self.schema
        if schema.id in self.columns:
            self._write_names(stage, str(schema.id))
        if schema.weight in self.columns:
            self._append("weight", _weights(stage, str(schema.weight)))
        if schema.target not in self.columns:
            return
        if schema.objective.has_classes and self.class_fit is not None:
            items = _class_items(stage, str(schema.target))
            self.class_fit.add(items.keys, np.bincount(items.codes, minlength=len(items.keys)))
            self.class_codes.append(items.codes)
        else:
            classes = self.classes if schema.objective.has_classes else None
            self._append("target", target_of(schema, stage, classes))

    def finish(self) -> None:
        """Complete the files, and fit the classes.

        Raises:
            UserError: If no row has a weight.

        """
        for file in self.files.values():
            file.close()
        if self.names_file is not None:
            self.names_file.close()
        if self.class_fit is not None and self.class_codes:
            self._write_classes(self.class_fit)
        self._refuse_weights_of_0()

    def _write_classes(self, class_fit: VocabularyFit) -> None:
        self.classes = class_fit.finish(1, None, self.kind or class_fit.spell())
        for stage, codes in enumerate(self.class_codes):
            self._append("target", class_fit.ids(stage)[codes] - FIRST)
        self.files["target"].close()

    def _append(self, name: str, array: Array) -> None:
        if name not in self.files:
            path, rows_per_piece = self.workspace.folder / f"{name}.npy", self.workspace.sizes.rows_per_piece
            self.files[name] = ArrayFile(path, array.dtype, rows_per_piece=rows_per_piece)
        self.files[name].append(array)

    def _write_names(self, stage: Stage, column: str) -> None:
        import pyarrow.parquet as pq

        items = _single_keys(stage, column)
        if not items.lengths.all():
            row = int(np.flatnonzero(items.lengths == 0)[0])
            stage.refuse(row, column, None, "the `id` column names every row")
        names = pa.table({"name": items.keys.take(pa.array(items.codes))})
        if self.names_file is None:
            self.names_file = pq.ParquetWriter(self.workspace.folder.absolute() / "names.parquet", names.schema)
        self.names_file.write_table(names)

    def _refuse_weights_of_0(self) -> None:
        """Rows all of which weigh nothing can neither be learnt from nor be measured by."""
        weights = self.files.get("weight")
        if weights is not None and not any((piece >= LEAST_WEIGHT).any() for piece in weights.pieces()):
            column = f"column {self.schema.weight!r}, which objective.weight names"
            remedy = "give rows with weights above 0"
            raise UserError(f"{self.table.name}: {column}, is 0 in every row, or nearly; {remedy}")
        class_weights = named_class_weights(self.schema.objective, self.classes)
        targets = self.files.get("target")
        if class_weights is None or targets is None or not targets.rows:
            return
        row_weights = itertools.repeat(np.ones(1, np.float32)) if weights is None else weights.pieces()
        for target, weight in zip(targets.pieces(), row_weights, strict=False):
            class_ids = target.astype(np.int32)
            if (weight * np.where(class_ids >= 0, class_weights[class_ids], 0)).any():
                return
        raise UserError(
            f"{self.table.name}: objective.class_weights gives every row the weight 0; "
            f"raise that of a class which column {self.schema.target!r} has"
        )


def target_of(schema: Schema, stage: Stage, classes: Vocabulary | None = None) -> Array:
    """The target of each row: float32, or int32 classes, -1 for one that training has not seen.

    Raises:
        UserError: For a target that the objective cannot take, with its row.

    """
    column = str(schema.target)
    if classes is not None:
        items = _class_items(stage, column)
        return classes.ids(items.keys)[items.codes] - np.int32(FIRST)
    return _checked_numbers(stage, column, schema.objective.is_valid_target, schema.objective.valid_targets)


def _weights(stage: Stage, column: str) -> Float32s:
    return _checked_numbers(
        stage, column, lambda numbers: (numbers >= 0) & (numbers <= LARGEST_WEIGHT), "from 0 to 1e30"
    )


def _checked_numbers(stage: Stage, column: str, is_valid: Callable[[Float32s], Bools], expected: str) -> Float32s:
    """A column's numbers, all of them finite and valid."""
    with np.errstate(over="ignore"):
        numbers = numbers_of(stage, column)[0].astype(np.float32)
    bad_rows = np.flatnonzero(~(is_valid(numbers) & np.isfinite(numbers)))
    if len(bad_rows):
        row = int(bad_rows[0])
        value = stage.column(column)[row]
        received = str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else value.as_py()
        stage.refuse(row, column, received, f"the objective needs it to be {expected}, in every row")
    return numbers


def _single_keys(stage: Stage, column: str) -> Items:
    """The key of each row, of a column that holds no lists."""
    if is_list(stage.column(column).type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds lists; a single value a row is needed")
    return items_of(stage, column, Lookup())


def _class_items(stage: Stage, column: str) -> Items:
    """The class of each row."""
    items = _single_keys(stage, column)
    if not items.lengths.all():
        row = int(np.flatnonzero(items.lengths == 0)[0])
        stage.refuse(row, column, None, "the objective needs a class in every row")
    return items
