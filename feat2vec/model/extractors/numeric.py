"""One or more numbers, through a network."""

from __future__ import annotations

import keras
import tensorflow as tf

from feat2vec.model.extractors.base import Extracted, Headed, layer
from feat2vec.model.pair_scores import Tensor


@layer("numeric")
class NumericExtractor(Headed):
    """An MLP over scaled numbers and missing indicators; with no hidden layer, the linear map x W.

    Its arguments are those of `Extractor`.

    Example:
        >>> spec = feat2vec.specs.Numeric(hidden=[8]).model_dump()
        >>> year = feat2vec.extractors.NumericExtractor(spec, feat2vec.extractors.Shape(width=1), dims=[3])
        >>> year(np.array([[0.5], [-1.0]], "float32")).levels[0].free.shape
        TensorShape([2, 3])

    """

    def build(self, input_shape: object = None) -> None:
        """Make the hidden layers and the heads."""
        del input_shape
        units_of_layers = self.spec["hidden"]
        self.hidden = [
            keras.layers.Dense(units, activation="relu", name=f"hidden_{i}", dtype=self.dtype_policy)
            for i, units in enumerate(units_of_layers)
        ]
        widths = [self.shape.width, *units_of_layers]
        for hidden, features in zip(self.hidden, widths, strict=False):
            hidden.build((None, features))
        self.build_heads(widths[-1], use_bias=bool(units_of_layers))
        super().build(None)

    def call(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return the vectors of numbers [batch, width], NaN where the group is missing."""
        del training, seed
        present = ~tf.math.is_nan(entries[:, :1])
        features = tf.where(present, tf.cast(entries, self.compute_dtype), 0)
        for hidden in self.hidden:
            features = hidden(features)
        return self.finish(features, tf.cast(present, features.dtype))
