"""The noise loss against loops over rows and candidates, and what it converges to."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import fit
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.noise_loss import context_mask, noise_loss, split_by_unit
from feat2vec.model.vector_model import SeedOf
from feat2vec.sampling.noise import Unit
from feat2vec.schema.reading import read_schema
from tests import reference
from tests.model.planted_rows import CASES, LOOKUPS, TABLE, encoded, one_batch, with_options

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
        entry_items = []
        for id_ in entry[entry > 0].tolist():
            vectors = [tables[g][0][id_ - 1], *(table[id_ - 2] for table in tables[g][1:] if 0 <= id_ - 2 < len(table))]
            entry_items.append(reference.Item(len(vectors), gains[g], vectors))
        return entry_items

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
            row_items = [items(g, inputs[name][at + r].numpy()) for g, name in enumerate(model.groups)]
            picks = [[row_items[g] for g in target.groups]]
            for k in range(noise.negatives):
                ids = [value[k] if value.ndim == 1 else value[r, k] for value in drawn]
                picks.append([items(g, values[g][i + 1]) for g, i in zip(target.groups, ids, strict=True)])
            scores: list[list[float]] = [[] for _ in levels]
            for pick in picks:
                candidate = list(row_items)
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


def unit_of(*groups: int) -> Unit:
    return Unit(groups, groups[0], 9, 0.5, -1.0)


def test_the_context_of_a_row_is_the_groups_outside_its_unit() -> None:
    units, sizes = [unit_of(1), unit_of(0, 2)], tf.constant([2, 3])
    keep = context_mask(units, sizes, 4, "float32")
    np.testing.assert_array_equal(keep, [[1, 0, 1, 1]] * 2 + [[0, 1, 0, 1]] * 3)


def test_a_part_of_the_context_is_dropped_alike_for_the_same_seed() -> None:
    units, sizes = [unit_of(0), unit_of(1)], tf.constant([500, 500])
    undropped, first, repeated, later = (
        context_mask(units, sizes, 5, "float32", group_dropout=dropout, seed=seed).numpy()
        for dropout, seed in ((0.0, None), (0.25, [1, 2]), (0.25, [1, 2]), (0.25, [1, 3]))
    )
    np.testing.assert_array_equal(first, repeated)
    assert (first != later).any()
    assert (first <= undropped).all()
    assert first.sum() / undropped.sum() == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize("graph", [True, False])
def test_the_rows_of_each_unit_have_the_sum_of_what_is_kept_and_their_own_vectors(graph: bool) -> None:
    rng = np.random.default_rng(0)
    units, sizes = [unit_of(1), unit_of(0, 2), unit_of(0)], [3, 0, 4]
    unit_of_row = np.repeat(range(3), sizes)  # [rows]
    is_own = np.array([[g in units[u].groups for g in range(3)] for u in unit_of_row])  # [rows, groups]
    keep = np.where(is_own, 0.0, rng.integers(0, 2, (7, 3)))
    vectors = rng.normal(size=(3, 7, 4))  # [groups, rows, D]
    slopes, own_slopes = rng.normal(size=(2, 7, 4))  # of what is made of contexts, and of own vectors
    tensors = [tf.constant(part) for part in vectors]

    def parts_and_gradients() -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            parts = split_by_unit(units, tf.constant(sizes), tensors, tf.constant(keep))
            total = tf.reduce_sum(tf.concat(parts.contexts, 0) * slopes)
            for u, of_unit in enumerate(parts.positives):
                total += sum(tf.reduce_sum(own * own_slopes[unit_of_row == u]) for own in of_unit)
        return parts, tape.gradient(total, tensors)

    parts, gradients = (tf.function(parts_and_gradients) if graph else parts_and_gradients)()
    contexts = np.einsum("gri,rg->ri", vectors, keep)
    for u, unit in enumerate(units):
        np.testing.assert_allclose(parts.contexts[u], contexts[unit_of_row == u])
        for own, g in zip(parts.positives[u], unit.groups, strict=True):
            np.testing.assert_array_equal(own, vectors[g][unit_of_row == u])
    for g, gradient in enumerate(gradients):
        np.testing.assert_allclose(gradient, slopes * keep[:, g : g + 1] + own_slopes * is_own[:, g : g + 1])


@pytest.mark.thinned(3)
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
    built = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = next(iter(built.dataset(rows, batch_size=64, shuffle=False)))
    seed = tf.constant([7, 8], tf.int64)
    loss = float(built.step_loss(inputs, ids, None, seed, True))
    assert loss == pytest.approx(noise_loss_loop(built, inputs, ids, seed, tables_of(built)), rel=2e-5)


@pytest.mark.parametrize(
    ("objective", "noise", "spec"),
    [
        ({"type": "contrastive", "temperature": 0.3}, {"sharing": "batch"}, {"dim": 4}),
        (UNIT, {"joint": [["who", "tags"]]}, {"ranks": [2, 4, 8]}),
    ],
)
def test_contrastive_sums_of_many_groups_are_those_of_few(
    objective: Any, noise: dict[str, Any], spec: dict[str, Any]
) -> None:
    """Up to `max_split_groups` each unit adds up its own context; beyond, those of all units are added up at once."""
    case = {"objective": objective, "noise": {"negatives": 3, **noise}, "model": spec}
    rows = encoded(case, with_options(LOOKUPS, gain=GAINS))
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = next(iter(model.dataset(rows, batch_size=64, shuffle=False)))
    seed = tf.constant([7, 8], tf.int64)
    assert model.noise is not None
    draws, units = model.noise.sample(ids, seed), model.noise.units
    negative_values: dict[int, Any] = {}
    for unit, draw in zip(units, draws, strict=True):
        negative_values.update(zip(unit.groups, draw.values, strict=True))
    keep = context_mask(units, tf.stack([len(draw.rows) for draw in draws]), len(LOOKUPS), "float32")
    tables = [table.value for extractor in model.extractors for table in extractor.tables]
    expected = noise_loss_loop(model, inputs, ids, seed, tables_of(model))
    gradients = []
    for max_split_groups in (len(LOOKUPS), len(LOOKUPS) - 1):
        with tf.GradientTape() as tape:
            vectors = model._extract_with_negatives(inputs, negative_values, True)
            loss = noise_loss(
                model.schema, units, draws, vectors, keep, 0.0, None, training=True, max_split_groups=max_split_groups
            )
        assert float(loss) == pytest.approx(expected, rel=2e-5)
        gradients.append([tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(loss, tables)])
    for split, at_once in zip(*gradients, strict=True):
        np.testing.assert_allclose(at_once, split, rtol=1e-3, atol=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.usefixtures("no_graphs")
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
    seed = model.step_seed(SeedOf.VALIDATION, 0)  # of the first batch of a validation
    top_loss, loss_with_levels = (
        noise_loss_loop(model, inputs, ids, seed, tables_of(model), training=training) for training in (False, True)
    )
    assert loss_with_levels > 1.2 * top_loss
    assert model.evaluate(batches, verbose=0) == pytest.approx(top_loss, rel=2e-5)


def test_gradients_of_unit_candidates_are_central_differences() -> None:
    case = {"objective": UNIT, "noise": {"negatives": 2}, "model": {"dim": 3}}
    rows = encoded(case, with_options(LOOKUPS, gain=GAINS))
    model = Feat2Vec.from_encoder(rows.encoder)
    inputs, ids = next(iter(model.dataset(rows, batch_size=16, shuffle=False)))
    seed = tf.constant([3, 4], tf.int64)
    with tf.GradientTape() as tape:
        loss = model.step_loss(inputs, ids, None, seed, False)
    gradients = tape.gradient(loss, [extractor.tables[0].value for extractor in model.extractors])
    tables, step = tables_of(model), 1e-5
    checked = 0
    for g, gradient in enumerate(np.asarray(tf.convert_to_tensor(table_gradient)) for table_gradient in gradients):
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


@pytest.mark.usefixtures("no_graphs")
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


@pytest.mark.slow
def test_noise_on_targets_alone_reaches_the_pointwise_mutual_information() -> None:
    """A planted corpus through schema, fit and sampler: s = PMI(word, context) - log k (Levy and Goldberg, 2014)."""
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
    # a list of targets leaves the shares to the number of weights
    assert q1(targets=["who", "place"]) != pytest.approx({(0,): 0.5, (2,): 0.5})


@pytest.mark.usefixtures("no_graphs")
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


def test_the_offset_starts_at_the_mean_of_log_k_q() -> None:
    rows = encoded(CASES["nce"], LOOKUPS)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.dataset(rows)
    for g, name in enumerate(LOOKUPS):
        counts = rows.values[name].counts.astype(np.float64) ** 0.75
        q = counts / counts.sum()
        assert model.offsets.numpy()[g] == pytest.approx((q * np.log(5 * q)).sum(), rel=1e-5)
