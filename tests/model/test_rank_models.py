"""LR and MRMA beside the factorization machines, the levels of values, and the learning rate of dependent vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from feat2vec.model import optimizers
from feat2vec.model.dependent_rows import dependent_rows
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.vector_model import shapes_of
from tests import reference
from tests.model.planted_rows import GROUPS, LOOKUPS, TABLE, encoded, one_batch

LABEL: dict[str, Any] = {"objective": {"type": "logistic", "target": "label"}}
SEED = tf.constant([5, 6], tf.int64)
RANKS = (2, 3)
MODELS: dict[str, dict[str, Any]] = {
    "linear": {**LABEL, "model": {"pairs": False}, "training": {"l2_linear": 0.3}},
    "whole models": {
        **LABEL,
        "model": {"ranks": list(RANKS), "level_sharing": "all", "bias": True, "scale": 0.7},
        "training": {"l2": 0.2, "l2_linear": 0.3},
    },
}
Floats = npt.NDArray[np.float64]
Weights = Mapping[str, Floats]


def with_drawn_weights(case: Mapping[str, Any]) -> tuple[Feat2Vec, Any]:
    """A model whose weights are all drawn, and a batch of the whole table."""
    rows = encoded(dict(case), LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    batch = one_batch(model, rows)
    rng = np.random.default_rng(0)
    model.bias.assign(0.25)
    for extractor in model.extractors:
        extractor.linear.assign(rng.normal(size=extractor.linear.shape))
    return model, batch


def weights_of(model: Feat2Vec) -> dict[str, Floats]:
    """The weights in float64: of each group a table and linear terms, and the bias."""
    weights: dict[str, Floats] = {"bias": np.float64(model.bias.numpy()).reshape(1)}
    for name, extractor in zip(model.groups, model.extractors, strict=True):
        weights[f"{name}.table"] = extractor.tables[0].numpy().astype(np.float64)
        weights[f"{name}.linear"] = extractor.linear.numpy().astype(np.float64)
    return weights


def scores_of(weights: Weights, inputs: Any, ranks: tuple[int, ...]) -> Floats:
    """The scores of each whole model, [rows, models], item by item; of a linear model one."""
    splits = np.cumsum(ranks)[:-1]
    scores = []
    for r in range(len(TABLE)):
        row: reference.BagRow = []
        terms: dict[int, float] = {}
        for name in LOOKUPS:
            group = []
            for id_ in (int(i) for i in inputs[name][r].numpy() if i):
                vectors = np.split(weights[f"{name}.table"][id_ - 1], splits)
                item = reference.Item(len(ranks), 1.0, vectors)
                terms[id(item)] = float(weights[f"{name}.linear"][id_ - 1, 0])
                group.append(item)
            row.append(group)
        linear = reference.linear_score(row, float(weights["bias"][0]), terms)
        scores.append([linear + pairs for pairs in reference.whole_models(row, ranks)] or [linear])
    return np.array(scores)


def loss_of(weights: Weights, inputs: Any, case: Mapping[str, Any], ranks: tuple[int, ...]) -> float:
    """The mean loss of the models, each by itself, and L2 over the occurrences."""
    labels = TABLE["label"].to_numpy()[:, None]
    scores = scores_of(weights, inputs, ranks)
    loss = float(np.logaddexp(0, np.where(labels > 0, -scores, scores)).mean())
    for name in LOOKUPS:
        ids = inputs[name].numpy()
        rows = ids[ids > 0] - 1
        for part, key in (("table", "l2"), ("linear", "l2_linear")):
            l2 = case["training"].get(key, 0.0)
            loss += l2 / 2 * float((weights[f"{name}.{part}"][rows] ** 2).sum()) / len(TABLE)
    return loss


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("name", MODELS)
def test_scores_and_gradients_are_those_of_float64_loops_and_differences(name: str) -> None:
    case, ranks = MODELS[name], () if name == "linear" else RANKS
    model, (inputs, label) = with_drawn_weights(case)
    weights = weights_of(model)
    scores = scores_of(weights, inputs, ranks)
    np.testing.assert_allclose(model(inputs), scores.mean(axis=1), rtol=1e-4, atol=1e-5)
    loss, gradients = model.loss_and_gradients(inputs, label, None, SEED)
    assert float(loss) == pytest.approx(loss_of(weights, inputs, case, ranks), rel=1e-5)
    by_variable = {id(variable): tf.convert_to_tensor(gradient).numpy() for gradient, variable in gradients}
    variables = {"bias": model.bias}
    for group, extractor in zip(model.groups, model.extractors, strict=True):
        variables |= {f"{group}.table": extractor.tables[0], f"{group}.linear": extractor.linear}
    rng = np.random.default_rng(1)
    for key, variable in variables.items():
        if not weights[key].size:
            assert id(variable) not in by_variable  # vectors that a linear model does not have
            continue
        gradient = by_variable[id(variable)].reshape(weights[key].shape)
        for _ in range(3):
            place = tuple(int(rng.integers(size)) for size in weights[key].shape)
            losses = []
            for step in (1e-5, -1e-5):
                moved = {k: array.copy() for k, array in weights.items()}
                moved[key][place] += step
                losses.append(loss_of(moved, inputs, case, ranks))
            assert gradient[place] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=2e-3, abs=2e-6), (key, place)


def test_a_linear_model_has_bias_and_linear_terms_alone() -> None:
    rows = encoded({**LABEL, "model": {"pairs": False}})
    model = Feat2Vec.from_encoder(rows.encoder)
    trained = {variable.path: variable.shape for variable in model.trainable_variables if np.prod(variable.shape)}
    assert not any("table_1" in path or "head" in path for path in trained)
    for group, extractor in zip(model.groups, model.extractors, strict=True):
        if group in ("who", "tags"):
            assert extractor.params() == shapes_of(rows.encoder)[group].sizes[0]
    inputs, _ = one_batch(model, rows)
    before = model(inputs).numpy()
    model.extractors[model.groups.index("size")].linear.kernel.assign_add([[1.0]] * 3)  # a numeric group has one, too
    assert (model(inputs).numpy() != before).any()


def test_whole_models_are_as_large_as_all_of_them() -> None:
    sizes = []
    for options in ({"ranks": [2, 3], "level_sharing": "all"}, {"dim": 2}, {"dim": 3}):
        model = Feat2Vec.from_encoder(encoded({**LABEL, "model": options}, LOOKUPS).encoder)
        sizes.append(sum(model.params()))
    assert sizes[0] == sizes[1] + sizes[2]


def test_counts_decide_who_reaches_a_level() -> None:
    case = {**LABEL, "model": {"ranks": [2, 4, 16], "levels": {"counts": [10, 40]}}}
    rows = encoded(case, LOOKUPS)
    for name, shape in shapes_of(rows.encoder).items():
        vocabulary = rows.encoder.codecs[name].vocabulary
        assert vocabulary is not None
        counts = vocabulary.counts
        assert shape.sizes == (len(counts) + 1, int((counts >= 10).sum()), int((counts >= 40).sum()))


# --- the learning rate of dependent vectors ---------------------------------------------------------------------------


def stepped(dependent_rate: float | None, optimizer: str, groups: Mapping[str, Any], **training: Any) -> Feat2Vec:
    """A model after one step at a learning rate of 0.1."""
    options = {"optimizer": {"type": optimizer, "learning_rate": 0.1}, **training}
    if dependent_rate is not None:
        options["dependent_rate"] = dependent_rate
    rows = encoded({**LABEL, "model": {"ranks": [2, 3, 4], "scale": 0.5}, "training": options}, dict(groups))
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    model.learn_from(rows)
    inputs, label = one_batch(model, rows)
    model.train_step((inputs, label))
    return model


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("optimizer", optimizers.OPTIMIZERS)
@pytest.mark.parametrize("training", [{}, {"l2": 0.01, "l2_over": "tables"}], ids=["rows", "tables"])
def test_dependent_vectors_learn_at_a_rate_of_their_own(optimizer: str, training: dict[str, Any]) -> None:
    """Algorithm 1 with its two rates: one step from the same start, against the step at one rate."""
    groups = {name: GROUPS[name] for name in ("who", "tags", "size")}
    plain, slow = (stepped(rate, optimizer, groups, **training) for rate in (None, 0.025))
    start = Feat2Vec.from_encoder(plain.encoder)  # type: ignore[arg-type]
    dependent = {variable.path: range(variable.shape[0])[rows] for variable, rows in dependent_rows(slow)}
    steps = 0
    for before, one, other in zip(start.weights, plain.weights, slow.weights, strict=True):
        if not before.trainable or not len(before.shape):
            continue
        change, slow_change = one.numpy() - before.numpy(), other.numpy() - before.numpy()
        for row in range(before.shape[0]):
            share = 0.25 if row in dependent.get(other.path, ()) else 1.0
            np.testing.assert_allclose(slow_change[row], share * change[row], rtol=1e-3, atol=1e-7)
            steps += share < 1 and bool((change[row] != 0).any())
    assert steps > 10


def test_dependent_rows_are_those_of_values_of_higher_levels() -> None:
    rows = encoded({**LABEL, "model": {"ranks": [2, 4, 16]}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    slices = {(variable.path.split("/")[-2], variable.name): place for variable, place in dependent_rows(model)}
    assert not any(name == "table_3" for _, name in slices)
    for i, name in enumerate(LOOKUPS):
        vocabulary = rows.encoder.codecs[name].vocabulary
        assert vocabulary is not None
        levels = vocabulary.levels_in(model.schema.model.levels)
        first = slices[f"group_{i}", "table_1"]
        assert (first.start, first.stop) == (1, 1 + int((levels > 1).sum()))  # after the row of the unseen key
        second = slices[f"group_{i}", "table_2"]
        assert (second.start, second.stop) == (0, int((levels > 2).sum()))


def test_another_optimizer_has_no_dependent_rate() -> None:
    case = {**LABEL, "model": {"ranks": [2, 4]}, "training": {"dependent_rate": 0.1}}
    model = Feat2Vec.from_encoder(encoded(case, LOOKUPS).encoder)
    with pytest.raises(
        ValueError, match=r"`training\.dependent_rate` is for the optimizers of feat2vec\. Received: SGD"
    ):
        model.compile("sgd")
