"""The options of extractors, and what the options of an extractor of one's own derive from."""

from __future__ import annotations

from feat2vec.schema.extractor_options import (
    EXTRACTORS,
    Count,
    Dim,
    ExtractorSpec,
    ItemsSpec,
    Lookup,
    Many,
    NotNegative,
    NumbersSpec,
    Numeric,
    Share,
    Text,
    TextAttention,
    TextCnn,
    TokensSpec,
    Vector,
    VectorSpec,
    extractor,
)

__all__ = [
    "EXTRACTORS",
    "Count",
    "Dim",
    "ExtractorSpec",
    "ItemsSpec",
    "Lookup",
    "Many",
    "NotNegative",
    "NumbersSpec",
    "Numeric",
    "Share",
    "Text",
    "TextAttention",
    "TextCnn",
    "TokensSpec",
    "Vector",
    "VectorSpec",
    "extractor",
]
