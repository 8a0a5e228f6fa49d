"""The levels of keys that a column of the training rows tells (`model.levels.columns`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.arrays import Floats, Int8s
from feat2vec.errors import UserError
from feat2vec.schema.levels import Levels
from feat2vec.table.keys import Items
from feat2vec.table.numbers import concat, floats_of, numbers_of, trimmed
from feat2vec.table.table import Stage
from feat2vec.table.types import is_list, is_text, kind_of_type

UNTOLD = 0  # the level of a key of which no row tells one
WHOLE_NUMBER = r"^[-+]?[0-9]+(\.0*)?$"  # in text


class LevelColumn(NamedTuple):
    """The column of a group's levels, and the levels that there are."""

    name: str
    levels: Levels


class GivenLevels:
    """The levels that rows tell, stage by stage, as a number for each key of a stage.

    Args:
        column: The column that tells them.

    """

    def __init__(self, column: LevelColumn) -> None:
        self.column = column
        self.stages: list[Int8s] = []  # of each stage the highest level that its rows tell of each of its keys

    def stage(self, stage: Stage, items: Items) -> None:
        """Read the levels of a stage's rows, each of which has one key or none.

        Args:
            stage: The stage, which has the column.
            items: The keys of its rows.

        Raises:
            UserError: If a level is no whole number from 1 to the number of levels.

        """
        name, levels = self.column
        rule = f"a level is a whole number, 1 to {len(levels)}"
        numbers = _numbers_of_levels(stage, name, rule)  # [rows]
        is_level = np.isnan(numbers) | ((numbers >= 1) & (numbers <= len(levels)) & (numbers == np.floor(numbers)))
        if not is_level.all():
            row = int(np.flatnonzero(~is_level)[0])
            stage.refuse(row, name, stage.column(name)[row].as_py(), rule)
        of_items = np.repeat(np.where(np.isnan(numbers), UNTOLD, numbers).astype(np.int8), items.lengths)  # [items]
        of_keys = np.full(len(items.keys), UNTOLD, np.int8)
        np.maximum.at(of_keys, items.codes, of_items)
        self.stages.append(of_keys)

    def refuse_no_level(self) -> None:
        """Raise unless some row of the stages tells the level of its key.

        Raises:
            UserError: If none does.

        """
        if not any((of_stage != UNTOLD).any() for of_stage in self.stages):
            reason = "tells no level in any row that has a key"
            raise UserError(f"column {self.column.name!r}, of model.levels, {reason}; fill it, or remove it from there")


def _numbers_of_levels(stage: Stage, name: str, rule: str) -> Floats:
    """A column of levels as numbers, NaN where there is none: [rows]."""
    values = stage.column(name)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if is_text(kind):
        text = trimmed(stage, values.combine_chunks())
        is_number = pc.fill_null(pc.match_substring_regex(text, WHOLE_NUMBER), True).to_numpy(zero_copy_only=False)
        if stage.table.typed:
            rule, is_number = f"{rule}, and the column holds text; cast it", pc.is_null(text).to_numpy(False)
        if not is_number.all():
            row = int(np.flatnonzero(~is_number)[0])
            stage.refuse(row, name, text[row].as_py(), rule)
        return concat([floats_of(text, pa.float64())], np.float64)
    if not pa.types.is_null(kind) and (is_list(kind) or kind_of_type(kind) != "number"):
        raise UserError(f"{stage.row(0)}: column {name!r} holds {kind}; {rule}")
    return numbers_of(stage, name, nan="missing")[0]
