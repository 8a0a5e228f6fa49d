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

Floats = npt.NDArray[np.float64]
SEED = tf.constant([1, 2], tf.int64)


def levels(rows: int = 5, groups: int = 3, dims: tuple[int, ...] = (2, 4)) -> list[Level]:
    rng = np.random.default_rng(0)
    made = [[rng.normal(size=(rows, groups, dim)).astype(np.float32) for _ in range(2)] for dim in dims]
    return [
        Level(tf.constant(free), tf.constant(low) if i < len(dims) - 1 else None) for i, (free, low) in enumerate(made)
    ]


def head(given: list[Level], **options: Any) -> MlpHead:
    whole = {"hidden": [4, 3], "inputs": ["vectors", "interactions"], "dropout": 0.0, "normalize": False, "outputs": 2}
    made = MlpHead(**{**whole, **options})
    made.build([level.free.shape for level in given])
    rng = np.random.default_rng(1)
    for weight in made.weights:
        weight.assign(
            rng.uniform(0.5, 1.5, weight.shape) if "variance" in weight.name else rng.normal(size=weight.shape)
        )
    return made


def inputs_loop(given: list[Level], names: list[str], row: int) -> list[float]:
    """The vectors of each level and group, then each coordinate of the pairs that meet at the level."""
    vectors = [float(x) for level in given for group in level.free.numpy()[row] for x in group]
    pairs = []
    for level in given:
        free = level.free.numpy()[row].astype(float)
        low = np.zeros_like(free) if level.dependent is None else level.dependent.numpy()[row].astype(float)
        for c in range(free.shape[1]):
            whole = free[:, c] + low[:, c]
            groups = range(len(free))
            pairs.append(sum(whole[i] * whole[j] - low[i, c] * low[j, c] for i in groups for j in groups if i < j))
    return [x for name in names for x in (vectors if name == "vectors" else pairs)]


def network_loop(made: MlpHead, x: Floats) -> Floats:
    weights = [
        (layer.kernel.numpy().astype(float), layer.bias.numpy().astype(float)) for layer in (*made.layers, made.last)
    ]
    for i, (kernel, bias) in enumerate(weights):
        x = x @ kernel + bias
        if i == len(weights) - 1:
            return x
        if made.normalize:
            norm = made.norms[i]
            gamma, beta, mean, variance = (getattr(norm, name).numpy().astype(float) for name in NORM)
            x = (x - mean) / np.sqrt(variance + norm.epsilon) * gamma + beta
        x = np.maximum(x, 0)
    return x


NORM = ("gamma", "beta", "moving_mean", "moving_variance")


@pytest.mark.parametrize("dims", [(4,), (2, 4)])
@pytest.mark.parametrize("names", [["vectors"], ["interactions"], ["interactions", "vectors"]])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_network_is_the_loop(dims: tuple[int, ...], names: list[str], normalize: bool) -> None:
    given = levels(dims=dims)
    made = head(given, inputs=names, normalize=normalize)
    found = made(given).numpy()
    expected = [network_loop(made, np.array(inputs_loop(given, names, row))) for row in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_interactions_add_up_to_the_pairs_score() -> None:
    given = levels(dims=(2, 4, 8))
    score = submodels(given, tf.zeros(5)).scores[-1]
    np.testing.assert_allclose(
        tf.reduce_sum(tf.concat(interaction_inputs(given), 1), axis=1), score, rtol=1e-5, atol=1e-5
    )


def test_masks_are_those_of_the_interaction_vector() -> None:
    given = levels(dims=(2, 4))
    made = head(given, inputs=["vectors", "interactions"])
    rng = np.random.default_rng(2)
    masks = [tf.constant(rng.integers(0, 2, (5, dim)) * 2.0, tf.float32) for dim in (2, 4)]
    found = made(given, masks).numpy()
    factors = np.concatenate([np.ones((5, 18)), *(mask.numpy() for mask in masks)], axis=1)
    inputs = np.array([inputs_loop(given, ["vectors", "interactions"], row) for row in range(5)]) * factors
    np.testing.assert_allclose(found, [network_loop(made, x) for x in inputs], rtol=1e-4, atol=1e-4)


def test_a_new_network_adds_nothing() -> None:
    given = levels()
    made = MlpHead([4], ["vectors"], 0.0, False, outputs=1)
    made.build([level.free.shape for level in given])
    assert not made(given).numpy().any()


def test_dropout_is_for_training_and_repeats_with_its_seed() -> None:
    given = levels(rows=64)
    made = head(given, dropout=0.5)
    plain, one, again = (made(given, training=mode, seed=SEED).numpy() for mode in (False, True, True))
    other = made(given, training=True, seed=SEED + 1).numpy()
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, plain)
    assert not np.array_equal(one, other)


def test_options_survive_saving() -> None:
    given = levels()
    made = head(given, hidden=[3], inputs=["interactions"], dropout=0.25, normalize=True, outputs=3)
    again = MlpHead.from_config(made.get_config())
    again.build([level.free.shape for level in given])
    again.set_weights(made.get_weights())
    np.testing.assert_array_equal(made(given), again(given))
    trained = (layer(given, training=True, seed=SEED).numpy() for layer in (made, again))
    np.testing.assert_array_equal(*trained)
    assert keras.saving.get_registered_object("feat2vec>MlpHead") is MlpHead
