"""What a row has besides its groups: its target, its weight and its name. Rows without a target are left out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Bools, Float32s, Ints
from feat2vec.encode.arrays_on_disk import ArrayFile, SpilledArray, write_parquet
from feat2vec.encode.class_weights import named_class_weights, weights_of_rows
from feat2vec.encode.finished_steps import StepRecord, link_or_copy
from feat2vec.encode.vocabulary import FIRST, PADDING, Counts, Vocabulary, read_keys, write_keys
from feat2vec.encode.vocabulary_fit import VocabularyFit
from feat2vec.encode.workspace import Workspace
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.options import Schema
from feat2vec.table.keys import Items, items_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage, Table
from feat2vec.table.types import is_list, kind_of_keys
from feat2vec.writing.files import JsonObject

if TYPE_CHECKING:
    import pyarrow.parquet as pq

DTYPES = {"target": np.float32, "weight": np.float32, "left_out": np.int64}  # of the files that stages fill
LEAST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30  # of a row: a mean of losses of 32 bits holds neither less nor more


class TargetFiles:
    """Writes target.npy, weight.npy, names.parquet and left_out.npy, as far as there is something to write.

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
        self.stages = 0  # that were read
        self.files: dict[str, ArrayFile] = {}  # `target`, `weight` and `left_out`
        self.rows = 0  # whose targets are written
        self.names_file: pq.ParquetWriter | None = None
        held_bytes = workspace.sizes.held_key_bytes
        self.class_fit = (
            VocabularyFit(workspace.connection, "classes", workspace.staging, held_bytes) if classes is None else None
        )
        is_typed = table.typed and schema.target in self.columns
        self.kind = kind_of_keys(table.columns[str(schema.target)]) if is_typed else None
        self.class_codes: list[Ints] = []  # of each stage's rows, while classes are fitted

    def stage(self, stage: Stage) -> None:
        """Write what a stage's rows have of these columns."""
        self.stages += 1
        schema = self.schema
        if schema.id in self.columns:
            self._stage_names(stage, str(schema.id))
        if schema.weight in self.columns:
            self._append("weight", _weights(stage, str(schema.weight)))
        if schema.target not in self.columns:
            return
        if schema.objective.has_classes and self.class_fit is not None:
            items = _single_keys(_nan_as_null(stage, str(schema.target)), str(schema.target))
            self._add_classes(items.keys, np.bincount(items.codes, minlength=len(items.keys)), _code_of_rows(items))
        else:
            classes = self.classes if schema.objective.has_classes else None
            self._append_targets(*targets_of(schema, stage, classes))

    def _add_classes(self, keys: pa.StringArray, counts: Counts, codes: Ints) -> None:
        assert self.class_fit is not None
        self.class_fit.add(keys, counts)
        self.class_codes.append(codes)
        if self.workspace.steps is not None:
            write_keys(self.workspace.staging / f"classes_{len(self.class_codes) - 1}", keys, counts)

    def record(self) -> StepRecord:
        """What restores the last stage in a process that goes on."""
        facts: JsonObject = {"rows": self.rows, "files": {name: file.rows for name, file in self.files.items()}}
        files = [file.path for file in self.files.values()]
        if self.class_codes:
            place = len(self.class_codes) - 1
            codes = self.workspace.spill(self.class_codes[-1], f"classes_codes_{place}")
            facts |= {"codes": codes.facts(), "keys": f"classes_{place}"}
            files += [codes.path, self.workspace.staging / facts["keys"]]
        if self.schema.id in self.columns:
            files.append(self._names_path(self.stages - 1))
        return StepRecord(facts, files)

    def restore(self, stages: Sequence[JsonObject]) -> None:
        """Go on after the stages of a process that was killed.

        Args:
            stages: The facts of their records.

        """
        folder, self.stages = self.workspace.staging, len(stages)
        for facts in stages:
            if "codes" in facts:
                keys, counts = read_keys(folder / facts["keys"])
                assert self.class_fit is not None
                self.class_fit.add(keys, counts)
                self.class_codes.append(SpilledArray.from_facts(facts["codes"], folder).take())
        if stages:
            self.rows = stages[-1]["rows"]
            for name, rows in stages[-1]["files"].items():
                self.files[name] = self._array_file(name, np.dtype(DTYPES[name]), rows)

    def _append_targets(self, targets: Array, is_missing: Bools) -> None:
        self._append("target", targets)
        places = np.flatnonzero(is_missing)
        if len(places):
            self._append("left_out", self.rows + places)
        self.rows += len(targets)

    def finish(self) -> None:
        """Complete the files, and fit the classes.

        Raises:
            UserError: If no row has a weight.

        """
        if self.workspace.steps is not None and self.schema.id in self.columns:
            import pyarrow.parquet as pq

            for stage in range(self.stages):
                self._write_names(pq.read_table(self._names_path(stage)))
        if self.names_file is not None:
            self.names_file.close()
        if self.class_fit is not None and self.class_codes:
            self._write_classes(self.class_fit)
        for file in self.files.values():
            file.close()
        self._refuse_weights_of_0()
        if self.workspace.steps is not None:
            for file in self.files.values():
                link_or_copy(file.path, self.workspace.folder / file.path.name)

    def _write_classes(self, class_fit: VocabularyFit) -> None:
        if not any((codes >= 0).any() for codes in self.class_codes):
            raise no_target(self.table.name, str(self.schema.target))
        self.classes = class_fit.finish(1, None, self.kind or class_fit.spell())
        for stage, codes in enumerate(self.class_codes):
            self._append_targets(*_class_targets(class_fit.ids(stage), codes))

    def _append(self, name: str, array: Array) -> None:
        if name not in self.files:
            self.files[name] = self._array_file(name, array.dtype)
        self.files[name].append(array)

    def _array_file(self, name: str, dtype: np.dtype[Any], kept_rows: int = 0) -> ArrayFile:
        """A file of the encoded rows; if steps are kept, it is among them until it is complete."""
        folder = self.workspace.folder if self.workspace.steps is None else self.workspace.staging
        return ArrayFile(folder / f"{name}.npy", dtype, None, self.workspace.sizes.rows_per_piece, kept_rows)

    def _names_path(self, stage: int) -> Path:
        """Where a stage's names are kept until all are read."""
        return self.workspace.staging / f"names_{stage}.parquet"

    def _stage_names(self, stage: Stage, column: str) -> None:
        items = _single_keys(stage, column)
        if not items.lengths.all():
            row = int(np.flatnonzero(items.lengths == 0)[0])
            stage.refuse(row, column, None, "the `id` column names every row")
        names = pa.table({"name": items.keys.take(pa.array(items.codes))})
        if self.workspace.steps is None:
            self._write_names(names)
        else:
            write_parquet(names, self._names_path(self.stages - 1))

    def _write_names(self, names: pa.Table) -> None:
        import pyarrow.parquet as pq

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
            if (weight * weights_of_rows(class_weights, target)).any():
                return
        raise UserError(
            f"{self.table.name}: objective.class_weights gives every row the weight 0; "
            f"raise that of a class which column {self.schema.target!r} has"
        )


def no_target(table_name: str, target: str) -> UserError:
    """The error of a table whose rows are all without a target."""
    return UserError(f"{table_name}: no row has a value of {target!r}, the target; give rows that have one")


def targets_of(schema: Schema, stage: Stage, classes: Vocabulary | None = None) -> tuple[Array, Bools]:
    """The target of each row: float32, or int32 classes, -1 for one that training has not seen; which rows have none.

    Raises:
        UserError: For a target that the objective cannot take, with its row.

    """
    column = str(schema.target)
    if classes is not None:
        items = _single_keys(_nan_as_null(stage, column), column)
        return _class_targets(classes.ids(items.keys), _code_of_rows(items))
    expected = f"{schema.objective.valid_targets}, or missing"
    numbers = _checked_numbers(stage, column, schema.objective.is_valid_target, expected, may_be_missing=True)
    return numbers, np.isnan(numbers)


def _weights(stage: Stage, column: str) -> Float32s:
    return _checked_numbers(
        stage, column, lambda numbers: (numbers >= 0) & (numbers <= LARGEST_WEIGHT), "from 0 to 1e30, in every row"
    )


def _checked_numbers(
    stage: Stage, column: str, is_valid: Callable[[Float32s], Bools], expected: str, *, may_be_missing: bool = False
) -> Float32s:
    """A column's numbers, all of them finite and valid; NaN where they may be missing."""
    with np.errstate(over="ignore"):
        nan = "missing" if may_be_missing else "error"
        numbers = numbers_of(stage, column, nan=nan)[0].astype(np.float32)
    is_bad = ~(is_valid(numbers) & np.isfinite(numbers))
    if may_be_missing:
        is_bad &= ~np.isnan(numbers)
    bad_rows = np.flatnonzero(is_bad)
    if len(bad_rows):
        row = int(bad_rows[0])
        value = stage.column(column)[row]
        received = str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else value.as_py()
        stage.refuse(row, column, received, f"the objective needs it to be {expected}")
    return numbers


def _single_keys(stage: Stage, column: str) -> Items:
    """The key of each row, of a column that holds no lists."""
    if is_list(stage.column(column).type):
        raise UserError(f"{stage.row(0)}: column {column!r} holds lists; a single value a row is needed")
    return items_of(stage, column, Lookup())


def _nan_as_null(stage: Stage, column: str) -> Stage:
    """The stage with null for NaN in a column of floats, and that column alone."""
    if not pa.types.is_floating(stage.column(column).type):
        return stage
    batches = []
    for batch in stage.batches:
        values = batch.data.column(column)
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        batches.append(replace(batch, data=pa.record_batch([values], [column])))
    return replace(stage, batches=batches)


def _class_targets(class_ids: Ints, codes: Ints) -> tuple[Ints, Bools]:
    """The class of each row, [rows], -1 for none; whether it is missing, and not only unseen, [rows]."""
    ids = np.append(class_ids, PADDING)[codes].astype(np.int32)  # a code of -1 is that of the last
    return np.maximum(ids - np.int32(FIRST), np.int32(-1)), ids == PADDING


def _code_of_rows(items: Items) -> Ints:
    """The code of each row's key, [rows]; -1 in rows without one."""
    codes = np.full(len(items.lengths), -1, np.int32)
    codes[items.lengths > 0] = items.codes
    return codes
