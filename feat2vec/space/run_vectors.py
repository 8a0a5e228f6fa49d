"""Opening the vectors of a run: of a group's keys or values, and of rows as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Float32s, Int8s, Int64s, as_numbers
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.entry_text import distinct_names
from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.levels import Levels
from feat2vec.schema.model_options import ModelSpec
from feat2vec.space.faiss_index import MIN_INDEXED
from feat2vec.space.geometry import (
    ROWS_PER_BATCH,
    Candidates,
    Queries,
    blocks,
    extract,
    is_keyed,
    linear_terms,
    stored_candidates,
)
from feat2vec.space.groups_and_levels import refuse_no_vectors
from feat2vec.space.key_lookup import KeyNames, Names, ValueNames
from feat2vec.space.value_space import ValueSpace
from feat2vec.space.vectors import Vectors
from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    from feat2vec.model.keras_model import Feat2Vec


def vectors_of_group(
    run: TrainedRun, group: str, level: int | None = None, *, min_indexed: int = MIN_INDEXED
) -> Vectors:
    """The vectors of a group's keys, or of its values where it has none.

    Args:
        run: The run.
        group: One of its groups.
        level: In a model with ranks, the level in whose space everything is compared.
        min_indexed: Groups of fewer values are searched exactly, also if an index is asked for.

    Raises:
        UserError: There is no such group or level, or no value of the group has a vector there.

    """
    model, encoder = run.vector_source, run.fitted
    _check_group(group, list(encoder.codecs))
    model_levels = _checked_levels(run.schema.model, level)
    names, counts, levels = _values_of_group(run, group, model_levels)
    size = _number_of_values(group, levels, level)
    space = ValueSpace(
        group,
        size,
        read_candidates=lambda: _at_level(stored_candidates(model, encoder, group), level, model_levels, size),
        read_linear=(lambda: linear_terms(model, encoder, group)) if run.schema.model.bias else None,
        read_bias=model.bias_value,
        level=level,
        truncate=model_levels.nested,
        folder=run.folder,
        min_indexed=min_indexed,
        activation=run.schema.model.activation,
    )
    open_group = partial(vectors_of_group, run, level=level, min_indexed=min_indexed)
    reopen = partial(open_group, group)
    return Vectors(group, f"the group {group!r}", names, counts[:size], levels[:size], space, open_group, reopen)


def _check_group(group: object, group_names: Sequence[str]) -> None:
    if isinstance(group, str) and group in group_names:
        return
    near = suggest(group, group_names) or "; the groups are " + listed(group_names)
    rows = "; rows as a whole are `run.row_vectors(data)`" if isinstance(group, str) and group == "row" else ""
    raise UserError(f"there is no group {group!r}{near}{rows}")


class GroupValues(NamedTuple):
    """The values of a group that have a vector, the most frequent first."""

    names: Names
    counts: Int64s  # [values]
    levels: Int8s  # [values], the top level of each


def _values_of_group(run: TrainedRun, group: str, model_levels: Levels) -> GroupValues:
    encoder = run.fitted
    if not is_keyed(run.vector_source, group):
        counts = encoder.values[group].counts
        return GroupValues(ValueNames(encoder, group), counts, np.full(len(counts), len(model_levels), np.int8))
    vocabulary = encoder.codecs[group].vocabulary
    assert vocabulary is not None
    return GroupValues(KeyNames(encoder, group), vocabulary.counts, vocabulary.levels_in(model_levels))


def _number_of_values(group: str, levels: Int8s, level: int | None) -> int:
    """How many values reach a level; all of them without one."""
    size = len(levels) if level is None else int((levels >= level).sum())
    if size:
        return size
    if level is None:
        raise UserError(f"the group {group!r} has no vectors: none of its keys is as frequent as `min_count` asks")
    raise UserError(f"no value of the group {group!r} reaches level {level}; use a lower level, or none")


def vectors_of_rows(run: TrainedRun, data: object, level: int | None = None) -> Vectors:
    """The vectors of rows as a whole: the sums of their groups' vectors.

    Keys are the names in the schema's `id` column, or the numbers of the rows, from 1. In a model with ranks, values
    of other groups are compared with a row's values each at its own level. Two rows are compared at one level, the
    first one if none is given, as a row has values of several levels (with `level_sharing: truncate` nothing is lost
    by it).

    Args:
        run: The run.
        data: The rows: any table.
        level: In a model with ranks, the level in whose space everything is compared.

    Raises:
        UserError: There is no such level, or the rows cannot be encoded or have no names.

    """
    model, encoder = run.model, run.fitted
    model_levels = _checked_levels(run.schema.model, level)
    encoded = encoder.encode(data)
    names = Names(_row_names(encoded))
    sums, linear = _sums_over_groups(model, encoded)
    if model_levels.nested:
        tables = sums.free if level is None else [np.concatenate(sums.free[:level], axis=1)]
    else:
        p = (level or 1) - 1
        tables = [sums.free[p] + sums.dependent[p]]
    space = ValueSpace(
        "row",
        len(encoded),
        read_candidates=partial(Candidates, tables),
        read_linear=partial(np.asarray, linear) if run.schema.model.bias else None,
        read_bias=partial(float, model.bias_value()),
        level=level,
        truncate=model_levels.nested,
        row_queries=sums if level is None else Queries(tables, [np.zeros_like(table) for table in tables]),
    )
    counts = np.ones(len(encoded), np.int64)
    levels = np.full(len(encoded), len(model_levels), np.int8)
    open_group = partial(vectors_of_group, run, level=level)
    return Vectors("row", "the table", names, counts, levels, space, open_group)


def _row_names(encoded: Encoded) -> pa.StringArray:
    """The rows' names, or their numbers from 1; a name that comes again gets #2, #3, ..."""
    id_column, names = encoded.encoder.schema.id, encoded.names()
    if names is not None:
        return distinct_names(names["name"].combine_chunks())
    if id_column is not None:
        raise UserError(f"the rows have no column {id_column!r}, the schema's `id`, which names them; add it")
    return distinct_names(pa.array(np.arange(1, len(encoded) + 1)).cast(pa.string()))


def _sums_over_groups(model: Feat2Vec, encoded: Encoded) -> tuple[Queries, Float32s]:
    """Each row's sums over its groups: free and dependent parts [rows, D_p], and linear terms [rows]."""
    free = [np.zeros((len(encoded), dim), np.float32) for dim in model.dims]
    dependent = [np.zeros((len(encoded), dim), np.float32) for dim in model.dims]
    linear = np.zeros(len(encoded), np.float32)
    for g, group in enumerate(model.groups):
        value_ids = np.asarray(encoded.rows[:, g])  # [rows], -1 where the group is missing
        distinct_ids, place_of_row = np.unique(value_ids, return_inverse=True)
        present_rows = np.flatnonzero(value_ids >= 0)
        some_missing = len(present_rows) < len(value_ids)  # then -1 is the first of the distinct ids
        present_ids = distinct_ids[distinct_ids >= 0]
        present_places = place_of_row[present_rows] - some_missing
        for block in blocks(len(present_ids), ROWS_PER_BATCH):
            entries = np.asarray(encoded.values[group].entries[present_ids[block]])
            vectors = extract(model, {group: entries})
            in_block = (present_places >= block.start) & (present_places < block.stop)
            rows, places = present_rows[in_block], present_places[in_block] - block.start
            for p in range(len(model.dims)):
                free[p][rows] += vectors.free[p][places]
                dependent[p][rows] += vectors.dependent[p][places]
            if model.schema.model.bias:
                linear[rows] += as_numbers(model.vectors(group, entries).linear)[places]
    return Queries(free, dependent), linear


def _at_level(values: Candidates, level: int | None, levels: Levels, size: int) -> Candidates:
    """The `size` candidates that reach a level, with their vectors in its space; None leaves them as they are.

    Where `model.activation` leaves some of them without a vector, the table ends before, and they have zeros.
    """
    if level is None:
        return values
    with_vector = values.sizes()[level - 1]
    if len(values.tables) == 1 and with_vector == size:  # it may be a file, which is not read
        return values
    parts = [table[:with_vector] for table in values.tables[levels.parts_of(level)]]
    table = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    if with_vector < size:
        table = np.concatenate([table, np.zeros((size - with_vector, table.shape[1]), np.float32)])
    return Candidates([table])


def _checked_levels(model: ModelSpec, level: int | None) -> Levels:
    """The levels of a model; a level that it does not have is refused."""
    refuse_no_vectors(model)
    levels = model.levels
    if level is not None and not levels.has(level):
        ranks = ", ".join(map(str, levels.ranks))
        has = f"levels 1 to {len(levels)} (ranks {ranks})" if len(levels) > 1 else "one level, 1"
        raise UserError(f"the model has {has}; received level {level!r}")
    return levels
