"""`embed`: vectors of any rows, of as much as is known of each: one for each group, and their sum for the row.

They are what the model computes for rows in training, without dropout: a missing group has no vector and adds nothing,
an unseen key has the vector of unseen keys.

With ranks, a value has vectors at the levels 1 to its own, and rows can be compared only in one space: a level's. In
level 1, the default, every value has a vector; at a higher one those of lower levels are zero. With truncation a
level's space is what the levels up to it hold, side by side, and the default is the highest: the whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tensorflow as tf

from feat2vec.encode.codecs import Entries, Present
from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, refuse_stray_bytes, suggest
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.pair_scores import Level
from feat2vec.schema.levels import Levels
from feat2vec.schema.options import ModelSpec
from feat2vec.space.geometry import ROWS, blocks, dense
from feat2vec.table.stages import Stage
from feat2vec.table.table import Table, open_table
from feat2vec.writing import file_place, new_file, refuse_inputs_inside, signed_parquet

Floats = npt.NDArray[np.float32]
Item = TypeVar("Item")
STAGE = 16 << 20  # bytes of rows that are encoded at a time, while others go through the model
WRITTEN = 32 << 20  # bytes of a row group, at least
ROW, ID = "row", "id"  # columns of their own


class Embedded(NamedTuple):
    """Some rows: their own vectors, and for each group which rows have it and the vectors, zero where it is missing."""

    stage: Stage
    rows: slice  # of the stage
    row: Floats  # [rows, dim]
    groups: Mapping[str, Floats]  # [rows, dim] each
    present: Mapping[str, Present]  # [rows] each


class Embedder:
    """Vectors of rows at one level, compiled once."""

    def __init__(
        self, encoder: Encoder, model: Feat2Vec, groups: Sequence[str] | None = None, level: int | None = None
    ) -> None:
        self.names = chosen(list(encoder.codecs), groups)
        self.encoder = encoder.only(self.names)
        self.level, self.dim = level_of(encoder.schema.model, level)
        specs = {name: entries_spec(encoder, name) for name in self.names}

        @tf.function(input_signature=[specs])  # type: ignore[untyped-decorator]
        def vectors(inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
            each = {}
            for name, entries in inputs.items():
                found = model.vectors(name, entries).levels
                each[name] = tf.cast(at_level(found, self.level, encoder.schema.model.levels), tf.float32)
            return tf.add_n(list(each.values())), each

        self.vectors = vectors

    def embed(self, rows: object, *, by_group: bool = False) -> Any:
        """Vectors [rows, dim], or {group: vectors}; zero for a missing group."""
        parts = list(self.batches(rows))
        if not by_group:
            return np.concatenate([part.row for part in parts])
        return {name: np.concatenate([part.groups[name] for part in parts]) for name in self.names}

    def batches(self, source: object, beside: Sequence[str] = (), max_bytes: int = STAGE) -> Iterator[Embedded]:
        """The rows of any table in batches, in their order."""
        for stage, entries in self.encoder.staged(source, beside, max_bytes):
            yield from self._of_stage(stage, entries)

    def _of_stage(self, stage: Stage, entries: Mapping[str, Entries]) -> Iterator[Embedded]:
        inputs = {name: np.ascontiguousarray(dense(some)) for name, some in entries.items()}
        for block in blocks(stage.rows, ROWS):
            row, groups = self.vectors({name: tf.constant(rows[block]) for name, rows in inputs.items()})
            yield Embedded(
                stage,
                block,
                row.numpy(),
                {name: vectors.numpy() for name, vectors in groups.items()},
                {name: some.present[block] for name, some in entries.items()},
            )

    # --- files ------------------------------------------------------------------------------------------------------

    def write(self, source: object, out: str | Path, *, force: bool = False) -> int:
        """Write the vectors of any table to a Parquet file, whole or not at all; returns the number of rows.

        Columns: `id` (the schema's, where the table has it), `row`, and one for each group, null where it is missing.
        """
        table, name = open_table(source), self.encoder.schema.id
        refuse_inputs_inside([file_place(out, force=force)], table.files)
        beside = [name] if name is not None and name in table.columns else []
        schema = self.file_schema([table.columns[name] for name in beside])
        total = 0
        with parquet_file(out, schema, names=[ID] if beside else (), force=force) as write:
            for part in ahead(self._batches_ahead(table, beside)):
                write(self._record(part, beside, schema))
                total += len(part.row)
        return total

    def _batches_ahead(self, table: Table, beside: Sequence[str]) -> Iterator[Embedded]:
        for stage, entries in ahead(self.encoder.staged(table, beside, STAGE)):
            yield from self._of_stage(stage, entries)

    def file_schema(self, id_types: Sequence[pa.DataType]) -> pa.Schema:
        """The columns, and what they are in the file's metadata."""
        vector = pa.list_(pa.field("item", pa.float32(), nullable=False), self.dim)
        columns = [pa.field(ID, type_) for type_ in id_types] + [pa.field(ROW, vector, nullable=False)]
        named = dict(zip(self.names, column_names(self.names), strict=True))
        facts = {"dim": self.dim, "level": self.level, "similarity": "cosine", "normalised": False, "groups": named}
        return pa.schema([*columns, *(pa.field(name, vector) for name in named.values())]).with_metadata(
            {"feat2vec": json.dumps(facts, ensure_ascii=False)}
        )

    def _record(self, part: Embedded, beside: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
        size = len(part.row)
        arrays = [part.stage.column(name).slice(part.rows.start, size).combine_chunks() for name in beside]
        arrays = [array.cast(schema.field(ID).type) for array in arrays] + [self._lists(part.row, schema, None)]
        arrays += [self._lists(part.groups[name], schema, part.present[name]) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _lists(self, vectors: Floats, schema: pa.Schema, present: Present | None) -> pa.Array:
        mask = None if present is None or present.all() else pa.array(~present)
        return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=schema.field(ROW).type, mask=mask)


@contextmanager
def parquet_file(
    out: str | Path, schema: pa.Schema, names: Sequence[str] = (), *, force: bool = False
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """What writes batches to a Parquet file, which is there when it is whole.

    Only the columns `names` repeat and have an order: nothing compresses vectors and scores.
    """
    refuse_stray_bytes(out)
    options = {"use_dictionary": list(names) or False, "write_statistics": list(names) or False, "compression": "none"}
    held: list[pa.RecordBatch] = []

    def write(batch: pa.RecordBatch) -> None:
        held.append(batch)
        if sum(some.nbytes for some in held) > WRITTEN:
            flush()

    def flush() -> None:
        if held:
            file.write_table(pa.Table.from_batches(held, schema))
            held.clear()

    with new_file(out, force=force) as partial, signed_parquet(partial, schema, **options) as file:
        yield write
        flush()


def chosen(names: Sequence[str], groups: Sequence[str] | None) -> list[str]:
    """The groups that are asked for, in the schema's order; None is all of them."""
    if groups is None:
        return list(names)
    if isinstance(groups, str) or not groups:
        raise UserError(f"groups: expected a list of groups, such as {list(names[:2])}; received {groups!r}")
    for name in groups:
        if name not in names:
            near = suggest(name, names) or f"; the groups are {listed(names)}"
            raise UserError(f"groups: there is no group {name!r}{near}")
    return [name for name in names if name in groups]


def level_of(model: ModelSpec, level: int | None) -> tuple[int, int]:
    """A level, counted from 1, and the size of its space."""
    levels = model.levels
    if level is None:
        level = levels.default
    if not levels.has(level):
        there = f"the levels are 1 to {len(levels)}" if len(levels) > 1 else "a model without `ranks` has level 1 only"
        raise UserError(f"level: there is no level {level!r}; {there}")
    return level, levels.ranks[level - 1]


def at_level(stored: Sequence[Level], level: int, levels: Levels) -> Any:
    """A group's vectors [batch, dim] in the space of a level, counted from 1, of what each level stores."""
    vectors = [part.free if part.dependent is None else part.free + part.dependent for part in stored]
    parts = vectors[levels.parts_of(level)]
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)


def entries_spec(encoder: Encoder, group: str) -> tf.TensorSpec:
    """What a group's entries look like: bags of new rows may be wider than those of training."""
    codec = encoder.codecs[group]
    return tf.TensorSpec([None, codec.width if codec.dtype == np.float32 else None], codec.dtype)


def column_names(groups: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """The groups' names, with a stroke after those that are taken by other columns, or by `taken`."""
    used, names = {ROW, ID, *taken}, []
    for name in groups:
        while name in used:
            name += "_"
        used.add(name)
        names.append(name)
    return names


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; while one is worked on, the next one is made in a thread."""
    nothing: Any = object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = pool.submit(next, items, nothing)
            yield item
