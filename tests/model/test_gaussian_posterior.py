"""Normal weights: a step is that of the slow reference, variances follow, and predictions are better for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.model.gaussian_posterior import TEMPERATURE, Moments, PosteriorStep, expected_errors
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.reading import read_schema
from tests import reference

DIM = 3
TRAINING = {"l2": 2.0, "l2_groups": {"film": 5.0}, "batch_size": 16, "optimizer": {"type": "adam"}}
GROUPS: dict[str, Any] = {
    "user": {"column": "user"},
    "film": {"column": "film"},
    "genre": {"column": "genres", "extractor": {"type": "lookup", "multi": True, "combiner": "sqrtn"}},
    "tag": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "weights": "much", "combiner": "mean"}},
    "word": {"column": "title", "extractor": {"type": "lookup", "split": "words"}},
}


SHARED: dict[str, Any] = {  # two columns each of one posterior, some of whose keys are in both
    "friend": {"column": "friend", "share": "user"},
    **GROUPS,
    "label": {"column": "labels", "share": "tag", "extractor": {**GROUPS["tag"]["extractor"], "weights": "more"}},
}


def table(rows: int = 40) -> pa.Table:
    rng = np.random.default_rng(0)
    user, film = rng.zipf(1.5, rows) % 6, rng.integers(0, 5, rows)
    tags = [[f"t{k}" for k in rng.permutation(4)[: f % 3]] for f in film]
    return pa.table(
        {
            "user": [None if i % 11 == 0 else f"u{u}" for i, u in enumerate(user)],
            "friend": [f"u{(u + i) % 8}" for i, u in enumerate(user)],
            "film": [f"f{f}" for f in film],
            "labels": [["t1", "t7"][: i % 3] for i in range(rows)],
            "more": [[0.5, 2.0][: i % 3] for i in range(rows)],
            "genres": [[f"g{k}" for k in range(f % 4)] for f in film],
            "tags": tags,
            "much": [rng.uniform(0.5, 2, len(of_row)).tolist() for of_row in tags],
            "title": [" ".join(f"w{k}" for k in rng.permutation(5)[: 1 + f % 3]) for f in film],
            "rating": rng.normal(3, 1, rows),
            "trust": rng.uniform(0.5, 2, rows),
        }
    )


def trained_model(groups: dict[str, Any] = GROUPS, members: int = 1, **training: Any) -> tuple[Feat2Vec, Encoded]:
    """A model with means and curvatures as in the middle of a training."""
    schema = {
        "version": 1,
        "model": {"dim": DIM, "bias": True, "posterior": "gaussian", "members": members},
        "groups": groups,
        "objective": {"type": "regression", "target": "rating", "weight": "trust"},
        "training": {**TRAINING, **training},
    }
    encoded = fit(read_schema(schema), table())
    model = Feat2Vec.from_encoder(encoded.encoder)
    model.learn_from(encoded)
    model.compile()
    rng = np.random.default_rng(1)
    owners = model.distinct_extractors()
    for extractor in owners:
        for variable in (extractor.tables[0], extractor.linear):
            variable.assign(rng.normal(size=variable.shape))
    assert model.posterior is not None
    model.bias.assign(0.3)
    model.posterior.curvatures.assign(rng.uniform(0.2, 2, model.posterior.curvatures.shape))
    model.posterior.noise.assign(0.7)
    model.posterior.linear_precisions.assign(rng.uniform(1, 9, len(owners)))
    model.posterior.prior_means.assign(rng.normal(size=(len(owners), DIM)))
    return model, encoded


def keys_of_rows(model: Feat2Vec, inputs: dict[str, Any]) -> list[list[list[tuple[int, float]]]]:
    """The items of each group in each row, as keys of the table of curvatures and their factors."""
    assert model.posterior is not None
    batch = len(inputs["user"])
    rows: list[list[list[tuple[int, float]]]] = [[] for _ in range(batch)]
    start_of_owner = dict(zip(model.schema.owners, model.posterior.starts, strict=True))
    for name, extractor in zip(model.groups, model.extractors, strict=True):
        start = start_of_owner[model.schema.owner(name)]
        entries = inputs[name].numpy()
        for row, entry in zip(rows, entries, strict=True):
            ids, weights = entry, np.ones(len(entry))
            if extractor.shape.weighted:
                ids = entry[: len(entry) // 2]
                weights = np.ascontiguousarray(entry[len(entry) // 2 :]).view(np.float32).astype(float)
            kept = [(int(start + i - 1), float(x)) for i, x in zip(ids, weights, strict=True) if i > 0]
            divisor = {"sum": 1.0, "mean": sum(x for _, x in kept), "sqrtn": sum(x * x for _, x in kept) ** 0.5}
            row.append([(key, x / divisor[extractor.spec["combiner"]]) for key, x in kept])
    return rows


def of_coordinates(of_members: Sequence[reference.Array]) -> reference.Array:
    """What members have of their coordinates, side by side, and the mean of what they have of linear terms."""
    linear = np.mean([part[:, -1:] for part in of_members], axis=0)
    return np.concatenate([*(part[:, :-1] for part in of_members), linear], axis=1)


def step_and_reference(model: Feat2Vec, encoded: Encoded) -> tuple[PosteriorStep, reference.NormalStep, Any]:
    posterior = model.posterior
    assert posterior is not None
    inputs, labels, weights = next(iter(model.dataset(encoded, batch_size=6, shuffle=False)))
    means = np.concatenate(
        [np.concatenate([e.tables[0].numpy(), e.linear.numpy()], axis=1) for e in model.distinct_extractors()]
    ).astype(float)
    sizes = [extractor.shape.sizes[0] for extractor in model.distinct_extractors()]
    of_vectors = [model.schema.training.l2_of(name) for name in model.schema.owners]
    linear = posterior.linear_precisions.numpy()
    of_groups = np.concatenate([np.repeat(np.array(of_vectors)[:, None], DIM, axis=1), linear[:, None]], axis=1)
    members = model.schema.model.members
    means[:, :DIM] *= members**0.5
    precisions = np.repeat(of_groups, sizes, axis=0)
    prior_means = np.repeat(np.pad(posterior.prior_means.numpy().astype(float), [(0, 0), (0, 1)]), sizes, axis=0)
    curvatures = posterior.curvatures.numpy().astype(float)
    steps = []  # of each member, which is a model of its coordinates and the linear terms
    for coordinates in np.split(np.arange(DIM), members):
        columns = [*coordinates, DIM]
        steps.append(
            reference.normal_step(
                keys_of_rows(model, inputs),
                model.standardized(labels).numpy().astype(float).tolist(),
                weights.numpy().astype(float).tolist(),
                float(model.bias.numpy()),
                means[:, columns],
                curvatures[:, columns],
                posterior.counts.numpy().astype(float),
                precisions[:, columns],
                prior_means[:, columns],
                float(posterior.noise.numpy()),
            )
        )
    gradients = of_coordinates([step.gradients for step in steps])
    gradients[:, :DIM] *= members**0.5
    expected = reference.NormalStep(
        float(np.mean([step.loss for step in steps])),
        gradients,
        of_coordinates([step.curvatures for step in steps]),
        float(np.mean([step.bias for step in steps])),
    )
    return model.posterior_step(inputs, labels, weights), expected, weights


@pytest.mark.parametrize(
    ("groups", "members"), [(GROUPS, 1), (SHARED, 1), (GROUPS, 3)], ids=["groups", "shared groups", "members"]
)
def test_a_step_is_that_of_the_reference(groups: dict[str, Any], members: int) -> None:
    model, encoded = trained_model(groups, members)
    posterior = model.posterior
    assert posterior is not None
    step, expected, _ = step_and_reference(model, encoded)
    assert float(step.loss) == pytest.approx(expected.loss, rel=1e-5)
    of_variable = {id(variable): gradient for gradient, variable in step.gradients}
    assert len(of_variable) == 2 * len(model.schema.owners) + 1
    for extractor, start in zip(model.distinct_extractors(), posterior.starts, strict=True):
        for variable, columns in ((extractor.tables[0], slice(DIM)), (extractor.linear, slice(DIM, None))):
            gradient = of_variable[id(variable)]
            keys = start + gradient.indices.numpy()
            np.testing.assert_allclose(gradient.values, expected.gradients[keys, columns], rtol=1e-4, atol=1e-5)
    assert float(of_variable[id(model.bias)]) == pytest.approx(expected.bias, rel=1e-4)
    posterior.update(step, model.distinct_extractors(), keras.optimizers.SGD())
    np.testing.assert_allclose(posterior.curvatures.numpy(), expected.curvatures, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_the_loss_to_learn_from_is_the_expected_one() -> None:
    model, encoded = trained_model()
    inputs, labels, weights = next(iter(model.dataset(encoded, batch_size=6, shuffle=False)))
    seed = tf.constant([0, 0], tf.int64)
    step, expected, _ = step_and_reference(model, encoded)
    assert float(model.step_loss(inputs, labels, weights, seed, True)) == pytest.approx(expected.loss, rel=1e-5)
    loss, gradients = model.loss_and_gradients(inputs, labels, weights, seed)
    assert float(loss) == pytest.approx(expected.loss, rel=1e-5)
    for (gradient, variable), (of_step, variable_of_step) in zip(gradients, step.gradients, strict=True):
        assert variable is variable_of_step
        np.testing.assert_array_equal(getattr(gradient, "values", gradient), getattr(of_step, "values", of_step))
    of_means = float(model.step_loss(inputs, labels, weights, seed, False))  # of predictions, for validation
    errors = model.standardized(labels) - model.submodels(inputs).scores[-1]
    assert of_means == pytest.approx(float(tf.reduce_mean(weights * tf.square(errors))), rel=1e-5)


def test_a_train_step_touches_the_rows_of_its_batch_alone() -> None:
    model, encoded = trained_model()
    posterior = model.posterior
    assert posterior is not None
    inputs, labels, weights = next(iter(model.dataset(encoded, batch_size=2, shuffle=False)))
    touched = {key for row in keys_of_rows(model, inputs) for items in row for key, _ in items}
    others = [key for key in range(posterior.curvatures.shape[0]) if key not in touched]
    assert others
    tables = [(extractor.tables[0], extractor.linear) for extractor in model.extractors]

    def state() -> Any:
        means = np.concatenate([np.concatenate([t.numpy() for t in pair], axis=1) for pair in tables])
        return np.concatenate([means, posterior.curvatures.numpy()], axis=1)

    before = state()
    model.train_step((inputs, labels, weights))
    after = state()
    np.testing.assert_array_equal(after[others], before[others])
    assert (after[sorted(touched)] != before[sorted(touched)]).all()


@pytest.mark.parametrize("groups", [GROUPS, SHARED], ids=["groups", "shared groups"])
def test_counts_are_those_of_the_training_rows(groups: dict[str, Any]) -> None:
    model, encoded = trained_model(groups)
    posterior = model.posterior
    assert posterior is not None
    inputs, *_ = next(iter(model.dataset(encoded, batch_size=len(encoded), shuffle=False)))
    counts = np.zeros(posterior.curvatures.shape[0])
    for row in keys_of_rows(model, inputs):
        for items in row:
            for key, _ in items:
                counts[key] += 1
    np.testing.assert_array_equal(posterior.counts.numpy(), counts)


@pytest.mark.parametrize("l2_linear", [0.0, 3.0])
def test_a_pass_over_the_rows_ends_with_the_noise_and_the_linear_precisions(l2_linear: float) -> None:
    model, encoded = trained_model(l2_linear=l2_linear)
    posterior = model.posterior
    assert posterior is not None
    given = posterior.linear_precisions.numpy()
    squares = weights_seen = 0.0
    linear_squares = np.zeros((len(GROUPS), 2))
    means = [extractor.tables[0].numpy() for extractor in model.extractors]
    for inputs, labels, weights in model.dataset(encoded, batch_size=16, shuffle=False):
        assert float(posterior.noise.numpy()) == pytest.approx(0.7)
        step = model.posterior_step(inputs, labels, weights)
        squares += float(step.loss) * len(labels)
        weights_seen += float(tf.reduce_sum(weights))
        linear_squares += step.group_sums.numpy()[:, :2]
        posterior.update(step, model.extractors, keras.optimizers.SGD())
    expected = min(TEMPERATURE * squares / weights_seen, 1.0)
    assert float(posterior.noise.numpy()) == pytest.approx(expected, rel=1e-5)
    seen = [np.count_nonzero(part) for part in np.split(posterior.counts.numpy(), posterior.starts[1:])]
    np.testing.assert_allclose(linear_squares[:, 1], seen, rtol=1e-5)  # each value counts once
    if l2_linear:
        np.testing.assert_array_equal(posterior.linear_precisions.numpy(), given)
    else:
        learnt = linear_squares[:, 1] / linear_squares[:, 0]
        np.testing.assert_allclose(posterior.linear_precisions.numpy(), learnt, rtol=1e-5)
    counts = np.split(posterior.counts.numpy(), posterior.starts[1:])
    for group, (table_means, of_group) in enumerate(zip(means, counts, strict=True)):
        prior = table_means[of_group > 0].mean(axis=0)  # no step has been applied
        np.testing.assert_allclose(posterior.prior_means.numpy()[group], prior, rtol=1e-4, atol=1e-5)
        if not of_group[0]:
            np.testing.assert_allclose(model.extractors[group].tables[0].numpy()[0], prior, rtol=1e-4, atol=1e-5)
    assert posterior.rows_of_pass.numpy() == 0
    assert not posterior.squares.numpy().any()


def test_members_learn_the_labels_each_by_itself() -> None:
    rng = np.random.default_rng(4)
    means, variances = rng.normal(size=(3, 4, 7)), rng.uniform(0.1, 1, (3, 4, 7))
    bias, labels = tf.constant(0.4, tf.float64), tf.constant(rng.normal(size=4))
    together = expected_errors(Moments(tf.constant(means), tf.constant(variances)), bias, labels, members=2)
    parts = []
    for columns in ([0, 1, 2, 6], [3, 4, 5, 6]):
        of_member = Moments(tf.constant(means[..., columns]), tf.constant(variances[..., columns]))
        parts.append(expected_errors(of_member, bias, labels))
    for name in ("errors", "squares"):
        expected = np.mean([getattr(part, name) for part in parts], axis=0)
        np.testing.assert_allclose(getattr(together, name), expected)
    for name in ("slopes", "curvatures"):
        of_members = [getattr(part, name).numpy() for part in parts]
        linear = np.mean([part[..., -1:] for part in of_members], axis=0)
        expected = np.concatenate([part[..., :-1] for part in of_members] + [linear], axis=-1)
        np.testing.assert_allclose(getattr(together, name), expected)


def test_slopes_and_curvatures_are_derivatives() -> None:
    rng = np.random.default_rng(2)
    means, variances = tf.constant(rng.normal(size=(3, 4, 6))), tf.constant(rng.uniform(0.1, 1, (3, 4, 6)))
    bias, labels = tf.constant(0.4, tf.float64), tf.constant(rng.normal(size=4))
    found = expected_errors(Moments(means, variances), bias, labels)
    for part, derivative, factor in ((0, found.slopes, 1.0), (1, found.curvatures, 2.0)):
        for place in np.ndindex(3, 4, 6):
            halves = []
            for step in (1e-4, -1e-4):
                moments = [means.numpy(), variances.numpy()]
                moments[part][place] += step
                squares = expected_errors(Moments(*map(tf.constant, moments)), bias, labels).squares
                halves.append(float(tf.reduce_sum(squares)) / 2)
            slope = factor * (halves[0] - halves[1]) / 2e-4
            assert derivative[place].numpy() == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_variances_are_those_of_samples() -> None:
    rng = np.random.default_rng(3)
    means, variances = rng.normal(size=(3, 1, 5)), rng.uniform(0.1, 1, (3, 1, 5))
    draws = means + rng.normal(size=(3, 200_000, 5)) * np.sqrt(variances)
    sums = draws[..., :4].sum(axis=0)
    scores = draws[..., 4].sum(axis=0) + 0.5 * (sums**2 - (draws[..., :4] ** 2).sum(axis=0)).sum(axis=1)
    found = expected_errors(
        Moments(tf.constant(means), tf.constant(variances)), tf.constant(0.0, tf.float64), tf.zeros(1, tf.float64)
    )
    assert float(found.squares[0] - found.errors[0] ** 2) == pytest.approx(scores.var(), rel=0.02)
    assert -float(found.errors[0]) == pytest.approx(scores.mean(), abs=0.05)


# --- prediction -----------------------------------------------------------------------------------------------------


def ratings(seed: int, rows: int = 2400) -> pa.Table:
    """Sparse ratings: a sum of two terms, a product of few coordinates, and noise of the same size."""
    rng = np.random.default_rng(seed)
    users, films = rng.normal(size=(150, 3)), rng.normal(size=(100, 3))
    u, f = (150 * rng.random(rows) ** 1.5).astype(int), (100 * rng.random(rows) ** 1.5).astype(int)
    rating = users[u, 0] + films[f, 0] + 0.5 * (users[u, 1:] * films[f, 1:]).sum(axis=1) + rng.normal(size=rows)
    return pa.table({"user": [f"u{x}" for x in u], "film": [f"f{x}" for x in f], "rating": rating})


def error(rows: pa.Table, model: dict[str, Any], training: dict[str, Any]) -> float:
    """The root of the mean squared error on the last fourth of the rows."""
    cut = rows.num_rows * 3 // 4
    schema = {
        "version": 1,
        "model": {"dim": 8, "bias": True, **model},
        "groups": {"user": {"column": "user"}, "film": {"column": "film"}},
        "objective": {"type": "regression", "target": "rating"},
        "training": {"batch_size": 64, "optimizer": {"type": "adam", "learning_rate": 0.02}, **training},
    }
    encoded = fit(read_schema(schema), rows[:cut])
    trained = Feat2Vec.from_encoder(encoded.encoder)
    batches = trained.dataset(encoded)
    trained.compile()
    trained.fit(batches, epochs=25, verbose=0)
    measured = encoded.encoder.encode(rows[cut:])
    inputs, labels = next(iter(trained.dataset(measured, batch_size=len(measured), shuffle=False)))
    return float(tf.sqrt(tf.reduce_mean(tf.square(trained(inputs) - labels))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_sparse_ratings_are_predicted_better_than_by_points(seed: int) -> None:
    rows = ratings(seed)
    points = min(error(rows, {}, {"l2": l2, "l2_linear": l2}) for l2 in (0.03, 0.1, 0.3))
    assert error(rows, {"posterior": "gaussian"}, {"l2": 5.0}) < points - 0.01
