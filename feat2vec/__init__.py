"""feat2vec: one vector space for every column of a table."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from feat2vec.encode.encoder import Encoder, fit
    from feat2vec.errors import UserError
    from feat2vec.model.extractors import layer
    from feat2vec.model.keras_model import Feat2Vec
    from feat2vec.run import Run, finetune, load, train
    from feat2vec.schema.extractor_options import extractor
    from feat2vec.schema.options import Schema
    from feat2vec.schema.reading import read_schema
    from feat2vec.table.table import Table, open_table

__version__ = version("feat2vec")
KERAS_MODULES = (
    "model.pair_scores",
    "model.extractors",
    "model.optimizers",
    "model.mlp",
    "model.network",
    "model.keras_model",
    "space.keras_models",
)

# Imported when first asked for, so that `import feat2vec` and the command line answer at once.
_HOMES = {
    "Encoder": "encode.encoder",
    "Feat2Vec": "model.keras_model",
    "Run": "run",
    "Schema": "schema.options",
    "Table": "table.table",
    "UserError": "errors",
    "extractor": "schema.extractor_options",
    "finetune": "run",
    "fit": "encode.encoder",
    "layer": "model.extractors",
    "load": "run",
    "open_table": "table.table",
    "read_schema": "schema.reading",
    "train": "run",
}
PUBLIC_MODULES = ("diagnose", "explain", "extractors", "objectives", "optimizers", "sklearn", "specs", "table")

__all__ = [
    "Encoder", "Feat2Vec", "Run", "Schema", "Table", "UserError", "__version__", "extractor", "finetune", "fit",
    "layer", "load", "open_table", "read_schema", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in PUBLIC_MODULES:
        return importlib.import_module(f"feat2vec.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'feat2vec' has no attribute {name!r}")
    return getattr(importlib.import_module(f"feat2vec.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__


class _RegisterWithKeras(MetaPathFinder):
    """Makes our classes known to Keras once it is imported, so that `keras.models.load_model` finds them."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        if name != "keras" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                ours = any(sys.modules.get(f"feat2vec.{name}") for name in KERAS_MODULES)
                if module.backend.backend() == "tensorflow" and not ours:  # or we are just being imported ourselves
                    importlib.import_module("feat2vec.space.keras_models")

            vars(spec.loader)["exec_module"] = load_and_register
        return spec


if "keras" in sys.modules:
    importlib.import_module("feat2vec.space.keras_models")
else:
    sys.meta_path.insert(0, _RegisterWithKeras())
