"""Values that training has not seen: their vectors are where the run's own loss of their rows is least."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.run import Run
from feat2vec.space import noise_fold_in
from feat2vec.space.fold_in import FoldedIn, fold_in
from feat2vec.space.geometry import Candidates, Queries, dense
from feat2vec.space.labelled_fold_in import parabolas
from feat2vec.space.neighbours import KeptRows
from feat2vec.space.new_values import NewItems, NewRows
from feat2vec.space.noise_fold_in import KnownCandidates, solve_by_noise
from tests.commands import feat2vec as command
from tests.short_trainings import train

pytestmark = pytest.mark.usefixtures("no_graphs")

GROUPS: dict[str, Any] = {
    "user": {"column": "user", "extractor": {"type": "lookup", "gain": 2.0}},
    "film": {"column": "film"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True, "combiner": "mean"}},
    "length": {"column": "length", "extractor": "numeric"},
}
KNOWN, NEW = "u0", "new"  # a user, and what the same user is called in rows to be folded in


def ratings(rows: int = 150, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "user": [f"u{x}" for x in rng.integers(0, 12, rows)],
            "film": [f"f{x}" for x in rng.integers(0, 20, rows)],
            "tags": [[f"t{x}" for x in rng.choice(8, i % 4, replace=False)] for i in range(rows)],
            "shares": [(1 + rng.random(i % 4)).tolist() for i in range(rows)],
            "length": rng.normal(size=rows),
            "rating": rng.normal(3, 2, rows),
            "liked": rng.integers(0, 2, rows),
            "count": rng.integers(1, 30, rows),
            "weight": rng.random(rows) + 0.2,
        }
    )


def renamed(table: pa.Table, group: str, known: str, new: str) -> pa.Table:
    """The rows that hold a value, which has another name there."""
    column = table[group].to_pylist()
    rows = [i for i, value in enumerate(column) if value == known or (isinstance(value, list) and known in value)]
    values = [[new if x == known else x for x in v] if isinstance(v, list) else new for v in (column[i] for i in rows)]
    return table.take(rows).set_column(table.column_names.index(group), group, pa.array(values))


def random_run(schema: dict[str, Any], table: pa.Table, scale: float = 0.5) -> Run:
    """A run of random weights: nothing needs to be learnt for what is asked of it."""
    encoded = feat2vec.fit({"version": 1, "groups": GROUPS, **schema}, table)
    model = Feat2Vec.from_encoder(encoded.encoder)
    rng = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(0, scale, weight.shape))
    for extractor in model.extractors:  # the weights of the unseen key are 0, as after training without one
        if hasattr(extractor, "tables"):
            for table in (extractor.tables[0], *([extractor.linear] if model.schema.model.bias else [])):
                table.assign(np.concatenate([np.zeros((1, table.shape[1])), table.numpy()[1:]]))
    return Run.of_model(model)


def slope_of_loss(run: Run, rows: pa.Table, group: str, known: str, folded: FoldedIn) -> tuple[Any, Any]:
    """The gradient of training's own loss by a known value's weights, where they are those folded in, and where 0."""
    model, place = run.model, run.model.groups.index(group)
    extractor = model.extractors[place]
    vocabulary = run.fitted.codecs[group].vocabulary
    assert vocabulary is not None
    key_row = vocabulary.key_to_id[known] - 1
    (entries,) = run.fitted.entries(rows)
    inputs = {name: tf.constant(dense(group_entries)) for name, group_entries in entries.items()}
    labels = tf.constant(rows[str(run.schema.target)].to_numpy().astype(np.float32))
    weights = tf.constant(rows["weight"].to_numpy().astype(np.float32)) if run.schema.weight else None
    if run.schema.objective.class_weighting:
        weights = tf.where(labels > 0, 3.0, 1.0)
    (index,) = [i for i, key in enumerate(folded.keys.to_pylist()) if key == NEW]
    for table in extractor.tables[1:]:  # a new value has the first level alone
        if key_row - 1 < table.shape[0]:
            array = table.numpy()
            array[key_row - 1] = 0
            table.assign(array)
    variables = [extractor.tables[0], *([extractor.linear] if model.schema.model.bias else [])]
    slopes = []
    for factor in (1.0, 0.0):
        for variable, value in zip(
            variables, (folded.vectors[index] / extractor.spec["gain"], folded.terms[index]), strict=False
        ):
            array = variable.numpy()
            array[key_row] = factor * value
            variable.assign(array)
        with tf.GradientTape() as tape:
            loss = model.step_loss(inputs, labels, weights, tf.constant([0, 0], tf.int64), True)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        slopes.append(np.concatenate([tf.convert_to_tensor(g).numpy()[key_row] for g in gradients]))
    return slopes[0], slopes[1]


TRAINING = {"l2": 0.3, "l2_groups": {"tags": 0.7}, "l2_linear": 0.2}
MODELS: dict[str, dict[str, Any]] = {
    "regression": {"model": {"dim": 4, "bias": True}, "objective": {"type": "regression", "target": "rating"}},
    "weighted, without bias": {
        "model": {"dim": 4}, "objective": {"type": "regression", "target": "rating", "weight": "weight"},
    },
    "together": {
        "model": {"dim": 4, "bias": True, "together": [["user", "length"]]},
        "objective": {"type": "regression", "target": "rating"},
    },
    "logistic": {
        "model": {"dim": 4, "bias": True}, "objective": {"type": "logistic", "target": "liked", "zero_as": 0.1},
    },
    "weighted classes": {
        "model": {"dim": 4, "bias": True},
        "objective": {"type": "logistic", "target": "liked", "class_weights": {"1": 3.0}},
    },
    "glove": {"model": {"dim": 4, "bias": True}, "objective": {"type": "glove", "target": "count", "n_max": 10.0}},
    "weighted lists": {
        "groups": {
            **GROUPS,
            "tags": {
                "column": "tags",
                "extractor": {"type": "lookup", "multi": True, "weights": "shares", "combiner": "sqrtn", "gain": 0.5},
            },
        },
        "model": {"dim": 4, "bias": True}, "objective": {"type": "regression", "target": "rating"},
    },
    "truncated": {
        "model": {"ranks": [2, 5], "bias": True, "level_sharing": "truncate"},
        "objective": {"type": "regression", "target": "rating"},
    },
}  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("group", ["user", "tags"])
def test_at_the_new_vector_the_gradient_of_the_runs_own_loss_is_zero(name: str, group: str) -> None:
    table, known = ratings(), {"user": KNOWN, "tags": "t3"}[group]
    run = random_run({**MODELS[name], "training": TRAINING}, table)
    rows = renamed(table, group, known, known)
    folded = fold_in(run, pa.concat_tables([renamed(table, group, known, NEW), table.slice(0, 9)]), group)
    assert folded.keys.to_pylist() == [NEW]
    assert folded.counts.tolist() == [len(rows)]
    at_solution, at_zero = slope_of_loss(run, rows, group, known, folded)
    assert np.abs(at_solution).max() < 1e-4 * np.abs(at_zero).max() + 1e-6


def test_new_values_of_one_row_are_solved_together() -> None:
    table = ratings()
    run = random_run({**MODELS["regression"], "training": TRAINING}, table)
    of_t3 = renamed(table, "tags", "t3", NEW)
    both = pa.concat_tables([renamed(of_t3, "tags", "t5", "newer"), of_t3])  # some rows hold both
    folded = fold_in(run, both, "tags")
    assert folded.keys.to_pylist() == ["newer", NEW] or folded.keys.to_pylist() == [NEW, "newer"]
    alone = fold_in(run, of_t3, "tags")
    assert not np.allclose(alone.vectors[0], folded.vectors[folded.keys.to_pylist().index(NEW)], atol=1e-3)
    loss = penalised_loss(run, both, "tags", folded.keys.to_pylist(), folded.terms)
    best, rng = loss(folded.vectors.astype(float)), np.random.default_rng(0)
    for _ in range(20):
        assert loss(folded.vectors + rng.normal(0, 0.03, folded.vectors.shape)) > best


def penalised_loss(run: Run, rows: pa.Table, group: str, keys: list[str], terms: Any) -> Callable[[Any], float]:
    """The squared errors of rows plus l2 as a function of new values' vectors; pair by pair, in float64."""
    scale = run.model.answer_scale_value()
    targets = (rows[str(run.schema.target)].to_numpy() - scale.shift) / scale.unit
    known = {name: vectors.astype(float) for name, vectors in run.embed(rows, by_group=True).items()}
    (entries,) = run.fitted.entries(rows)
    linear = np.full(len(rows), run.model.bias_value())
    for name in GROUPS:
        linear += run.model.vectors(name, dense(entries[name])).linear.numpy()
    shares = np.array([[bag.count(key) / len(bag) for key in keys] for bag in rows[group].to_pylist()])  # of the mean
    occurrences = np.array([sum(key in bag for bag in rows[group].to_pylist()) for key in keys])

    def loss(vectors: Any) -> float:
        parts = [known[name] + (shares @ vectors if name == group else 0) for name in GROUPS]
        pairs = sum((parts[a] * parts[b]).sum(axis=1) for a in range(4) for b in range(a))
        errors = linear + shares @ terms + pairs - targets
        penalty = run.schema.training.l2_of(group) / 2 * occurrences @ np.square(vectors).sum(axis=1)
        return float(np.square(errors).sum() + penalty)

    return loss


def test_dropped_coordinates_count_as_training_expects_them_to() -> None:
    schema = {**MODELS["weighted, without bias"], "objective": {"type": "regression", "target": "rating"}}
    rate, table = 0.4, ratings(60)
    run = random_run({**schema, "training": {"l2": 0.1, "interaction_dropout": rate}}, table)
    rows = renamed(table, "user", KNOWN, NEW)
    folded = fold_in(run, rows, "user")
    parts = run.embed(rows, by_group=True)
    scale = run.model.answer_scale_value()
    targets = (rows["rating"].to_numpy() - scale.shift) / scale.unit

    def expected_loss(vector: Any) -> float:
        total = 0.0
        for i in range(len(rows)):
            vectors = [vector if name == "user" else parts[name][i].astype(float) for name in GROUPS]
            pairs = sum(vectors[a] * vectors[b] for a in range(4) for b in range(a))  # [D]
            for mask in product([0, 1], repeat=len(vector)):
                chance = np.prod([1 - rate if kept else rate for kept in mask])
                score = run.model.bias_value() + (pairs * np.array(mask)).sum() / (1 - rate)
                total += chance * (score - targets[i]) ** 2
            total += 0.1 / 2 * np.square(vector / 2.0).sum()  # l2 is of the vector without the gain
        return total

    vector, step = folded.vectors[0].astype(float), 1e-3
    for coordinate in np.eye(4) * step:
        slope = (expected_loss(vector + coordinate) - expected_loss(vector - coordinate)) / (2 * step)
        assert abs(slope) < 1e-3 * expected_loss(vector)


def test_without_l2_it_is_the_shortest_vector_that_solves_its_rows() -> None:
    schema = {"groups": {name: {"column": name} for name in ("user", "film")}, "model": {"dim": 8}}
    table = ratings()
    run = random_run({**schema, "objective": {"type": "regression", "target": "rating"}}, table)
    rows = renamed(table, "user", KNOWN, NEW).slice(0, 3)
    films = run.embed(rows, ["film"]).astype(float)
    scale = run.model.answer_scale_value()
    targets = (rows["rating"].to_numpy() - scale.shift) / scale.unit - run.model.bias_value()
    expected = np.linalg.lstsq(films, targets, rcond=None)[0]
    np.testing.assert_allclose(fold_in(run, rows, "user").vectors[0], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("min_count", [1, 12])
def test_a_prior_of_normal_weights_counts_once_a_value(min_count: int) -> None:
    schema = {
        "groups": {
            "user": {"column": "user", "extractor": {"type": "lookup", "min_count": min_count}},
            "film": {"column": "film"},
        },
        "model": {"dim": 3, "bias": True, "posterior": "gaussian"},
        "objective": {"type": "regression", "target": "rating"},
        "training": {"l2": 4.0, "l2_linear": 2.0, "optimizer": "adam"},
    }  # fmt: skip
    table = ratings()
    run = random_run(schema, table)
    users = run.model.extractors[0].tables[0]
    vectors = np.concatenate([[[0.4, -0.7, 1.1]], users.numpy()[1:]])  # that of unseen keys is no longer 0
    users.assign(vectors)
    vocabulary = run.fitted.codecs["user"].vocabulary
    assert vocabulary is not None
    assert bool(vocabulary.unseen) == (min_count > 1)
    rows = renamed(table, "user", KNOWN, NEW)
    folded = fold_in(run, rows, "user")
    films, scale = run.embed(rows, ["film"]).astype(float), run.model.answer_scale_value()
    (entries,) = run.fitted.entries(rows)
    linear = run.model.vectors("film", dense(entries["film"])).linear.numpy().astype(float)
    errors = (rows["rating"].to_numpy() - scale.shift) / scale.unit - run.model.bias_value() - linear
    features = np.concatenate([films, np.ones((len(rows), 1))], axis=1)
    precisions = 0.5 * np.diag([4.0, 4.0, 4.0, 2.0])  # times the noise, where no loss is known
    prior = np.append(vectors[0] if min_count == 1 else vectors[1:].mean(axis=0), 0)
    expected = np.linalg.solve(features.T @ features + precisions, features.T @ errors + precisions @ prior)
    np.testing.assert_allclose([*folded.vectors[0], folded.terms[0]], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", ["logistic", "regression", "glove"])
def test_parabolas_touch_the_losses_and_are_nowhere_below_them(objective: str) -> None:
    schema = feat2vec.read_schema({"version": 1, "groups": GROUPS, **MODELS[objective]})
    targets = {"logistic": np.array([0.0, 1.0, 1.0]), "regression": np.array([0.3, -1.0, 2.0])}.get(
        objective, np.array([3.0, 30.0, 1.0])
    )
    for at in (-6.0, -0.5, 0.0, 2.0, 9.0):
        touched = parabolas(schema, np.full(3, at), targets)
        before = tf.constant(np.full(3, at))

        def loss(scores: Any) -> Any:
            labels = schema.objective.learnt_labels(tf.constant(targets))
            return schema.objective.label_loss(scores, labels).numpy()

        for score in np.linspace(-12, 12, 25):
            distance = score - at
            parabola = loss(before) + touched.slopes * distance + touched.curvatures / 2 * distance**2
            assert (parabola >= loss(tf.constant(np.full(3, score))) - 1e-6).all()
        slope = (loss(before + 1e-5) - loss(before - 1e-5)) / 2e-5
        np.testing.assert_allclose(slope, touched.slopes, atol=1e-4)


# --- what can be done with it ---------------------------------------------------------------------------------------


def test_rows_are_embedded_with_the_new_vectors() -> None:
    table = ratings()
    run = random_run({**MODELS["regression"], "training": TRAINING}, table)
    rows = pa.concat_tables([table.slice(0, 5), renamed(table, "tags", "t3", NEW), table.slice(50, 5)])
    new = run.fold_in(rows, "tags")
    plain, folded = run.embed(rows, by_group=True), run.embed(rows, by_group=True, fold_in="tags")
    for i, tags in enumerate(rows["tags"].to_pylist()):
        expected = plain["tags"][i] + (new[NEW] / len(tags) if NEW in tags else 0)
        np.testing.assert_allclose(folded["tags"][i], expected, atol=1e-6)
    np.testing.assert_array_equal(folded["user"], plain["user"])
    np.testing.assert_allclose(run.embed(rows, fold_in="tags"), sum(folded.values()), atol=1e-5)
    no_new = run.embed(table, fold_in="tags")
    np.testing.assert_array_equal(no_new, run.embed(table))
    with pytest.raises(UserError, match=r"^fold_in: 'tags' is not among the groups that are embedded: add it$"):
        run.embed(rows, ["user"], fold_in="tags")


def test_new_values_of_several_groups_are_folded_in_at_once() -> None:
    table = ratings()
    run = random_run({**MODELS["regression"], "training": TRAINING}, table)
    rows = pa.concat_tables([renamed(table, "tags", "t3", NEW), renamed(table, "user", KNOWN, NEW)])
    alone = {name: run.embed(rows, by_group=True, fold_in=name) for name in ("tags", "user")}
    folded = run.embed(rows, by_group=True, fold_in=["user", "tags", "user"])
    for name in run.schema.groups:
        np.testing.assert_array_equal(folded[name], alone[name if name in alone else "tags"][name])
    row_vectors = run.embed(rows, fold_in=["user", "tags"])
    np.testing.assert_allclose(row_vectors, sum(folded.values()), atol=1e-5)
    with pytest.raises(UserError, match=r"^fold_in: there is no group 'usr'; did you mean 'user'\?$"):
        run.embed(rows, fold_in=["tags", "usr"])


def test_new_vectors_are_searched_from_and_scored_as_the_models_own() -> None:
    table = ratings()
    run = random_run({**MODELS["regression"], "training": TRAINING}, table)
    new = run.fold_in(renamed(table, "user", KNOWN, NEW), "user")
    assert (len(new), new.get_vecattr(NEW, "level"), new.vector_size) == (1, 1, 4)
    films = run.vectors("film")
    score = new.similarity(NEW, "f3", to="film", similarity="score")
    linear, new_linear = run.model.lookup("film").linear, new._space.linear
    assert linear is not None
    assert new_linear is not None
    term = float(linear[1 + films.get_index("f3")])
    dot = float(new[NEW] @ films["f3"])
    assert score == pytest.approx(run.model.bias_value() + float(new_linear[0]) + term + dot, rel=1e-4)
    assert {hit.group for hit in new.search(NEW, to="user")} == {"user"}


def test_in_spaces_of_their_own_new_values_have_the_first_level() -> None:
    table = ratings()
    schema = {"model": {"ranks": [2, 4], "bias": True}, "objective": {"type": "regression", "target": "rating"}}
    run = random_run({**schema, "training": TRAINING}, table)
    rows = renamed(table, "user", KNOWN, NEW)
    new = run.fold_in(rows, "user")
    assert new.vector_size == 2
    np.testing.assert_allclose(run.embed(rows, ["user"], fold_in="user"), np.tile(new[NEW], (len(rows), 1)), atol=1e-6)
    assert not run.embed(rows, ["user"], 2, fold_in="user").any()
    assert np.isfinite(new.most_similar(NEW, topn=None, to="film", similarity="score")).all()


def test_a_key_too_rare_to_have_a_vector_gets_one_in_place_of_that_of_unseen_keys() -> None:
    groups = {"user": {"column": "user", "extractor": {"type": "lookup", "min_count": 8}}, "film": {"column": "film"}}
    table = ratings()
    schema = {"groups": groups, "model": {"dim": 3, "bias": True}, "training": {"l2": 0.3}}
    run = random_run({**schema, "objective": {"type": "regression", "target": "rating"}}, table)
    extractor = run.model.extractors[0]
    before = fold_in(run, renamed(table, "user", KNOWN, NEW), "user")
    array = extractor.tables[0].numpy()
    array[0] = [1.0, -2.0, 0.5]
    extractor.tables[0].assign(array)
    extractor.linear.assign(np.concatenate([[[0.7]], extractor.linear.numpy()[1:]]))
    after = fold_in(run, renamed(table, "user", KNOWN, NEW), "user")
    np.testing.assert_allclose(after.vectors, before.vectors, atol=1e-5)
    np.testing.assert_allclose(after.terms, before.terms, atol=1e-5)
    rows = pa.concat_tables([table, renamed(table, "user", KNOWN, NEW)])
    embedded = run.embed(rows, ["user"], fold_in="user")
    np.testing.assert_allclose(embedded[len(table) :], np.tile(after.vectors, (len(rows) - len(table), 1)), atol=1e-5)


MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "no such group": (MODELS["regression"], "usr", "there is no group 'usr'; did you mean 'user'?"),
    "no lookup": (
        MODELS["regression"], "length", "'length' is no lookup; numeric makes vectors of new values by itself",
    ),
    "a shared table": (
        {"groups": {"film": {"column": "film"}, "next": {"column": "user", "share": "film"}}}, "next",
        "'next' shares its vectors with film; a group of its own is folded in",
    ),
    "a network": (
        {**MODELS["regression"], "head": "mlp"}, "user",
        "a new vector is solved from scores that are linear in it; the head mlp's are not",
    ),
    "classes": (
        {"objective": {"type": "softmax", "target": "liked"}}, "user",
        "is for objectives without a target, and for logistic, regression, glove; the run's is softmax",
    ),
    "implicit": (
        {"objective": {"type": "logistic", "target": "liked", "implicit": "film"}}, "user",
        "is for objectives without a target, and for logistic, regression, glove; "
        "the run's is logistic with `implicit`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_folded_in_is_refused_in_a_sentence(mistake: str) -> None:
    schema, group, message = MISTAKES[mistake]
    run = random_run(schema, ratings(40))
    with pytest.raises(UserError) as error:
        run.fold_in(ratings(10), group)
    assert str(error.value) == f"fold_in: {message}"


def test_tables_without_what_is_needed_are_refused() -> None:
    run = random_run(MODELS["regression"], ratings())
    rows = renamed(ratings(), "user", KNOWN, NEW)
    with pytest.raises(UserError, match=r"has no value of 'user' that training has not seen in a row with a target$"):
        run.fold_in(ratings(), "user")
    with pytest.raises(UserError, match=r"has no column 'rating', which the run predicts, and new values are solved"):
        run.fold_in(rows.drop_columns(["rating"]), "user")
    with pytest.raises(UserError, match=r"has no column 'user', of the group 'user'"):
        run.fold_in(rows.drop_columns(["user"]), "user")
    none = rows.set_column(rows.column_names.index("rating"), "rating", pa.nulls(len(rows), pa.float64()))
    with pytest.raises(UserError, match=r"in a row with a target$"):
        run.fold_in(none, "user")
    assert len(run.fold_in(pa.concat_tables([none, rows.slice(0, 2)]), "user")) == 1


def test_the_command_folds_in_and_says_how_many(tmp_path: Path) -> None:
    table = ratings()
    schema = {"version": 1, "groups": {name: GROUPS[name] for name in ("user", "film")}, **MODELS["regression"]}
    train({**schema, "training": {"epochs": 1, "validation": 0}}, table, tmp_path / "run", quiet=True)
    pq.write_table(renamed(table, "user", KNOWN, NEW), tmp_path / "new.parquet")
    words = ["embed", "run", "--data", "new.parquet", "--out", "vectors.parquet", "--fold-in"]
    done = command(*words, "user", "--fold-in", "film", folder=tmp_path)
    rows = renamed(table, "user", KNOWN, NEW)
    told = ["4 dimensions", "1 new values of user folded in", "0 new values of film folded in"]
    assert done.stdout == f"vectors.parquet: {len(rows)} rows, {', '.join(told)}\n"
    written = np.stack(pq.read_table(tmp_path / "vectors.parquet")["user"].to_pylist())
    new = feat2vec.load(tmp_path / "run").fold_in(rows, "user")
    np.testing.assert_allclose(written, np.tile(new[NEW], (len(rows), 1)), atol=1e-6)
    done = command(*words, "usr", folder=tmp_path, code=2)
    assert done.stderr == "--fold-in: there is no group 'usr'; did you mean 'user'?\n"


# --- without a target -----------------------------------------------------------------------------------------------

NOISE_GROUPS: dict[str, Any] = {
    "director": {"column": "user", "extractor": {"type": "lookup", "gain": 2.0}},
    "film": {"column": "film"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "multi": True}},
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "contrastive": {"objective": {"type": "contrastive"}, "model": {"dim": 3}},
    "of length 1": {"objective": {"type": "contrastive", "unit": True, "temperature": 0.5}, "model": {"dim": 3}},
    "uncorrected": {
        "objective": {"type": "contrastive", "correction": False, "temperature": 2.0},
        "model": {"dim": 3, "bias": True},
    },
    "nce": {"objective": {"type": "nce"}, "model": {"dim": 3, "bias": True}},
    "negative_sampling": {"objective": {"type": "negative_sampling"}, "model": {"ranks": [3, 5]}},
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_new_vector_has_the_least_multinomial_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_fold_in, "REFERENCE_ROWS", 40)
    table, is_unit = ratings(), name == "of length 1"
    schema = {"groups": NOISE_GROUPS, **OBJECTIVES[name], "training": {"l2": 0.2, "l2_linear": 0.1}}
    run = random_run(schema, table, scale=0.8)
    rows = renamed(table, "user", KNOWN, NEW)
    known: dict[str, KnownCandidates] = {}
    folded = fold_in(run, rows, "director", known)
    model, objective = run.model, run.schema.objective
    vocabulary = run.fitted.codecs["director"].vocabulary
    assert vocabulary is not None
    # Z of each row: the completion's own formula, value by value
    given = list(model.extract(inputs_of(run, rows), training=False)[1:])
    of_values = model.extractors[0]
    lookup = model.lookup("director")
    popularity = objective.missing_popularity(run.schema.noise.alpha_values)
    log_sums = []
    for i in range(len(rows)):
        exponents = []
        for key in range(len(vocabulary.keys)):
            top = sum(key < len(part) - (level == 0) for level, part in enumerate(lookup.tables)) - 1
            vector = (lookup.tables[top][key + (top == 0)] * of_values.spec["gain"]).astype(float)
            if is_unit:
                vector = vector / np.linalg.norm(vector)
            context: Any = 0.0
            for group in given:  # two values meet at the lower of their levels
                for level, part in enumerate(group.levels):
                    if level == top and part.dependent is not None:
                        context = context + part.dependent.numpy()[i]
                    if level == top:
                        context = context + part.free.numpy()[i]
            score = float(vector @ context) + lower_levels(lookup, key, top, given, i, of_values.spec["gain"])
            term = 0.0 if lookup.linear is None else float(lookup.linear[key + 1])
            exponents.append((score + term) / objective.score_scale + popularity * np.log(vocabulary.counts[key] + 1))
        log_sums.append(float(np.logaddexp.reduce(exponents)))
    contexts = run.embed(rows, ["film", "tags"]).astype(float)
    reference = new_candidate_loss(known["director"], contexts, np.array(log_sums))

    def loss(vector: Any, term: float) -> float:
        penalty = len(rows) / 2 * (0.1 * term**2 + (0 if is_unit else 0.2 * np.square(vector / 2.0).sum()))
        scored = vector / np.linalg.norm(vector) if is_unit else vector
        return reference(scored, term) + penalty

    vector, term = folded.vectors[0].astype(float), float(folded.terms[0])
    best, rng = loss(vector, term), np.random.default_rng(0)
    for size in (0.3, 0.03, 0.03, 0.01, 0.01):
        changed = vector + size * rng.normal(size=3)
        assert loss(changed, term + (size * rng.normal() if run.schema.model.bias else 0)) > best - 1e-5 * abs(best)
    if is_unit:
        known_length = np.linalg.norm(lookup.tables[0][1:], axis=1).mean() * 2.0
        assert np.linalg.norm(vector) == pytest.approx(known_length, rel=1e-4)


def inputs_of(run: Run, rows: pa.Table) -> dict[str, Any]:
    (entries,) = run.fitted.entries(rows)
    return {name: tf.constant(dense(group_entries)) for name, group_entries in entries.items()}


def lower_levels(lookup: Any, key: int, top: int, given: Any, row: int, gain: float) -> float:
    """What a value scores with values of lower levels than its own."""
    total = 0.0
    for level in range(top):
        vector = lookup.tables[level][key + (level == 0)].astype(float) * gain
        total += sum(float(vector @ group.levels[level].free.numpy()[row]) for group in given)
    return total


def new_candidate_loss(known: KnownCandidates, contexts: Any, log_sums: Any) -> Callable[[Any, float], float]:
    """The loss of the rows of one new value, and of what it takes from others; row by row."""

    def loss(vector: Any, term: float) -> float:
        total, offset = 0.0, known.popularity * np.log(len(contexts) + 1)
        for context, log_sum in zip(contexts, log_sums, strict=True):
            total += np.log1p(np.exp(log_sum - (vector @ context + term) / known.temperature - offset))
        spread = vector @ known.covariance @ vector / known.temperature / 2
        exponent = (vector @ known.mean + term + spread) / known.temperature + offset
        return float(total + np.exp(known.log_mass + exponent))

    return loss


def test_what_is_taken_from_other_rows_is_that_of_normal_contexts() -> None:
    """N E[exp(e_d) / Z] by a mean over many rows, against the closed form."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(400_000, 2)) @ np.array([[0.5, 0.2], [0.0, 0.4]]) + [0.3, -0.2]
    values, offsets = Candidates([rng.normal(size=(6, 2)).astype(np.float32)]), rng.normal(size=6)
    queries = Queries([contexts.astype(np.float32)], [np.zeros_like(contexts, np.float32)])
    log_sums = noise_fold_in.log_partition(queries, values, offsets, 0.7)
    expected = [
        np.log(sum(np.exp(contexts[i] @ values.tables[0][j] / 0.7 + offsets[j]) for j in range(6))) for i in range(5)
    ]
    np.testing.assert_allclose(log_sums[:5], expected, rtol=1e-5)
    weights = np.exp(-log_sums)
    mean = weights @ contexts / weights.sum()
    covariance = (contexts - mean).T @ ((contexts - mean) * weights[:, None]) / weights.sum()
    vector, term = np.array([0.4, -0.6]), -0.3
    exact = np.exp((contexts @ vector + term) / 0.7 - log_sums).mean()
    closed = weights.mean() * np.exp((vector @ mean + term) / 0.7 + vector @ covariance @ vector / (2 * 0.7**2))
    assert closed == pytest.approx(exact, rel=0.02)


def test_an_improbable_value_with_a_term_of_its_own_is_a_least_squares_solution() -> None:
    rng = np.random.default_rng(3)
    covariance = np.cov(rng.normal(size=(3, 20)))
    mean, contexts = rng.normal(size=3), rng.normal(size=(8, 3))
    known = KnownCandidates(
        Candidates([np.zeros((1, 3), np.float32)]), np.array([40.0]), 0.5, 0.0, mean, covariance, -30.0, 1.0
    )
    schema = feat2vec.read_schema(
        {"version": 1, "groups": NOISE_GROUPS, "model": {"dim": 3, "bias": True},
         "objective": {"type": "contrastive", "temperature": 0.5}}
    )  # fmt: skip
    queries = Queries([contexts.astype(np.float32)], [np.zeros((8, 3), np.float32)])
    items = NewItems(np.arange(8), np.zeros(8, np.int64), np.ones(8))
    new = NewRows(pa.array([NEW]), items, contexts, np.zeros(8), None, np.ones(8), queries)
    vectors, _ = solve_by_noise(known, schema, "film", new)
    expected = 0.5 * np.linalg.solve(covariance, contexts.mean(axis=0) - mean)
    np.testing.assert_allclose(vectors[0], expected, rtol=0.02, atol=0.02)


def test_of_many_candidates_some_stand_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    places, shares = noise_fold_in._chosen_candidates(12)
    np.testing.assert_array_equal(places, np.arange(12))
    np.testing.assert_array_equal(shares, 1)
    monkeypatch.setattr(noise_fold_in, "MOST_CANDIDATES", 8)
    places, shares = noise_fold_in._chosen_candidates(12)
    assert (places[:4].tolist(), len(set(places.tolist())), shares.sum()) == ([0, 1, 2, 3], 8, 12)


def test_contexts_are_those_of_kept_rows_or_of_values_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_fold_in, "REFERENCE_ROWS", 100)
    table = ratings()
    run = random_run({"groups": NOISE_GROUPS, "model": {"dim": 3}}, table)
    encoded = run.fitted.encode(table)
    kept = KeptRows(run.fitted, np.asarray(encoded.rows))
    of_kept = noise_fold_in.reference_contexts(run.model, run.fitted, "director", kept).free[0]
    exact = run.embed(table, ["film", "tags"])
    distances = np.square(of_kept[:, None] - exact[None]).sum(axis=2).min(axis=1)
    assert distances.max() < 1e-8
    drawn = noise_fold_in.reference_contexts(run.model, run.fitted, "director", None).free[0]
    assert len(drawn) == 100
    assert np.abs(drawn.mean(axis=0) - exact.mean(axis=0)).max() < 0.6


def test_a_value_that_stands_alone_in_its_rows_is_not_folded_in() -> None:
    """Nothing is beside it that it could be found by."""
    run = random_run({"groups": NOISE_GROUPS, "model": {"dim": 3}}, ratings())
    alone = ratings().slice(0, 1)
    for name in alone.column_names:
        missing = pa.array(["someone new"]) if name == "user" else pa.nulls(1, alone[name].type)
        alone = alone.set_column(alone.column_names.index(name), name, missing)
    with pytest.raises(UserError, match="has no value of 'director' that training has not seen beside something else"):
        run.fold_in(alone, "director")


def test_what_no_score_finds_is_not_folded_in() -> None:
    schema = {"groups": NOISE_GROUPS, "model": {"dim": 3}, "noise": {"targets": ["film"]}}
    run = random_run(schema, ratings())
    message = "'director' is no target of the noise, so that no score finds its values; the targets are film"
    with pytest.raises(UserError) as error:
        run.fold_in(renamed(ratings(), "user", KNOWN, NEW), "director")
    assert str(error.value) == f"fold_in: {message}"


# --- beside a training ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_new_users_gain_nearly_what_training_on_their_rows_gives() -> None:
    """Ratings of rank 2 and biases; a quarter of the users have twelve rows each, and are new."""
    rng = np.random.default_rng(0)
    users, films = np.divmod(np.arange(60 * 40), 40)
    numbers = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 40)) + rng.normal(size=(60, 1)) + rng.normal(size=(1, 40))
    place_of_row = np.argsort(rng.random((60, 40)), axis=1).reshape(-1)  # in the order of its user's rows
    table = pa.table(
        {
            "user": [f"u{user}" for user in users], "film": [f"f{film}" for film in films],
            "rating": numbers.reshape(-1) + 0.1 * rng.normal(size=len(users)),
        }
    )  # fmt: skip
    is_new = users < 15
    known, support = table.filter(pa.array(~is_new)), table.filter(pa.array(is_new & (place_of_row < 12)))
    rest = table.filter(pa.array(is_new & (place_of_row >= 12)))
    schema = {
        "version": 1, "groups": {"user": {"column": "user"}, "film": {"column": "film"}},
        "model": {"dim": 4, "bias": True}, "objective": {"type": "regression", "target": "rating"},
        "training": {
            "epochs": 60, "batch_size": 128, "validation": 0, "l2": 0.02, "l2_linear": 0.02,
            "optimizer": {"type": "adam", "learning_rate": 0.02},
        },
    }  # fmt: skip
    targets = rest["rating"].to_numpy()

    def error(predictions: Any) -> float:
        return float(np.sqrt(np.square(predictions - targets).mean()))

    run, trained = (feat2vec.train(schema, rows, quiet=True) for rows in (known, pa.concat_tables([known, support])))
    new, films_of_run, scale = run.fold_in(support, "user"), run.vectors("film"), run.model.answer_scale_value()
    terms, film_terms = new._space.linear, films_of_run._space.linear
    assert terms is not None
    assert film_terms is not None
    scores = []
    for user, film in zip(rest["user"].to_pylist(), rest["film"].to_pylist(), strict=True):
        dot = float(new[user] @ films_of_run[film])
        term = terms[new.get_index(user)] + film_terms[films_of_run.get_index(film)]
        scores.append(scale.shift + scale.unit * (run.model.bias_value() + float(term) + dot))
    nothing = error(run.predict(rest)["prediction"])
    gain = (nothing - error(np.array(scores))) / (nothing - error(trained.predict(rest)["prediction"]))
    assert gain > 0.9
