"""What a group's columns become: entries, the rows of numbers that its extractor sees.

One file for each kind of codec, with its fit. A fitted codec turns any rows into entries, and back.
"""

from feat2vec.encode.codecs.by_encoding import check_entries, codec_fit, codec_from_facts
from feat2vec.encode.codecs.entries import Codec, CodecFit, Entries, Present, Tally
from feat2vec.encode.codecs.item_rows import binned, parse_items
from feat2vec.encode.codecs.items import ItemsCodec
from feat2vec.encode.codecs.numbers import NumbersCodec
from feat2vec.encode.codecs.vectors import VectorCodec

__all__ = [
    "Codec",
    "CodecFit",
    "Entries",
    "ItemsCodec",
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
