"""A table as batches for the Keras models of `keras_models`, with a column as the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, Encoder
from feat2vec.encode.vocabulary import Vocabulary
from feat2vec.errors import UserError, listed, suggest
from feat2vec.sampling.batches import Batches, table_of_entries, value_tables
from feat2vec.schema.objectives import Nce, ObjectiveSpec, Regression, Softmax
from feat2vec.schema.options import Schema
from feat2vec.space.groups_and_levels import selected_groups
from feat2vec.space.keras_models import input_names
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage, Table, open_table, stages
from feat2vec.table.types import is_list, kind_of_type


def dataset(
    encoder: Encoder,
    rows: object,
    target: str | None = None,
    *,
    classes: bool | Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    batch_size: int = 256,
    shuffle: bool = True,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches of ({group: entries}, label), or without a target of {group: entries}: see `Run.dataset`."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UserError(f"batch_size: expected a whole number above 0; received {batch_size!r}")
    names, table = selected_groups(list(encoder.codecs), groups), open_table(rows)
    selected = encoder.only(names)
    class_names = None if classes is None or isinstance(classes, bool) else _checked_class_names(classes)
    label_is_class = False
    if target is not None:
        _check_target(selected.schema, table, target)
        label_is_class = class_names is not None or _is_class_column(table, target, classes)
    encoded = _encoded(selected, table, target, class_names, label_is_class=label_is_class)
    tables = {  # variables, as constants would be copied into the graph
        name: table_of_entries(entries) for name, entries in zip(input_names(names), value_tables(encoded), strict=True)
    }
    batches = Batches(
        encoded.rows,
        tables,
        batch_size,
        target=None if target is None else encoded.target,
        keep_rows=False,
        shuffle=shuffle,
        seed=seed,
        most_steps_at_once=1,
    ).dataset()
    if target is None:
        batches = batches.map(lambda inputs, _: inputs)
    known_classes = encoded.encoder.classes
    # as in `keras.utils.image_dataset_from_directory`
    batches.class_names = known_classes.keys.to_pylist() if label_is_class and known_classes is not None else None
    return batches


def _encoded(
    encoder: Encoder, table: Table, target: str | None, class_names: Sequence[str] | None, *, label_is_class: bool
) -> Encoded:
    """The table's rows, with the target as the schema's objective would have it: a class, a number or nothing."""
    objective: ObjectiveSpec = Nce()
    if target is not None:
        objective = Softmax(target=target) if label_is_class else Regression(target=target)
    schema = encoder.schema.model_copy(update={"id": None, "objective": objective})
    known_classes = None
    if class_names is not None:
        counts = np.zeros(len(class_names), np.int64)
        known_classes = Vocabulary(pa.array(class_names, pa.string()), counts)
    encoded = replace(encoder, schema=schema, classes=known_classes).encode(table)
    if len(encoded.left_out):
        row = int(encoded.left_out.places[0])
        problem = (
            f"row {row + 1}: column {target!r}: received None; batches have a label for each row, leave the row out"
        )
        raise UserError(f"{table.name}: {problem}")
    if label_is_class:
        unknown_rows = np.flatnonzero(np.asarray(encoded.target) < 0)
        if len(unknown_rows):
            shown = ", ".join(repr(name) for name in (class_names or [])[:5])
            column = f"column {target!r} has none of the classes {shown} ..."
            raise UserError(f"{table.name}: row {unknown_rows[0] + 1}: {column}")
    return encoded


def _check_target(schema: Schema, table: Table, target: str) -> None:
    """Raise if the target is no column of single values, or is also a group's."""
    if target not in table.columns:
        near = suggest(target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"{table.name}: has no column {target!r} to be the target{near}")
    for name, group in schema.groups.items():
        if target in (*group.columns, getattr(group.extractor, "weights", None)):
            rest = [group_name for group_name in schema.groups if group_name != name]
            remedy = f"leave it out of both: run.encoder(groups={rest}) and run.dataset(..., groups={rest})"
            raise UserError(f"the column {target!r} is also the group {name!r}, which would reveal the label", remedy)
    if is_list(table.columns[target]):
        type_ = table.columns[target]
        raise UserError(f"{table.name}: column {target!r} holds lists ({type_}); a target has one value a row")


def _checked_class_names(classes: Sequence[str]) -> list[str]:
    names = [classes] if isinstance(classes, str) else list(classes)
    is_list_of_names = not isinstance(classes, str) and all(isinstance(name, str) for name in names)
    if not is_list_of_names or not names or len(set(names)) < len(names):
        raise UserError(f"classes: expected True, False or a list of different names; received {classes!r}")
    return names


def _is_class_column(table: Table, target: str, classes: bool | Sequence[str] | None) -> bool:
    """Whether a target becomes classes: what the caller says, or whether it is text."""
    if isinstance(classes, bool):
        return classes
    if table.typed:
        return kind_of_type(table.columns[target]) == "text"
    return not all(_holds_numbers(stage, target) for stage in stages(table, [target]))  # a CSV's text may be of numbers


def _holds_numbers(stage: Stage, column: str) -> bool:
    try:
        numbers_of(stage, column)
    except UserError:
        return False
    return True
