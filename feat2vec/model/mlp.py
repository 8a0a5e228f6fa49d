"""What stands beside the pairs' score: a network on the groups' vectors (DeepFM) and their interactions (NFM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from feat2vec.model.pair_scores import Level, interaction


@keras.saving.register_keras_serializable("feat2vec")
class MlpHead(keras.layers.Layer):
    """Layers of ReLU units and a linear one that starts at zero: levels [batch, groups, D_k] to [batch, outputs].

    A value counts with the vector of its own level: a level's input is its free vectors side by side. The interaction
    vector's coordinates are those whose sum is the pairs' score.
    """

    def __init__(
        self, hidden: Sequence[int], inputs: Sequence[str], dropout: float, normalize: bool, outputs: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.hidden, self.inputs = tuple(hidden), tuple(inputs)
        self.dropout, self.normalize, self.outputs = dropout, normalize, outputs

    def build(self, input_shape: Sequence[Sequence[int | None]]) -> None:
        """`input_shape` holds [batch, groups, D_k] of each level."""
        sizes = {
            "vectors": sum(int(shape[-2] or 0) * int(shape[-1] or 0) for shape in input_shape),
            "interactions": sum(int(shape[-1] or 0) for shape in input_shape),
        }
        before = sum(sizes[name] for name in self.inputs)
        self.layers, self.norms = [], []
        for i, units in enumerate(self.hidden):
            self.layers.append(keras.layers.Dense(units, kernel_initializer="he_normal", name=f"hidden_{i}"))
            self.layers[-1].build((None, before))
            if self.normalize:
                self.norms.append(keras.layers.BatchNormalization(name=f"norm_{i}"))
                self.norms[-1].build((None, units))
            before = units
        self.last = keras.layers.Dense(self.outputs, kernel_initializer="zeros", name="last")
        self.last.build((None, before))
        super().build(input_shape)

    def call(
        self, levels: Sequence[Level], masks: Sequence[Any] | None = None, training: bool = False, seed: Any = None
    ) -> Any:
        """`masks` [batch, D_k] are the interaction vector's; `seed` [2] decides what dropout drops in training."""
        x = ops.concatenate([part for name in self.inputs for part in _INPUTS[name](levels, masks)], axis=-1)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.normalize:
                x = self.norms[i](x, training=training)
            x = ops.relu(x)
            if training and self.dropout:
                x = tf.nn.experimental.stateless_dropout(
                    x, self.dropout, seed + tf.constant([0, 1 << 40], tf.int64) * i
                )
        return self.last(x)

    def get_config(self) -> dict[str, Any]:
        own = {"hidden": self.hidden, "inputs": self.inputs, "dropout": self.dropout, "normalize": self.normalize}
        return {**super().get_config(), **own, "outputs": self.outputs}


def _vectors(levels: Sequence[Level], masks: Any = None) -> list[Any]:
    del masks
    return [ops.reshape(level.free, (-1, level.free.shape[-2] * level.free.shape[-1])) for level in levels]


def _interactions(levels: Sequence[Level], masks: Sequence[Any] | None = None) -> list[Any]:
    """For each level [batch, D_k], over the pairs that meet there."""
    settled = []
    for level in levels:
        if level.dependent is None:
            settled.append(interaction(level.free))
        else:
            settled.append(interaction(level.free + level.dependent) - interaction(level.dependent))
    return settled if masks is None else [part * mask for part, mask in zip(settled, masks, strict=True)]


_INPUTS: Mapping[str, Any] = {"vectors": _vectors, "interactions": _interactions}
