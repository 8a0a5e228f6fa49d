"""A pretrained vector, projected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feat2vec.model.extractors.base import layer
from feat2vec.model.extractors.numeric import NumericExtractor


@layer("vector")
class VectorExtractor(NumericExtractor):
    """A linear projection of a pretrained vector. Its arguments are those of `Extractor`."""

    def __init__(self, spec: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__({**spec, "hidden": []}, *args, **kwargs)
