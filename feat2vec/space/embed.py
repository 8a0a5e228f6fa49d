"""`embed`: vectors of any rows, of as much as is known of each: one for each group, and their sum for the row.

They are what the model computes for rows in training, without dropout: a missing group has no vector and adds nothing,
an unseen key has the vector of unseen keys.

With ranks, a value has vectors at the levels 1 to its own, and rows can be compared only in the space of one level. In
level 1, the default, every value has a vector; at a higher level those of lower levels are zero. With truncation the
space of a level holds the vectors of all levels up to it side by side, and the default is the highest level.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Float32s, Int64s, as_numbers
from feat2vec.encode.codecs import Entries, Present
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError
from feat2vec.model.lookup_arrays import vectors_in_space
from feat2vec.model.stored_model import StoredModel
from feat2vec.space.geometry import ROWS_PER_BATCH, Model, blocks, dense
from feat2vec.space.groups_and_levels import (
    ROW,
    distinct_column_names,
    level_and_dim,
    selected_groups,
    vectors_at_level,
)
from feat2vec.space.parquet_writer import BYTES_PER_ROW_GROUP, RowIds, write_record_batches
from feat2vec.space.prefetch import prefetched
from feat2vec.table.table import Stage, Table, open_table
from feat2vec.writing import file_place, refuse_inputs_inside

if TYPE_CHECKING:
    import tensorflow as tf

    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.model.pair_scores import Tensor

# From some of the rows of a stage to their vectors [rows, dim], and those of each group.
VectorsOfRows: TypeAlias = Callable[[slice], tuple[Float32s, Mapping[str, Float32s]]]
STAGE_BYTES = 16 << 20  # of rows that are encoded at a time, while earlier ones go through the model


class EmbeddedRows(NamedTuple):
    """The vectors of consecutive rows, and for each group which rows have it; vectors are zero where it is missing."""

    stage: Stage
    rows: slice  # of the stage
    row_vectors: Float32s  # [rows, dim]
    group_vectors: Mapping[str, Float32s]  # [rows, dim] each
    present: Mapping[str, Present]  # [rows] each


class NewVectors(Protocol):
    """Vectors of values of a group that training has not seen; `fold_in.FoldedIn` has them."""

    @property
    def group(self) -> str:
        """The group."""

    def differences(self, encoder: Encoder, stage: Stage) -> tuple[Int64s, Float32s]:
        """The rows of a stage that hold such values, and what their vectors of the group change by: [rows, D_1]."""


class Embedder:
    """Vectors of rows at one level, by a function that is compiled once.

    Vectors of lookups are computed without TensorFlow if the model stays in its file; see `StoredModel.lookup_sums`.

    Args:
        encoder: The run's encoder, for rows.
        model: The run's model, for vectors: in memory, or in its file.
        groups: The groups to use; None is all of them.
        level: The level of a model with ranks; see the top of this file for the default.
        new_vectors: Of each group that has some, the vectors of values that the model has not seen.
        rows_per_batch: Rows that go through the model at a time.

    Raises:
        UserError: A group or the level does not exist.

    >>> Embedder(run.fitted, run.model, ["year", "director"]).embed(films).shape
    (60, 4)

    """

    def __init__(
        self,
        encoder: Encoder,
        model: Model,
        groups: Sequence[str] | None = None,
        level: int | None = None,
        new_vectors: Sequence[NewVectors] = (),
        *,
        rows_per_batch: int = ROWS_PER_BATCH,
    ) -> None:
        self.names = selected_groups(list(encoder.codecs), groups)
        self.encoder = encoder.only(self.names)
        self.level, self.dim = level_and_dim(encoder.schema.model, level)
        self.new_vectors = new_vectors
        for of_group in new_vectors:
            if of_group.group not in self.names:
                raise UserError(f"--fold-in: {of_group.group!r} is not among the groups that are embedded: add it")
        self.stored: StoredModel | None = None
        if isinstance(model, StoredModel) and model.has_lookups(self.names):
            self.stored = model
        else:
            self.vectors = compiled_vectors(model.full_model(), encoder, self.names, self.level)
        self.rows_per_batch = rows_per_batch

    def embed(self, rows: object, *, by_group: bool = False) -> Any:
        """The vectors of the rows of any table.

        Args:
            rows: The table.
            by_group: Whether to return the vectors of each group instead of their sum.

        Returns:
            Vectors [rows, dim], or {group: vectors}; those of a missing group are zero.

        """
        batches = list(self.batches(rows))
        if not by_group:
            return np.concatenate([batch.row_vectors for batch in batches])
        return {name: np.concatenate([batch.group_vectors[name] for batch in batches]) for name in self.names}

    def batches(
        self, source: object, kept_columns: Sequence[str] = (), max_bytes: int = STAGE_BYTES
    ) -> Iterator[EmbeddedRows]:
        """The rows of any table in batches, in their order; `stage` also holds the kept columns."""
        yield from self._batches_of_stages(self.encoder.staged(source, kept_columns, max_bytes))

    def _batches_of_stages(self, stages: Iterator[tuple[Stage, dict[str, Entries]]]) -> Iterator[EmbeddedRows]:
        with self._vectors_of_inputs() as vectors_of_inputs:
            for stage, entries in stages:
                inputs = {name: np.ascontiguousarray(dense(entries[name])) for name in entries}  # [rows, width] each
                vectors_of_rows = vectors_of_inputs(inputs)
                differences = self._differences(stage)
                for rows in blocks(stage.rows, self.rows_per_batch):
                    present = {name: entries[name].present[rows] for name in entries}
                    row_vectors, of_groups = vectors_of_rows(rows)
                    group_vectors = dict(of_groups)
                    for group, of_stage in differences.items():
                        group_vectors[group] = group_vectors[group] + of_stage[rows]
                        row_vectors = row_vectors + of_stage[rows]
                    yield EmbeddedRows(stage, rows, row_vectors, group_vectors, present)
                del vectors_of_rows  # with the keys of this stage, before those of the next are read

    def _differences(self, stage: Stage) -> dict[str, Float32s]:
        """By group, what new values change in the vectors of a stage's rows, [rows, dim].

        They have the first level alone: in a space of its own a higher level has nothing of them, in a nested one the
        first coordinates.
        """
        if self.level > 1 and not self.encoder.schema.model.levels.nested:
            return {}
        differences = {}
        for new_vectors in self.new_vectors:
            rows, changes = new_vectors.differences(self.encoder, stage)
            of_stage = np.zeros((stage.rows, self.dim), np.float32)
            of_stage[rows, : changes.shape[1]] = changes
            differences[new_vectors.group] = of_stage
        return differences

    @contextmanager
    def _vectors_of_inputs(self) -> Iterator[Callable[[Mapping[str, Array]], VectorsOfRows]]:
        """A function from the entries of a stage to one that gives the vectors of some of its rows."""
        if self.stored is None:
            yield self._by_tensorflow
            return
        levels = self.encoder.schema.model.levels
        with self.stored.lookup_sums() as lookup_sums:

            def vectors_of_inputs(inputs: Mapping[str, Array]) -> VectorsOfRows:
                sums_of_rows = lookup_sums(inputs)

                def vectors_of_rows(rows: slice) -> tuple[Float32s, Mapping[str, Float32s]]:
                    sums = sums_of_rows(rows)
                    vectors = {name: vectors_in_space(sums[name], self.level, levels) for name in self.names}
                    return np.sum(list(vectors.values()), axis=0), vectors

                return vectors_of_rows

            yield vectors_of_inputs

    def _by_tensorflow(self, inputs: Mapping[str, Array]) -> VectorsOfRows:
        import tensorflow as tf

        def vectors_of_rows(rows: slice) -> tuple[Float32s, Mapping[str, Float32s]]:
            tensors = {name: tf.constant(array[rows]) for name, array in inputs.items()}
            row_vectors, group_vectors = self.vectors(tensors)
            return as_numbers(row_vectors), {name: as_numbers(part) for name, part in group_vectors.items()}

        return vectors_of_rows

    # --- files ------------------------------------------------------------------------------------------------------

    def write(
        self,
        source: object,
        out: str | Path,
        *,
        force: bool = False,
        bytes_per_row_group: int = BYTES_PER_ROW_GROUP,
    ) -> int:
        """Write the vectors of any table to a Parquet file, which appears when it is complete.

        Its columns are `id` (the schema's, if the table has it), `row`, and one for each group, null where the group
        is missing.

        Args:
            source: The table.
            out: The file.
            force: Whether an earlier file is replaced.
            bytes_per_row_group: The least size of a row group.

        Returns:
            The number of rows.

        Raises:
            UserError: The table cannot be read or encoded, or `out` is taken.

        """
        table = open_table(source)
        refuse_inputs_inside([file_place(out, force=force)], table.files)
        ids = RowIds.from_table(table, self.encoder.schema.id)
        schema = self._file_schema(ids.fields)
        batches = prefetched(self._batches_of_prefetched_stages(table, ids.columns))
        record_batches = (self._record_batch(batch, ids, schema) for batch in batches)
        return write_record_batches(
            out, schema, ids, record_batches, force=force, bytes_per_row_group=bytes_per_row_group
        )

    def _batches_of_prefetched_stages(self, table: Table, kept_columns: Sequence[str]) -> Iterator[EmbeddedRows]:
        yield from self._batches_of_stages(prefetched(self.encoder.staged(table, kept_columns, STAGE_BYTES)))

    def _file_schema(self, id_fields: Sequence[pa.Field]) -> pa.Schema:
        """The columns, with what they are in the file's metadata."""
        vector = pa.list_(pa.field("item", pa.float32(), nullable=False), self.dim)
        column_of_group = dict(zip(self.names, distinct_column_names(self.names), strict=True))
        columns = [*id_fields, pa.field(ROW, vector, nullable=False)]
        columns += [pa.field(name, vector) for name in column_of_group.values()]
        facts = {
            "dim": self.dim,
            "level": self.level,
            "similarity": "cosine",
            "normalised": False,
            "groups": column_of_group,
        }
        return pa.schema(columns).with_metadata({"feat2vec": json.dumps(facts, ensure_ascii=False)})

    def _record_batch(self, batch: EmbeddedRows, ids: RowIds, schema: pa.Schema) -> pa.RecordBatch:
        arrays = ids.arrays(batch.stage, batch.rows)
        vector_type = schema.field(ROW).type
        arrays.append(_vector_array(batch.row_vectors, vector_type))
        for name in self.names:
            arrays.append(_vector_array(batch.group_vectors[name], vector_type, batch.present[name]))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def compiled_vectors(
    model: Feat2Vec, encoder: Encoder, groups: Sequence[str], level: int
) -> Callable[[Mapping[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]:
    """A function from {group: entries [rows, width]} to the rows' vectors [rows, dim] and {group: vectors}."""
    import tensorflow as tf

    from feat2vec.model.tracing import with_one_graph

    specs = {name: entries_spec(encoder, name) for name in groups}

    def vectors(inputs: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        group_vectors = {}
        for name, entries in inputs.items():
            levels = model.vectors(name, entries).levels
            group_vectors[name] = tf.cast(vectors_at_level(levels, level, encoder.schema.model.levels), tf.float32)
        return tf.add_n(list(group_vectors.values())), group_vectors

    return with_one_graph(vectors, specs)


def entries_spec(encoder: Encoder, group: str) -> tf.TensorSpec:
    """The shape and type of a group's entries: bags of new rows may be wider than those of training."""
    import tensorflow as tf

    codec = encoder.codecs[group]
    return tf.TensorSpec([None, codec.width if codec.dtype == np.float32 else None], codec.dtype)


def _vector_array(vectors: Float32s, type_: pa.DataType, present: Present | None = None) -> pa.Array:
    """Vectors [rows, dim] as an array of lists, null where they are not present."""
    mask = None if present is None or present.all() else pa.array(~present)
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=type_, mask=mask)
