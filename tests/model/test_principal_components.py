"""Principal components against their definition, scikit-learn and the optimum of a linear autoencoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
from sklearn.decomposition import PCA

import feat2vec
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.value_tables import Values
from feat2vec.errors import UserError
from feat2vec.model import principal_components as module
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.principal_components import principal_components
from feat2vec.writing import CHECKPOINT, partial_folder
from tests import reference
from tests.short_trainings import train

ROWS, WIDTH = 90, 6


def rows_of_numbers(rank: int = WIDTH) -> Any:
    """Rows [ROWS, WIDTH] around another point than 0, some of them equal, with a variance of their own on each axis."""
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(ROWS, rank)) * np.arange(1, rank + 1) @ rng.normal(size=(rank, WIDTH)) + 3
    numbers[60:] = numbers[:30]
    return numbers.astype(np.float32).astype(np.float64)


def table(rank: int = WIDTH) -> pa.Table:
    numbers = rows_of_numbers(rank)
    vectors = [list(row) if i % 10 else None for i, row in enumerate(numbers)]
    columns = {f"n{i}": numbers[:, i] for i in range(WIDTH)}
    keys = [f"k{i % 7}" for i in range(ROWS)]
    return pa.table({"vector": pa.array(vectors, pa.list_(pa.float32(), WIDTH)), "key": keys, **columns})


def schema(**model: Any) -> dict[str, Any]:
    numeric = {"type": "numeric", "scale": "none", "start": "pca"}
    return {
        "version": 1,
        "model": model,
        "groups": {
            "vector": {"column": "vector", "extractor": {"type": "vector", "start": "pca"}},
            "numbers": {"columns": [f"n{i}" for i in range(WIDTH)], "extractor": numeric},
            "key": {"column": "key"},
        },
        "training": {"validation": 0, "epochs": 2, "batch_size": 30},
    }


def started(encoded: Encoded) -> Feat2Vec:
    model = Feat2Vec.from_encoder(encoded.encoder)
    model.learn_from(encoded)
    return model


def vectors_of(model: Feat2Vec, group: str, rows: Any) -> list[Any]:
    """The vectors at each level."""
    levels = model.vectors(group, rows.astype(np.float32)).levels
    return [np.asarray(level.free if level.dependent is None else level.dependent) for level in levels]


def test_components_are_those_of_the_covariance_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = rows_of_numbers()
    distinct, counts = np.unique(numbers.astype(np.float32), axis=0, return_counts=True)
    mean, covariance = reference.covariance(list(numbers))
    for size in (7 * WIDTH, 1 << 20):
        monkeypatch.setattr(module, "NUMBERS_PER_PIECE", size)
        components = principal_components(Values(distinct, counts), 4)
        np.testing.assert_allclose(components.mean, mean, rtol=1e-12)
        variances = np.linalg.eigvalsh(covariance)[::-1][:4]
        np.testing.assert_allclose(components.variances, variances, rtol=1e-10)
        np.testing.assert_allclose(covariance @ components.axes, components.axes * variances, atol=1e-9)
        np.testing.assert_allclose(components.axes.T @ components.axes, np.eye(4), atol=1e-12)
        assert (components.axes[np.abs(components.axes).argmax(axis=0), np.arange(4)] > 0).all()


def test_rows_that_are_left_out_count_for_nothing() -> None:
    numbers = rows_of_numbers().astype(np.float32)
    counts = np.r_[np.ones(60, np.int64), np.zeros(30, np.int64)]
    some, whole = (
        principal_components(Values(numbers, counts), 3),
        principal_components(Values(numbers[:60], counts[:60]), 3),
    )
    np.testing.assert_allclose(some.axes, whole.axes, atol=1e-12)
    np.testing.assert_allclose(some.variances, whole.variances, rtol=1e-12)


@pytest.mark.parametrize("group", ["vector", "numbers"])
def test_started_vectors_are_those_of_scikit_learn_by_one_factor(group: str) -> None:
    model = started(feat2vec.fit(schema(dim=4, scale=0.3), table()))
    rows = rows_of_numbers()
    if group == "vector":
        rows = rows[np.arange(ROWS) % 10 > 0]  # the others have none
    (vectors,) = vectors_of(model, group, rows)
    expected = PCA(4).fit_transform(rows)
    expected *= np.sign((expected * vectors).sum(axis=0))
    expected *= 0.3 / np.sqrt(np.square(expected).mean())
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert np.sqrt(np.square(vectors).mean()) == pytest.approx(0.3, rel=1e-5)


def test_the_start_is_the_optimum_of_a_linear_autoencoder() -> None:
    rows = list(rows_of_numbers())
    model = started(feat2vec.fit(schema(dim=2), table()))
    kernel = model.extractors[1].heads[0].get_weights()[0].astype(np.float64)  # [WIDTH, 2]
    kernel /= np.linalg.norm(kernel, axis=0)
    left_out = np.linalg.eigvalsh(reference.covariance(rows)[1])[:-2].sum()
    error = reference.reconstruction_error(rows, kernel)
    assert error == pytest.approx(left_out, rel=1e-6)
    rng, step = np.random.default_rng(0), 1e-4
    for _ in range(20):
        direction = rng.normal(size=kernel.shape)
        ends = [reference.reconstruction_error(rows, kernel + sign * step * direction) for sign in (1, -1)]
        assert abs(ends[0] - ends[1]) / (2 * step) < 1e-3 * error  # no slope
        assert min(ends) > error  # and a minimum
        assert reference.reconstruction_error(rows, direction) > error


@pytest.mark.parametrize("sharing", ["separate", "truncate"])
def test_levels_have_the_first_components(sharing: str) -> None:
    model = started(feat2vec.fit(schema(ranks=[2, 5], level_sharing=sharing, scale=1.0), table()))
    rows = rows_of_numbers()
    first, second = vectors_of(model, "numbers", rows)
    if sharing == "truncate":  # the second level adds to the first
        assert second.shape == (ROWS, 3)
        second = np.concatenate([first, second], axis=1)
    else:
        assert np.sqrt(np.square(first).mean()) == pytest.approx(1.0, rel=1e-5)
    expected = PCA(5).fit_transform(rows)
    for vectors in (first, second):
        some = expected[:, : vectors.shape[1]] * np.sign((expected[:, : vectors.shape[1]] * vectors).sum(axis=0))
        np.testing.assert_allclose(vectors / np.linalg.norm(vectors), some / np.linalg.norm(some), atol=1e-5)
    assert np.sqrt(np.square(second).mean()) == pytest.approx(1.0, rel=1e-5)


def test_where_components_are_fewer_than_dimensions_the_rest_is_zero() -> None:
    model = started(feat2vec.fit(schema(dim=8), table(rank=2)))
    (vectors,) = vectors_of(model, "numbers", rows_of_numbers(rank=2))
    assert vectors[:, :2].std(axis=0).min() > 0.01
    assert not vectors[:, 2:].any()


def test_numbers_that_are_all_equal_have_no_components() -> None:
    values = Values(np.full((1, 3), 0.1, np.float32), np.array([7]))
    assert principal_components(values, 2).axes.shape == (3, 0)
    constant = table().set_column(2, "n0", pa.array([0.1] * ROWS))
    model = started(feat2vec.fit(schema(dim=8), constant))
    assert np.isfinite(vectors_of(model, "numbers", rows_of_numbers())[0]).all()


def test_a_map_that_was_trained_stays_as_it_is() -> None:
    encoded = feat2vec.fit(schema(dim=3), table())
    model = started(encoded)
    head = model.extractors[0].heads[0]
    moved = [weight + 1 for weight in head.get_weights()]
    head.set_weights(moved)
    model.learn_from(encoded)
    for weight, expected in zip(head.get_weights(), moved, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_vectors_too_wide_for_their_covariance_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NUMBERS", 5)
    with pytest.raises(UserError) as caught:
        started(feat2vec.fit(schema(dim=3), table()))
    assert caught.value.problems == (
        "groups.vector: `start: pca` takes the covariance of at most 5 numbers; 6 are given",
        "remove it, or give shorter vectors",
    )


class Killed(keras.callbacks.Callback):
    """Ends the training after its first epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        if epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_that_started_so_is_loaded_and_resumed_to_the_same_numbers(tmp_path: Path) -> None:
    run = train(schema(dim=4), table(), tmp_path / "run", quiet=True)
    np.testing.assert_array_equal(run.embed(table()), feat2vec.load(tmp_path / "run").embed(table()))
    with pytest.raises(KeyboardInterrupt):
        train(schema(dim=4), table(), tmp_path / "killed", quiet=True, callbacks=[Killed()])
    assert (partial_folder(tmp_path / "killed") / CHECKPOINT).exists()
    resumed = train(schema(dim=4), table(), tmp_path / "killed", quiet=True, resume=True)
    np.testing.assert_array_equal(resumed.embed(table()), run.embed(table()))
