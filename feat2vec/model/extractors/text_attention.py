"""A text as a sequence of tokens, through self-attention (Vaswani et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from feat2vec.arrays import Floats
from feat2vec.model.extractors.base import UNSEEN, Extracted, Headed, layer
from feat2vec.model.pair_scores import Tensor

LONGEST_WAVE = 10_000.0  # the base of the lengths of the sinusoids
MOST_ROWS = 8192  # that are read at once outside of training
MOST_WEIGHTS = 1 << 26  # of attention that are in memory at once outside of training: 256 MB


@layer("text_attention")
class TextAttentionExtractor(Headed):
    """Token vectors with their positions, blocks of self-attention, the mean over the text, dropout, projection.

    A token's vector is multiplied by the root of its dimensions before its position is added. No token attends to
    padding, and the mean leaves it out, so padding changes nothing. Its arguments are those of `Extractor`.

    Example:
        >>> spec = feat2vec.specs.TextAttention(token_dim=4, heads=2, units=3).model_dump()
        >>> shape = feat2vec.extractors.Shape(width=3, sizes=(5,))
        >>> title = feat2vec.extractors.TextAttentionExtractor(spec, shape, dims=[3])
        >>> title(np.array([[2, 4, 0]])).levels[0].free.shape
        TensorShape([1, 3])

    """

    is_random = True

    def build(self, input_shape: object = None) -> None:
        """Make the token table, the positions, the blocks and the heads."""
        del input_shape
        spec = self.spec
        token_dim, max_tokens = spec["token_dim"], spec["max_tokens"]
        self.tokens = self.add_table(self.shape.sizes[0], token_dim, "tokens", unseen=True)
        self.sinusoids = sinusoids(max_tokens, token_dim)  # [max_tokens, token_dim]
        if spec["positions"] == "learned":
            self.positions = self.add_weight(
                shape=(max_tokens, token_dim),
                initializer=lambda shape, dtype: tf.constant(self.sinusoids, dtype, shape),
                name="positions",
            )
        self.blocks = [
            AttentionBlock(token_dim, spec["heads"], spec["units"], name=f"block_{i}", dtype=self.dtype_policy)
            for i in range(spec["blocks"])
        ]
        for block in self.blocks:
            block.build((None, None, token_dim))
        self.build_heads(token_dim, use_bias=True)
        super().build(None)

    def call(self, entries: Tensor, training: bool = False, seed: Tensor | None = None) -> Extracted:
        """Return the vectors of token ids [batch, width]."""
        spec = self.spec
        token_dim = spec["token_dim"]
        entries = entries[:, : spec["max_tokens"]]  # more of them are padding: no text is longer
        batch, time = tf.unstack(tf.shape(entries, out_type=tf.int64))
        places = tf.where(entries > 0)  # [tokens, 2]
        vectors = self.gather(self.tokens, tf.gather_nd(entries, places) - UNSEEN)  # [tokens, token_dim]
        text = tf.scatter_nd(places, vectors * token_dim**0.5, tf.stack([batch, time, token_dim]))
        text = tf.ensure_shape(text, [None, None, token_dim])  # [batch, time, token_dim]
        positions = self.positions if spec["positions"] == "learned" else tf.constant(self.sinusoids, text.dtype)
        text += positions[:time]
        is_token = entries > 0  # [batch, time]
        text = self._attend(text, is_token) if training else self._attend_in_parts(text, is_token)
        length = tf.math.count_nonzero(entries, axis=1, keepdims=True, dtype=tf.int32)  # [batch, 1]
        total = tf.reduce_sum(text * tf.cast(is_token, text.dtype)[..., None], axis=1)  # [batch, token_dim]
        features = total / tf.cast(tf.maximum(length, 1), text.dtype)
        if training and spec["dropout"]:
            features = tf.nn.experimental.stateless_dropout(features, spec["dropout"], self.needed(seed))
        square = tf.reduce_sum(tf.square(vectors))
        return self.finish(features, tf.cast(length > 0, features.dtype))._replace(square=square)

    def _attend(self, text: Tensor, is_token: Tensor) -> Tensor:
        """Tokens [batch, time, token_dim] that have seen each other in every block."""
        for block in self.blocks:
            text = block(text, is_token)
        return text

    def _attend_in_parts(self, text: Tensor, is_token: Tensor) -> Tensor:
        """The same, of so few rows at a time that their weights of attention, [rows, heads, time, time], have room."""
        weights_of_row = self.spec["heads"] * min(self.shape.width, self.spec["max_tokens"]) ** 2
        if MOST_ROWS * weights_of_row <= MOST_WEIGHTS:
            return self._attend(text, is_token)
        rows = max(MOST_WEIGHTS // weights_of_row, 1)
        batch, time, token_dim = tf.unstack(tf.shape(text))
        parts = (batch + rows - 1) // rows
        missing_rows = [0, parts * rows - batch]
        texts = tf.reshape(tf.pad(text, [missing_rows, [0, 0], [0, 0]]), [parts, rows, time, self.spec["token_dim"]])
        are_tokens = tf.reshape(tf.pad(is_token, [missing_rows, [0, 0]]), [parts, rows, time])
        seen = tf.map_fn(
            lambda part: self._attend(*part), (texts, are_tokens), fn_output_signature=text.dtype, parallel_iterations=1
        )  # [parts, rows, time, token_dim]
        return tf.reshape(seen, [parts * rows, time, token_dim])[:batch]


class AttentionBlock(keras.layers.Layer):
    """Self-attention with several heads, and two dense layers: each is added to its input, and the sum is normalized.

    A head's queries Q, keys K and values V are linear in the tokens, and it gives softmax(Q K' / sqrt(k)) V, where k
    is the size of a query.

    Args:
        token_dim: The dimensions of a token, k times `heads`.
        heads: The number of heads.
        units: The units of the first dense layer.
        **kwargs: Those of `keras.layers.Layer`.

    """

    def __init__(self, token_dim: int, heads: int, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.token_dim, self.heads, self.units = token_dim, heads, units

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Make the layers."""
        key_dim = self.token_dim // self.heads
        self.attention = keras.layers.MultiHeadAttention(
            self.heads, key_dim, use_bias=False, name="attention", dtype=self.dtype_policy
        )
        self.attention_norm = keras.layers.LayerNormalization(name="attention_norm", dtype=self.dtype_policy)
        self.hidden = keras.layers.Dense(self.units, activation="relu", name="hidden", dtype=self.dtype_policy)
        self.output_layer = keras.layers.Dense(self.token_dim, name="output", dtype=self.dtype_policy)
        self.norm = keras.layers.LayerNormalization(name="norm", dtype=self.dtype_policy)
        self.attention.build(input_shape, input_shape)
        for inner_layer in (self.attention_norm, self.hidden, self.norm):
            inner_layer.build(input_shape)
        self.output_layer.build((*input_shape[:-1], self.units))
        super().build(input_shape)

    def call(self, tokens: Tensor, is_token: Tensor) -> Tensor:
        """Return tokens [batch, time, token_dim] that have seen each other.

        Args:
            tokens: [batch, time, token_dim].
            is_token: False for padding, [batch, time].

        Returns:
            The same shape as `tokens`.

        """
        attended = self.attention(tokens, tokens, attention_mask=is_token[:, None, :])
        tokens = self.attention_norm(tokens + attended)
        return self.norm(tokens + self.output_layer(self.hidden(tokens)))


def sinusoids(positions: int, dim: int) -> Floats:
    """The positional encoding of Vaswani et al. (2017): sin(p / 10000^(2i/d)) at 2i, and the cosine of it at 2i + 1.

    Args:
        positions: The number of positions.
        dim: The dimensions d of each.

    Returns:
        From -1 to 1, [positions, dim].

    Example:
        >>> sinusoids(2, 4).round(2).tolist()
        [[0.0, 1.0, 0.0, 1.0], [0.84, 0.54, 0.01, 1.0]]

    """
    pairs = np.arange((dim + 1) // 2)
    angles = np.arange(positions)[:, None] / LONGEST_WAVE ** (2 * pairs / dim)  # [positions, pairs]
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=2)  # [positions, pairs, 2]
    return waves.reshape(positions, -1)[:, :dim]
