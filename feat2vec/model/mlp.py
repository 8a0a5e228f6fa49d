"""`MlpHead`: a network whose output is added to the score of the pairs.

Its inputs are the groups' vectors, as in DeepFM (Guo et al., 2017), their interactions, as in NFM (He and Chua, 2017),
or both. It can be a small ensemble, as in TabM (Gorishniy et al., 2024): members share each layer's matrix, and differ
in the factors of its inputs and outputs, in its bias and in the last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf
from keras import ops

from feat2vec.model.pair_scores import Level, Tensor, interaction

Masks: TypeAlias = Sequence[Tensor]  # for each level [batch, D_k], factors of the interaction vector's coordinates
SEED_STRIDE = 1 << 40  # between the seeds of two draws for the same purpose in a step; there are fewer steps


@keras.saving.register_keras_serializable("feat2vec")
class MlpHead(keras.layers.Layer):
    """ReLU layers and a linear layer that starts at zero: levels [batch, groups, D_k] to [batch, outputs].

    The input `vectors` are the free vectors of each level side by side, so that a value counts with the vector of its
    own level. The input `interactions` are the coordinates whose sum is the score of the pairs.

    Args:
        hidden: The units of each ReLU layer.
        inputs: "vectors", "interactions" or both.
        dropout: The share of the units of each ReLU layer that is dropped in training.
        normalize: Whether the units are normalized over the batch, before the ReLU.
        outputs: The number of outputs.
        members: The number of networks that share the matrices of the ReLU layers.
        **kwargs: Those of `keras.layers.Layer`.

    Example:
        >>> level = feat2vec.model.pair_scores.Level(np.ones((5, 3, 4), "float32"))  # five rows, three groups
        >>> head = feat2vec.keras.MlpHead([8], ["vectors"], dropout=0.0, normalize=False, outputs=1)
        >>> head.build([level.free.shape])
        >>> head([level]).shape
        TensorShape([5, 1])

    """

    def __init__(
        self,
        hidden: Sequence[int],
        inputs: Sequence[str],
        dropout: float,
        normalize: bool,
        outputs: int,
        members: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.hidden, self.inputs = tuple(hidden), tuple(inputs)
        self.dropout, self.normalize, self.outputs, self.members = dropout, normalize, outputs, members

    def build(self, input_shape: Sequence[Sequence[int | None]]) -> None:
        """Make the weights; `input_shape` holds [batch, groups, D_k] of each level."""
        sizes = {
            "vectors": sum(int(groups or 0) * int(dim or 0) for _, groups, dim in input_shape),
            "interactions": sum(int(dim or 0) for *_, dim in input_shape),
        }
        width = sum(sizes[name] for name in self.inputs)
        if self.members > 1:
            self._build_members(width)
            super().build(input_shape)
            return
        self.layers, self.norms = [], []
        for i, units in enumerate(self.hidden):
            self.layers.append(keras.layers.Dense(units, kernel_initializer="he_normal", name=f"hidden_{i}"))
            self.layers[-1].build((None, width))
            if self.normalize:
                self.norms.append(keras.layers.BatchNormalization(name=f"norm_{i}"))
                self.norms[-1].build((None, units))
            width = units
        self.last = keras.layers.Dense(self.outputs, kernel_initializer="zeros", name="last")
        self.last.build((None, width))
        super().build(input_shape)

    def _build_members(self, width: int) -> None:
        """Make the shared matrices of layers, and what each member has of its own."""
        self.kernels, self.input_factors, self.output_factors, self.biases = [], [], [], []
        for i, units in enumerate(self.hidden):
            # Signs tell the members apart from the start; the factors of later layers begin at one.
            start = RandomSigns() if i == 0 else "ones"
            self.kernels.append(self.add_weight(shape=(width, units), initializer="he_normal", name=f"kernel_{i}"))
            self.input_factors.append(
                self.add_weight(shape=(self.members, width), initializer=start, name=f"input_factors_{i}")
            )
            self.output_factors.append(
                self.add_weight(shape=(self.members, units), initializer="ones", name=f"output_factors_{i}")
            )
            self.biases.append(self.add_weight(shape=(self.members, units), initializer="zeros", name=f"biases_{i}"))
            width = units
        self.last_kernel = self.add_weight(
            shape=(self.members, width, self.outputs), initializer="zeros", name="last_kernel"
        )
        self.last_bias = self.add_weight(shape=(self.members, self.outputs), initializer="zeros", name="last_bias")

    def call(
        self, levels: Sequence[Level], masks: Masks | None = None, training: bool = False, seed: Tensor | None = None
    ) -> Tensor:
        """The outputs, [batch, outputs].

        Args:
            levels: The groups' vectors at each level, [batch, groups, D_k].
            masks: The factors of the interactions, [batch, D_k] at each level.
            training: Whether units are dropped, and normalized by the statistics of the batch.
            seed: Two integers, which decide what is dropped.

        Returns:
            What is added to the score of the pairs, [batch, outputs].

        """
        if self.members > 1:
            return ops.mean(self.member_outputs(levels, masks, training, seed), axis=1)
        x = self._input_vector(levels, masks)  # [batch, width]
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if self.normalize:
                x = self.norms[i](x, training=training)
            x = self._drop(ops.relu(x), i, training, seed)
        return self.last(x)

    def member_outputs(
        self, levels: Sequence[Level], masks: Masks | None = None, training: bool = False, seed: Tensor | None = None
    ) -> Tensor:
        """The outputs of each member; see `call`.

        Args:
            levels: The groups' vectors at each level, [batch, groups, D_k].
            masks: The factors of the interactions, [batch, D_k] at each level.
            training: Whether units are dropped.
            seed: Two integers, which decide what is dropped.

        Returns:
            [batch, members, outputs]; `call` returns their mean.

        """
        x = self._input_vector(levels, masks)[:, None, :]  # [batch, 1, width]
        for i, kernel in enumerate(self.kernels):
            width, units = kernel.shape
            rows = ops.reshape(x * self.input_factors[i], (-1, width))  # [batch * members, width]
            x = ops.reshape(ops.matmul(rows, kernel), (-1, self.members, units))
            x = ops.relu(x * self.output_factors[i] + self.biases[i])  # [batch, members, units]
            x = self._drop(x, i, training, seed)
        return ops.einsum("bmu,muo->bmo", x, self.last_kernel) + self.last_bias

    def _input_vector(self, levels: Sequence[Level], masks: Masks | None) -> Tensor:
        """The inputs side by side, [batch, width]."""
        parts: list[Tensor] = []
        for name in self.inputs:
            parts += INPUTS[name](levels, masks)
        return ops.concatenate(parts, axis=-1)

    def _drop(self, x: Tensor, layer: int, training: bool, seed: Tensor | None) -> Tensor:
        """Units of a layer, in training without those that are dropped."""
        if not training or not self.dropout:
            return x
        layer_seed = seed + tf.constant([0, SEED_STRIDE], tf.int64) * layer
        return tf.nn.experimental.stateless_dropout(x, self.dropout, layer_seed)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden": self.hidden,
            "inputs": self.inputs,
            "dropout": self.dropout,
            "normalize": self.normalize,
            "outputs": self.outputs,
            "members": self.members,
        }


@keras.saving.register_keras_serializable("feat2vec")
class RandomSigns(keras.initializers.Initializer):
    """Factors of -1 and 1, each as probable as the other."""

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> Tensor:
        """Draw the factors.

        Args:
            shape: The shape of the weight.
            dtype: Its type, that of Keras by default.

        Returns:
            The factors, of that shape.

        """
        # Of an initializer of Keras, whose seed is drawn as those of the other weights: by `set_random_seed`.
        return ops.sign(keras.initializers.RandomUniform(-1.0, 1.0)(shape, dtype or "float32"))


def vector_inputs(levels: Sequence[Level], masks: Masks | None = None) -> list[Tensor]:
    """The free vectors of each level side by side, [batch, groups * D_k]."""
    del masks  # of the interactions alone
    return [ops.reshape(level.free, (-1, level.free.shape[-2] * level.free.shape[-1])) for level in levels]


def interaction_inputs(levels: Sequence[Level], masks: Masks | None = None) -> list[Tensor]:
    """The interaction vector of the pairs that meet at each level, [batch, D_k]: all pairs less the dependent ones."""
    vectors = []
    for level in levels:
        if level.dependent is None:
            vectors.append(interaction(level.free))
        else:
            vectors.append(interaction(level.free + level.dependent) - interaction(level.dependent))
    if masks is None:
        return vectors
    return [vector * mask for vector, mask in zip(vectors, masks, strict=True)]


INPUTS: Mapping[str, Callable[[Sequence[Level], Masks | None], list[Tensor]]] = {
    "vectors": vector_inputs,
    "interactions": interaction_inputs,
}
