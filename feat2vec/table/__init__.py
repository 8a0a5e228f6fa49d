"""Rows of any source as Arrow batches of few types, and what their columns hold.

In: a path, a name such as `tfds:NAME`, or a frame. Out: a `Table` of record batches, read in stages; columns of a stage
as numbers, dates, vectors or keys; a profile of all columns, and a proposed schema. Open `table.py` first.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feat2vec.table.table import Batch, Table, open_table

__all__ = ["Batch", "Table", "open_table"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'feat2vec.table' has no attribute {name!r}")
    return getattr(importlib.import_module("feat2vec.table.table"), name)
