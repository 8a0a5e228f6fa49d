"""The levels of keys that a column of the training rows tells (`model.levels.columns`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Int8s
from feat2vec.schema.levels import Levels
from feat2vec.table.keys import Items
from feat2vec.table.numbers import numbers_of
from feat2vec.table.table import Stage
from feat2vec.table.types import Kind

UNTOLD = 0  # the level of a key of which no row tells one


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
        self.kind: Kind | None = None  # as what the column was read before
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
        numbers, self.kind = numbers_of(stage, name, self.kind, nan="missing")  # [rows]
        is_level = np.isnan(numbers) | ((numbers >= 1) & (numbers <= len(levels)) & (numbers == np.floor(numbers)))
        if not is_level.all():
            row = int(np.flatnonzero(~is_level)[0])
            stage.refuse(row, name, stage.column(name)[row].as_py(), f"a level is a whole number, 1 to {len(levels)}")
        of_items = np.repeat(np.where(np.isnan(numbers), UNTOLD, numbers).astype(np.int8), items.lengths)  # [items]
        of_keys = np.full(len(items.keys), UNTOLD, np.int8)
        np.maximum.at(of_keys, items.codes, of_items)
        self.stages.append(of_keys)
