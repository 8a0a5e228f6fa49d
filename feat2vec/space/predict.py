"""`predict`: what a run says of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.space.embed import ID, STAGE, ahead, entries_spec, parquet_file
from feat2vec.space.geometry import ROWS, blocks, dense
from feat2vec.table.stages import Stage
from feat2vec.table.table import open_table
from feat2vec.writing import file_place, refuse_inputs_inside

Floats = npt.NDArray[np.float32]


class Part(NamedTuple):
    """Some rows and their scores."""

    stage: Stage
    rows: slice  # of the stage
    scores: Floats  # [rows], or [rows, classes]


class Predictor:
    """Scores of rows, compiled once. `level` p is the submodel B_{1,p}, an FM of rank D_p; None is the whole model."""

    def __init__(self, encoder: Encoder, model: Feat2Vec, level: int | None = None) -> None:
        self.encoder, self.objective = encoder, model.schema.objective
        levels, submodels = model.schema.model.levels, model.schema.model.levels.submodels
        if level is not None and not (levels.has(level) and level <= submodels):
            there = f"the levels are 1 to {submodels}" if submodels > 1 else "this model has one level"
            raise UserError(f"--level: there is no level {level!r}; {there}")
        at = -1 if level is None or submodels == 1 else level - 1  # parts of a truncated model are no models
        specs = {name: entries_spec(encoder, name) for name in encoder.codecs}

        @tf.function(input_signature=[specs])  # type: ignore[untyped-decorator]
        def scores(inputs: Mapping[str, Any]) -> Any:
            return tf.cast(model.submodels(inputs).scores[at], tf.float32)

        self.scores = scores

    def parts(self, source: object, beside: tuple[str, ...] = ()) -> Iterator[Part]:
        """The rows of any table in their order, the next ones encoded beside."""
        for stage, entries in ahead(self.encoder.staged(source, beside, STAGE)):
            inputs = {name: np.ascontiguousarray(dense(some)) for name, some in entries.items()}
            for block in blocks(stage.rows, ROWS):
                found = self.scores({name: tf.constant(rows[block]) for name, rows in inputs.items()})
                yield Part(stage, block, found.numpy())

    def predict(self, source: object) -> dict[str, Any]:
        """A column for each thing that is said of a row, as in the file that `write` writes."""
        columns = [self.columns(part.scores) for part in self.parts(source)]
        return {name: _joined([some[name] for some in columns]) for name in columns[0]}

    def write(self, source: object, out: str | Path, *, force: bool = False) -> int:
        """Write what is said of the rows of any table to a Parquet file, whole or not at all; returns their number."""
        table, name = open_table(source), self.encoder.schema.id
        refuse_inputs_inside([file_place(out, force=force)], table.files)
        beside = (name,) if name is not None and name in table.columns else ()
        types = [pa.field(ID, table.columns[name]) for name in beside]
        nothing = self.columns(np.zeros((0, *self._classes()), np.float32))
        schema = pa.schema([*types, *(pa.field(key, array.type) for key, array in _arrows(nothing).items())])
        facts = {"objective": self.objective.type, "target": self.encoder.schema.target, "classes": self._class_names()}
        total = 0
        schema = schema.with_metadata({"feat2vec": json.dumps(facts, ensure_ascii=False)})
        with parquet_file(out, schema, names=[ID] if beside else (), force=force) as write:
            for part in self.parts(table, beside):
                arrays = [part.stage.column(name).slice(part.rows.start, len(part.scores)) for name in beside]
                arrays = [array.combine_chunks().cast(schema.field(ID).type) for array in arrays]
                arrays += list(_arrows(self.columns(part.scores)).values())
                write(pa.RecordBatch.from_arrays(arrays, schema=schema))
                total += len(part.scores)
        return total

    def columns(self, scores: Floats) -> dict[str, Any]:
        """What scores say, by name: numpy arrays, and for classes also an Arrow array of their names."""
        return dict(self.objective.prediction_columns(scores, self._class_names()))

    def _class_names(self) -> list[str] | None:
        return None if self.encoder.classes is None else self.encoder.classes.keys.to_pylist()

    def _classes(self) -> tuple[int, ...]:
        names = self._class_names()
        return () if names is None else (len(names),)


def _joined(parts: list[Any]) -> Any:
    return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else np.concatenate(parts)


def _arrows(columns: Mapping[str, Any]) -> dict[str, pa.Array]:
    """Columns as Arrow arrays; a row's probabilities are a list."""
    arrows = {}
    for name, array in columns.items():
        if isinstance(array, np.ndarray) and array.ndim == 2:
            item = pa.field("item", pa.float32(), nullable=False)
            flat = pa.array(np.ascontiguousarray(array, np.float32).reshape(-1))
            arrows[name] = pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, array.shape[1]))
        else:
            arrows[name] = array if isinstance(array, pa.Array) else pa.array(array)
    return arrows
