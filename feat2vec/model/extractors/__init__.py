"""One Keras layer for each extractor: a group's entries to its vectors, one pair a level.

An entry is what the room `encode` makes of a group in a row: padded ids (0 is no item, 1 an unseen one), or scaled
numbers, NaN where the group is missing. A missing group's vectors are zero. Padding has no row in any table: only the
items that are there are gathered, and nothing else gets a gradient.

Open `base.py` first: it says how to write an extractor. Then `numeric.py`, the shortest, and `lookup.py`.
"""

from __future__ import annotations

from feat2vec.model.extractors.base import LAYERS, UNSEEN, Extracted, Extractor, Headed, Shape, build_extractor, layer
from feat2vec.model.extractors.lookup import LookupExtractor
from feat2vec.model.extractors.numeric import NumericExtractor
from feat2vec.model.extractors.text_attention import TextAttentionExtractor
from feat2vec.model.extractors.text_cnn import TextCnnExtractor
from feat2vec.model.extractors.vector import VectorExtractor

__all__ = [
    "LAYERS",
    "UNSEEN",
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
