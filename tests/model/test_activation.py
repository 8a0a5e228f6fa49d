"""Which keys have a vector: a model that leaves some out is the whole model with zeros in their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from feat2vec.encode.codecs import ItemsCodec
from feat2vec.encode.encoder import Encoded
from feat2vec.model.extractors import LookupExtractor, Shape
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import pieces
from feat2vec.model.remaining import Remaining, leave_out_vectors, remaining
from feat2vec.model.sizes import key_sizes, table_sizes
from feat2vec.space.geometry import candidates
from tests.model.planted_rows import GROUPS, LOOKUPS, UNTARGETED, encoded, one_batch, with_options

COUNT = 20  # of the keys of each group some are rarer
LABELLED: dict[str, Any] = {"objective": {"type": "logistic", "target": "label"}}
CASES: dict[str, dict[str, Any]] = {
    "count": {**LABELLED, "model": {"dim": 4, "bias": True, "activation": {"count": COUNT}}},
    "count and linear": {
        **LABELLED,
        "model": {"dim": 4, "bias": True, "activation": {"count": COUNT, "linear": True}},
        "training": {"l2": 0.1, "l2_linear": 0.1},
    },
    "linear": {**LABELLED, "model": {"dim": 4, "bias": True, "activation": {"count": 1, "linear": True}}},
    "no linear terms": {"objective": "nce", "model": {"dim": 4, "activation": {"count": COUNT}}},
    "ranks": {**LABELLED, "model": {"ranks": [2, 5], "bias": True, "activation": {"count": COUNT, "linear": True}}},
    "truncated": {
        "objective": "nce",
        "model": {"ranks": [2, 5], "level_sharing": "truncate", "bias": True, "activation": {"count": COUNT}},
    },
    "network": {
        **LABELLED,
        "model": {"dim": 4, "bias": True, "activation": {"count": COUNT, "linear": True}},
        "head": {"type": "mlp", "hidden": [4]},
    },
}
FAST = ("count and linear",)
BY_CASE = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in CASES]
)


def rows_of(name: str, **changes: Any) -> Encoded:
    case = {**CASES[name], **changes}
    weighted = {"who": "mean"} if name == "count and linear" else {}
    groups = with_options(UNTARGETED if case["objective"] == "nce" else GROUPS, combiner=weighted)
    return encoded(case, groups)


def without_activation(name: str) -> dict[str, Any]:
    return {key: value for key, value in CASES[name]["model"].items() if key != "activation"}


def lookups_of(model: Feat2Vec) -> list[LookupExtractor]:
    return [extractor for extractor in model.extractors if isinstance(extractor, LookupExtractor)]


def two_models(name: str) -> tuple[Feat2Vec, Feat2Vec, Encoded]:
    """A model that leaves keys out, and one that has zeros in place of their vectors; all else is the same."""
    rows = rows_of(name)
    model, whole = (
        Feat2Vec.from_encoder(rows_of(name, model=options).encoder)
        for options in (CASES[name]["model"], without_activation(name))
    )
    rng = np.random.default_rng(3)
    for variable, of_whole in zip(model.weights, whole.weights, strict=True):
        values = rng.normal(size=of_whole.shape).astype("float32")
        if "linear" in variable.path and len(values.shape) == 2:
            values[rng.random(len(values)) < 0.3] = 0
        of_whole.assign(values)
        variable.assign(values[: variable.shape[0]] if values.ndim else values)
    for extractor, of_whole in zip(lookups_of(model), lookups_of(whole), strict=True):
        for level, (table, whole_table) in enumerate(zip(extractor.tables, of_whole.tables, strict=True)):
            values = whole_table.numpy()
            values[table.shape[0] :] = 0
            if extractor.shape.needs_term:
                is_zero = extractor.linear.numpy()[:, 0] == 0
                values[is_zero[min(level, 1) :][: len(values)]] = 0
            whole_table.assign(values)
    return model, whole, rows


def gradients_of(model: Feat2Vec, rows: Encoded) -> tuple[float, dict[str, Any]]:
    inputs, truth, *weights = one_batch(model, rows)
    seed = tf.constant([1, 2], tf.int64)
    loss, pairs = model.loss_and_gradients(inputs, truth, weights[0] if weights else None, seed)
    return float(loss), {variable.path: tf.convert_to_tensor(gradient).numpy() for gradient, variable in pairs}


@pytest.mark.usefixtures("no_graphs")
@BY_CASE
def test_scores_losses_and_gradients_are_those_of_zeros_in_place_of_vectors(name: str) -> None:
    model, whole, rows = two_models(name)
    left_out = [extractor.leaves_keys_out for extractor in lookups_of(model)]
    assert any(left_out)
    for learner in (model, whole):
        learner.learn_from(rows)
    model.noise = whole.noise  # which draws groups by the number of their weights
    inputs = one_batch(model, rows)[0]
    np.testing.assert_allclose(model(inputs), whole(inputs), rtol=1e-4, atol=1e-4)
    (loss, gradients), (expected_loss, expected) = gradients_of(model, rows), gradients_of(whole, rows)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    assert set(gradients) == set(expected)
    for extractor, of_whole in zip(lookups_of(model), lookups_of(whole), strict=True):
        for table, whole_table in zip(extractor.tables, of_whole.tables, strict=True):
            if table.path not in gradients:
                continue
            gradient, has_vector = gradients.pop(table.path), np.any(whole_table.numpy() != 0, axis=1)
            kept = np.flatnonzero(has_vector)
            np.testing.assert_allclose(gradient[kept], expected.pop(table.path)[kept], rtol=1e-4, atol=1e-5)
            assert not gradient[~has_vector[: len(gradient)]].any()  # what is not read does not learn
    for path, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[path], rtol=1e-4, atol=1e-5, err_msg=path)


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("name", ["count and linear", pytest.param("ranks", marks=pytest.mark.slow)])
def test_vectors_by_key_are_those_of_rows(name: str) -> None:
    model, whole, rows = two_models(name)
    inputs = one_batch(whole, rows)[0]
    rows_by_key = model.score(
        [extractor.by_key(inputs[group]) for group, extractor in zip(model.groups, model.extractors, strict=True)],
        training=False,
    )
    for score, expected in zip(rows_by_key.scores, whole.submodels(inputs).scores, strict=True):
        np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-4)


def test_tables_end_after_the_keys_of_enough_rows() -> None:
    rows = rows_of("ranks")
    model = Feat2Vec.from_encoder(rows.encoder)
    for name in ("who", "tags"):
        codec = rows.encoder.codecs[name]
        assert isinstance(codec, ItemsCodec)
        counts = codec.vocabulary.counts
        enough = int((counts >= COUNT).sum())
        assert 0 < enough < len(counts)
        extractor = model.extractors[model.groups.index(name)]
        higher = min(int((counts**2 > 2 * 5).sum()), enough)  # eq. 17, and no more than have a vector
        assert [table.shape[0] for table in extractor.tables] == [enough + 1, higher]
        assert extractor.linear.shape[0] == len(counts) + 1
        assert table_sizes(codec, rows.encoder.schema) == (enough + 1, higher)
        assert key_sizes(codec, rows.encoder.schema) == (len(counts) + 1, higher)
    title = model.extractors[model.groups.index("title")]  # whose tokens all have vectors
    words = rows.encoder.codecs["title"].vocabulary
    assert words is not None
    assert title.tokens.shape[0] == len(words.keys) + 1


def test_a_shape_without_activation_is_saved_as_before_and_one_with_it_comes_back() -> None:
    assert Shape(2, (5, 3)).data() == [2, [5, 3], False]
    assert Shape.from_data([2, [5, 3], False]) == Shape(2, (5, 3))
    shape = Shape(2, (5, 3), False, 4, True)
    assert Shape.from_data(shape.data()) == shape
    model = Feat2Vec.from_encoder(rows_of("count and linear").encoder)
    again = Feat2Vec.from_config(model.get_config())
    again.build()
    assert again.shapes == model.shapes
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]


def test_the_vectors_of_keys_without_one_are_zeros() -> None:
    """Before they are written over, and after: what a space shows is what scores are made of."""
    model, whole, rows = two_models("count and linear")
    for name in ("who", "tags"):
        (vectors,) = candidates(model, rows.encoder, name).tables
        (expected,) = candidates(whole, rows.encoder, name).tables
        np.testing.assert_array_equal(vectors, expected)
    before = model(one_batch(whole, rows)[0]).numpy()
    leave_out_vectors(model)
    np.testing.assert_array_equal(model(one_batch(whole, rows)[0]), before)
    for extractor, of_whole in zip(lookups_of(model), lookups_of(whole), strict=True):
        (table,), (whole_table,) = extractor.tables, of_whole.tables
        np.testing.assert_array_equal(table.numpy(), whole_table.numpy()[: table.shape[0]])


def test_what_remains_is_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, rows = two_models("ranks")
    whole_counts = None
    for piece in (1 << 20, 64):
        monkeypatch.setattr("feat2vec.model.remaining.pieces", lambda variable, size=piece: pieces(variable, size))
        leave_out_vectors(model)
        counts = remaining(model)
        weights = [weight for weight in model.weights if weight is not model.answer_scale]
        assert counts.parameters == sum(np.count_nonzero(weight.numpy()) for weight in weights)
        assert counts.held == sum(weight.numpy().size for weight in weights)
        vocabularies = [rows.encoder.codecs[name].vocabulary for name in ("who", "tags")]
        assert counts.keys == sum(len(vocabulary.keys) for vocabulary in vocabularies if vocabulary is not None)
        tables = [extractor.tables[0].numpy()[1:] for extractor in lookups_of(model)]
        assert counts.vectors == sum(int(np.any(table != 0, axis=1).sum()) for table in tables)
        assert counts.terms == sum(np.count_nonzero(e.linear.numpy()[1:]) for e in lookups_of(model))
        assert 0 < counts.vectors < counts.terms < counts.keys
        assert whole_counts in (None, counts)
        whole_counts = counts


def test_what_remains_is_told() -> None:
    counts = Remaining(parameters=1_200, held=34_000, keys=900, vectors=30, terms=400)
    line = "1,200 of 34,000 weights are not zero: of 900 keys 30 have a vector, and 400 a linear term"
    assert str(counts) == line
    assert counts.metrics() == {
        "remaining_parameters": 1_200, "keys": 900, "keys_with_vector": 30, "keys_with_linear_term": 400,
    }  # fmt: skip


def test_where_every_key_has_enough_rows_nothing_is_left_out() -> None:
    model = {"dim": 4, "bias": True}
    plain, all_active = (
        Feat2Vec.from_encoder(encoded({**LABELLED, "model": options}, LOOKUPS).encoder)
        for options in (model, {**model, "activation": {"count": 2}})
    )
    assert not any(extractor.leaves_keys_out for extractor in lookups_of(all_active))
    for weight, expected in zip(all_active.weights, plain.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())
