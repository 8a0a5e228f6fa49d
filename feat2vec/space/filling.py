"""Filling the missing values of a table: each with its probability, none that is less probable than asked.

A key is filled in with its probability. A list gets the keys that it holds with at least the probability asked for.
A number is filled in with its mean; its probability is that of lying among the fifth of the training numbers that is
around the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Array, Bools
from feat2vec.encode.codecs import Entries
from feat2vec.encode.codecs.numbers import date_text
from feat2vec.encode.columns import columns_of
from feat2vec.errors import UserError, listed
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec
from feat2vec.schema.options import Schema
from feat2vec.space.completer import check_completed_group
from feat2vec.space.fillers import Filled, Filler, KeyFiller, NumberFiller
from feat2vec.space.geometry import blocks, dense, extract_groups
from feat2vec.space.parquet_writer import parquet_writer
from feat2vec.space.run_completion import completer_of_run
from feat2vec.table.number_texts import numbers_of_texts
from feat2vec.table.rewriting import Rewriting, rewriting
from feat2vec.table.spelling import spell_floats
from feat2vec.table.table import Stage, open_table
from feat2vec.table.types import is_text
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing import file_place, refuse_inputs_inside

PROBABILITY = "_probability"  # the end of the name of the column beside a filled one
ROWS_AT_ONCE = 4096
STAGE_BYTES = 16 << 20
PARTS_OF_DAY = {"us": 86_400 * 10**6, "ns": 86_400 * 10**9}


@dataclass
class FilledCounts:
    """How much of a table was filled: rows, and by column the missing values and how many got one.

    Attributes:
        rows: Of the table.
        missing: By column, how many values were missing.
        filled: By column, how many of them got a value.
        left_out: Columns of the table that cannot be written.

    """

    rows: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    filled: dict[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def fill(
    run: TrainedRun,
    source: object,
    out: str | Path,
    groups: Sequence[str] | None = None,
    *,
    at_least: float = 0.5,
    force: bool = False,
) -> FilledCounts:
    """Write a table with its missing values filled in to a Parquet file, which appears when it is complete.

    Args:
        run: The run.
        source: The table.
        out: The file. It has the table's columns, and beside each filled one the probabilities: null where the row had
            a value itself, and where none was probable enough. Columns that the run does not read are as they were; of
            a CSV, columns whose text follows from its numbers are written as numbers.
        groups: The groups to fill; by default all that can be filled.
        at_least: The least probability of a value that is filled in.
        force: Whether an earlier file is replaced.

    Returns:
        How much was filled.

    Raises:
        UserError: A group is unknown or cannot be filled, the table cannot be read, or `out` is taken.

    """
    if not 0 <= at_least <= 1:
        raise UserError(f"--at-least: is a probability from 0 to 1; received {at_least:g}")
    table = open_table(source)
    refuse_inputs_inside([file_place(out, force=force)], table.files)
    fillers = _fillers(run, groups, at_least)
    encoder = run.fitted
    written = rewriting(table, columns_of(encoder.schema.groups.values()))
    written = replace(written, forms=_forms(written, fillers))
    schema = written.schema(_fields(written, fillers))
    counts = FilledCounts(
        missing=dict.fromkeys((filler.column for filler in fillers), 0),
        filled=dict.fromkeys((filler.column for filler in fillers), 0),
        left_out=written.left_out,
    )
    with parquet_writer(out, schema, force=force) as write:
        for stage, entries in encoder.staged(written.table, written.columns, STAGE_BYTES):
            write(_filled_stage(run, stage, entries, fillers, written, schema, counts))
    return counts


def _filled_stage(
    run: TrainedRun,
    stage: Stage,
    entries: Mapping[str, Entries],
    fillers: Sequence[Filler],
    written: Rewriting,
    schema: pa.Schema,
    counts: FilledCounts,
) -> pa.RecordBatch:
    """The rows of a stage as the file has them."""
    types = {field.name: field.type for field in schema}
    counts.rows += stage.rows
    columns = {name: written.column(name, _in_one_piece(stage.column(name))) for name in written.columns}
    dense_entries = {name: np.ascontiguousarray(dense(entries[name])) for name in entries}
    missing = [filler.is_missing(stage, dense_entries) for filler in fillers]
    for filler, is_missing, (guesses, said) in zip(
        fillers, missing, _guesses(run, stage.rows, dense_entries, fillers, missing), strict=True
    ):
        name = filler.column
        is_filled = pc.is_valid(guesses)
        before = columns.get(name, pa.nulls(stage.rows, types[name])).cast(types[name])
        if name in written.forms and not pa.types.is_floating(guesses.type):
            guesses = numbers_of_texts(guesses, written.forms[name])
        columns[name] = pc.if_else(is_filled, _as_type(guesses, types[name], filler), before)
        columns[name + PROBABILITY] = said
        counts.filled[name] += len(guesses) - guesses.null_count
        counts.missing[name] += int(np.count_nonzero(is_missing))
    return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def _in_one_piece(values: pa.ChunkedArray) -> pa.Array:
    values = values.combine_chunks()
    return values if not isinstance(values, pa.ChunkedArray) else pa.concat_arrays(values.chunks)


def _guesses(
    run: TrainedRun,
    total: int,
    entries: Mapping[str, Array],
    fillers: Sequence[Filler],
    missing: Sequence[Bools],
) -> list[tuple[pa.Array, pa.Array]]:
    """Of each filler what is filled into the rows of a stage that lack a value, and its probabilities."""
    model = run.model_for_rows()
    parts: list[list[Filled]] = [[] for _ in fillers]
    for rows in blocks(total, ROWS_AT_ONCE):
        of_rows = {name: array[rows] for name, array in entries.items()}
        is_needed = any(is_missing[rows].any() for is_missing in missing)
        vectors = extract_groups(model, of_rows) if is_needed else {}
        for part, filler, is_missing in zip(parts, fillers, missing, strict=True):
            part.append(filler.fill(is_missing[rows], of_rows, vectors))
    return [
        (pa.concat_arrays([values for values, _ in part]), pa.concat_arrays([said for _, said in part]))
        for part in parts
    ]


# --- what can be filled ---------------------------------------------------------------------------------------------


def why_not_filled(schema: Schema, group: str) -> str | None:
    """Why a group's column cannot be filled in; None if it can."""
    spec = schema.groups[group].extractor
    if isinstance(spec, NumbersSpec):
        is_written_so = spec.written is None and spec.dates is None
        return None if is_written_so else "its values are read from text, and are not written back as such"
    if not isinstance(spec, ItemsSpec):
        return f"{spec.type} holds what cannot be written back; `feat2vec complete RUN --row` names its nearest values"
    if spec.parts or spec.split == "words":
        return "its keys are parts of what the column holds"
    return "its items have weights" if spec.weights else None


def _fillers(run: TrainedRun, groups: Sequence[str] | None, at_least: float) -> list[Filler]:
    schema = run.schema
    names = list(schema.groups) if groups is None else list(dict.fromkeys(groups))
    if not names:
        raise UserError(f"--group: name one or more of {listed(schema.groups)}")
    for name in names:
        check_completed_group(schema, name)
        reason = why_not_filled(schema, name)
        if groups is not None and reason is not None:
            raise UserError(f"the group {name!r} cannot be filled in: {reason}")
    fillers: list[Filler] = []
    for name in names:
        columns = [column for column in schema.groups[name].columns if column not in {f.column for f in fillers}]
        has_partner = any(not set(schema.groups[name].columns) & set(o.columns) for o in schema.groups.values())
        if why_not_filled(schema, name) is not None or not columns or (groups is None and not has_partner):
            continue
        completer = completer_of_run(run, name)
        if completer.hidden.columns:
            fillers += [NumberFiller(completer, at_least, c) for c in completer.hidden.columns if c.column in columns]
        else:
            fillers.append(KeyFiller(completer, at_least))
    if not fillers:
        raise UserError(f"no group can be filled in: {listed(f'{n} ({why_not_filled(schema, n)})' for n in names)}")
    return fillers


def _forms(written: Rewriting, fillers: Sequence[Filler]) -> dict[str, str]:
    """The forms of columns whose text is written as numbers, also of what is filled in."""
    forms = dict(written.forms)
    for filler in fillers:
        form = forms.pop(filler.column, None)
        filled_form = None if form is None else filler.form_of_filled(form)
        if filled_form is not None:
            forms[filler.column] = filled_form
    return forms


def _fields(written: Rewriting, fillers: Sequence[Filler]) -> list[pa.Field]:
    """The columns of the file: those of the table, each filled one with its probabilities after it."""
    by_column, table = {filler.column: filler for filler in fillers}, written.table
    fields = []
    for name in [*written.columns, *(column for column in by_column if column not in table.columns)]:
        filler = by_column.get(name)
        new = pa.field(name, pa.null()) if name not in table.columns else written.field(name)
        if filler is not None and pa.types.is_null(new.type):
            new = pa.field(name, filler.new_type)
        fields.append(new)
        if filler is not None:
            if name + PROBABILITY in table.columns:
                taken = (
                    f"{table.name}: has a column {name + PROBABILITY!r}, which is written beside {name!r}; rename it"
                )
                raise UserError(taken)
            fields.append(pa.field(name + PROBABILITY, filler.probability_type))
    return fields


def _as_type(values: pa.Array, type_: pa.DataType, filler: Filler) -> pa.Array:
    """Keys, lists of keys, or numbers in the type of their column."""
    try:
        return (
            values.cast(type_) if not pa.types.is_floating(values.type) else _numbers_as(values, type_, filler.is_date)
        )
    except pa.ArrowException as error:
        reason = f"{str(error).splitlines()[0]:.100}"
        raise UserError(
            f"the column {filler.column!r} is of type {type_}, which its values do not fit ({reason}); "
            f"leave it out: name the other groups by --group"
        ) from None


def _numbers_as(numbers: pa.Array, type_: pa.DataType, is_date: bool) -> pa.Array:
    """Numbers, or days since 1970, in the type of their column."""
    if is_text(type_) and is_date:
        return pa.array([None if number is None else date_text(number) for number in numbers.to_pylist()], type_)
    if is_text(type_):
        return spell_floats(numbers).cast(type_)
    if pa.types.is_timestamp(type_):
        parts = pc.round(pc.multiply(numbers, float(PARTS_OF_DAY[type_.unit]))).cast(pa.int64(), safe=False)
        return parts.cast(pa.timestamp(type_.unit)).cast(type_)
    if pa.types.is_date(type_):
        return pc.round(numbers).cast(pa.int32(), safe=False).cast(pa.date32())
    if pa.types.is_floating(type_):
        return numbers.cast(type_, safe=False)
    return pc.round(numbers).cast(type_, safe=False)  # integers, truth values, decimals
