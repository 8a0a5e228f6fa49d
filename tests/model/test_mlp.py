"""The head's network, against loops."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from feat2vec.model.mlp import MlpHead, interaction_inputs
from feat2vec.model.pair_scores import Level, submodels
from tests import reference

Floats = npt.NDArray[np.float64]
SEED = tf.constant([1, 2], tf.int64)


def levels(rows: int = 5, groups: int = 3, dims: tuple[int, ...] = (2, 4)) -> list[Level]:
    rng = np.random.default_rng(0)
    vectors = [[rng.normal(size=(rows, groups, dim)).astype(np.float32) for _ in range(2)] for dim in dims]
    return [
        Level(tf.constant(free), tf.constant(low) if i < len(dims) - 1 else None)
        for i, (free, low) in enumerate(vectors)
    ]


def head(level_inputs: list[Level], **options: Any) -> MlpHead:
    defaults = {
        "hidden": [4, 3],
        "inputs": ["vectors", "interactions"],
        "dropout": 0.0,
        "normalize": False,
        "outputs": 2,
    }
    layer = MlpHead(**{**defaults, **options})
    layer.build([level.free.shape for level in level_inputs])
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        weight.assign(
            rng.uniform(0.5, 1.5, weight.shape) if "variance" in weight.name else rng.normal(size=weight.shape)
        )
    return layer


def inputs_loop(all_levels: list[Level], names: list[str], row: int) -> list[float]:
    """The vectors of each level and group, then each coordinate of the pairs that meet at the level."""
    vectors = [float(x) for level in all_levels for group in level.free.numpy()[row] for x in group]
    pairs = []
    for level in all_levels:
        free = level.free.numpy()[row].astype(float)
        low = np.zeros_like(free) if level.dependent is None else level.dependent.numpy()[row].astype(float)
        for c in range(free.shape[1]):
            both = free[:, c] + low[:, c]
            groups = range(len(free))
            pairs.append(sum(both[i] * both[j] - low[i, c] * low[j, c] for i in groups for j in groups if i < j))
    return [x for name in names for x in (vectors if name == "vectors" else pairs)]


def network_loop(layer: MlpHead, x: Floats) -> Floats:
    weights = [
        (layer.kernel.numpy().astype(float), layer.bias.numpy().astype(float)) for layer in (*layer.layers, layer.last)
    ]
    for i, (kernel, bias) in enumerate(weights):
        x = x @ kernel + bias
        if i == len(weights) - 1:
            return x
        if layer.normalize:
            norm = layer.norms[i]
            gamma, beta, mean, variance = (getattr(norm, name).numpy().astype(float) for name in NORM)
            x = (x - mean) / np.sqrt(variance + norm.epsilon) * gamma + beta
        x = np.maximum(x, 0)
    return x


NORM = ("gamma", "beta", "moving_mean", "moving_variance")


@pytest.mark.parametrize("dims", [(4,), (2, 4)])
@pytest.mark.parametrize("names", [["vectors"], ["interactions"], ["interactions", "vectors"]])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_network_is_the_loop(dims: tuple[int, ...], names: list[str], normalize: bool) -> None:
    level_inputs = levels(dims=dims)
    layer = head(level_inputs, inputs=names, normalize=normalize)
    outputs = layer(level_inputs).numpy()
    expected = [network_loop(layer, np.array(inputs_loop(level_inputs, names, row))) for row in range(5)]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_interactions_add_up_to_the_pairs_score() -> None:
    level_inputs = levels(dims=(2, 4, 8))
    score = submodels(level_inputs, tf.zeros(5)).scores[-1]
    np.testing.assert_allclose(
        tf.reduce_sum(tf.concat(interaction_inputs(level_inputs), 1), axis=1), score, rtol=1e-5, atol=1e-5
    )


def test_masks_are_those_of_the_interaction_vector() -> None:
    level_inputs = levels(dims=(2, 4))
    layer = head(level_inputs, inputs=["vectors", "interactions"])
    rng = np.random.default_rng(2)
    masks = [tf.constant(rng.integers(0, 2, (5, dim)) * 2.0, tf.float32) for dim in (2, 4)]
    outputs = layer(level_inputs, masks).numpy()
    factors = np.concatenate([np.ones((5, 18)), *(mask.numpy() for mask in masks)], axis=1)
    inputs = np.array([inputs_loop(level_inputs, ["vectors", "interactions"], row) for row in range(5)]) * factors
    np.testing.assert_allclose(outputs, [network_loop(layer, x) for x in inputs], rtol=1e-4, atol=1e-4)


def test_a_new_network_adds_nothing() -> None:
    level_inputs = levels()
    layer = MlpHead([4], ["vectors"], 0.0, False, outputs=1)
    layer.build([level.free.shape for level in level_inputs])
    assert not layer(level_inputs).numpy().any()


def test_dropout_is_for_training_and_repeats_with_its_seed() -> None:
    level_inputs = levels(rows=64)
    layer = head(level_inputs, dropout=0.5)
    plain, dropped, repeated = (layer(level_inputs, training=mode, seed=SEED).numpy() for mode in (False, True, True))
    with_another_seed = layer(level_inputs, training=True, seed=SEED + 1).numpy()
    np.testing.assert_array_equal(dropped, repeated)
    assert not np.array_equal(dropped, plain)
    assert not np.array_equal(dropped, with_another_seed)


@pytest.mark.parametrize("outputs", [1, 3])
def test_members_are_the_loop(outputs: int) -> None:
    level_inputs = levels()
    layer = head(level_inputs, members=3, inputs=["vectors"], outputs=outputs)
    names = ("kernels", "input_factors", "output_factors", "biases")
    shared = [dict(zip(("kernel", *names[1:]), weights, strict=True)) for weights in zip(
        *([weight.numpy() for weight in getattr(layer, name)] for name in names), strict=True
    )]  # fmt: skip
    last = {"kernel": layer.last_kernel.numpy(), "bias": layer.last_bias.numpy()}
    expected = [
        reference.ensemble_of_networks(inputs_loop(level_inputs, ["vectors"], row), shared, last) for row in range(5)
    ]
    np.testing.assert_allclose(layer.member_outputs(level_inputs), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(layer(level_inputs), np.mean(expected, axis=1), rtol=1e-4, atol=1e-4)


def test_members_begin_with_signs_of_their_own() -> None:
    level_inputs, made = levels(), []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        layer = MlpHead([4], ["vectors"], 0.0, False, outputs=1, members=5)
        layer.build([level.free.shape for level in level_inputs])
        made.append([weight.numpy() for weight in layer.weights])
    for first, second in zip(*made, strict=True):
        np.testing.assert_array_equal(first, second)
    signs = layer.input_factors[0].numpy()
    assert set(signs.ravel()) == {-1.0, 1.0}
    assert len(np.unique(signs, axis=0)) == 5
    assert not layer(level_inputs).numpy().any()
    restored = MlpHead.from_config(layer.get_config())
    restored.build([level.free.shape for level in level_inputs])
    restored.set_weights(layer.get_weights())
    assert restored.members == 5


def test_options_survive_saving() -> None:
    level_inputs = levels()
    original = head(level_inputs, hidden=[3], inputs=["interactions"], dropout=0.25, normalize=True, outputs=3)
    restored = MlpHead.from_config(original.get_config())
    restored.build([level.free.shape for level in level_inputs])
    restored.set_weights(original.get_weights())
    np.testing.assert_array_equal(original(level_inputs), restored(level_inputs))
    trained = (layer(level_inputs, training=True, seed=SEED).numpy() for layer in (original, restored))
    np.testing.assert_array_equal(*trained)
    assert keras.saving.get_registered_object("feat2vec>MlpHead") is MlpHead
