"""The export formats, one file each: every module of this package is imported, and registers its format.

The command line, recipes, `Run.export` and messages take the formats from `FORMATS`. Nothing heavy is imported.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal, TypeAlias

from feat2vec.errors import UserError, suggest
from feat2vec.export.format_base import FORMATS, ExportFormat

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:
    FormatName = Literal[tuple(FORMATS)]  # pydantic checks recipes by it


def format_named(name: object) -> ExportFormat:
    """The export format of a name.

    Args:
        name: One of `FORMATS`.

    Raises:
        UserError: There is no such format.

    >>> format_named("npz").summary
    'the arrays keys, vectors, counts and levels: numpy'

    """
    if not isinstance(name, str) or name not in FORMATS:
        raise UserError(f"format is one of {', '.join(FORMATS)}; received {name!r}{suggest(name, FORMATS)}")
    return FORMATS[name]


__all__ = ["FORMATS", "FormatName", "format_named"]
