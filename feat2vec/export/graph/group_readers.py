"""The reader of a group, by the codec that encodes it."""

from __future__ import annotations

from feat2vec.encode.codecs import Codec, ItemsCodec, NumbersCodec, VectorCodec
from feat2vec.errors import UserError
from feat2vec.export.graph.item_readers import ItemsReader
from feat2vec.export.graph.number_readers import BinsReader, NumbersReader, VectorReader
from feat2vec.export.graph.reader_base import Reader
from feat2vec.schema.options import Group


def reader_of(name: str, codec: Codec, group: Group, *, max_key_bytes: int) -> Reader:
    """What reads a group's columns inside a graph.

    Args:
        name: The group's name.
        codec: The fitted codec that encodes the group.
        group: The group's options.
        max_key_bytes: Groups with more bytes of keys are refused.

    Raises:
        UserError: The group has too many keys, or a codec that no graph can imitate.

    """
    if isinstance(codec, ItemsCodec):
        key_bytes = codec.vocabulary.keys.nbytes
        if key_bytes > max_key_bytes:
            size = f"{key_bytes / 2**30:.1f} GB of keys"
            raise UserError(f"the group {name!r} has {size}, more than a saved model holds; export the other groups")
        if codec.edges or getattr(group.extractor, "bins", None):
            return BinsReader(codec, group)
        return ItemsReader(codec, group)
    if isinstance(codec, NumbersCodec):
        return NumbersReader(codec)
    if isinstance(codec, VectorCodec):
        return VectorReader(codec, group)
    raise UserError(
        f"the group {name!r} is encoded by {type(codec).__name__}, which a saved model cannot do; leave it out"
    )
