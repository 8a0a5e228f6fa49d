"""`predict`: the scores of rows, and what they mean for the run's objective."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Float32s, as_numbers
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.time_order import are_later
from feat2vec.errors import UserError
from feat2vec.model.lookup_arrays import fm_scores
from feat2vec.model.stored_model import StoredModel
from feat2vec.space.embed import STAGE_BYTES, entries_spec
from feat2vec.space.geometry import ROWS_PER_BATCH, Model, blocks, dense
from feat2vec.space.parquet_writer import RowIds, write_record_batches
from feat2vec.space.prefetch import prefetched
from feat2vec.table.table import Stage, open_table
from feat2vec.writing import file_place, refuse_inputs_inside

if TYPE_CHECKING:
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.pair_scores import Tensor

ScoresOfRows: TypeAlias = Callable[[slice], Float32s]  # from some of the rows of a stage to their scores
Column: TypeAlias = Any  # a NumPy array of numbers, or an Arrow array of the names of classes


class ScoredRows(NamedTuple):
    """The scores of consecutive rows."""

    stage: Stage
    rows: slice  # of the stage
    scores: Float32s  # [rows], or [rows, classes]


class Predictor:
    """Scores of rows, by a function that is compiled once.

    Scores of lookups, without classes and a head, are computed without TensorFlow if the model stays in its file.

    Args:
        encoder: The run's encoder, for rows.
        model: The run's model, for scores: in memory, or in its file.
        level: p stands for the submodel B_{1,p}, a factorization machine of rank D_p; None is the whole model.

    Raises:
        UserError: The level does not exist. The parts of a model with `level_sharing: truncate` are no models.

    >>> Predictor(run.fitted, run.model).predict(films)["score"].shape
    (60,)

    """

    def __init__(self, encoder: Encoder, model: Model, level: int | None = None) -> None:
        self.encoder, self.objective = encoder, model.schema.objective
        self.row_encoder = encoder  # of all that the scores are computed from
        levels, submodels = model.schema.model.levels, model.schema.model.levels.submodels
        if level is not None and not (levels.has(level) and level <= submodels):
            available_levels = f"the levels are 1 to {submodels}" if submodels > 1 else "this model has one level"
            raise UserError(f"--level: there is no level {level!r}; {available_levels}")
        self.submodel = len(levels) if level is None or submodels == 1 else level  # counted from 1
        self.stored: StoredModel | None = None
        if isinstance(model, StoredModel) and model.has_scores():
            self.stored = model
        else:
            self.scores = self._compiled_scores(model.full_model(), self.submodel - 1)

    def _compiled_scores(self, model: Feat2Vec, submodel: int) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """A function from {group: entries [rows, width]} to scores [rows] or [rows, classes]."""
        import tensorflow as tf

        from feat2vec.model.tracing import with_one_graph

        specs = {name: entries_spec(self.encoder, name) for name in self.encoder.codecs}

        def scores(inputs: Mapping[str, Tensor]) -> Tensor:
            return tf.cast(model.answers(model.submodels(inputs).scores[submodel], inputs), tf.float32)

        return with_one_graph(scores, specs)

    def batches(self, source: object, kept_columns: tuple[str, ...] = ()) -> Iterator[ScoredRows]:
        """The rows of any table in batches, in their order; `stage` also holds the kept columns."""
        with self._scores_of_inputs() as scores_of_inputs:
            for stage, entries in prefetched(self.row_encoder.staged(source, kept_columns, STAGE_BYTES)):
                inputs = {name: np.ascontiguousarray(dense(entries[name])) for name in entries}  # [rows, width] each
                scores_of_rows = scores_of_inputs(inputs)
                for rows in blocks(stage.rows, ROWS_PER_BATCH):
                    yield ScoredRows(stage, rows, scores_of_rows(rows))
                del scores_of_rows  # with the keys of this stage, before those of the next are read

    @contextmanager
    def _scores_of_inputs(self) -> Iterator[Callable[[Mapping[str, Array]], ScoresOfRows]]:
        """A function from the entries of a stage to one that gives the scores of some of its rows."""
        if self.stored is None:
            yield self._by_tensorflow
            return
        schema, bias, scale = self.encoder.schema, self.stored.bias_value(), self.stored.answer_scale_value()
        time, of_later = schema.training.time, self.stored.later_scale_value()
        scale_of_later = of_later.applied_to(scale)
        nested = schema.model.levels.nested
        with self.stored.lookup_sums() as lookup_sums:

            def scores_of_inputs(inputs: Mapping[str, Array]) -> ScoresOfRows:
                sums_of_rows = lookup_sums(inputs)

                def scores_of_rows(rows: slice) -> Float32s:
                    sums = sums_of_rows(rows)
                    scores = fm_scores(sums, schema.partners, bias, self.submodel, nested=nested)
                    if time is None:
                        return scale.apply(scores)
                    is_later = are_later(inputs[time][rows], of_later.last)
                    return np.where(is_later, scale_of_later.apply(scores), scale.apply(scores))

                return scores_of_rows

            yield scores_of_inputs

    def _by_tensorflow(self, inputs: Mapping[str, Array]) -> ScoresOfRows:
        import tensorflow as tf

        def scores_of_rows(rows: slice) -> Float32s:
            return as_numbers(self.scores({name: tf.constant(array[rows]) for name, array in inputs.items()}))

        return scores_of_rows

    def predict(self, source: object) -> dict[str, Column]:
        """What the scores of the rows of any table mean: the columns of the file that `write` writes, by name."""
        batches = [self.columns(batch.scores) for batch in self.batches(source)]
        return {name: _concatenated([columns[name] for columns in batches]) for name in batches[0]}

    def write(self, source: object, out: str | Path, *, force: bool = False) -> int:
        """Write the predictions for any table to a Parquet file, which appears when it is complete.

        Args:
            source: The table.
            out: The file.
            force: Whether an earlier file is replaced.

        Returns:
            The number of rows.

        Raises:
            UserError: The table cannot be read or encoded, or `out` is taken.

        """
        table = open_table(source)
        refuse_inputs_inside([file_place(out, force=force)], table.files)
        ids = RowIds.from_table(table, self.encoder.schema.id)
        schema = self._file_schema(ids.fields)
        record_batches = (self._record_batch(batch, ids, schema) for batch in self.batches(table, ids.columns))
        return write_record_batches(out, schema, ids, record_batches, force=force)

    def _record_batch(self, batch: ScoredRows, ids: RowIds, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [*ids.arrays(batch.stage, batch.rows), *_arrow_columns(self.columns(batch.scores)).values()]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _file_schema(self, id_fields: Sequence[pa.Field]) -> pa.Schema:
        """The columns, with what they are in the file's metadata."""
        class_names = self._class_names()
        no_scores = np.zeros((0,) if class_names is None else (0, len(class_names)), np.float32)
        columns = [*id_fields]
        columns += [pa.field(name, array.type) for name, array in _arrow_columns(self.columns(no_scores)).items()]
        facts = {"objective": self.objective.type, "target": self.encoder.schema.target, "classes": class_names}
        return pa.schema(columns).with_metadata({"feat2vec": json.dumps(facts, ensure_ascii=False)})

    def columns(self, scores: Float32s) -> dict[str, Column]:
        """What scores mean, by name: numpy arrays, and for classes also an Arrow array of their names."""
        return dict(self.objective.prediction_columns(scores, self._class_names()))

    def _class_names(self) -> list[str] | None:
        return None if self.encoder.classes is None else self.encoder.classes.keys.to_pylist()


def _concatenated(arrays: list[Column]) -> Column:
    return pa.concat_arrays(arrays) if isinstance(arrays[0], pa.Array) else np.concatenate(arrays)


def _arrow_columns(columns: Mapping[str, Column]) -> dict[str, pa.Array]:
    """Columns as Arrow arrays; a row's probabilities are a list."""
    arrow_columns = {}
    for name, array in columns.items():
        if isinstance(array, np.ndarray) and array.ndim == 2:
            item = pa.field("item", pa.float32(), nullable=False)
            flat = pa.array(np.ascontiguousarray(array, np.float32).reshape(-1))
            arrow_columns[name] = pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(item, array.shape[1]))
        else:
            arrow_columns[name] = array if isinstance(array, pa.Array) else pa.array(array)
    return arrow_columns
