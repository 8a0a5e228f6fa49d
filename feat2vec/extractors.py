"""The layers of extractors, and what a layer of one's own derives from."""

from __future__ import annotations

from feat2vec.model.extractors import (
    LAYERS,
    Extracted,
    Extractor,
    Headed,
    LookupExtractor,
    NumericExtractor,
    Shape,
    TextAttentionExtractor,
    TextCnnExtractor,
    VectorExtractor,
    build_extractor,
    layer,
)

__all__ = [
    "LAYERS",
    "Extracted",
    "Extractor",
    "Headed",
    "LookupExtractor",
    "NumericExtractor",
    "Shape",
    "TextAttentionExtractor",
    "TextCnnExtractor",
    "VectorExtractor",
    "build_extractor",
    "layer",
]
