"""Many groups at once: what is learnt is what is learnt one by one, in a graph that grows little with the groups."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import feat2vec
from feat2vec.encode.encoder import Encoded
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.many_groups import ENTRIES, ManyLookups, rows_at
from feat2vec.model.optimizers import Rows, SparseAdagrad, SparseAdam, by_row
from feat2vec.model.padded_keys import KEY_COUNTS, KEY_ROWS, SIZE, SLOTS, PaddedKeys

RECORD: dict[str, Any] = {"sharing": "record", "negatives": 3}
SHARED: dict[str, Any] = {"sharing": "batch", "negatives": 4}
L2: dict[str, Any] = {"l2": 0.1, "l2_groups": {"a": 0.0, "b": 0.7}, "l2_linear": 0.2}
CASES: dict[str, dict[str, Any]] = {
    "nce": {"objective": "nce", "noise": RECORD, "training": {**L2, "group_dropout": 0.3}},
    "nce, shared": {"objective": "nce", "noise": {**SHARED, "targets": ["a", "c"]}},
    "negative sampling": {"objective": "negative_sampling", "noise": RECORD, "model": {"dim": 3}},
    "contrastive": {"objective": "contrastive", "noise": SHARED, "model": {"dim": 3}},
    "contrastive, unit": {"objective": {"type": "contrastive", "unit": True}, "noise": RECORD},
    "logistic": {"objective": {"type": "logistic", "target": "hit"}, "training": {**L2, "interaction_dropout": 0.2}},
    "members": {
        "objective": {"type": "logistic", "target": "hit", "zero_as": 0.1},
        "model": {"dim": 4, "members": 2},
        "training": {**L2, "interaction_dropout": 0.2},
    },
    **{
        f"ranks, {name}": {
            "objective": {"type": "logistic", "target": "hit"},
            "model": {"ranks": [2, 3, 5], "bias": True, **model},
            "training": {**L2, "interaction_dropout": 0.2},
        }
        for name, model in (
            ("joint", {}),
            ("strict", {"dependents": "strict"}),
            ("truncated", {"level_sharing": "truncate"}),
            ("together", {"together": [["a", "c"]]}),
            ("together, strict", {"together": [["b", "d"]], "dependents": "strict"}),
            ("together, truncated", {"together": [["a", "b"]], "level_sharing": "truncate"}),
        )
    },
    "together": {
        "objective": {"type": "logistic", "target": "hit"},
        "model": {"dim": 4, "bias": True, "together": [["a", "c", "d"]]},
        "training": L2,
    },
    "members, together": {
        "objective": {"type": "logistic", "target": "hit"},
        "training": {"interaction_dropout": 0.2},
        "model": {"dim": 4, "members": 2, "together": [["a", "c", "d"]]},
    },
    "regression": {"objective": {"type": "regression", "target": "hit"}, "model": {"dim": 3}},
    **{
        f"activation, {name}": {
            "objective": {"type": "logistic", "target": "hit"},
            "model": {"bias": True, "dim": 4, "activation": {"count": 8}, **model},
            "training": {**L2, "interaction_dropout": 0.2},
        }
        for name, model in (
            ("count", {}),
            ("linear", {"activation": {"count": 8, "linear": True}}),
            ("linear alone", {"activation": {"count": 1, "linear": True}}),
            ("members", {"members": 2}),
            ("together", {"together": [["a", "c"]]}),
        )
    },
    **{
        f"activation, ranks, {sharing}": {
            "objective": {"type": "logistic", "target": "hit"},
            "model": {
                "bias": True, "ranks": [2, 5], "level_sharing": sharing, "activation": {"count": 10, "linear": True}
            },
            "training": L2,
        }
        for sharing in ("separate", "truncate")
    },
    "linear": {
        "objective": {"type": "logistic", "target": "hit"},
        "model": {"pairs": False},
        "training": {"l2_linear": 0.2},
    },
    "whole models": {
        "objective": {"type": "logistic", "target": "hit"},
        "model": {"ranks": [2, 5], "level_sharing": "all", "bias": True},
        "training": {**L2, "interaction_dropout": 0.2},
    },
    "dependent rate": {
        "objective": {"type": "logistic", "target": "hit"},
        "model": {"ranks": [2, 3, 5], "bias": True},
        "training": {"dependent_rate": 0.02},
    },
}  # fmt: skip
FAST = ("nce", "members", "linear")
COMPILED_FAST = ("logistic",)


def encoded(case: dict[str, Any], groups: str = "abcd", **training: Any) -> Encoded:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        name: [None if i % 7 == 0 else f"{name}{int(i**0.5)}" for i in rng.permutation(60)] for name in groups
    }
    schema = {
        "version": 1, "model": {"dim": 3, "bias": True}, **case, "groups": {name: {"column": name} for name in groups},
        "training": {"batch_size": 16, **case.get("training", {}), **training},
    }  # fmt: skip
    return feat2vec.fit(schema, pa.table({**columns, "hit": [i % 2 for i in range(60)]}))


def trained(rows: Encoded, groups_at_once: bool, compiled: bool = False) -> tuple[list[Any], dict[str, list[float]]]:
    """The weights after two epochs, and the losses."""
    model = Feat2Vec.from_encoder(rows.encoder)
    model.min_many_groups = 4
    model.compile(optimizers.named(rows.encoder.schema.training.optimizer.type, 0.1))
    model.optimizer.min_tables = 4
    model.learn_from(rows)
    batches = model.batches(rows, groups_at_once=groups_at_once, compiled=compiled)
    assert (model.compiled_step is not None) == compiled
    validation_batches = model.batches(rows, shuffle=False, groups_at_once=groups_at_once)
    assert (list(batches.tables) == [ENTRIES]) == groups_at_once
    history = model.fit(batches.dataset(), validation_data=validation_batches.dataset(), epochs=2, verbose=0).history
    return [weight.numpy() for weight in model.weights], history


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in CASES],
)
def test_what_is_learnt_at_once_is_what_is_learnt_one_by_one(name: str) -> None:
    rows = encoded(CASES[name], optimizer="adam" if name == "regression" else "adagrad")
    weights, history = trained(rows, groups_at_once=False)
    weights_at_once, history_at_once = trained(rows, groups_at_once=True)
    for variable, variable_at_once in zip(weights, weights_at_once, strict=True):
        np.testing.assert_allclose(variable_at_once, variable, rtol=2e-4, atol=2e-5)
    for key, losses in history.items():
        np.testing.assert_allclose(history_at_once[key], losses, rtol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in COMPILED_FAST else pytest.mark.slow)
        for name, case in CASES.items()
        if "hit" in str(case["objective"]) and "activation" not in name and name != "linear"
    ],
)
def test_a_compiled_step_learns_what_operations_learn(name: str) -> None:
    rows = encoded(CASES[name], optimizer="adam" if name == "regression" else "adagrad", batch_size=13)
    weights, history = trained(rows, groups_at_once=True)
    compiled_weights, compiled_history = trained(rows, groups_at_once=True, compiled=True)
    for variable, compiled_variable in zip(weights, compiled_weights, strict=True):
        np.testing.assert_allclose(compiled_variable, variable, rtol=2e-5, atol=2e-6)
    for key, losses in history.items():
        np.testing.assert_allclose(compiled_history[key], losses, rtol=1e-5)


@pytest.mark.usefixtures("no_graphs")
@pytest.mark.parametrize("name", ["activation, linear", "activation, ranks, separate"])
def test_keys_without_a_vector_are_left_out_at_once_as_one_by_one(name: str) -> None:
    rows = encoded(CASES[name], batch_size=60)
    model = Feat2Vec.from_encoder(rows.encoder)
    model.min_many_groups = 4
    rng = np.random.default_rng(5)
    for weight in model.trainable_variables:
        is_terms = len(weight.shape) == 2 and weight.shape[1] == 1
        weight.assign(rng.normal(size=weight.shape) * (rng.random(weight.shape) < 0.7 if is_terms else 1))
    model.learn_from(rows)
    ways = []
    for groups_at_once in (False, True):
        batches = model.batches(rows, shuffle=False, groups_at_once=groups_at_once)
        inputs, truth, *weights = next(iter(batches.dataset()))
        assert (ENTRIES in inputs) == groups_at_once
        loss, pairs = model.loss_and_gradients(inputs, truth, weights[0] if weights else None, tf.constant([0, 1]))
        dense = {variable.path: np.zeros(variable.shape, np.float32) for _, variable in pairs}
        for gradient, variable in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                np.add.at(dense[variable.path], gradient.indices.numpy(), gradient.values.numpy())
            else:
                dense[variable.path] += gradient.numpy()
        ways.append((loss, dense))
    (loss, gradients), (loss_at_once, gradients_at_once) = ways
    np.testing.assert_allclose(loss_at_once, loss, rtol=1e-5)
    assert set(gradients_at_once) == set(gradients)
    for path, gradient in gradients.items():
        np.testing.assert_allclose(gradients_at_once[path], gradient, rtol=1e-4, atol=1e-5)


def test_only_plain_lookups_are_many() -> None:
    def is_read_at_once(case: dict[str, Any], **options: Any) -> bool:
        groups = {name: {"column": name} for name in "abcd"} | {"a": {"column": "a", "extractor": options}}
        data = pa.table({name: [f"{name}{i % 5}" for i in range(20)] for name in "abcd"})
        schema = {"version": 1, "noise": RECORD, "groups": groups, **case}
        model = Feat2Vec.from_encoder(feat2vec.fit(schema, data).encoder)
        model.min_many_groups = 4
        return model.has_many_groups

    lookup = {"type": "lookup"}
    assert is_read_at_once({}, **lookup)
    assert not is_read_at_once({}, **lookup, gain=2.0)
    assert not is_read_at_once({}, **lookup, multi=True, split="3", max_items=2)
    assert not is_read_at_once({"noise": {**RECORD, "joint": [["a", "b"]]}}, **lookup)
    assert not is_read_at_once({"model": {"ranks": [2, 3]}}, **lookup)
    assert not is_read_at_once({"training": {"l2": 0.1, "l2_over": "tables"}}, **lookup)
    model = Feat2Vec.from_encoder(encoded(CASES["nce"]).encoder)
    model.min_many_groups = 4
    before = model.has_many_groups
    model.extractors[0].trainable = False
    assert (before, model.has_many_groups) == (True, False)
    few_groups = Feat2Vec.from_encoder(encoded(CASES["nce"], groups="abc").encoder)
    few_groups.min_many_groups = 4
    assert not few_groups.has_many_groups


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["nce", *(pytest.param(n, marks=pytest.mark.slow) for n in ("contrastive", "logistic"))]
)
def test_operations_grow_with_the_groups_and_slowly(target: str) -> None:
    def operations(groups: int) -> int:
        case = {"objective": {"type": "logistic", "target": "hit"} if target == "logistic" else target}
        names = [f"g{i:02}" for i in range(groups)]
        table = pa.table({**{name: ["x", "y", "z", "x"] for name in names}, "hit": [0, 1, 1, 0]})
        schema = {"version": 1, "groups": {name: {"column": name} for name in names}, **case}
        rows = feat2vec.fit(schema, table)
        model = Feat2Vec.from_encoder(rows.encoder)
        model.compile()
        model.optimizer.build(model.trainable_variables)
        model.learn_from(rows)
        batch = next(iter(model.batches(rows, groups_at_once=True).dataset()))
        graph = tf.function(model.train_step).get_concrete_function(batch).graph.as_graph_def()
        return len(graph.node) + sum(len(function.node_def) for function in graph.library.function)

    few, more = operations(40), operations(60)
    assert (more - few) / 20 < 25


# --- the parts ------------------------------------------------------------------------------------------------------


def test_distinct_rows_of_several_tables_are_read_group_by_group() -> None:
    rows = encoded(CASES["nce"], groups="abc")
    model = Feat2Vec.from_encoder(rows.encoder)
    many = ManyLookups(model.extractors, bias=True)
    entries, groups = np.array([6, 0, 2, 6, 1, 3], np.int32), np.array([2, 0, 1, 2, 0, 0], np.int32)
    read, slots = many.read(many.places(entries, groups))
    assert [ids.numpy().tolist() for ids in read.levels[0].rows.ids] == [[0, 2], [1], [5]]
    assert read.counts.numpy().tolist() == [1, 1, 1, 2]
    tables = [extractor.tables[0].numpy() for extractor in model.extractors]
    expected = [tables[g][e - 1] if e else np.zeros(3) for e, g in zip(entries, groups, strict=True)]
    np.testing.assert_array_equal(rows_at(read.vectors, slots), expected)


def test_distinct_keys_of_a_batch_stand_at_places_of_their_table() -> None:
    rows = encoded({"objective": {"type": "logistic", "target": "hit"}, "model": {"ranks": [2, 3]}}, groups="abc")
    model = Feat2Vec.from_encoder(rows.encoder)
    many = ManyLookups(model.extractors, bias=False)
    padded = PaddedKeys(many, rows=4)
    entries = np.array([[6, 0, 1], [2, 6, 3], [6, 2, 0]], np.int32)
    batch = {name: value.numpy() for name, value in padded.of_batch(entries).items()}
    ends = [int(size) for size in many.sizes[0]]  # the row beyond a table's end, at places that stay empty
    assert padded.rooms[0].sizes == [5, 5, 5]  # of unseen keys, and four rows
    rows_of_tables = [[ends[0], 1, 5, ends[0], ends[0]], [ends[1], 1, 5, ends[1], ends[1]], [0, 2, *[ends[2]] * 3]]
    np.testing.assert_array_equal(batch[KEY_ROWS], np.concatenate(rows_of_tables))
    np.testing.assert_array_equal(batch[KEY_COUNTS], [0, 1, 2, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(batch[SLOTS], [[3, 0, 11], [2, 8, 12], [3, 7, 0], [0, 0, 0]])
    assert batch[SIZE] == 3

    @tf.function(jit_compile=True)
    def read() -> list[tf.Tensor]:
        keys = padded.read(tf.constant(batch[KEY_ROWS]), tf.constant(batch[KEY_COUNTS]))
        return [keys.tops, keys.levels[0].vectors, keys.levels[1].vectors, keys.levels[1].places]

    tops, low, high, places = (part.numpy() for part in read())
    sizes = many.sizes[1]
    for slot, entry, group in ((3, 6, 0), (2, 2, 0), (8, 6, 1), (7, 2, 1), (11, 1, 2), (12, 3, 2)):
        np.testing.assert_array_equal(low[slot - 1], model.extractors[group].tables[0].numpy()[entry - 1])
        reaches = 0 <= entry - 2 < sizes[group]
        assert tops[slot - 1] == reaches
        assert (places[slot - 1] > 0) == reaches
        if reaches:
            expected = model.extractors[group].tables[1].numpy()[entry - 2]
            np.testing.assert_array_equal(high[places[slot - 1] - 1], expected)
    assert tops.sum() >= 2  # some keys reach the second level


@pytest.mark.parametrize("optimizer", [SparseAdagrad, SparseAdam])
def test_tables_that_are_updated_as_one_end_as_each_would(optimizer: Any) -> None:
    rng = np.random.default_rng(0)
    start = [rng.normal(size=(5 + i, 3)).astype(np.float32) for i in range(6)]
    gradients = [
        (rng.permutation(5)[: i % 4].astype(np.int64), rng.normal(size=(i % 4, 3)).astype(np.float32)) for i in range(6)
    ]
    ends = []
    for min_tables in (6, 7):
        tables = [by_row(keras.Variable(numbers)) for numbers in start]
        chosen = optimizer(0.1)
        chosen.min_tables = min_tables
        for _ in range(3):
            chosen.apply([Rows(tf.constant(ids), tf.constant(values)) for ids, values in gradients], tables)
        ends.append([one.numpy().tobytes() for one in (*tables, *chosen.variables)])
    assert ends[0] == ends[1]
