"""The Keras model: scores against loops over items, one step, saving, batches."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.errors import UserError
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.network import PURPOSES, shapes_of
from feat2vec.schema.options import read_schema
from feat2vec.schema.yaml_text import dump_document
from tests import reference

GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "max_items": 4}},
    "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 3, "widths": [2, 3]}},
    "size": {"column": "size", "extractor": {"type": "numeric", "hidden": [3]}},
}
UNTARGETED = {name: GROUPS[name] for name in ("who", "tags", "size")}
LOOKUPS = {name: GROUPS[name] for name in ("who", "tags")} | {"place": {"column": "place"}}
CASES: dict[str, dict[str, Any]] = {
    "nce": {"objective": "nce"},
    "nce, joint": {"objective": "nce", "noise": {"joint": [["who", "tags"]]}, "model": {"bias": True, "dim": 6}},
    "contrastive pool, ranks": {
        "objective": "contrastive", "noise": {"sharing": "batch", "negatives": 8}, "model": {"ranks": [2, 4, 8]},
    },
    "strict, joint, ranks": {
        "objective": "negative_sampling", "noise": {"joint": [["who", "title"]]},
        "model": {"ranks": [2, 6], "dependents": "strict", "bias": True},
    },
    "truncated": {"objective": "nce", "model": {"ranks": [2, 6], "level_sharing": "truncate", "bias": True}},
    "regularized": {
        "objective": {"type": "contrastive", "correction": False}, "model": {"dim": 4},
        "training": {"l2": 0.1, "group_dropout": 0.3, "optimizer": {"type": "adam", "learning_rate": 0.01}},
    },
    "logistic": {
        "objective": {"type": "logistic", "target": "label", "weight": "count"},
        "model": {"ranks": [2, 4], "bias": True}, "training": {"interaction_dropout": 0.2},
    },
    "regression": {"objective": {"type": "regression", "target": "score"}, "model": {"bias": True, "dim": 4}},
    "softmax": {"objective": {"type": "softmax", "target": "place"}, "model": {"ranks": [2, 4]}},
    "implicit": {
        "objective": {"type": "logistic", "target": "label", "implicit": "who", "class_weights": "balanced"},
        "model": {"ranks": [2, 4], "bias": True}, "noise": {"negatives": 3},
    },
    "network": {
        "objective": {"type": "logistic", "target": "label"}, "model": {"ranks": [2, 4]},
        "head": {"type": "mlp", "hidden": [6, 3], "dropout": 0.2, "normalize": True}, "training": {"l2": 0.01},
    },
    "softmax, network, whole tables": {
        "objective": {"type": "softmax", "target": "place", "class_weights": {"p1": 2.0}}, "model": {"dim": 4},
        "head": {"type": "mlp", "hidden": [6], "inputs": ["interactions"]},
        "training": {"l2": 1e-4, "l2_over": "tables", "optimizer": {"type": "adam", "learning_rate": 0.01}},
    },
    "glove": {"objective": {"type": "glove", "target": "count"}, "model": {"bias": True, "dim": 4}},
}  # fmt: skip


def table(rows: int = 192) -> pa.Table:
    """Rows with planted structure: tags follow who, and some entries are missing."""
    rng = np.random.default_rng(0)
    who = rng.zipf(1.5, rows) % 12
    tags = [[f"t{(w + int(x)) % 9}" for x in rng.integers(0, 2, rng.integers(0, 4))] for w in who]
    return pa.table(
        {
            "who": [None if i % 17 == 0 else f"w{w}" for i, w in enumerate(who)],
            "tags": tags,
            "place": [f"p{w % 4}" for w in who],
            "title": [" ".join(f"word{int(x)}" for x in rng.integers(0, 9, 1 + w % 4)) for w in who],
            "size": [None if i % 13 == 0 else float(w) for i, w in enumerate(who)],
            "label": (who % 2 == 0).astype(np.int64),
            "score": (who / 10).astype(np.float64),
            "count": rng.integers(1, 5, rows),
        }
    )


TABLE = table()


def encoded(case: dict[str, Any], groups: dict[str, Any] | None = None) -> Encoded:
    training = {"batch_size": 48, **case.get("training", {})}
    return fit(read_schema({"version": 1, "groups": groups or GROUPS, **case, "training": training}), TABLE)


def with_options(groups: dict[str, Any], **options: dict[str, Any]) -> dict[str, Any]:
    """The groups with `option={group: value}` of their extractors."""
    changed = {}
    for name, group in groups.items():
        own = {option: values[name] for option, values in options.items() if name in values}
        changed[name] = {**group, "extractor": {**group.get("extractor", {"type": "lookup"}), **own}}
    return changed


def trained(rows: Encoded, epochs: int = 3, **options: Any) -> tuple[Feat2Vec, list[float]]:
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(**options)
    losses: list[float] = model.fit(model.dataset(rows), epochs=epochs, verbose=0).history["loss"]
    return model, losses


def one_batch(model: Feat2Vec, rows: Encoded) -> Any:
    return next(iter(model.dataset(rows, batch_size=len(rows), shuffle=False)))


QUICK = {"nce, joint", "contrastive pool, ranks", "logistic", "softmax", "implicit", "network"}
ALL_CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", ALL_CASES)
def test_every_objective_trains_and_comes_back_from_a_file(name: str, tmp_path: Path) -> None:
    rows = encoded(CASES[name], GROUPS if "joint" in name else LOOKUPS if "softmax" not in name else UNTARGETED)
    model, losses = trained(rows, 3)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = one_batch(model, rows)[0]
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    assert loaded.encoder is not None
    assert loaded.encoder.schema == rows.encoder.schema
    for ours, theirs in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    loaded.learn_from(rows)
    again = [one.fit(model.dataset(rows), epochs=1, verbose=0).history["loss"] for one in (model, loaded)]
    assert again[0] == again[1]


def test_a_file_is_loaded_after_import_feat2vec_alone(tmp_path: Path) -> None:
    rows = encoded(CASES["contrastive pool, ranks"], LOOKUPS)
    model, _ = trained(rows, 1)
    model.save(tmp_path / "model.keras")
    inputs = {name: array.numpy() for name, array in one_batch(model, rows)[0].items()}
    np.savez(tmp_path / "inputs.npz", **inputs)
    code = (
        "import feat2vec, sys; assert 'keras' not in sys.modules; import keras, numpy as np;"
        "model = keras.models.load_model('model.keras', safe_mode=True);"
        "np.save('scores.npy', model(dict(np.load('inputs.npz'))).numpy())"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), model(inputs))


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
        own = [
            t[id_ - 1 if k == 0 else id_ - 2] for k, t in enumerate(tables[group]) if k == 0 or 0 <= id_ - 2 < len(t)
        ]
        if sharing == "truncate":
            own = [np.concatenate(own[: k + 1]) for k in range(len(own))]
        return reference.Item(len(own), gains.get(list(LOOKUPS)[group], 1.0), own)

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


Tables = list[list[npt.NDArray[np.float64]]]


def tables_of(model: Feat2Vec) -> Tables:
    return [[table.numpy().astype(np.float64) for table in extractor.tables] for extractor in model.extractors]


def noise_loss_loop(
    model: Feat2Vec, inputs: Any, rows: Any, seed: Any, tables: Tables, *, training: bool = True
) -> float:
    """The mean loss of lookups' rows, candidate by candidate; outside of training that of the whole model alone."""
    objective, noise = model.schema.objective, model.noise
    assert noise is not None
    values = [table.numpy() for table in model.value_tables]
    gains = [group.extractor.gain for group in model.schema.groups.values()]
    levels = range(1, len(model.dims) + 1)

    def items(g: int, entry: Any) -> list[reference.Item]:
        found = []
        for id_ in entry[entry > 0].tolist():
            own = [tables[g][0][id_ - 1], *(table[id_ - 2] for table in tables[g][1:] if 0 <= id_ - 2 < len(table))]
            found.append(reference.Item(len(own), gains[g], own))
        return found

    def unit(bag: list[reference.Item]) -> list[reference.Item]:
        if not bag:
            return []
        (top,) = {item.level for item in bag}  # else free and dependent parts would be two vectors of a level
        sums = [sum((item.x * item.vectors[k] for item in bag), np.zeros(1)) for k in range(top)]
        return [reference.Item(top, 1.0, [vector / max(float(np.sqrt(vector @ vector)), 1e-3) for vector in sums])]

    total, at = 0.0, 0
    for target, draw in zip(noise.units, noise.sample(rows, seed), strict=True):
        offset = float(model.offsets.numpy()[target.groups[0]]) if objective.type == "nce" else 0.0
        drawn = [value.numpy() for value in draw.values]
        for r, present in enumerate(draw.present.numpy()):
            whole = [items(g, inputs[name][at + r].numpy()) for g, name in enumerate(model.groups)]
            picks = [[whole[g] for g in target.groups]]
            for k in range(noise.negatives):
                ids = [value[k] if value.ndim == 1 else value[r, k] for value in drawn]
                picks.append([items(g, values[g][i + 1]) for g, i in zip(target.groups, ids, strict=True)])
            scores: list[list[float]] = [[] for _ in levels]
            for pick in picks:
                candidate = list(whole)
                for g, bag in zip(target.groups, pick, strict=True):
                    candidate[g] = unit(bag) if getattr(objective, "unit", False) else bag
                for level in levels:
                    scores[level - 1].append(reference.b(candidate, 1, level))
            negative_log_q = draw.log_q.numpy() if draw.log_q.ndim == 1 else draw.log_q.numpy()[r]
            log_q = [float(draw.log_q_positive[r]), *negative_log_q.tolist()]
            hits = draw.hits.numpy()[r].tolist()
            options = (getattr(objective, "correction", True), getattr(objective, "temperature", 1.0))
            for level in (levels if training else levels[-1:]) if present else ():
                above = scores[level] if level < len(scores) else None
                total += reference.row_loss(objective.type, scores[level - 1], log_q, hits, offset, above, *options)
        at += len(draw.rows)
    return total / len(rows)


UNIT = {"type": "contrastive", "unit": True, "temperature": 0.3}
GAINS = {"who": 0.5, "tags": 3.0}


@pytest.mark.parametrize("sharing", ["record", "batch"])
@pytest.mark.parametrize(
    ("objective", "noise", "model"),
    [
        (UNIT, {}, {"dim": 4}),
        ({**UNIT, "correction": False}, {"targets": {"who": 3, "tags": 1}}, {"dim": 4}),
        ({"type": "contrastive", "temperature": 0.3}, {}, {"dim": 4}),
        (UNIT, {"joint": [["who", "tags"]]}, {"dim": 4}),
        (UNIT, {"targets": ["who", "place"]}, {"ranks": [2, 4, 8]}),
        ("nce", {}, {"ranks": [2, 4]}),
    ],
)
def test_a_batchs_loss_is_that_of_its_rows_against_their_candidates(
    objective: Any, noise: dict[str, Any], model: dict[str, Any], sharing: str
) -> None:
    case = {"objective": objective, "noise": {"negatives": 3, "sharing": sharing, **noise}, "model": model}
    rows = encoded(case, with_options(LOOKUPS, gain=GAINS))
    made = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = next(iter(made.dataset(rows, batch_size=64, shuffle=False)))
    seed = tf.constant([7, 8], tf.int64)
    found = float(made.step_loss(inputs, ids, None, seed, True))
    assert found == pytest.approx(noise_loss_loop(made, inputs, ids, seed, tables_of(made)), rel=2e-5)


@pytest.mark.parametrize(
    ("objective", "noise", "spec"),
    [
        ({"type": "contrastive", "temperature": 0.3}, {"sharing": "batch"}, {"dim": 4}),
        (UNIT, {"joint": [["who", "tags"]]}, {"ranks": [2, 4, 8]}),
    ],
)
def test_contrastive_sums_of_many_groups_are_those_of_few(
    objective: Any, noise: dict[str, Any], spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to MOST_SUMS groups each unit adds up its own context; beyond, all units' contexts are added up at once."""
    case = {"objective": objective, "noise": {"negatives": 3, **noise}, "model": spec}
    rows = encoded(case, with_options(LOOKUPS, gain=GAINS))
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = next(iter(model.dataset(rows, batch_size=64, shuffle=False)))
    seed = tf.constant([7, 8], tf.int64)
    tables = [table.value for extractor in model.extractors for table in extractor.tables]
    gradients = []
    for most in (len(LOOKUPS), len(LOOKUPS) - 1):
        monkeypatch.setattr("feat2vec.model.keras_model.MOST_SUMS", most)
        with tf.GradientTape() as tape:
            loss = model.step_loss(inputs, ids, None, seed, True)
        assert float(loss) == pytest.approx(noise_loss_loop(model, inputs, ids, seed, tables_of(model)), rel=2e-5)
        gradients.append([tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(loss, tables)])
    for few, many in zip(*gradients, strict=True):
        np.testing.assert_allclose(many, few, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("objective", "dependents", "sharing"),
    [
        ("nce", "joint", "record"),
        ("nce", "strict", "batch"),
        pytest.param("negative_sampling", "joint", "batch", marks=pytest.mark.slow),
        pytest.param("negative_sampling", "strict", "record", marks=pytest.mark.slow),
        pytest.param({"type": "contrastive", "temperature": 0.3}, "joint", "record", marks=pytest.mark.slow),
        ("contrastive", "strict", "batch"),
    ],
)
def test_validation_without_a_target_is_of_the_whole_model_alone(objective: Any, dependents: str, sharing: str) -> None:
    """The losses of lower levels are there to learn from; early stopping and `tune` go by the model B_{1,m}."""
    rows = encoded(
        {
            "objective": objective,
            "noise": {"negatives": 3, "sharing": sharing},
            "model": {"ranks": [2, 4, 8], "dependents": dependents},
        },
        LOOKUPS,
    )
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    for extractor in model.extractors:  # levels that differ: the losses of new ones are nearly the same
        for table in extractor.tables:
            table.assign(table.numpy() * 5)
    batches = model.dataset(rows, batch_size=len(rows), shuffle=False)
    inputs, ids = next(iter(batches))
    seed = tf.constant([model.schema.training.seed * PURPOSES + 1, 0], tf.int64)  # of the first batch of a validation
    whole, with_levels = (
        noise_loss_loop(model, inputs, ids, seed, tables_of(model), training=training) for training in (False, True)
    )
    assert with_levels > 1.2 * whole
    assert model.evaluate(batches, verbose=0) == pytest.approx(whole, rel=2e-5)


def test_truncated_levels_have_no_losses_of_their_own() -> None:
    for objective in ("nce", {"type": "glove", "target": "count"}):
        case = {"objective": objective, "model": {"ranks": [2, 6], "level_sharing": "truncate"}}
        rows = encoded(case, LOOKUPS)
        model = Feat2Vec.from_encoder(rows.encoder)
        inputs, truth = one_batch(model, rows)
        seed = tf.constant([7, 8], tf.int64)
        learning, validation = (float(model.step_loss(inputs, truth, None, seed, mode)) for mode in (True, False))
        assert learning == pytest.approx(validation, rel=1e-6)


def test_gradients_of_unit_candidates_are_central_differences() -> None:
    case = {"objective": UNIT, "noise": {"negatives": 2}, "model": {"dim": 3}}
    rows = encoded(case, with_options(LOOKUPS, gain=GAINS))
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = next(iter(model.dataset(rows, batch_size=16, shuffle=False)))
    seed = tf.constant([3, 4], tf.int64)
    with tf.GradientTape() as tape:
        loss = model.step_loss(inputs, ids, None, seed, False)
    found = tape.gradient(loss, [extractor.tables[0].value for extractor in model.extractors])
    tables, step = tables_of(model), 1e-5
    checked = 0
    for g, gradient in enumerate(np.asarray(tf.convert_to_tensor(each)) for each in found):
        assert gradient.any()
        for place in ((2, 0), (1, 2), (3, 1)):  # not the unseen key's: it starts at zero, which has no direction
            start, ends = tables[g][0][place], []
            for sign in (1, -1):
                tables[g][0][place] = start + sign * step
                ends.append(noise_loss_loop(model, inputs, ids, seed, tables))
            tables[g][0][place] = start
            assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3, abs=1e-5)
            checked += bool(gradient[place])
    assert checked > 5


@pytest.mark.parametrize("objective", ["nce", UNIT])
def test_new_rows_with_wider_bags_are_evaluated(objective: Any) -> None:
    rows = encoded({"objective": objective, "model": {"dim": 4}}, LOOKUPS)
    narrow = TABLE.filter(pa.array([len(bag) < 3 for bag in TABLE["tags"].to_pylist()]))
    rows = fit(rows.encoder.schema, narrow)
    assert rows.values["tags"].entries.shape[1] == 2
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    model.learn_from(rows)
    new = TABLE.slice(0, 60)
    wide = pa.array([[f"t{(i + j) % 12}" for j in range(i % 5)] for i in range(60)])  # t9.. are unseen
    held = rows.encoder.encode(new.set_column(new.schema.get_field_index("tags"), "tags", wide))
    assert held.values["tags"].entries.shape[1] == 4
    batches = model.dataset(held, batch_size=25, shuffle=False)
    expected, count = 0.0, 0
    for i, (inputs, ids) in enumerate(batches):
        loss = noise_loss_loop(model, inputs, ids, tf.constant([1, i], tf.int64), tables_of(model))
        expected, count = expected + loss * len(ids), count + len(ids)
    assert count == 60
    assert model.evaluate(batches, verbose=0) == pytest.approx(expected / 60, rel=2e-5)


def test_items_are_dropped_in_training_alike_in_a_repeated_step_only() -> None:
    rate = {"who": 0.5, "tags": 0.5, "place": 0.5}
    rows = encoded({"objective": "nce", "model": {"dim": 4}}, with_options(LOOKUPS, item_dropout=rate))
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    inputs, _ = one_batch(model, rows)
    still, one, again = (model.extract(inputs, training) for training in (False, True, True))
    model.optimizer.iterations.assign_add(1)
    later = model.extract(inputs, True)

    def free(extracted: Any) -> list[Any]:
        return [each.levels[0].free.numpy() for each in extracted]

    gone = [(x != 0).any(1) & ~(y != 0).any(1) for x, y in zip(free(still), free(one), strict=True)]
    assert 0 < gone[0].mean() < 1
    there = (free(still)[0] != 0).any(1)  # `place` is in every row
    assert (gone[0] != gone[2])[there].any()  # each group has its own
    for x, y, z in zip(free(one), free(again), free(later), strict=True):
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


def test_one_rank_is_the_plain_model_to_the_last_bit() -> None:
    losses = [
        trained(encoded({"model": model, "objective": "nce"}, LOOKUPS), 2)[1] for model in ({"dim": 6}, {"ranks": [6]})
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("name", ["nce, joint", pytest.param("contrastive pool, ranks", marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(name: str) -> None:
    case = CASES[name]
    rows = encoded(case, LOOKUPS)
    weights = [np.concatenate([w.ravel() for w in trained(rows, 2)[0].get_weights()]) for _ in range(2)]
    assert weights[0].tobytes() == weights[1].tobytes()
    other = Feat2Vec.from_encoder(encoded({**case, "training": {"seed": 1}}, LOOKUPS).encoder)
    assert np.concatenate([w.ravel() for w in other.get_weights()]).tobytes() != weights[0].tobytes()


def test_a_step_is_traced_once_and_touches_only_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = encoded({"objective": "nce", "noise": {"negatives": 1}, "model": {"dim": 3}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(steps_per_execution=2)
    calls = []
    step = model.train_step

    def counted(data: Any) -> Any:
        calls.append(data)
        return step(data)

    monkeypatch.setattr(model, "train_step", counted)
    before = model.extractors[1].tables[0].numpy()
    model.fit(model.dataset(rows, batch_size=4), steps_per_epoch=2, epochs=1, verbose=0)
    touched = (model.extractors[1].tables[0].numpy() != before).any(axis=1)
    assert 0 < touched.sum() < len(touched)
    model.fit(model.dataset(rows, batch_size=4), epochs=1, verbose=0)
    assert len(calls) <= 2  # fit makes its function anew, the steps inside it do not


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


def test_weights_weigh_the_rows() -> None:
    case = {"objective": {"type": "regression", "target": "score", "weight": "count"}}
    rows = encoded(case, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, target, weight = one_batch(model, rows)
    found = float(model.step_loss(inputs, target, weight, tf.constant([0, 0], tf.int64), False))
    each = (model(inputs).numpy() - TABLE["score"].to_numpy()) ** 2 * TABLE["count"].to_numpy()
    assert found == pytest.approx(each.mean(), rel=1e-5)


def labelled_loss(case: dict[str, Any], *, training: bool = True) -> tuple[float, Feat2Vec, Any]:
    """The loss of the whole table, and what it is of."""
    rows = encoded(case, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, truth, *weight = one_batch(model, rows)
    loss = model.step_loss(inputs, truth, weight[0] if weight else None, tf.constant([5, 6], tf.int64), training)
    return float(loss), model, (inputs, truth, *weight)


def test_classes_weigh_what_the_schema_says() -> None:
    label = TABLE["label"].to_numpy()
    given = {"0": 0.5, "1": 3.0}
    for objective, weights in (
        ({"class_weights": given}, np.where(label > 0, 3.0, 0.5)),
        ({"class_weights": {"1": 4.0}}, np.where(label > 0, 4.0, 1.0)),
        ({"class_weights": "balanced"}, len(label) / 2 / np.where(label > 0, label.sum(), (1 - label).sum())),
        ({"class_weights": given, "weight": "count"}, np.where(label > 0, 3.0, 0.5) * TABLE["count"].to_numpy()),
    ):
        loss, model, (inputs, *_) = labelled_loss({"objective": {"type": "logistic", "target": "label", **objective}})
        scores = model(inputs).numpy().astype(float)
        each = np.logaddexp(0, np.where(label > 0, -scores, scores))
        assert loss == pytest.approx((weights * each).mean(), rel=1e-5)


def test_balanced_classes_weigh_the_same_together_in_other_rows_as_well() -> None:
    rows = encoded({"objective": {"type": "softmax", "target": "place", "class_weights": "balanced"}}, UNTARGETED)
    model = Feat2Vec.from_encoder(rows.encoder)
    _, target, weight = one_batch(model, rows)
    sums = np.bincount(target.numpy(), weight.numpy())
    np.testing.assert_allclose(sums, len(rows) / len(sums), rtol=1e-5)
    held = rows.encoder.encode(TABLE.slice(0, 20))
    _, other, of_other = next(iter(model.dataset(held, 20, shuffle=False)))
    by_class = dict(zip(target.numpy().tolist(), weight.numpy().tolist(), strict=True))
    assert [by_class[c] for c in other.numpy().tolist()] == of_other.numpy().tolist()


def test_a_class_that_is_none_cannot_be_weighed() -> None:
    rows = encoded({"objective": {"type": "softmax", "target": "place", "class_weights": {"p9": 2.0}}}, UNTARGETED)
    with pytest.raises(UserError, match="class_weights: there is no class 'p9'"):
        Feat2Vec.from_encoder(rows.encoder).dataset(rows)


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
        made = Feat2Vec.from_encoder(rows.encoder)
        inputs, truth = one_batch(made, rows)
        losses.append(float(made.step_loss(inputs, truth, None, tf.constant([5, 6], tf.int64), True)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_negatives_are_those_of_rows_with_a_1() -> None:
    case = {"objective": {"type": "logistic", "target": "label", "implicit": "who"}, "model": {"dim": 4}}
    case["noise"] = {"negatives": 3}
    loss, model, (inputs, (ids, label)) = labelled_loss(case)
    assert model.noise is not None
    (draw,) = model.noise.sample(ids, tf.constant([5, 6], tf.int64))
    who = model.extractors[0].tables[0].numpy().astype(float)
    around = sum(model.vectors(name, inputs[name]).levels[0].free.numpy().astype(float) for name in ("tags", "place"))
    others = model({**inputs, "who": tf.zeros_like(inputs["who"])}).numpy().astype(float)
    keys = model.value_tables[0].numpy()[draw.values[0].numpy() + 1][..., 0]  # [rows, k]
    total = np.logaddexp(0, np.where(label.numpy() > 0, -1, 1) * model(inputs).numpy()).sum()
    for r in range(len(keys)):
        if label[r] > 0 and bool(draw.present[r]):
            total += sum(np.logaddexp(0, others[r] + around[r] @ who[key - 1]) for key in keys[r])
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
        ({"type": "regression", "target": "score"}, TABLE["score"].to_numpy().mean()),
        ({"type": "glove", "target": "count"}, np.log(TABLE["count"].to_numpy()).mean()),
        ({"type": "logistic", "target": "label"}, np.log(1 / (1 / TABLE["label"].to_numpy().mean() - 1))),
    ],
)
def test_a_bias_begins_at_the_targets_mean(objective: Any, start: float) -> None:
    _, model, _ = labelled_loss({"objective": objective, "model": {"bias": True}})
    assert float(model.bias) == pytest.approx(start, rel=1e-5)


@pytest.mark.parametrize(
    "levels",
    [
        {"dim": 16},
        {"ranks": [2, 4, 16]},
        {"ranks": [2, 4, 16], "dependents": "strict"},
        {"ranks": [2, 4, 16], "level_sharing": "truncate"},
    ],
)
@pytest.mark.parametrize(
    ("groups", "together"),
    [
        (("who", "place"), []),
        (("who", "tags", "place"), []),
        (("who", "size", "tags"), []),
        (("who", "place", "tags"), [["tags", "who"]]),
        (("who", "size", "place"), [["who", "size"]]),
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
    found = []
    for keyed in (True, False):
        with pytest.MonkeyPatch.context() as patch, tf.GradientTape() as tape:
            patch.setattr(Feat2Vec, "is_keyed", keyed)
            loss = model.step_loss(inputs, target, None, tf.constant([1, 2], tf.int64), True)
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        found.append([float(loss), *(tf.convert_to_tensor(gradient).numpy() for gradient in gradients)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


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
    each = {name: model.vectors(name, inputs[name]) for name in model.groups}
    expected = float(model.bias) + sum(one.linear.numpy().astype(float) for one in each.values())
    for name, other in itertools.combinations(each, 2):
        if any(name in some and other in some for some in together):
            continue
        for here, there in zip(each[name].levels, each[other].levels, strict=True):
            f, d, f_, d_ = (
                np.zeros_like(like) if part is None else part.numpy().astype(float)
                for one, like in ((here, here.free.numpy()), (there, there.free.numpy()))
                for part in one
            )
            if "level_sharing" in levels:
                f, d, f_, d_ = f + d, 0 * d, f_ + d_, 0 * d_
            expected = expected + (f * f_ + f * d_ + d * f_).sum(axis=1)
    found = model._submodels(model.extract(inputs, keyed=model.is_keyed), training=False).scores[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


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
    masks = model._interaction_masks(192)
    assert masks is not None
    for mask, odds in zip(masks, (0.75, 1.5, 3.0), strict=True):
        kept = 1 / (1 + odds)
        values = mask.numpy()
        assert sorted(set(values.round(4).ravel())) == [0.0, pytest.approx(1 / kept, rel=1e-4)]
        assert (values > 0).mean() == pytest.approx(kept, abs=4 * np.sqrt(kept * (1 - kept) / values.size))


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


def test_dropout_is_for_training_only() -> None:
    case = {
        "objective": {"type": "regression", "target": "score"},
        "training": {"interaction_dropout": 0.5},
        "model": {"dim": 8},
    }
    rows = encoded(case, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    inputs, _ = one_batch(model, rows)
    np.testing.assert_array_equal(model(inputs), model(inputs, training=False))
    assert not np.array_equal(model(inputs, training=True), model(inputs))
    rows = encoded({"objective": "nce", "training": {"group_dropout": 0.5}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = one_batch(model, rows)
    seed = tf.constant([3, 4], tf.int64)
    plain, dropped, again = (float(model.step_loss(inputs, ids, None, seed, mode)) for mode in (False, True, True))
    assert plain != dropped == again


def test_a_loss_that_is_not_finite_stops_the_weights_and_tells_the_step() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model, _ = trained(rows, 1)
    batches = iter(model.dataset(rows, batch_size=32))
    assert int(model.failed_at) == -1
    step = int(model.optimizer.iterations)
    model.train_step(next(batches))
    table = model.extractors[0].tables[0]
    good = table.numpy()
    table.assign(np.full_like(good, np.nan))
    model.train_step(next(batches))
    assert int(model.failed_at) == step + 1
    assert np.isnan(table.numpy()).all()
    table.assign(good)
    before = [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]
    for _ in range(2):  # finite again, and still nothing moves
        model.train_step(next(batches))
    names = {id(v) for v in (model.loss_tracker.total, model.loss_tracker.count)}
    held = [(v, old) for v, old in zip((*model.variables, *model.optimizer.variables), before, strict=True)]
    assert all(v.numpy().tobytes() == old for v, old in held if id(v) not in names)
    assert int(model.failed_at) == step + 1


def test_a_class_that_training_has_not_seen_has_no_loss() -> None:
    rows = encoded(CASES["softmax"], UNTARGETED)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    new = TABLE.slice(0, 40)
    strange = pa.array([p if i % 4 else "elsewhere" for i, p in enumerate(new["place"].to_pylist())])
    new = new.set_column(new.schema.get_field_index("place"), "place", strange)
    seen = new.filter(pa.array([i % 4 != 0 for i in range(40)]))
    found, expected = (
        model.evaluate(model.dataset(rows.encoder.encode(part), batch_size=7, shuffle=False), verbose=0)
        for part in (new, seen)
    )
    assert np.isfinite(found)
    assert found == pytest.approx(expected, rel=1e-5)
    none = model.dataset(rows.encoder.encode(new.take([0, 4, 8])), shuffle=False)
    assert model.evaluate(none, verbose=0) == 0


def test_an_epoch_has_every_row_once_and_the_next_has_another_order() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    batches = model.dataset(rows, batch_size=50)
    assert len(batches) == 4
    epochs = [[ids.numpy() for _, ids in batches] for _ in range(2)]
    assert [[len(ids) for ids in epoch] for epoch in epochs] == [[48] * 4] * 2  # 192 rows
    first, second = (np.concatenate(epoch) for epoch in epochs)
    assert not np.array_equal(first, second)
    for epoch in (first, second):
        assert sorted(epoch.tolist()) == sorted(np.asarray(rows.rows).tolist())
    uneven = [len(ids) for _, ids in model.dataset(rows, batch_size=55)]
    assert sum(uneven) == len(rows)
    assert max(uneven) - min(uneven) <= 1
    ordered = np.concatenate([ids.numpy() for _, ids in model.dataset(rows, batch_size=55, shuffle=False)])
    np.testing.assert_array_equal(ordered, rows.rows)


def test_noise_on_targets_alone_reaches_the_pointwise_mutual_information() -> None:
    """A planted corpus through schema, fit and sampler: s = PMI(word, context) - log k (003, 3.3)."""
    counts, k = np.array([[6, 1, 1], [1, 4, 2], [2, 1, 5]]), 8
    words, contexts = (np.repeat(side.ravel(), counts.ravel() * 40) for side in np.indices(counts.shape))
    corpus = pa.table({"word": [f"w{w}" for w in words], "context": [f"c{c}" for c in contexts]})
    schema = {
        "version": 1, "groups": {"word": {"column": "word"}, "context": {"column": "context"}},
        "objective": "negative_sampling", "model": {"dim": 8},
        "noise": {"targets": ["context"], "alpha_values": 1.0, "negatives": k},
        "training": {"batch_size": len(words)},
    }  # fmt: skip
    rows = fit(read_schema(schema), corpus)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile(optimizers.named("adam", keras.optimizers.schedules.CosineDecay(0.05, 800)), steps_per_execution=100)
    model.fit(model.dataset(rows).repeat(), steps_per_epoch=800, epochs=1, verbose=0)
    assert model.noise is not None
    assert [unit.groups for unit in model.noise.units] == [(1,)]
    p = counts / counts.sum()
    expected = np.log(p / np.outer(p.sum(1), p.sum(0))) - np.log(k)
    grid = pa.table({"word": [f"w{w}" for w in range(3) for _ in range(3)], "context": ["c0", "c1", "c2"] * 3})
    scores = model(one_batch(model, rows.encoder.encode(grid))[0]).numpy().reshape(3, 3)
    np.testing.assert_allclose(scores, expected, atol=0.1)


def test_weights_of_targets_are_shares_of_the_rows() -> None:
    def q1(**noise: Any) -> dict[tuple[int, ...], float]:
        rows = encoded({"objective": "nce", "noise": noise}, LOOKUPS)
        model = Feat2Vec.from_encoder(rows.encoder)
        model.learn_from(rows)
        assert model.noise is not None
        return {unit.groups: unit.probability for unit in model.noise.units}

    assert q1(targets={"place": 3, "who": 1}) == pytest.approx({(0,): 0.25, (2,): 0.75})
    weights = {"tags": 1, "who": 2, "place": 5}
    assert q1(targets=weights, joint=[["who", "tags"]]) == pytest.approx({(0, 1): 3 / 8, (2,): 5 / 8})
    assert q1(targets={}) == q1(targets=[]) == q1()
    assert q1(targets=["who", "place"]) != pytest.approx(
        {(0,): 0.5, (2,): 0.5}
    )  # a list leaves it to the weights' number


def test_the_schemas_optimizer_is_in_units_of_a_row() -> None:
    rows = encoded({"objective": "nce", "training": {"batch_size": 64}}, LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    assert isinstance(model.optimizer, optimizers.SparseAdagrad)
    assert model.optimizer.row_scale == 1 / 64
    table = model.extractors[0].tables[0]
    np.testing.assert_allclose(model.optimizer._accumulators[model.optimizer.index(table)], 0.1 / 64**2, rtol=1e-6)
    np.testing.assert_allclose(model.optimizer._accumulators[model.optimizer.index(model.offsets)], 0.1)


def test_validation_draws_the_same_negatives_every_time() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.compile()
    model.learn_from(rows)
    held = rows.encoder.encode(TABLE.slice(0, 60))
    batches = model.dataset(held, batch_size=20, shuffle=False)
    first = model.evaluate(batches, verbose=0)
    assert np.isfinite(first)
    assert first == model.evaluate(batches, verbose=0)


def test_unseen_values_and_absent_columns_are_scored() -> None:
    rows = encoded(CASES["nce, joint"])
    model = Feat2Vec.from_encoder(rows.encoder)
    new = rows.encoder.encode(pa.table({"who": ["nobody", "w1", None], "tags": [["t1", "x"], [], None]}))
    inputs = next(iter(model.dataset(new, shuffle=False)))[0]
    assert np.isfinite(model(inputs)).all()
    assert float(model(inputs)[2]) == pytest.approx(float(model.bias.numpy()))


def test_the_offset_starts_at_the_mean_of_log_k_q() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.dataset(rows)
    for g, name in enumerate(LOOKUPS):
        counts = rows.values[name].counts.astype(np.float64) ** 0.75
        q = counts / counts.sum()
        assert model.offsets.numpy()[g] == pytest.approx((q * np.log(5 * q)).sum(), rel=1e-5)


def test_mistakes_are_told() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs = {name: tf.zeros((1, shape.width), tf.int32) for name, shape in model.shapes.items()}
    with pytest.raises(ValueError, match=r"make its batches by model\.dataset"):
        model.step_loss(inputs, tf.zeros((1, 3), tf.int32), None, [0, 0], True)
    rows = encoded(CASES["regression"])
    model = Feat2Vec.from_encoder(rows.encoder)
    with pytest.raises(ValueError, match="the rows have no target, 'score'"):
        model.dataset(rows.encoder.encode(pa.table({"who": ["w1"]})))


def test_a_saved_model_runs_no_code_of_the_users(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise RuntimeError('executed')")
    schema = {"version": 1, "plugins": ["evil"], "groups": {"a": {"column": "a"}, "b": {"column": "b"}}}
    config = {"schema": dump_document(schema), "shapes": {"a": [1, [3], False], "b": [1, [3], False]}, "classes": 0}
    with pytest.raises(Exception, match="would run the code of 'evil'"):
        Feat2Vec.from_config(config)
