"""A run as a Keras model, and its batches: against `run.embed`, and through Keras' own training and files."""

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
from feat2vec.errors import UserError
from feat2vec.model import optimizers
from feat2vec.run import train
from feat2vec.space.keras_models import input_names

GROUPS: dict[str, Any] = {
    "who": {"column": "who", "extractor": {"type": "lookup", "gain": 0.5}},
    "the/row of tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "item_dropout": 0.5}},
    "title": {
        "column": "title",
        "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4, "widths": [2], "dropout": 0.5},
    },
    "row": {"column": "size", "extractor": {"type": "numeric", "hidden": [5]}},
}
QUIET: dict[str, Any] = {"verbose": 0, "shuffle": False}  # Keras warns of its own default, as `dataset` shuffles
KEYS = ["who", "the_row of tags", "title", "row_"]
MODELS: dict[str, dict[str, Any]] = {
    "fm": {"dim": 6, "bias": True},
    "rafm": {"ranks": [2, 6]},
    "truncate": {"ranks": [2, 6], "level_sharing": "truncate", "bias": True},
}


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    who = rng.zipf(1.3, rows) % 40
    return pa.table(
        {
            "who": [None if i % 7 == 3 else f"w{w}" for i, w in enumerate(who)],
            "tags": [[f"t{x % 20}" for x in rng.zipf(1.3, i % 4)] for i in range(rows)],
            "title": [f"the {rng.integers(6)} of {rng.integers(9)}" for _ in range(rows)],
            "size": rng.integers(0, 9, rows).astype(float),
            "price": who * 0.1,
            "odd": [bool(w % 2) for w in who],
            "kind": [("c", "a", "b", "b")[w % 4] for w in who],
        }
    )


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=() if name == "fm" else pytest.mark.slow) for name in MODELS]
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> feat2vec.Run:
    schema = {"version": 1, "model": MODELS[request.param], "groups": GROUPS, "training": {"epochs": 1}}
    return train(schema, table(300, 0), tmp_path_factory.mktemp("runs") / "run", quiet=True)


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
        found = encoder.predict(run.dataset(new, shuffle=False, batch_size=16), verbose=0)
        assert list(found) == [*KEYS, "row"] == [*input_names(list(GROUPS)), "row"]
        np.testing.assert_allclose(found["row"], run.embed(new, level=level), atol=1e-5)
        each = run.embed(new, level=level, by_group=True)
        for key, name in zip(KEYS, GROUPS, strict=True):
            np.testing.assert_allclose(found[key], each[name], atol=1e-6)
    some = run.encoder(groups=["title", "who"])
    found = some.predict(run.dataset(new, shuffle=False, groups=["title", "who"]), verbose=0)
    assert list(found) == ["who", "title", "row"]
    np.testing.assert_allclose(found["row"], run.embed(new, ["title", "who"]), atol=1e-5)
    assert encoder.compute_output_shape(dict.fromkeys(KEYS, (None, 1)))["row"] == encoder.output["row"].shape


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "keras"])
def test_gradients_reach_the_tables(run: feat2vec.Run, optimizer: str) -> None:
    model = with_head(run, trainable=True)
    chosen = keras.optimizers.Adam(0.02) if optimizer == "keras" else optimizers.named(optimizer, 0.05)
    model.compile(chosen, "mse")
    before, own = weights_of(model.get_layer("vectors")), weights_of(run.model)
    history = model.fit(run.dataset(table(300, 0), target="price", batch_size=64), epochs=3, **QUIET)
    assert history.history["loss"][-1] < 0.9 * history.history["loss"][0]
    after = weights_of(model.get_layer("vectors"))
    reached = [old != new for old, new in zip(before, after, strict=True)]
    assert all(reached)
    assert weights_of(run.model) == own  # the head has a copy


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


# --- labels ---------------------------------------------------------------------------------------------------------


def labels(data: Any) -> Any:
    return np.concatenate([label for _, label in data.as_numpy_iterator()])


def test_numbers_are_labels_as_they_are(run: feat2vec.Run) -> None:
    rows = table(100, 0)
    prices = run.dataset(rows, target="price", shuffle=False, batch_size=30)
    assert prices.class_names is None
    assert prices.cardinality().numpy() == 4
    assert labels(prices).dtype == np.float32
    np.testing.assert_allclose(labels(prices), rows["price"].to_numpy(), rtol=1e-6)
    np.testing.assert_array_equal(labels(run.dataset(rows, target="odd", shuffle=False)), rows["odd"].to_numpy())
    assert labels(run.dataset(rows.slice(0, 17), target="price", batch_size=1)).shape == (17,)


def test_shuffled_rows_keep_their_labels(run: feat2vec.Run) -> None:
    rows = table(100, 0).append_column("i", pa.array(range(100)))
    data = run.dataset(rows, target="i", batch_size=32)
    first, second = labels(data), labels(data)
    assert sorted(first) == sorted(second) == list(range(100))
    assert list(first) != list(second)
    in_order = run.embed(rows, ["who", "title"])
    encoder = run.encoder(groups=["who", "title"])
    for inputs, label in run.dataset(rows, target="i", batch_size=32, groups=["who", "title"]):
        np.testing.assert_allclose(encoder(inputs)["row"], in_order[label.numpy().astype(int)], atol=1e-5)


def test_text_becomes_classes(run: feat2vec.Run, tmp_path: Path) -> None:
    rows = table(100, 0)
    data = run.dataset(rows, target="kind", shuffle=False)
    counts = {name: rows["kind"].to_pylist().count(name) for name in ("a", "b", "c")}
    assert data.class_names == sorted(counts, key=lambda name: (-counts[name], name))
    assert labels(data).dtype == np.int32
    assert [data.class_names[i] for i in labels(data)] == rows["kind"].to_pylist()
    other = run.dataset(rows, target="kind", classes=["a", "b", "c"], shuffle=False)
    assert other.class_names == ["a", "b", "c"]
    assert ["abc"[i] for i in labels(other)] == rows["kind"].to_pylist()
    with pytest.raises(UserError, match=r"row [0-9]+: column 'kind' has none of the classes 'a', 'b'"):
        run.dataset(rows, target="kind", classes=["a", "b"])
    sizes = run.dataset(rows, target="size", groups=["who"], classes=True, shuffle=False)
    assert [float(sizes.class_names[i]) for i in labels(sizes)] == rows["size"].to_pylist()
    csv = tmp_path / "rows.csv"
    csv.write_text("who,size,kind\nw1,2.5,a\nw2,1,b\n")
    assert labels(run.dataset(csv, target="size", groups=["who"], shuffle=False)).tolist() == [2.5, 1]
    assert run.dataset(csv, target="kind", shuffle=False).class_names == ["a", "b"]
    model = keras.Model(
        (encoder := run.encoder()).input, keras.layers.Dense(3, activation="softmax")(encoder.output["row"])
    )
    model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"])
    assert model.fit(run.dataset(rows, target="kind"), epochs=2, **QUIET).history["accuracy"][-1] > 0


def test_what_is_no_target_is_said(run: feat2vec.Run) -> None:
    rows = table(10, 0)
    with pytest.raises(UserError, match="has no column 'prise' to be the target; did you mean 'price'"):
        run.dataset(rows, target="prise")
    with pytest.raises(UserError, match=r"'size' is also the group 'row'.*\nleave it out of both: run\.encoder"):
        run.dataset(rows, target="size")
    with pytest.raises(UserError, match=r"holds lists \(list<.*\); a target has one value a row"):
        run.dataset(rows, target="tags", groups=["who"])
    with pytest.raises(UserError, match=r"row 4: column 'who': received None"):
        run.dataset(rows, target="who", groups=["title"])
    with pytest.raises(UserError, match="row 2: column 'price'"):
        run.dataset(pa.table({"who": ["a", "b"], "price": [1.0, None]}), target="price")
    with pytest.raises(UserError, match="classes: expected True, False or a list of different names; received 'abc'"):
        run.dataset(rows, target="kind", classes="abc")
    with pytest.raises(UserError, match="batch_size: expected a whole number above 0; received 0"):
        run.dataset(rows, batch_size=0)
