"""Groups that share an extractor: one table or network, read once a step, with the gradients of both groups."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf
import yaml

import feat2vec
from feat2vec.encode.encoded_rows import Encoded
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.many_groups import ENTRIES
from feat2vec.model.optimizers import OPTIMIZERS, Rows
from feat2vec.model.vector_model import SeedOf, shapes_of
from feat2vec.schema.reading import read_schema
from tests import reference
from tests.model.test_many_groups import trained
from tests.model.test_noise_loss import noise_loss_loop

ROWS = 30
SEED = tf.constant([3, 5], tf.int64)
LOGISTIC: dict[str, dict[str, Any]] = {
    "objective": {"type": "logistic", "target": "won"},
    "model": {"dim": 3, "bias": True, "scale": 0.5},
}


def column(rng: np.random.Generator, keys: str) -> list[str | None]:
    return [None if i % 9 == 0 else keys[min(int(key) - 1, len(keys) - 1)] for i, key in enumerate(rng.zipf(1.4, ROWS))]


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    words = ["one", "two", "three", "four"]
    texts = [[" ".join(rng.choice(words, 1 + i % 3)) for i in range(ROWS)] for _ in range(2)]
    numbers = rng.normal(size=(2, ROWS, 2))
    return pa.table(
        {
            "home": column(rng, "abcde"), "away": column(rng, "badfgh"), "place": column(rng, "xyz"),
            "now": texts[0], "next": texts[1], "won": rng.integers(0, 2, ROWS),
            "bag": [list("abc"[: i % 4]) for i in range(ROWS)], "other": [list("cda"[: i % 3]) for i in range(ROWS)],
            "size": numbers[0, :, 0], "width": numbers[1, :, 0],
            "image": list(numbers[0]), "picture": list(numbers[1]),
        }
    )  # fmt: skip


TABLE = table()
TEAMS = {"away": {"column": "away", "share": "home"}, "place": {"column": "place"}, "home": {"column": "home"}}
SPECS: dict[str, tuple[str, str, Any]] = {  # the two columns, and the extractor
    "keys": ("home", "away", "lookup"),
    "bags": ("bag", "other", {"multi": True, "combiner": "mean", "gain": 2.0}),
    "bins": ("size", "width", {"bins": 4}),
    "tokens": ("now", "next", {"type": "text_cnn", "token_dim": 3, "filters": 2, "widths": [1, 2]}),
    "attention": ("now", "next", {"type": "text_attention", "token_dim": 4, "heads": 2, "max_tokens": 4}),
    "numbers": ("size", "width", {"type": "numeric", "hidden": [3]}),
    "vectors": ("image", "picture", "vector"),
}


def fitted(case: dict[str, Any], groups: dict[str, Any] | None = None) -> Encoded:
    training = {"batch_size": ROWS, **case.get("training", {})}
    return feat2vec.fit({"version": 1, "groups": groups or TEAMS, **case, "training": training}, TABLE)


def batch_of(model: Feat2Vec, rows: Encoded, groups_at_once: bool = False) -> Any:
    if model.training_rows is None:
        model.learn_from(rows)
    batches = model.batches(rows, shuffle=False, groups_at_once=groups_at_once)
    return next(iter(batches.dataset()))


def dense(gradient: Any, shape: Any) -> npt.NDArray[Any]:
    """A gradient as an array of the variable's shape, whose rows are the sums of those with one id."""
    if not isinstance(gradient, tf.IndexedSlices):
        return np.asarray(gradient)
    array = np.zeros(tuple(shape))
    np.add.at(array, gradient.indices.numpy(), gradient.values.numpy())
    return array


def gradients_of(model: Feat2Vec, inputs: Any, truth: Any) -> tuple[float, dict[int, npt.NDArray[Any]]]:
    """The loss, and the gradient of each variable by its id."""
    loss, pairs = model.loss_and_gradients(inputs, truth, None, SEED)
    return float(loss), {id(variable): dense(gradient, variable.shape) for gradient, variable in pairs}


# --- the loss and its gradient --------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups_at_once", [False, True], ids=["by group", "at once"])
def test_two_groups_read_one_table_as_a_loop_does(groups_at_once: bool) -> None:
    """Loss and gradients of vectors and linear terms, against float64 loops and finite differences."""
    rows = fitted({**LOGISTIC, "training": {"l2": 0.3}})
    model = Feat2Vec.from_encoder(rows.encoder)
    home, place = model.extractors[2], model.extractors[1]
    assert model.extractors[0] is home
    for extractor in (home, place):
        extractor.linear.assign(np.random.default_rng(1).normal(size=extractor.linear.shape))
    inputs, labels = batch_of(model, rows, groups_at_once)
    assert (ENTRIES in inputs) == groups_at_once
    loss, gradients = gradients_of(model, inputs, labels)

    by_group, _ = batch_of(model, rows)
    ids = np.concatenate([by_group[name] for name in model.groups], axis=1)  # [rows, groups]
    keys = [[int(i) - 1 if i else None for i in row] for row in ids]
    tables = [extractor.tables[0].numpy().astype(float) for extractor in (home, place)]
    terms = [extractor.linear.numpy().astype(float)[:, 0] for extractor in (home, place)]
    tied = reference.SharedTables([0, 1, 0], tables, terms, float(model.bias))

    def expected() -> float:
        return reference.shared_log_loss(keys, labels.numpy().tolist(), tied, 0.3)

    assert loss == pytest.approx(expected(), rel=1e-5)
    for extractor, vectors, linear in zip((home, place), tables, terms, strict=True):
        slopes = reference.central_differences(expected, vectors)
        np.testing.assert_allclose(gradients[id(extractor.tables[0])], slopes, rtol=1e-3, atol=1e-6)
        slopes = reference.central_differences(expected, linear)
        np.testing.assert_allclose(gradients[id(extractor.linear)][:, 0], slopes, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("objective", "noise", "model"),
    [
        ("nce", {"negatives": 2}, {"dim": 1}),
        pytest.param(
            {"type": "contrastive", "unit": True},
            {"sharing": "batch", "negatives": 3},
            {"dim": 2},
            marks=pytest.mark.slow,
        ),
        ("nce", {"negatives": 2, "joint": [["home", "away"]]}, {"ranks": [1, 3]}),
    ],
    ids=["nce", "contrastive", "joint, ranks"],
)
def test_noise_of_groups_with_one_table_is_that_of_a_loop(objective: Any, noise: Any, model: dict[str, Any]) -> None:
    rows = fitted({"objective": objective, "noise": noise, "model": {"scale": 0.5, **model}})
    tied = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = batch_of(tied, rows)
    loss, gradients = gradients_of(tied, inputs, ids)
    arrays = {
        id(extractor): [part.numpy().astype(float) for part in extractor.tables]
        for extractor in tied.distinct_extractors()
    }
    tables = [arrays[id(extractor)] for extractor in tied.extractors]

    def expected() -> float:
        return noise_loss_loop(tied, inputs, ids, SEED, tables)

    assert loss == pytest.approx(expected(), rel=1e-4)
    if "ranks" in model:  # of lower levels some parts learn nothing from some losses: that is of other tests
        return
    for extractor in tied.distinct_extractors():
        (part,) = arrays[id(extractor)]
        slopes = reference.central_differences(expected, part, 1e-4)
        np.testing.assert_allclose(gradients[id(extractor.tables[0])], slopes, rtol=2e-3, atol=2e-5)


def untied(model: Feat2Vec, rows: Encoded) -> Feat2Vec:
    """A model of the same encoder whose groups have an extractor each, with equal weights."""
    data = yaml.safe_load(model.schema.resolved())
    for group in data["groups"].values():
        group.pop("share", None)
    copies = Feat2Vec(read_schema(data).resolved(), shapes_of(rows.encoder))
    copies.encoder = rows.encoder
    copies.build()
    for copy, extractor in zip(copies.extractors, model.extractors, strict=True):
        for variable, value in zip(copy.weights, extractor.weights, strict=True):
            variable.assign(value)
    copies.learn_from(rows)
    return copies


NOISE_OR_LABELS: dict[str, dict[str, Any]] = {
    "noise": {"objective": "nce", "noise": {"negatives": 2}, "training": {"l2": 0.2}},
    "labels": {**LOGISTIC, "model": {"ranks": [2, 4], "bias": True}, "training": {"l2": 0.2, "l2_linear": 0.1}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "implicit": {**LOGISTIC, "objective": {**LOGISTIC["objective"], "implicit": "two"}, "noise": {"negatives": 2}},
    "items": {"objective": "nce", "noise": {"negatives": 2, "lists": "items"}, "training": {"l2": 0.2}},
    "network": {**LOGISTIC, "head": {"type": "mlp", "hidden": [4]}},
    "together": {**LOGISTIC, "model": {"dim": 3, "bias": True, "together": [["one", "two"]]}},
    "strict": {**LOGISTIC, "model": {"ranks": [2, 4], "bias": True, "dependents": "strict"}},
    "truncated": {"objective": "nce", "model": {"ranks": [2, 4], "bias": True, "level_sharing": "truncate"}},
}
FAST = [("noise", "bags"), ("noise", "tokens"), ("labels", "keys"), ("labels", "numbers")]


@pytest.mark.parametrize(
    ("learnt", "name"),
    [
        pytest.param(learnt, name, marks=() if (learnt, name) in FAST else pytest.mark.slow)
        for learnt in NOISE_OR_LABELS
        for name in SPECS
    ]
    + [pytest.param(learnt, "bags", marks=pytest.mark.slow) for learnt in OTHERS],
)
def test_the_gradient_of_a_shared_extractor_is_the_sum_of_those_of_its_groups(learnt: str, name: str) -> None:
    """Of every kind of extractor: the loss is that of copies with equal weights, and their gradients add up."""
    first, second, extractor = SPECS[name]
    groups = {
        "one": {"column": first, "extractor": extractor},
        "place": {"column": "place"},
        "two": {"column": second, "share": "one"},
    }
    rows = fitted({**NOISE_OR_LABELS, **OTHERS}[learnt], groups)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, truth = batch_of(model, rows)
    copies = untied(model, rows)
    loss, gradients = gradients_of(model, inputs, truth)
    expected_loss, of_copies = gradients_of(copies, inputs, truth)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert len(model.weights) < len(copies.weights)
    one, place, two = (extractor.trainable_variables for extractor in copies.extractors)
    learns = 0
    for variable, *in_copies in zip(model.extractors[0].trainable_variables, one, two, strict=True):
        expected = [of_copies[id(copy)] for copy in in_copies if id(copy) in of_copies]
        assert (id(variable) in gradients) == bool(expected)
        if expected:
            np.testing.assert_allclose(gradients[id(variable)], np.sum(expected, axis=0), rtol=1e-3, atol=1e-6)
            learns += any(np.any(part) for part in expected)
    assert learns
    for variable, copy in zip(model.extractors[1].trainable_variables, place, strict=True):
        np.testing.assert_allclose(gradients[id(variable)], of_copies[id(copy)], rtol=1e-3, atol=1e-6)


def test_a_shared_map_starts_from_the_components_of_both_columns() -> None:
    columns = {name: np.asarray(TABLE[name].to_pylist()) for name in ("image", "picture")}
    extractor = {"type": "vector", "start": "pca"}
    shared = {"one": {"column": "image", "extractor": extractor}, "two": {"column": "picture", "share": "one"}}
    rows = fitted({"model": {"dim": 2}, "objective": "nce"}, shared)
    stacked = pa.table({"both": [*columns["image"], *columns["picture"]], "place": ["x", "y"] * ROWS})
    groups = {"both": {"column": "both", "extractor": extractor}, "place": {"column": "place"}}
    schema = {"version": 1, "model": {"dim": 2}, "groups": groups}
    heads = []
    for encoded in (rows, feat2vec.fit(schema, stacked)):
        model = Feat2Vec.from_encoder(encoded.encoder)
        model.learn_from(encoded)
        heads.append([weight.numpy() for weight in model.extractors[0].heads[0].weights])
    for weight, expected in zip(*heads, strict=True):
        assert np.any(weight)
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-7)


# --- learning -------------------------------------------------------------------------------------------------------


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("path", ["by group", "at once", "noise"])
def test_a_step_updates_the_rows_of_a_shared_table_once(name: str, path: str) -> None:
    """A key of both groups has one gradient, the sum, in every optimizer: its square is not the sum of two squares."""
    case = {"objective": "nce", "noise": {"negatives": 2}} if path == "noise" else LOGISTIC
    rows = fitted({**case, "training": {"optimizer": name}})
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(optimizers.named(name, 0.1, ROWS))
    batch = batch_of(model, rows, path == "at once")
    shared = model.extractors[0].tables[0]
    start = shared.numpy()
    _, gradients = gradients_of_step(model, batch)
    model.train_step(batch)

    expected = optimizers.by_row(keras.Variable(start))
    ids = np.flatnonzero(np.any(gradients[id(shared)], axis=1))
    values = tf.constant(gradients[id(shared)][ids], tf.float32)
    optimizers.named(name, 0.1, ROWS).apply([Rows(tf.constant(ids), values)], [expected])
    assert len(ids) > 3
    np.testing.assert_allclose(shared.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def gradients_of_step(model: Feat2Vec, batch: Any) -> tuple[float, dict[int, npt.NDArray[Any]]]:
    """The gradients that the next step of training takes."""
    inputs, truth = batch
    loss, pairs = model.loss_and_gradients(inputs, truth, None, model.step_seed(SeedOf.NOISE))
    return float(loss), {id(variable): dense(gradient, variable.shape) for gradient, variable in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("case", [LOGISTIC, {"objective": "nce", "noise": {"negatives": 2}}], ids=["labels", "noise"])
def test_a_graph_learns_what_its_operations_learn(case: dict[str, Any]) -> None:
    """In a graph the gradients of two readings of a table meet as rows whose ids are not distinct."""
    rows = fitted(case)
    ends = []
    for is_graph in (False, True):
        model = Feat2Vec.from_encoder(rows.encoder)
        model.compile(optimizers.named("adagrad", 0.1, ROWS))
        batch = batch_of(model, rows)
        model.optimizer.build(model.trainable_variables)
        step = tf.function(model.train_step) if is_graph else model.train_step
        step(batch)
        ends.append([variable.numpy() for variable in model.trainable_variables])
    for eager, graph in zip(*ends, strict=True):
        np.testing.assert_allclose(graph, eager, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        {"objective": "nce", "noise": {"negatives": 2}, "training": {"l2": 0.1, "group_dropout": 0.3}},
        pytest.param(
            {**LOGISTIC, "model": {"ranks": [2, 3, 5], "bias": True}, "training": {"l2": 0.1, "l2_linear": 0.2}}
        ),
    ],
    ids=["noise", "labels, ranks"],
)
def test_what_groups_with_one_table_learn_at_once_is_what_they_learn_one_by_one(case: dict[str, Any]) -> None:
    groups = {**TEAMS, "guest": {"column": "away", "share": "home"}}
    rows = fitted({**case, "training": {**case["training"], "batch_size": 16}}, groups)
    weights, history = trained(rows, groups_at_once=False)
    weights_at_once, history_at_once = trained(rows, groups_at_once=True)
    for variable, variable_at_once in zip(weights, weights_at_once, strict=True):
        np.testing.assert_allclose(variable_at_once, variable, rtol=2e-4, atol=2e-5)
    for key, losses in history.items():
        np.testing.assert_allclose(history_at_once[key], losses, rtol=1e-4)


@pytest.mark.parametrize("objective", ["contrastive", "negative_sampling"])
def test_one_encoder_for_a_text_the_one_after_it_and_a_negative(objective: str) -> None:
    """f(x), f(x+) and f(x-) of Arora et al. (2019) are one's; of words that is the skip-gram with tied vectors."""
    options = {"type": objective, "correction": False} if objective == "contrastive" else objective
    groups = {
        "text": {"column": "now", "extractor": SPECS["tokens"][2]},
        "after": {"column": "next", "share": "text"},
    }
    noise = {"negatives": 3, "targets": ["after"]}
    rows = fitted({"objective": options, "noise": noise, "model": {"dim": 3}}, groups)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = batch_of(model, rows)

    def f(entries: Any) -> npt.NDArray[np.float64]:
        return np.asarray(model.vectors("text", entries).levels[0].free, np.float64)

    assert model.noise is not None
    (draw,) = model.noise.sample(ids, SEED)
    negatives = draw.values[0].numpy()  # [rows, 3]
    drawn = f(np.asarray(rows.values["after"].entries)[negatives.ravel()]).reshape(*negatives.shape, -1)
    x, x_plus = f(inputs["text"]), f(inputs["after"])
    positive, negative = (x * x_plus).sum(axis=1), (x[:, None] * drawn).sum(axis=2)
    if objective == "contrastive":  # log(1 + sum of exp(f(x) . (f(x-) - f(x+))))
        expected = np.log1p(np.exp(negative - positive[:, None]).sum(axis=1)).mean()
    else:
        expected = (np.logaddexp(0, -positive) + np.logaddexp(0, negative).sum(axis=1)).mean()
    assert float(model.step_loss(inputs, ids, None, SEED, True)) == pytest.approx(expected, rel=1e-5)


def test_l2_over_tables_counts_a_shared_table_once() -> None:
    losses = []
    for l2 in (0.0, 0.5):
        rows = fitted({**LOGISTIC, "training": {"l2": l2, "l2_over": "tables"}})
        model = Feat2Vec.from_encoder(rows.encoder)
        inputs, labels = batch_of(model, rows)
        losses.append(float(model.step_loss(inputs, labels, None, SEED, True)))
    tables = [model.extractors[g].tables[0].numpy().astype(float) for g in (0, 1)]
    assert losses[1] - losses[0] == pytest.approx(0.25 * sum(float((part**2).sum()) for part in tables), rel=1e-4)


# --- the noise, levels and sizes ------------------------------------------------------------------------------------


def test_each_group_draws_the_values_of_its_own_column_by_their_counts() -> None:
    """Q2 of a group is the probability of its values in its column, also where the vectors are shared."""
    rows = fitted({"objective": "nce", "noise": {"negatives": 50}})
    model = Feat2Vec.from_encoder(rows.encoder)
    _, ids = batch_of(model, rows)
    assert model.noise is not None
    for unit, draw in zip(model.noise.units, model.noise.sample(ids, SEED), strict=True):
        counts = rows.values[model.groups[unit.groups[0]]].counts
        drawn = draw.values[0].numpy().ravel()
        assert set(drawn) == set(np.flatnonzero(counts))
        log_q = [reference.noise_log_q(counts.tolist(), 0.75, value) for value in drawn]
        np.testing.assert_allclose(draw.log_q.numpy().ravel(), log_q, rtol=1e-5)
    assert 0 in rows.values["home"].counts
    assert 0 in rows.values["away"].counts


def test_the_level_of_a_key_follows_from_its_count_in_all_groups() -> None:
    data = pa.table({"home": list("aaabbbc"), "away": list("abbccdc"), "won": [0, 1, 0, 1, 0, 1, 0]})
    groups = {"home": {"column": "home"}, "away": {"column": "away", "share": "home"}}
    schema = {"version": 1, "groups": groups, "model": {"ranks": [2, 8]}, "objective": LOGISTIC["objective"]}
    rows = feat2vec.fit(schema, data)  # a and c occur 4 times, b 5 times, d once; level 2 begins above 4
    model = Feat2Vec.from_encoder(rows.encoder)
    assert model.extractors[0].shape.sizes == (5, 1)
    assert [table.shape for table in model.extractors[0].tables] == [(5, 2), (1, 8)]
    assert rows.encoder.codecs["home"].vocabulary.keys.to_pylist() == ["b", "a", "c", "d"]  # type: ignore[union-attr]


def test_a_shared_extractor_counts_in_each_group_for_the_noise_and_once_in_the_model() -> None:
    model = Feat2Vec.from_encoder(fitted(LOGISTIC).encoder)
    away, place, home = model.params()
    keys = len(set(TABLE["home"].to_pylist()) | set(TABLE["away"].to_pylist())) - 1  # without the missing one
    assert away == home == (keys + 1) * 4  # with the unseen one, each with three numbers and a linear term
    assert model.count_params() == home + place + 1 + 5  # the bias, and the scale of answers


def test_the_seeds_of_groups_without_sharing_are_as_before() -> None:
    """The layers of groups have the numbers of their groups, also behind a group that has none of its own."""
    model = Feat2Vec.from_encoder(fitted(LOGISTIC).encoder)
    assert [extractor.name for extractor in model.extractors] == ["group_2", "group_1", "group_2"]
    assert [extractor.name for extractor in model.distinct_extractors()] == ["group_2", "group_1"]
