"""What a group's columns become: entries, the rows of numbers that its extractor sees.

A fitted codec turns any rows into entries, and back. One file for each kind of codec, with its fit; those of items are
`items.py`, `items_fit.py` and, for bins of numbers, `bins_fit.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from feat2vec.arrays import Array
from feat2vec.encode.codecs.bins import binned
from feat2vec.encode.codecs.bins_fit import BinsFit
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Facts, Present, Tally
from feat2vec.encode.codecs.given_levels import LevelColumn
from feat2vec.encode.codecs.items import ItemsCodec, parse_items
from feat2vec.encode.codecs.items_fit import ItemsFit
from feat2vec.encode.codecs.numbers import NumbersCodec, NumbersFit
from feat2vec.encode.codecs.vectors import VectorCodec, VectorFit
from feat2vec.encode.workspace import Workspace
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Group


class Encoding(NamedTuple):
    """How a group's columns are encoded."""

    fit: Callable[[Workspace, str, Group], CodecFit]
    from_facts: Callable[[Group, Facts, pa.Table | None], Codec]


ENCODINGS = {
    "items": Encoding(ItemsFit, ItemsCodec.from_facts),
    "tokens": Encoding(ItemsFit, ItemsCodec.from_facts),
    "numbers": Encoding(NumbersFit, NumbersCodec.from_facts),
    "vector": Encoding(VectorFit, VectorCodec.from_facts),
}


def codec_fit(workspace: Workspace, name: str, group: Group, level_column: LevelColumn | None = None) -> CodecFit:
    """The fit of a group's codec; `name` begins the names of its temporary files."""
    spec = group.extractor
    if level_column is not None:
        return ItemsFit(workspace, name, group, level_column)
    if isinstance(spec, ItemsSpec) and spec.bins:
        return BinsFit(workspace, name, group)
    return ENCODINGS[spec.encoding].fit(workspace, name, group)


def codec_from_facts(group: Group, facts: Facts, keys: pa.Table | None) -> Codec:
    """The codec that was saved as `facts` and the table of its vocabulary.

    Raises:
        ValueError: If fitting the group cannot give these facts.
        KeyError: If one is missing.
        TypeError: If one has another type.

    """
    return ENCODINGS[group.extractor.encoding].from_facts(group, facts, keys)


def check_entries(codec: Codec, entries: Array) -> None:
    """Raise a ValueError for entries that the codec cannot give, and if there are none."""
    if not len(entries):
        raise ValueError("a group has no values")
    codec.check(entries)


__all__ = [
    "Codec",
    "CodecFit",
    "Entries",
    "ItemsCodec",
    "LevelColumn",
    "NumbersCodec",
    "Present",
    "Tally",
    "VectorCodec",
    "binned",
    "check_entries",
    "codec_fit",
    "codec_from_facts",
    "parse_items",
]
