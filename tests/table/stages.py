"""Stages of a single column, and what tests do with their keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from feat2vec.errors import UserError
from feat2vec.table.keys import Items
from feat2vec.table.table import Stage, open_table, stages

NAN, INF = float("nan"), float("inf")


def stage_of(cells: Any, kind: pa.DataType | None = None, **others: Any) -> Stage:
    """A stage whose column `a` holds the cells."""
    column = cells if isinstance(cells, (pa.Array, pa.ChunkedArray)) else pa.array(cells, kind)
    return next(stages(open_table(pa.table({"a": column, **others})), ["a", *others]))


def csv_stage(folder: Path, *cells: str) -> Stage:
    """The same from a CSV file."""
    (folder / "t.csv").write_text("a,b\n" + "".join(f'"{cell}",b\n' for cell in cells), encoding="utf-8")
    return next(stages(open_table(folder / "t.csv"), ["a"]))


def bags(items: Items) -> list[list[str]]:
    keys = items.keys.take(pa.array(items.codes)).to_pylist()
    ends = np.cumsum(items.lengths)
    return [keys[end - length : end] for end, length in zip(ends, items.lengths, strict=True)]


def refuse(match: str, call: Callable[[], object]) -> None:
    with pytest.raises(UserError, match=match) as caught:
        call()
    assert len(caught.value.problems) == 1
