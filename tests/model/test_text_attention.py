"""A run whose texts are read by self-attention, and whose numbers start from components: written and loaded as any."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.sizes import least_weights
from tests.short_trainings import train

SCHEMA: dict[str, Any] = {
    "version": 1,
    "model": {"ranks": [2, 4]},
    "groups": {
        "title": {
            "column": "title",
            "extractor": {"type": "text_attention", "token_dim": 4, "heads": 2, "units": 3, "positions": "learned"},
        },
        "place": {"columns": ["x", "y"], "extractor": {"type": "numeric", "start": "pca"}},
        "who": {"column": "who"},
    },
    "training": {"validation": 0, "epochs": 2, "batch_size": 30},
}


def table() -> pa.Table:
    words = ["the", "war", "of", "sea", "roses"]
    titles = [" ".join(words[(i * k) % 5] for k in range(1, 2 + i % 6)) if i % 9 else None for i in range(60)]
    squares = [i * i for i in range(60)]
    return pa.table({"title": titles, "who": [f"w{i % 7}" for i in range(60)], "x": range(60), "y": squares})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    return train(SCHEMA, table(), tmp_path_factory.mktemp("runs") / "run", quiet=True)


@pytest.mark.slow
def test_a_run_is_loaded_with_the_weights_that_were_trained(run: feat2vec.Run) -> None:
    loaded = feat2vec.load(run.folder)
    np.testing.assert_array_equal(loaded.embed(table()), run.embed(table()))
    for weight, expected in zip(loaded.model.weights, run.model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())
    start = Feat2Vec.from_encoder(run.fitted).extractors[0].trainable_weights
    for weight, at_start in zip(run.model.extractors[0].trainable_weights, start, strict=True):
        assert (weight.numpy() != at_start.numpy()).any(), weight.path


def test_keras_loads_the_same_model(run: feat2vec.Run) -> None:
    model = keras.models.load_model(run.folder / "model.keras")
    for weight, expected in zip(model.weights, run.model.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


@pytest.mark.parametrize("extractor", ["text_attention", "text_cnn"])
def test_a_model_has_at_least_as_many_weights_as_are_expected_of_its_file(extractor: str) -> None:
    """Where a group's table of tokens is nearly all there is."""
    groups = {"title": {"column": "title", "extractor": extractor}, "who": {"column": "who"}}
    encoder = feat2vec.fit({"version": 1, "model": {"dim": 2}, "groups": groups}, table()).encoder
    held = sum(int(np.prod(weight.shape)) for weight in Feat2Vec.from_encoder(encoder).weights)
    assert least_weights(encoder) <= held
