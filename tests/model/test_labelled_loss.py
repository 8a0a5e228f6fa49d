"""The loss of rows with a target: weights, classes, levels, implicit negatives, L2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.pair_scores_by_key import LevelByKey, Occurrences, member_scores
from feat2vec.schema.reading import read_schema
from tests.model.planted_rows import CASES, LOOKUPS, TABLE, UNTARGETED, encoded, one_batch


def test_truncated_levels_have_no_losses_of_their_own() -> None:
    for objective in ("nce", {"type": "glove", "target": "count"}):
        case = {"objective": objective, "model": {"ranks": [2, 6], "level_sharing": "truncate"}}
        rows = encoded(case, LOOKUPS)
        model = Feat2Vec.from_encoder(rows.encoder)
        inputs, truth = one_batch(model, rows)
        seed = tf.constant([7, 8], tf.int64)
        learning, validation = (float(model.step_loss(inputs, truth, None, seed, mode)) for mode in (True, False))
        assert learning == pytest.approx(validation, rel=1e-6)


def test_l2_is_half_lambda_times_the_mean_square_of_the_occurrences() -> None:
    losses = []
    for l2 in (0.0, 0.5):
        rows = encoded({"objective": {"type": "regression", "target": "score"}, "training": {"l2": l2}}, LOOKUPS)
        model = Feat2Vec.from_encoder(rows.encoder)
        inputs, target = one_batch(model, rows)
        losses.append(float(model.step_loss(inputs, target, None, tf.constant([0, 0], tf.int64), True)))
        squares = sum(
            float((table_.tables[0].numpy()[ids[ids > 0] - 1] ** 2).sum())
            for table_, ids in zip(model.extractors, (inputs[name].numpy() for name in LOOKUPS), strict=True)
        )
    assert losses[1] - losses[0] == pytest.approx(0.25 * squares / len(rows), rel=1e-4)


def test_a_group_may_have_an_l2_of_its_own() -> None:
    case = {"objective": {"type": "regression", "target": "score"}, "model": {"dim": 4}}
    plain, *_ = labelled_loss(case)
    loss, model, (inputs, *_) = labelled_loss({**case, "training": {"l2": 0.5, "l2_groups": {"tags": 2.0, "who": 0.0}}})
    penalty = 0.0
    for name, extractor in zip(model.groups, model.extractors, strict=True):
        ids = inputs[name].numpy()
        squares = float((extractor.tables[0].numpy()[ids[ids > 0] - 1] ** 2).sum())
        penalty += {"tags": 2.0, "who": 0.0}.get(name, 0.5) / 2 * squares / len(ids)
    assert loss - plain == pytest.approx(penalty, rel=1e-4)


@pytest.mark.parametrize("together", [[], [["who", "place"]]])
def test_members_learn_each_by_the_pairs_of_its_own_coordinates(together: list[list[str]]) -> None:
    """The loss is the mean of the members' losses, and the score of the model is the mean of their scores."""
    objective = {"type": "logistic", "target": "label", "zero_as": 0.2}
    case = {"objective": objective, "model": {"dim": 6, "members": 3, "bias": True, "scale": 1.0, "together": together}}
    loss, model, (inputs, label) = labelled_loss(case)
    for extractor in model.extractors:
        extractor.linear.assign(np.random.default_rng(0).normal(size=extractor.linear.shape))
    loss = float(model.step_loss(inputs, label, None, tf.constant([5, 6], tf.int64), True))
    vectors = {name: model.vectors(name, inputs[name]) for name in model.groups}
    units = [np.sum([vectors[name].levels[0].free.numpy() for name in unit], axis=0) for unit in model.schema.partners]
    linear = float(model.bias) + np.sum([vectors[name].linear.numpy() for name in model.groups], axis=0)
    pairs = np.zeros(units[0].shape)  # [rows, 6]
    for i, unit in enumerate(units):
        for other in units[:i]:
            pairs += unit.astype(float) * other
    scores = linear[:, None] + 3 * pairs.reshape(-1, 3, 2).sum(axis=2)  # [rows, members]
    learnt = np.where(label.numpy() > 0, 1.0, 0.2)[:, None]
    expected = learnt * np.logaddexp(0, -scores) + (1 - learnt) * np.logaddexp(0, scores)
    assert loss == pytest.approx(expected.mean(), rel=1e-5)
    np.testing.assert_allclose(model(inputs).numpy(), scores.mean(axis=1), rtol=1e-4, atol=1e-5)
    measured = float(model.step_loss(inputs, label, None, tf.constant([5, 6], tf.int64), False))
    mean, truth = scores.mean(axis=1), label.numpy()
    assert measured == pytest.approx(
        (truth * np.logaddexp(0, -mean) + (1 - truth) * np.logaddexp(0, mean)).mean(), rel=1e-5
    )


@pytest.mark.parametrize("dims", [(2, 2), (1, 3)])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_members_by_differences(masked: bool, dims: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    vectors = tf.Variable(rng.normal(size=(5, 4)))
    places, rows = tf.constant([0, 1, 2, 0, 3, 4, 1, 3]), tf.constant([0, 0, 0, 1, 1, 1, 2, 2])
    linear = tf.constant(rng.normal(size=3))
    mask = tf.constant(rng.integers(0, 2, (3, 4)) * 2.0) if masked else None
    slopes = tf.constant(rng.normal(size=(3, 2)))

    def total() -> tf.Tensor:
        level = LevelByKey(tf.convert_to_tensor(vectors), Occurrences(places, rows))
        return tf.reduce_sum(slopes * member_scores(level, linear, dims, mask))

    with tf.GradientTape() as tape:
        value = total()
    gradient = tape.gradient(value, vectors).numpy()
    start = vectors.numpy()
    for i, j in np.ndindex(*start.shape):
        moved = []
        for step in (1e-5, -1e-5):
            changed = start.copy()
            changed[i, j] += step
            vectors.assign(changed)
            moved.append(float(total()))
        assert gradient[i, j] == pytest.approx((moved[0] - moved[1]) / 2e-5, rel=1e-6, abs=1e-8)
    vectors.assign(start)


def test_weights_weigh_the_rows() -> None:
    case = {"objective": {"type": "regression", "target": "score", "weight": "count"}}
    rows = encoded(case, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, target, weight = one_batch(model, rows)
    loss = float(model.step_loss(inputs, target, weight, tf.constant([0, 0], tf.int64), False))
    score = TABLE["score"].to_numpy()
    labels = (score - score.mean()) / score.std()
    row_losses = (model.submodels(inputs).scores[-1].numpy() - labels) ** 2 * TABLE["count"].to_numpy()
    assert loss == pytest.approx(row_losses.mean(), rel=1e-5)


def labelled_loss(case: dict[str, Any], *, training: bool = True) -> tuple[float, Feat2Vec, Any]:
    """The loss of the whole table, and what it is of."""
    rows = encoded(case, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, truth, *weight = one_batch(model, rows)
    loss = model.step_loss(inputs, truth, weight[0] if weight else None, tf.constant([5, 6], tf.int64), training)
    return float(loss), model, (inputs, truth, *weight)


@pytest.mark.usefixtures("no_graphs")
def test_classes_weigh_what_the_schema_says() -> None:
    label = TABLE["label"].to_numpy()
    class_weights = {"0": 0.5, "1": 3.0}
    for objective, weights in (
        ({"class_weights": class_weights}, np.where(label > 0, 3.0, 0.5)),
        ({"class_weights": {"1": 4.0}}, np.where(label > 0, 4.0, 1.0)),
        ({"class_weights": "balanced"}, len(label) / 2 / np.where(label > 0, label.sum(), (1 - label).sum())),
        (
            {"class_weights": class_weights, "weight": "count"},
            np.where(label > 0, 3.0, 0.5) * TABLE["count"].to_numpy(),
        ),
    ):
        loss, model, (inputs, *_) = labelled_loss({"objective": {"type": "logistic", "target": "label", **objective}})
        scores = model(inputs).numpy().astype(float)
        row_losses = np.logaddexp(0, np.where(label > 0, -scores, scores))
        assert loss == pytest.approx((weights * row_losses).mean(), rel=1e-5)


def test_balanced_classes_weigh_the_same_together_in_other_rows_as_well() -> None:
    rows = encoded({"objective": {"type": "softmax", "target": "place", "class_weights": "balanced"}}, UNTARGETED)
    model = Feat2Vec.from_encoder(rows.encoder)
    _, target, weight = one_batch(model, rows)
    sums = np.bincount(target.numpy(), weight.numpy())
    np.testing.assert_allclose(sums, len(rows) / len(sums), rtol=1e-5)
    held = rows.encoder.encode(TABLE.slice(0, 20))
    _, held_target, held_weight = next(iter(model.dataset(held, 20, shuffle=False)))
    by_class = dict(zip(target.numpy().tolist(), weight.numpy().tolist(), strict=True))
    assert [by_class[c] for c in held_target.numpy().tolist()] == held_weight.numpy().tolist()


def test_a_class_that_is_none_cannot_be_weighed() -> None:
    rows = encoded({"objective": {"type": "softmax", "target": "place", "class_weights": {"p9": 2.0}}}, UNTARGETED)
    with pytest.raises(UserError, match="class_weights: there is no class 'p9'"):
        Feat2Vec.from_encoder(rows.encoder).dataset(rows)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sharing", ["record", "batch"])
@pytest.mark.parametrize("model", [{"dim": 4, "bias": True}, {"ranks": [2, 4], "bias": True}])
def test_implicit_negatives_of_positive_rows_are_negative_sampling(model: dict[str, Any], sharing: str) -> None:
    noise = {"negatives": 3, "sharing": sharing}
    objective = {"type": "logistic", "target": "none", "implicit": "who"}
    all_present = [i for i, who in enumerate(TABLE["who"].to_pylist()) if who is not None]
    table = TABLE.take(all_present)
    losses = []
    for case in (
        {"objective": objective, "noise": noise},
        {"objective": "negative_sampling", "noise": {**noise, "targets": ["who"]}},
    ):
        rows = fit(read_schema({"version": 1, "groups": LOOKUPS, "model": model, **case}), table)
        built = Feat2Vec.from_encoder(rows.encoder)
        inputs, truth = one_batch(built, rows)
        losses.append(float(built.step_loss(inputs, truth, None, tf.constant([5, 6], tf.int64), True)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_negatives_are_those_of_rows_with_a_1() -> None:
    case = {"objective": {"type": "logistic", "target": "label", "implicit": "who"}, "model": {"dim": 4}}
    case["noise"] = {"negatives": 3}
    loss, model, (inputs, (ids, label)) = labelled_loss(case)
    assert model.noise is not None
    (draw,) = model.noise.sample(ids, tf.constant([5, 6], tf.int64))
    who = model.extractors[0].tables[0].numpy().astype(float)
    context_sums = sum(
        model.vectors(name, inputs[name]).levels[0].free.numpy().astype(float) for name in ("tags", "place")
    )
    context_scores = model({**inputs, "who": tf.zeros_like(inputs["who"])}).numpy().astype(float)
    keys = model.value_tables[0].numpy()[draw.values[0].numpy() + 1][..., 0]  # [rows, k]
    total = np.logaddexp(0, np.where(label.numpy() > 0, -1, 1) * model(inputs).numpy()).sum()
    for r in range(len(keys)):
        if label[r] > 0 and bool(draw.present[r]):
            total += sum(np.logaddexp(0, context_scores[r] + context_sums[r] @ who[key - 1]) for key in keys[r])
    assert loss == pytest.approx(total / len(keys), rel=1e-5)


def test_l2_over_tables_is_of_every_weight_and_touches_every_row() -> None:
    objective = {"objective": {"type": "logistic", "target": "label"}, "model": {"bias": True, "dim": 4}}
    plain, *_ = labelled_loss(objective)
    optimizer = {"type": "adam", "learning_rate": 0.01}
    case = {**objective, "training": {"l2": 0.5, "l2_over": "tables", "optimizer": optimizer}}
    loss, model, batch = labelled_loss(case)
    tables = [w for extractor in model.extractors for w in extractor.weights]
    squares = sum(float((table_.numpy().astype(float) ** 2).sum()) for table_ in tables)
    assert loss - plain == pytest.approx(0.25 * squares, rel=1e-4)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    before = [table_.numpy() for table_ in tables]
    model.train_step(tuple(tf.nest.map_structure(lambda x: x[:2], part) for part in batch))
    # Adam's first step has the size of the learning rate wherever there is a gradient: everywhere but at zero
    for old, table_ in zip(before, tables, strict=True):
        moved = old != table_.numpy()
        assert moved[old != 0].all()


@pytest.mark.parametrize(
    ("objective", "start"),
    [
        ({"type": "glove", "target": "count"}, np.log(TABLE["count"].to_numpy()).mean()),
        ({"type": "logistic", "target": "label"}, np.log(1 / (1 / TABLE["label"].to_numpy().mean() - 1))),
    ],
)
def test_a_bias_begins_at_the_targets_mean(objective: Any, start: float) -> None:
    _, model, _ = labelled_loss({"objective": objective, "model": {"bias": True}})
    assert float(model.bias) == pytest.approx(start, rel=1e-5)


@pytest.mark.usefixtures("no_graphs")
def test_numbers_are_learnt_in_units_of_their_deviation() -> None:
    """The loss that is learnt is the same whatever the unit; answers and the loss that is told are in the unit."""
    found = []
    for factor in (1.0, 1000.0):
        table = TABLE.set_column(
            TABLE.column_names.index("score"), "score", pa.array(TABLE["score"].to_numpy() * factor + 7)
        )
        schema = {"version": 1, "groups": LOOKUPS, "objective": {"type": "regression", "target": "score"}}
        rows = fit(schema, table)
        model = Feat2Vec.from_encoder(rows.encoder)
        inputs, target = one_batch(model, rows)
        score = table["score"].to_numpy()
        scale = model.answer_scale_value()
        assert scale == pytest.approx((score.mean(), score.std(), score.min(), score.max(), 1.0), rel=1e-5)
        loss = float(model.step_loss(inputs, target, None, tf.constant([0, 0], tf.int64), False))
        raw = model.submodels(inputs).scores[-1].numpy().astype(float)
        assert loss == pytest.approx(np.square(raw - (score - score.mean()) / score.std()).mean(), rel=1e-4)
        answers = np.clip(score.mean() + score.std() * raw, score.min(), score.max())
        np.testing.assert_allclose(model(inputs), answers, rtol=1e-5)
        model.compile()
        told = model.evaluate(model.dataset(rows, shuffle=False), verbose=0)
        assert told == pytest.approx(loss * score.var(), rel=1e-4)
        found.append(loss)
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_l2_linear_is_of_the_linear_terms_of_each_row() -> None:
    losses = []
    for l2 in (0.0, 0.5):
        case = {"objective": {"type": "regression", "target": "score"}, "training": {"l2_linear": l2}}
        rows = encoded({**case, "model": {"bias": True}}, LOOKUPS)
        model = Feat2Vec.from_encoder(rows.encoder)
        for extractor in model.extractors:
            extractor.linear.assign(np.arange(extractor.linear.shape[0], dtype=np.float32)[:, None] / 10)
        inputs, target = one_batch(model, rows)
        losses.append(float(model.step_loss(inputs, target, None, tf.constant([0, 0], tf.int64), True)))
        squares = sum(
            float((extractor.linear.numpy()[ids[ids > 0] - 1] ** 2).sum())
            for extractor, ids in zip(model.extractors, (inputs[name].numpy() for name in LOOKUPS), strict=True)
        )
    assert losses[1] - losses[0] == pytest.approx(0.25 * squares / len(rows), rel=1e-4)


@pytest.mark.usefixtures("no_graphs")
def test_validation_is_of_the_whole_model_alone() -> None:
    case = {"objective": {"type": "logistic", "target": "label"}, "model": {"ranks": [2, 4]}}
    label = TABLE["label"].to_numpy()
    for training in (True, False):
        loss, model, (inputs, *_) = labelled_loss(case, training=training)
        low, top = (scores.numpy().astype(float) for scores in model.submodels(inputs).scores)
        expected = np.logaddexp(0, np.where(label > 0, -top, top))
        if training:
            above = 1 / (1 + np.exp(-top))
            expected += above * np.logaddexp(0, -low) + (1 - above) * np.logaddexp(0, low)
        assert loss == pytest.approx(expected.mean(), rel=1e-5)
    glove = {"objective": {"type": "glove", "target": "count"}, "model": {"ranks": [2, 4]}}
    loss, model, (inputs, *_) = labelled_loss(glove, training=False)
    count, top = TABLE["count"].to_numpy(), model.submodels(inputs).scores[-1].numpy()
    assert loss == pytest.approx(((count / 100) ** 0.75 * (np.log(count) - top) ** 2).mean(), rel=1e-4)
    assert labelled_loss(glove)[0] > loss


@pytest.mark.usefixtures("no_graphs")
def test_a_class_that_training_has_not_seen_has_no_loss() -> None:
    rows = encoded(CASES["softmax"], UNTARGETED)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    new_rows = TABLE.slice(0, 40)
    places = pa.array([p if i % 4 else "elsewhere" for i, p in enumerate(new_rows["place"].to_pylist())])
    new_rows = new_rows.set_column(new_rows.schema.get_field_index("place"), "place", places)
    seen = new_rows.filter(pa.array([i % 4 != 0 for i in range(40)]))
    loss, expected = (
        model.evaluate(model.dataset(rows.encoder.encode(part), batch_size=7, shuffle=False), verbose=0)
        for part in (new_rows, seen)
    )
    assert np.isfinite(loss)
    assert loss == pytest.approx(expected, rel=1e-5)
    none = model.dataset(rows.encoder.encode(new_rows.take([0, 4, 8])), shuffle=False)
    assert model.evaluate(none, verbose=0) == 0


@pytest.mark.parametrize("objective", ["regression", "logistic", "softmax"])
def test_each_member_of_a_head_has_a_loss_of_its_own(objective: str) -> None:
    target = {"regression": "score", "logistic": "label", "softmax": "place"}[objective]
    head = {"type": "mlp", "hidden": [5], "inputs": ["vectors"], "members": 3, "pairs": False}
    rows = encoded({"objective": {"type": objective, "target": target}, "head": head}, UNTARGETED)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.learn_from(rows)
    rng = np.random.default_rng(0)
    assert model.head is not None
    for weight in model.head.weights:
        weight.assign(rng.normal(size=weight.shape))
    inputs, labels = one_batch(model, rows)
    scores = model.score(model.extract(inputs, training=True), training=True)
    assert scores.members is not None
    assert scores.members.shape[:2] == (len(rows), 3)
    np.testing.assert_allclose(tf.reduce_mean(scores.members, axis=1), scores.scores[-1], rtol=1e-4, atol=1e-4)
    labels = model.standardized(labels).numpy()
    expected = []
    for row, label in zip(scores.members.numpy().astype(float), labels, strict=True):
        for score in row:
            if objective == "regression":
                expected.append((score - label) ** 2)
            elif objective == "logistic":
                expected.append(np.logaddexp(0, score) - label * score)
            else:
                expected.append(np.logaddexp.reduce(score) - score[int(label)])
    seed = tf.constant([0, 0], tf.int64)
    learnt = float(model.step_loss(inputs, one_batch(model, rows)[1], None, seed, True))
    assert learnt == pytest.approx(np.mean(expected), rel=1e-4)
