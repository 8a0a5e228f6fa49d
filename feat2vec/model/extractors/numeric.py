"""One or more numbers, through a network, which may see them piece by piece."""

from __future__ import annotations

import keras
import tensorflow as tf

from feat2vec.model.extractors.base import Extracted, Headed, layer
from feat2vec.model.pair_scores import Tensor


@layer("numeric")
class NumericExtractor(Headed):
    """An MLP over scaled numbers and missing indicators; with no hidden layer, the linear map x W.

    With `pieces`, each number becomes how much of each piece between two quantiles lies below it (see `in_pieces`), so
    that the map is a piecewise linear function. With `start: pca` the map has a bias, and is 0 until it is given
    principal components (see `principal_components.py`). Its arguments are those of `Extractor`.

    Example:
        >>> spec = feat2vec.specs.Numeric(hidden=[8]).model_dump()
        >>> year = feat2vec.extractors.NumericExtractor(spec, feat2vec.extractors.Shape(width=1), dims=[3])
        >>> year(np.array([[0.5], [-1.0]], "float32")).levels[0].free.shape
        TensorShape([2, 3])

    """

    def build(self, input_shape: object = None) -> None:
        """Make the hidden layers and the heads."""
        del input_shape
        units_of_layers, pieces = self.spec["hidden"], self.spec.get("pieces")
        self.hidden = [
            keras.layers.Dense(units, activation="relu", name=f"hidden_{i}", dtype=self.dtype_policy)
            for i, units in enumerate(units_of_layers)
        ]
        # A constant beside the pieces tells the lowest number from a missing one, which is the zero vector.
        widths = [self.shape.width * pieces + 1 if pieces else self.shape.width, *units_of_layers]
        for hidden, features in zip(self.hidden, widths, strict=False):
            hidden.build((None, features))
        if self.starts_from_components:
            self.build_heads(widths[-1], use_bias=True, kernel="zeros")
        else:
            self.build_heads(widths[-1], use_bias=bool(units_of_layers))
        super().build(None)

    @property
    def starts_from_components(self) -> bool:
        """Whether the map begins with the principal components of the training rows."""
        return bool(self.spec.get("start") == "pca")  # runs of before have no `start`

    def call(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return the vectors of numbers [batch, width], NaN where the group is missing."""
        del training, seed
        present = ~tf.math.is_nan(entries[:, :1])
        features = tf.where(present, tf.cast(entries, self.compute_dtype), 0)
        if self.spec.get("pieces"):
            features = tf.concat([in_pieces(features, self.spec["pieces"]), tf.ones_like(features[:, :1])], axis=1)
        for hidden in self.hidden:
            features = hidden(features)
        return self.finish(features, tf.cast(present, features.dtype))


def in_pieces(numbers: Tensor, pieces: int) -> Tensor:
    """The piecewise linear encoding of numbers (Gorishniy et al., 2022): how much of each piece lies below the number.

    Numbers that are scaled to their quantiles, from 0 to 1, have pieces of equal length: quantiles are the edges. The
    lowest is all 0, the highest all 1, and what lies outside of the training numbers counts as the nearest of them.

    Args:
        numbers: From 0 to 1, [batch, width].
        pieces: The number of pieces.

    Returns:
        From 0 to 1, [batch, width * pieces].

    """
    starts = tf.range(pieces, dtype=numbers.dtype)  # in units of a piece
    parts = tf.clip_by_value(numbers[:, :, None] * pieces - starts, 0, 1)  # [batch, width, pieces]
    return tf.reshape(parts, [-1, numbers.shape[1] * pieces])
