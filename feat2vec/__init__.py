"""feat2vec: one vector space for every column of a table."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feat2vec.encode import Encoder, fit
    from feat2vec.errors import UserError
    from feat2vec.schema import Schema, read_schema
    from feat2vec.specs import extractor
    from feat2vec.table import Table, open_table

__version__ = version("feat2vec")

# Imported when first asked for, so that `import feat2vec` and the command line answer at once.
_HOMES = {
    "Encoder": "encode",
    "Schema": "schema",
    "Table": "table",
    "UserError": "errors",
    "extractor": "specs",
    "fit": "encode",
    "open_table": "table",
    "read_schema": "schema",
}

__all__ = ["Encoder", "Schema", "Table", "UserError", "__version__", "extractor", "fit", "open_table", "read_schema"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'feat2vec' has no attribute {name!r}")
    return getattr(importlib.import_module(f"feat2vec.{_HOMES[name]}"), name)
