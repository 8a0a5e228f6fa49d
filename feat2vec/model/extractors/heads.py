"""Extractors that compute features of an entry, and give each level an output head on them."""

from __future__ import annotations

import keras
import tensorflow as tf

from feat2vec.model.extractors.base import Extracted, Extractor
from feat2vec.model.pair_scores import Level, Tensor


class Headed(Extractor):
    """The base of extractors whose features meet every level through an output head of its own.

    Their values have the top level: below it they are dependent. Its arguments are those of `Extractor`.
    """

    def build_heads(self, features: int, *, use_bias: bool) -> None:
        """Make one head a level, and one for the linear term.

        Args:
            features: how many features there are.
            use_bias: whether heads add a bias.

        """
        self.heads = [
            keras.layers.Dense(dim, use_bias=use_bias, name=f"head_{level}", dtype=self.dtype_policy)
            for level, dim in enumerate(self.dims, start=1)
        ]
        if self.bias:
            self.linear = keras.layers.Dense(
                1, use_bias=False, kernel_initializer="zeros", name="linear", dtype=self.dtype_policy
            )
        for head in (*self.heads, *([self.linear] if self.bias else [])):
            head.build((None, features))

    def finish(self, features: Tensor, present: Tensor) -> Extracted:
        """Return the vectors of features.

        Args:
            features: [batch, features].
            present: [batch, 1], 0 where the group is missing and 1 elsewhere.

        """
        vectors = [head(features) * present for head in self.heads]  # each [batch, D_k]
        levels = [Level(tf.zeros_like(vector), vector) for vector in vectors[:-1]] + [Level(vectors[-1], None)]
        linear = (self.linear(features) * present)[:, 0] if self.bias else None
        return Extracted(tuple(levels), linear, tf.zeros((), self.compute_dtype))
