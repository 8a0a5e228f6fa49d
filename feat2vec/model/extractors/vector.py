"""A pretrained vector, projected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feat2vec.model.extractors.base import layer
from feat2vec.model.extractors.numeric import NumericExtractor


@layer("vector")
class VectorExtractor(NumericExtractor):
    """A linear projection of a pretrained vector. Its arguments are those of `Extractor`.

    Example:
        >>> spec = feat2vec.specs.Vector().model_dump()
        >>> image = feat2vec.extractors.VectorExtractor(spec, feat2vec.extractors.Shape(width=5), dims=[3])
        >>> image(np.ones((2, 5), "float32")).levels[0].free.shape
        TensorShape([2, 3])

    """

    def __init__(self, spec: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__({**spec, "hidden": []}, *args, **kwargs)
