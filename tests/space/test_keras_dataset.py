"""A table as batches for Keras models: labels, classes, and what is no target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from tests.space.keras_tables import QUIET, table


@pytest.fixture(scope="module")
def run(keras_run: feat2vec.Run) -> feat2vec.Run:
    return keras_run


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


@pytest.mark.slow
def test_text_becomes_classes(run: feat2vec.Run, tmp_path: Path) -> None:
    rows = table(100, 0)
    data = run.dataset(rows, target="kind", shuffle=False)
    counts = {name: rows["kind"].to_pylist().count(name) for name in ("a", "b", "c")}
    assert data.class_names == sorted(counts, key=lambda name: (-counts[name], name))
    assert labels(data).dtype == np.int32
    assert [data.class_names[i] for i in labels(data)] == rows["kind"].to_pylist()
    with_classes = run.dataset(rows, target="kind", classes=["a", "b", "c"], shuffle=False)
    assert with_classes.class_names == ["a", "b", "c"]
    assert ["abc"[i] for i in labels(with_classes)] == rows["kind"].to_pylist()
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
