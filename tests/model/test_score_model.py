"""A row's score against loops over items, and what training drops."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.vector_model import shapes_of
from feat2vec.schema.reading import read_schema
from tests import reference
from tests.model.planted_rows import CASES, GROUPS, LOOKUPS, TABLE, encoded, one_batch, with_options


@pytest.mark.parametrize("gains", [{}, {"who": 2.0, "tags": 0.5}])
@pytest.mark.parametrize(("ranks", "sharing"), [((5,), "separate"), ((1, 3, 6), "separate"), ((2, 4), "truncate")])
def test_scores_are_those_of_the_paper_item_by_item(
    ranks: tuple[int, ...], sharing: str, gains: dict[str, float]
) -> None:
    model_spec: dict[str, Any] = {"ranks": list(ranks), "bias": True, "level_sharing": sharing}
    rows = encoded({"model": model_spec, "objective": "nce"}, with_options(LOOKUPS, gain=gains))
    model = Feat2Vec.from_encoder(rows.encoder)
    model.bias.assign(0.25)
    for extractor in model.extractors:
        extractor.linear.assign(tf.random.stateless_normal(extractor.linear.shape, [1, 2]))
    inputs = one_batch(model, rows)[0]
    tables = [[t.numpy().astype(np.float64) for t in extractor.tables] for extractor in model.extractors]

    def item(group: int, id_: int) -> reference.Item:
        vectors = [
            t[id_ - 1 if k == 0 else id_ - 2] for k, t in enumerate(tables[group]) if k == 0 or 0 <= id_ - 2 < len(t)
        ]
        if sharing == "truncate":
            vectors = [np.concatenate(vectors[: k + 1]) for k in range(len(vectors))]
        return reference.Item(len(vectors), gains.get(list(LOOKUPS)[group], 1.0), vectors)

    expected = []
    for r in range(len(rows)):
        bags = [[item(g, int(i)) for i in inputs[name][r].numpy() if i] for g, name in enumerate(LOOKUPS)]
        linear = sum(
            float(model.extractors[g].linear.numpy()[int(i) - 1, 0])
            for g, name in enumerate(LOOKUPS)
            for i in inputs[name][r].numpy()
            if i
        )
        pairs = reference.truncated(bags, ranks) if sharing == "truncate" else reference.score(bags)
        expected.append(0.25 + linear + pairs)
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-4, atol=1e-5)


def test_items_are_dropped_in_training_alike_in_a_repeated_step_only() -> None:
    rate = {"who": 0.5, "tags": 0.5, "place": 0.5}
    rows = encoded({"objective": "nce", "model": {"dim": 4}}, with_options(LOOKUPS, item_dropout=rate))
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    inputs, _ = one_batch(model, rows)
    undropped, dropped, repeated = (model.extract(inputs, training) for training in (False, True, True))
    model.optimizer.iterations.assign_add(1)
    later = model.extract(inputs, True)

    def free(extracted: Any) -> list[Any]:
        return [group.levels[0].free.numpy() for group in extracted]

    lost = [(x != 0).any(1) & ~(y != 0).any(1) for x, y in zip(free(undropped), free(dropped), strict=True)]
    assert 0 < lost[0].mean() < 1
    present = (free(undropped)[0] != 0).any(1)  # `place` is in every row
    assert (lost[0] != lost[2])[present].any()  # each group has its own
    for x, y, z in zip(free(dropped), free(repeated), free(later), strict=True):
        np.testing.assert_array_equal(x, y)
        assert (x != z).any()


def test_parameters_are_the_active_factors() -> None:
    rows = encoded({"model": {"ranks": [2, 4, 16]}, "objective": "nce"}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    shapes = shapes_of(rows.encoder)
    expected = sum(rank * size for shape in shapes.values() for rank, size in zip((2, 4, 16), shape.sizes, strict=True))
    assert sum(model.params()) == expected
    for name, shape in shapes.items():
        vocabulary = rows.encoder.codecs[name].vocabulary
        assert vocabulary is not None
        level = vocabulary.table((2, 4, 16))["level"].to_numpy()
        assert shape.sizes == (len(level) + 1, int((level >= 2).sum()), int((level >= 3).sum()))


LEVELS: list[dict[str, Any]] = [
    {"dim": 16},
    {"ranks": [2, 4, 16]},
    {"ranks": [2, 4, 16], "dependents": "strict"},
    {"ranks": [2, 4, 16], "level_sharing": "truncate"},
]
GROUPS_TOGETHER: list[tuple[tuple[str, ...], list[list[str]]]] = [
    (("who", "place"), []),
    (("who", "tags", "place"), []),
    (("who", "size", "tags"), []),
    (("who", "place", "tags"), [["tags", "who"]]),
    (("who", "size", "place"), [["who", "size"]]),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("levels", "groups", "together"),
    [
        pytest.param(levels, *groups, marks=() if i == j % len(LEVELS) else pytest.mark.slow)  # each once
        for i, levels in enumerate(LEVELS)
        for j, groups in enumerate(GROUPS_TOGETHER)
    ],
)
def test_a_step_that_reads_each_key_once_is_the_plain_one(
    levels: dict[str, Any], groups: tuple[str, ...], together: list[list[str]]
) -> None:
    """The same loss and gradients, with masks, bags, and groups that are no lookups beside, or are added to others."""
    case = {
        "version": 1, "objective": {"type": "logistic", "target": "label"},
        "model": {"bias": True, "together": together, **levels},
        "groups": with_options({name: (GROUPS | LOOKUPS)[name] for name in groups}, combiner={"tags": "mean"}),
        "training": {"l2": 0.1, "interaction_dropout": 0.5},
    }  # fmt: skip
    rows = fit(read_schema(case), TABLE)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    assert model.is_keyed
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3).astype(np.float32))
    inputs, target = one_batch(model, rows)
    losses_and_gradients = []
    for keyed in (True, False):
        with pytest.MonkeyPatch.context() as patch, tf.GradientTape() as tape:
            patch.setattr(Feat2Vec, "is_keyed", keyed)
            loss = model.step_loss(inputs, target, None, tf.constant([1, 2], tf.int64), True)
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        losses_and_gradients.append([float(loss), *(tf.convert_to_tensor(gradient).numpy() for gradient in gradients)])
    for by_key, plain in zip(*losses_and_gradients, strict=True):
        np.testing.assert_allclose(by_key, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("levels", [{"dim": 4}, {"ranks": [2, 4, 16]}, {"ranks": [2, 4], "level_sharing": "truncate"}])
@pytest.mark.parametrize("is_keyed", [True, False])
def test_groups_together_make_no_pairs_with_each_other(
    levels: dict[str, Any], is_keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Feat2Vec, "is_keyed", is_keyed)
    together = [["place", "title"], ["size", "tags"]]
    case = {
        "version": 1, "objective": {"type": "regression", "target": "score"},
        "model": {"bias": True, "together": together, **levels},
        "groups": {name: (GROUPS | LOOKUPS)[name] for name in ("who", "tags", "title", "size", "place")},
    }  # fmt: skip
    rows = fit(read_schema(case), TABLE)
    model = Feat2Vec.from_encoder(rows.encoder)
    assert model.schema.partners == [("who",), ("size", "tags"), ("place", "title")]
    rng = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3).astype(np.float32))
    inputs, _ = one_batch(model, rows)
    vectors = {name: model.vectors(name, inputs[name]) for name in model.groups}
    expected = float(model.bias) + sum(group.linear.numpy().astype(float) for group in vectors.values())
    for name, other in itertools.combinations(vectors, 2):
        if any(name in some and other in some for some in together):
            continue
        for here, there in zip(vectors[name].levels, vectors[other].levels, strict=True):
            f, d, f_, d_ = (
                np.zeros_like(like) if part is None else part.numpy().astype(float)
                for group, like in ((here, here.free.numpy()), (there, there.free.numpy()))
                for part in group
            )
            if "level_sharing" in levels:
                f, d, f_, d_ = f + d, 0 * d, f_ + d_, 0 * d_
            expected = expected + (f * f_ + f * d_ + d * f_).sum(axis=1)
    scores = model.score(model.extract(inputs, keyed=model.is_keyed), training=False).scores[-1]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_steps_that_need_more_than_the_sum_of_pairs_are_not_keyed() -> None:
    label = {"objective": {"type": "logistic", "target": "label"}}
    cases: list[tuple[dict[str, Any], bool]] = [
        (label, True),
        ({**label, "head": {"type": "mlp"}}, False),
        ({"objective": {"type": "softmax", "target": "label"}}, False),
        ({"objective": {"type": "logistic", "target": "label", "implicit": "who"}}, False),
    ]
    for case, expected in cases:
        assert Feat2Vec.from_encoder(encoded(case, LOOKUPS).encoder).is_keyed == expected
    encoder = encoded(label, LOOKUPS).encoder
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert not Feat2Vec.from_encoder(encoder).is_keyed
    finally:
        keras.config.set_dtype_policy("float32")


def test_the_odds_of_losing_a_coordinate_are_in_proportion_to_the_rank() -> None:
    case = {
        "objective": {"type": "logistic", "target": "label"}, "model": {"ranks": [64, 128, 256]},
        "training": {"interaction_dropout": 0.75},
    }  # fmt: skip
    model = Feat2Vec.from_encoder(encoded(case, LOOKUPS).encoder)
    model.compile()
    masks = model.interaction_masks(192)
    assert masks is not None
    for mask, odds in zip(masks, (0.75, 1.5, 3.0), strict=True):
        kept = 1 / (1 + odds)
        values = mask.numpy()
        assert sorted(set(values.round(4).ravel())) == [0.0, pytest.approx(1 / kept, rel=1e-4)]
        assert (values > 0).mean() == pytest.approx(kept, abs=4 * np.sqrt(kept * (1 - kept) / values.size))


def test_unseen_values_and_absent_columns_are_scored() -> None:
    rows = encoded(CASES["nce, joint"])
    model = Feat2Vec.from_encoder(rows.encoder)
    new = rows.encoder.encode(pa.table({"who": ["nobody", "w1", None], "tags": [["t1", "x"], [], None]}))
    inputs = next(iter(model.dataset(new, shuffle=False)))[0]
    assert np.isfinite(model(inputs)).all()
    assert float(model(inputs)[2]) == pytest.approx(float(model.bias.numpy()))
