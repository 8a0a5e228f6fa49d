"""A run as a Keras model: against `run.embed`, and through Keras' own training and files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.model import optimizers
from feat2vec.space.keras_models import input_names
from tests.space.keras_tables import GROUPS, QUIET, table

KEYS = ["who", "the_row of tags", "title", "row_"]


@pytest.fixture(scope="module")
def run(keras_run: feat2vec.Run) -> feat2vec.Run:
    return keras_run


def weights_of(model: Any) -> list[bytes]:
    return [weight.numpy().tobytes() for weight in model.weights if "seed" not in weight.path]


def with_head(run: feat2vec.Run, *, trainable: bool) -> Any:
    encoder = run.encoder(trainable=trainable)
    return keras.Model(encoder.input, keras.layers.Dense(1, name="head")(encoder.output["row"]))


def test_outputs_are_the_rows_vectors(run: feat2vec.Run) -> None:
    new = table(50, 1)
    for level in [None, *range(1, len(run.model.dims) + 1)]:
        encoder = run.encoder(level=level)
        assert isinstance(encoder, keras.Model)
        outputs = encoder.predict(run.dataset(new, shuffle=False, batch_size=16), verbose=0)
        assert list(outputs) == [*KEYS, "row"] == [*input_names(list(GROUPS)), "row"]
        np.testing.assert_allclose(outputs["row"], run.embed(new, level=level), atol=1e-5)
        group_vectors = run.embed(new, level=level, by_group=True)
        for key, name in zip(KEYS, GROUPS, strict=True):
            np.testing.assert_allclose(outputs[key], group_vectors[name], atol=1e-6)
    two_groups = run.encoder(groups=["title", "who"])
    outputs = two_groups.predict(run.dataset(new, shuffle=False, groups=["title", "who"]), verbose=0)
    assert list(outputs) == ["who", "title", "row"]
    np.testing.assert_allclose(outputs["row"], run.embed(new, ["title", "who"]), atol=1e-5)
    assert encoder.compute_output_shape(dict.fromkeys(KEYS, (None, 1)))["row"] == encoder.output["row"].shape


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "keras"])
def test_gradients_reach_the_tables(run: feat2vec.Run, optimizer: str) -> None:
    model = with_head(run, trainable=True)
    chosen = keras.optimizers.Adam(0.02) if optimizer == "keras" else optimizers.named(optimizer, 0.05)
    model.compile(chosen, "mse")
    before, weights_of_run = weights_of(model.get_layer("vectors")), weights_of(run.model)
    history = model.fit(run.dataset(table(300, 0), target="price", batch_size=64), epochs=3, **QUIET)
    assert history.history["loss"][-1] < 0.9 * history.history["loss"][0]
    after = weights_of(model.get_layer("vectors"))
    reached = [old != new for old, new in zip(before, after, strict=True)]
    assert all(reached)
    assert weights_of(run.model) == weights_of_run  # the head has a copy


def test_a_frozen_encoder_stays_as_it_is(run: feat2vec.Run) -> None:
    model = with_head(run, trainable=False)
    assert [weight.path.split("/")[0] for weight in model.trainable_variables] == ["head", "head"]
    model.compile("adam", "mse")
    before = weights_of(model.get_layer("vectors"))
    model.fit(run.dataset(table(300, 0), target="price", batch_size=64), epochs=2, **QUIET)
    assert weights_of(model.get_layer("vectors")) == before
    (inputs,) = run.dataset(table(20, 1), batch_size=20).take(1)
    frozen, learning = run.encoder(), run.encoder(trainable=True)
    np.testing.assert_array_equal(frozen(inputs, training=True)["row"], frozen(inputs)["row"])
    assert np.any(learning(inputs, training=True)["row"] != learning(inputs)["row"])  # dropout


def test_a_higher_level_learns_by_itself(run: feat2vec.Run) -> None:
    if len(run.model.dims) == 1:
        pytest.skip("one level")
    encoder = run.encoder(trainable=True, level=2)
    tables = encoder.get_layer("vectors").extractors[0].tables
    assert [table.trainable for table in tables] == [run.schema.model.level_sharing == "truncate", True]
    encoder.trainable = False
    assert not encoder.trainable_variables
    encoder.trainable = True
    assert [table.trainable for table in tables] == [run.schema.model.level_sharing == "truncate", True]


def test_only_the_rows_of_a_batch_move(run: feat2vec.Run) -> None:
    model = with_head(run, trainable=True)
    model.compile(optimizers.named("adagrad", 0.1), "mse")
    tables = model.get_layer("vectors").extractors[0].tables
    before = tables[0].numpy()
    row = {"who": ["w1"], "price": [9.0]}
    model.fit(run.dataset(pa.table(row), target="price"), **QUIET)
    vocabulary = run.fitted.codecs["who"].vocabulary
    assert vocabulary is not None
    moved = np.flatnonzero(np.any(tables[0].numpy() != before, axis=1))
    assert moved.tolist() == [vocabulary.key_to_id["w1"] - 1]


@pytest.mark.slow
def test_a_model_with_a_head_is_saved_and_loaded(run: feat2vec.Run, tmp_path: Path) -> None:
    model = with_head(run, trainable=True)
    model.compile(optimizers.named("adam", 0.05), "mse")
    rows = run.dataset(table(100, 0), target="price", shuffle=False, batch_size=50)
    model.fit(rows, **QUIET)
    model.save(tmp_path / "head.keras")
    expected = model.predict(rows, verbose=0)
    loaded = keras.models.load_model(tmp_path / "head.keras")
    np.testing.assert_array_equal(loaded.predict(rows, verbose=0), expected)
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    with_head(run, trainable=False).save(tmp_path / "frozen.keras")
    frozen = keras.models.load_model(tmp_path / "frozen.keras")
    assert [weight.path.split("/")[0] for weight in frozen.trainable_variables] == ["head", "head"]
    if run.schema.model.ranks is None:  # in a new process, `import feat2vec.keras` is enough
        code = "import sys, feat2vec.keras, keras; print(keras.models.load_model(sys.argv[1]).count_params())"
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "head.keras")], capture_output=True, text=True
        )
        assert done.stdout.strip() == str(model.count_params()), done.stderr
