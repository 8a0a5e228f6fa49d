"""A text as a sequence of tokens, through convolutions (Kim, 2014)."""

from __future__ import annotations

import keras
import tensorflow as tf

from feat2vec.model.extractors.base import UNSEEN, Extracted, Headed, layer
from feat2vec.model.pair_scores import Tensor


@layer("text_cnn")
class TextCnnExtractor(Headed):
    """Convolutions over token vectors, ReLU, maximum over time, dropout, projection.

    A window counts where it lies inside the text; of a text shorter than the window, the first one does. So padding
    changes nothing. Its arguments are those of `Extractor`.

    Example:
        >>> spec = feat2vec.specs.TextCnn(token_dim=4, filters=2, widths=[2]).model_dump()
        >>> shape = feat2vec.extractors.Shape(width=3, sizes=(5,))
        >>> title = feat2vec.extractors.TextCnnExtractor(spec, shape, dims=[3])
        >>> title(np.array([[2, 4, 0]])).levels[0].free.shape
        TensorShape([1, 3])

    """

    is_random = True

    def build(self, input_shape: object = None) -> None:
        """Make the token table, the convolutions and the heads."""
        del input_shape
        spec = self.spec
        self.tokens = self.add_table(self.shape.sizes[0], spec["token_dim"], "tokens", unseen=True)
        self.convolutions = [
            keras.layers.Conv1D(spec["filters"], width, name=f"width_{width}", dtype=self.dtype_policy)
            for width in spec["widths"]
        ]
        for convolution in self.convolutions:
            convolution.build((None, None, spec["token_dim"]))
        self.build_heads(spec["filters"] * len(spec["widths"]), use_bias=True)
        super().build(None)

    def call(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return the vectors of token ids [batch, width]."""
        time, token_dim = max(self.shape.width, *self.spec["widths"]), self.spec["token_dim"]
        places = tf.where(entries > 0)  # [tokens, 2]
        vectors = self.gather(self.tokens, tf.gather_nd(entries, places) - UNSEEN)  # [tokens, token_dim]
        batch = tf.shape(entries, out_type=tf.int64)[0]
        text = tf.scatter_nd(places, vectors, tf.stack([batch, time, token_dim]))  # [batch, time, token_dim]
        length = tf.math.count_nonzero(entries, axis=1, keepdims=True, dtype=tf.int32)  # [batch, 1]
        pooled = []  # each [batch, filters]
        for width, convolution in zip(self.spec["widths"], self.convolutions, strict=True):
            windows = tf.nn.relu(convolution(text))  # [batch, time - width + 1, filters]
            inside = tf.range(tf.shape(windows)[1])[None] <= tf.maximum(length - width, 0)
            pooled.append(tf.reduce_max(windows * tf.cast(inside, windows.dtype)[..., None], axis=1))
        features = tf.concat(pooled, axis=1)
        if training and self.spec["dropout"]:
            features = tf.nn.experimental.stateless_dropout(features, self.spec["dropout"], self.needed(seed))
        square = tf.reduce_sum(tf.square(vectors))
        return self.finish(features, tf.cast(length > 0, features.dtype))._replace(square=square)
