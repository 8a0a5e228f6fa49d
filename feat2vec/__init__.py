"""feat2vec: one vector space for every column of a table."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feat2vec.encode.encoder import Encoder, fit
    from feat2vec.errors import UserError
    from feat2vec.evaluation.run_comparison import compare
    from feat2vec.model.extractors import layer
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.run import Run, encode_table, finetune, init, load, train
    from feat2vec.schema.extractor_options import extractor
    from feat2vec.schema.options import Schema
    from feat2vec.schema.reading import read_schema
    from feat2vec.table.split import split
    from feat2vec.table.table import Table, open_table

__version__ = version("feat2vec")

# Imported when first asked for, so that `import feat2vec` and the command line answer at once.
_HOMES = {
    "Encoder": "encode.encoder",
    "Feat2Vec": "model.keras_model",
    "Run": "run",
    "Schema": "schema.options",
    "Table": "table.table",
    "UserError": "errors",
    "compare": "evaluation.run_comparison",
    "encode_table": "run",
    "extractor": "schema.extractor_options",
    "finetune": "run",
    "fit": "encode.encoder",
    "init": "run",
    "layer": "model.extractors",
    "load": "run",
    "open_table": "table.table",
    "read_schema": "schema.reading",
    "split": "table.split",
    "train": "run",
}
PUBLIC_MODULES = (
    "diagnose",
    "explain",
    "extractors",
    "keras",
    "objectives",
    "optimizers",
    "sklearn",
    "specs",
    "table",
)

__all__ = [
    "Encoder", "Feat2Vec", "Run", "Schema", "Table", "UserError", "__version__", "compare", "encode_table", "extractor",
    "finetune", "fit", "init", "layer", "load", "open_table", "read_schema", "split", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in PUBLIC_MODULES:
        return importlib.import_module(f"feat2vec.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'feat2vec' has no attribute {name!r}")
    return getattr(importlib.import_module(f"feat2vec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
