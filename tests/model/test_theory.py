"""What the papers prove about the model and its losses, by enumeration and by training to convergence, in float64.

Theorem 1 and the two-step noise are those of Armona, González-Brenes and Edezath. What skip-gram converges to is shown
by Levy and Goldberg (2014), and GloVe is by Pennington, Socher and Manning (2014).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.encode.encoder import Encoded, fit
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.labelled_loss import has_level_losses
from feat2vec.sampling.noise import Draw
from feat2vec.schema.objectives import NegativeSampling, Noisy, self_supervised
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from tests import reference

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int32]
TABLE = {
    "a": ["x", "x", "y", "z", "x", "x", "y", "x"],
    "b": ["p", "p", "q", "q", None, "p", "q", "p"],
    "c": ["k", "l", "m", "n", "l", "m", "l", "l"],
}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(policy)


def model_and_rows(columns: dict[str, Any], objective: str, model: str = "dim: 3", noise: str = "negatives: 2") -> Any:
    """A model with random weights of a size that matters, and its rows."""
    groups = "\n".join(f"  {name}: {{column: {name}, extractor: lookup}}" for name in columns if name != "count")
    text = (
        f"version: 1\nname: theory\nmodel: {{{model}}}\ngroups:\n{groups}\nobjective: {{{objective}}}\n"
        f"noise: {{{noise}}}\n"
    )
    encoded = fit(read_schema(parse_document(text)), pa.table(columns))
    built = Feat2Vec.from_encoder(encoded.encoder)
    rng = np.random.default_rng(0)
    for variable in built.trainable_variables:
        variable.assign(rng.normal(scale=0.7, size=variable.shape))
    if "count" not in columns:
        offsets = built.offsets.numpy() if hasattr(built, "offsets") else None
        built.learn_from(encoded)
        assert offsets is None or (built.offsets.numpy() == offsets).all()  # weights that are there are left alone
    return built, encoded


def entries(model: Any, ids: Rows) -> dict[str, Any]:
    """The model's inputs for rows of value ids."""
    return {name: tf.gather(model.value_tables[g], ids[:, g] + 1) for g, name in enumerate(model.groups)}


def row_ids(model: Any, encoded: Encoded) -> Rows:
    """Value ids, and a column for each joint set."""
    ids = np.asarray(encoded.rows)
    return np.concatenate([ids, *(joint.ids(ids)[:, None] for joint in model.joints)], axis=1)


class Target:
    """A unit of the noise by its definition: its values with their members and log Q2."""

    def __init__(self, model: Any, encoded: Encoded, unit: int, alpha: float = 0.75) -> None:
        self.groups, self.column = model.noise.units[unit].groups, model.noise.units[unit].column
        if self.column < len(model.groups):
            counts = encoded.values[model.groups[self.column]].counts
            self.members = np.arange(len(counts))[:, None]
        else:
            self.members, counts = reference.joint_tuples(np.asarray(encoded.rows), self.groups)
        self.log_q = np.array([reference.noise_log_q(list(counts), alpha, v) for v in range(len(counts))])

    def replaced(self, ids: Rows, value: int) -> Rows:
        """Whole rows with another value."""
        ids = ids.copy()
        ids[:, list(self.groups)] = self.members[value]
        return ids

    def draw(self, ids: Rows, index: npt.NDArray[np.int64]) -> Draw:
        """What the sampler would hand over, had it drawn these values, [n, k] or [k]."""
        own = ids[:, self.column]
        return Draw(
            tf.constant(ids),
            tf.constant(own >= 0),
            tf.constant(self.log_q[own]),
            tuple(tf.constant(self.members[index, m], tf.int32) for m in range(len(self.groups))),
            tf.constant(self.log_q[index]),
            tf.constant(own[:, None] == index),
        )


def step_loss(model: Any, ids: Rows, draws: Sequence[Draw]) -> Any:
    """The project's own loss for given draws; `ids` are the draws' rows, one after the other."""
    return model.noise_loss_of_draws(entries(model, ids), draws, (0, 0), training=True)[0]


def gradients(loss: Callable[[], Any], model: Any) -> tuple[float, list[Floats]]:
    """The loss, and its gradient for each variable."""
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        total = loss()
    slopes = tape.gradient(total, variables, unconnected_gradients="zero")
    return float(total), [tf.convert_to_tensor(gradient).numpy() for gradient in slopes]


def minimize(loss: Callable[[], Any], variables: Sequence[Any], steps: int, rate: float = 0.05) -> None:
    """Adam on the whole loss, the rate falling to 0."""
    slots = [(tf.Variable(tf.zeros_like(v)), tf.Variable(tf.zeros_like(v))) for v in variables]

    @tf.function(autograph=False)
    def step(rate: Any, t: Any) -> None:
        with tf.GradientTape() as tape:
            total = loss()
        slopes = tape.gradient(total, variables)
        for variable, gradient, (mean, square) in zip(variables, slopes, slots, strict=True):
            gradient = tf.convert_to_tensor(gradient)
            mean.assign(0.9 * mean + 0.1 * gradient)
            square.assign(0.99 * square + 0.01 * gradient**2)
            root = tf.sqrt(square / (1 - 0.99**t)) + 1e-12
            variable.assign_sub(rate * mean / (1 - 0.9**t) / root)

    for t in range(steps):
        step(
            tf.constant(rate * 0.5 * (1 + math.cos(math.pi * t / steps)), tf.float64), tf.constant(t + 1.0, tf.float64)
        )


# --- Theorem 1 (Armona et al.) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_theorem_1(k: int) -> None:
    """The expected self-supervised gradient is the Q1-weighted sum of those of the supervised models.

    One side enumerates what the sampler draws (a unit by Q1, k values by Q2) and scores it as training does; the other
    is L(x | target = i) by its formula, on rows that are scored whole: E over k draws is k times E over one.
    """
    model, encoded = model_and_rows(TABLE, "type: nce", noise=f"negatives: {k}")
    ids = row_ids(model, encoded)
    targets = [Target(model, encoded, u) for u in range(3)]
    q1 = reference.noise_probabilities(model.params(), 0.25)
    assert len(set(q1)) == 3

    def expected() -> Any:
        total = 0.0
        for unit, target in zip(model.noise.units, targets, strict=True):
            nobody = [t.draw(ids[:0], np.zeros((0, k), int)) for t in targets]
            for values in itertools.product(range(len(target.log_q)), repeat=k):
                chance = unit.probability * math.exp(target.log_q[list(values)].sum())
                draws = [target.draw(ids, np.tile(values, (len(ids), 1))) if t is target else empty
                         for t, empty in zip(targets, nobody, strict=True)]  # fmt: skip
                total += chance * step_loss(model, ids, draws)
        return total

    def definition() -> Any:
        total = 0.0
        for i, (share, target) in enumerate(zip(q1, targets, strict=True)):
            rows = ids[ids[:, i] >= 0]  # a missing value is no positive
            q = np.exp(target.log_q)
            real = tf.exp(model(entries(model, rows)) + model.offsets[i])
            loss = -tf.reduce_sum(tf.math.log(real / (real + k * q[rows[:, i]])))
            for value, chance in enumerate(q):
                fake = tf.exp(model(entries(model, target.replaced(rows, value))) + model.offsets[i])
                loss -= k * chance * tf.reduce_sum(tf.math.log(k * chance / (fake + k * chance)))
            total += share * loss / len(ids)
        return total

    (loss, got), (wanted_loss, wanted) = gradients(expected, model), gradients(definition, model)
    assert math.isclose(loss, wanted_loss, rel_tol=1e-12)
    for ours, theirs in zip(got, wanted, strict=True):
        assert np.abs(theirs).max() > 1e-3
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


# --- the gradients of a batch ---------------------------------------------------------------------------------------


def test_gradients_of_couples_against_fake_ones() -> None:
    """The couples (6, i) against the fake ones (7, i), for i in {1, 2, 3, 5}."""
    rng = np.random.default_rng(0)
    w1, w2 = tf.Variable(rng.normal(size=(8, 3))), tf.Variable(rng.normal(size=(8, 3)))
    i = np.array([1, 2, 3, 5])
    with tf.GradientTape() as tape:
        words = tf.gather(w2, i)
        up = tf.reduce_sum(tf.gather(w1, [6] * 4) * words, axis=1)
        down = tf.reduce_sum(tf.gather(w1, [[7]] * 4) * words[:, None], axis=2)
        nothing = Noisy(tf.zeros_like(up), tf.zeros_like(down))
        loss = tf.reduce_mean(self_supervised(NegativeSampling(), Noisy(up, down), nothing, down > 1e9, 0.0))
    to_w1, to_w2 = (tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, [w1, w2]))
    a, b = w1.numpy(), w2.numpy()
    positive = np.array([reference.sigmoid(a[6] @ b[j]) for j in i])
    negative = np.array([reference.sigmoid(a[7] @ b[j]) for j in i])
    expected = -sum(math.log(p) / 4 + math.log(1 - q) / 4 for p, q in zip(positive, negative, strict=True))
    assert math.isclose(float(loss), expected, rel_tol=1e-12)  # J+ + J-
    first, second = np.zeros_like(a), np.zeros_like(b)
    first[6] = 1 / 4 * sum((p - 1) * b[j] for p, j in zip(positive, i, strict=True))
    first[7] = 1 / 4 * sum(q * b[j] for q, j in zip(negative, i, strict=True))
    for p, q, j in zip(positive, negative, i, strict=True):
        second[j] = 1 / 4 * (p - 1) * a[6] + 1 / 4 * q * a[7]
    np.testing.assert_allclose(to_w1, first, atol=1e-14)
    np.testing.assert_allclose(to_w2, second, atol=1e-14)


# --- skip-gram: PMI and log p ---------------------------------------------------------------------------------------

PAIRS = np.array([[6, 1, 1, 0], [1, 4, 2, 1], [2, 1, 1, 5], [1, 3, 1, 1]])  # N(word, context)


def pairs_model(objective: str, k: int) -> tuple[Any, Any, Rows]:
    words, contexts = np.nonzero(PAIRS)
    times = PAIRS[words, contexts]
    table = {
        "word": [f"w{w}" for w in np.repeat(words, times)],
        "context": [f"c{c}" for c in np.repeat(contexts, times)],
    }
    noise = f"negatives: {k}, alpha_values: 1.0"
    model, encoded = model_and_rows(table, f"type: {objective}", "dim: 6", noise)
    return model, encoded, row_ids(model, encoded)


def every_negative(target: Target, ids: Rows, k: int) -> tuple[Rows, Draw]:
    """A batch whose mean is the expectation: each of the n rows meets the values of all n, which is Q2 for alpha 1.

    The other negatives of a row are the same list, shifted: the loss is a sum over negatives, so only the distribution
    of each counts.
    """
    n = len(ids)
    index = np.stack([np.tile(np.roll(ids[:, target.column], j), n) for j in range(k)], axis=1)
    rows = np.repeat(ids, n, axis=0)
    return rows, target.draw(rows, index.astype(np.int64))


def trained(objective: str, k: int, units: Sequence[int]) -> tuple[Any, Floats, Floats]:
    """A model trained on noise for `units` (0 = word, 1 = context) in equal parts; scores and N, [words, contexts]."""
    model, encoded, ids = pairs_model(objective, k)
    targets = [Target(model, encoded, u, alpha=1.0) for u in range(2)]
    parts = [every_negative(target, ids[: len(ids) if u in units else 0], k) for u, target in enumerate(targets)]
    rows = np.concatenate([part for part, _ in parts])
    if objective == "nce":
        model.offsets.assign(tf.zeros_like(model.offsets))
    tables = [variable.value for variable in model.trainable_variables if "offsets" not in variable.path]
    minimize(lambda: step_loss(model, rows, [draw for _, draw in parts]), tables, steps=1500)
    sizes = [len(encoded.values[name].counts) for name in ("word", "context")]
    counts = np.zeros(sizes)
    np.add.at(counts, (ids[:, 0], ids[:, 1]), 1)
    grid = np.array(list(itertools.product(*map(range, sizes))), np.int32)
    return model, model(entries(model, grid)).numpy().reshape(sizes), counts


@pytest.mark.slow
@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_skip_gram_reaches_pmi(k: int) -> None:
    """Noise on `context` only, alpha_2 = 1: the expected loss of a pair (w, c) is

        -p(w, c) log sigmoid(s) - k p(w) Q2(c) log sigmoid(-s),    Q2(c) = p(c),

    with its minimum where p(w, c) sigmoid(-s) = k p(w) p(c) sigmoid(s), that is s = PMI(w, c) - log k. Where the pair
    has no count, s goes to -infinity.
    """
    _, scores, counts = trained("negative_sampling", k, [1])
    p = counts / counts.sum()
    seen = p > 0
    pmi = np.log(p[seen] / np.outer(p.sum(1), p.sum(0))[seen])
    np.testing.assert_allclose(scores[seen], pmi - math.log(k), atol=2e-3)
    assert (scores[~seen] < -4).all()


@pytest.mark.slow
@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_nce_reaches_log_p(k: int) -> None:
    """The same with the logit s - log(k Q2(c)): it has the optimum log p(w, c) / (k p(w) Q2(c)), so s = log p(c | w).

    k and Q2 cancel, and sum_c exp(s) = 1: NCE normalizes by itself. It is the conditional of the group that the noise
    replaces, given the others; the joint log p only up to the others' log p(w), which no noise on `context` can see.
    """
    _, scores, counts = trained("nce", k, [1])
    seen = counts > 0
    conditional = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(scores[seen], np.log(conditional[seen]), atol=2e-3)
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1, atol=2e-3)
    joint = np.log(counts[seen] / counts.sum())
    assert np.abs(scores[seen] - joint).max() > 0.5


@pytest.mark.slow
def test_nce_of_two_targets_is_between_two_conditionals() -> None:
    """With noise on both groups one score has to serve log p(c | w) and log p(w | c).

    By Theorem 1 the gradients add. That of target i = c at s is

        p(w) k Q2(c) (exp(s) - p(c | w)) / (exp(s) + k Q2(c)),

    so the optimum is where the two sum to 0, between the two conditionals; it is neither of them, nor the joint log p
    up to a constant, unless p(w) = p(c).
    """
    _, scores, counts = trained("nce", 1, [0, 1])
    p = counts / counts.sum()
    words, contexts = p.sum(1), p.sum(0)
    for w, c in zip(*np.nonzero(p), strict=True):

        def slope(s: float, w: int = w, c: int = c) -> float:
            to_context = words[w] * contexts[c] * (math.exp(s) - p[w, c] / words[w]) / (math.exp(s) + contexts[c])
            to_word = contexts[c] * words[w] * (math.exp(s) - p[w, c] / contexts[c]) / (math.exp(s) + words[w])
            return to_context + to_word

        low, high = sorted((math.log(p[w, c] / words[w]), math.log(p[w, c] / contexts[c])))
        assert low - 2e-3 <= scores[w, c] <= high + 2e-3
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        assert math.isclose(scores[w, c], low, abs_tol=3e-3)


# --- GloVe ----------------------------------------------------------------------------------------------------------


def glove_model(counts: Floats, rank: int, n_max: float) -> tuple[Any, Any, Any]:
    """A model of (word, context, count) rows, with the rows' inputs and labels."""
    grid = list(itertools.product(*map(range, counts.shape)))
    table = {
        "word": [f"w{w}" for w, _ in grid],
        "context": [f"c{c}" for _, c in grid],
        "count": [float(counts[cell]) for cell in grid],
    }
    objective = f"type: glove, target: count, n_max: {n_max}"
    model, encoded = model_and_rows(table, objective, f"dim: {rank}, bias: true")
    inputs, label = next(iter(model.dataset(encoded, batch_size=len(grid), shuffle=False)))
    return model, inputs, label


def test_glove_update() -> None:
    """One step: w += 2 eta f(N) (log N - s) w~, and w~ likewise; a bias moves by 2 eta f(N) (log N - s)."""
    n_max, eta = 5.0, 0.1
    for count in (2.0, 50.0):
        model, inputs, _ = glove_model(np.array([[count, 3.0], [4.0, 5.0]]), 3, n_max)
        cell = {name: entry_ids[:1] for name, entry_ids in inputs.items()}
        first, second = model.extractors
        w, v = (int(entry_ids[0, 0]) - 1 for entry_ids in cell.values())  # the row of an id in its table
        before = [variable.numpy() for variable in model.trainable_variables]
        paths = [variable.path.split("/", 1)[1] for variable in model.trainable_variables]
        gap = math.log(count) - float(model.bias) - first.linear.numpy()[w, 0] - second.linear.numpy()[v, 0]
        gap -= first.tables[0].numpy()[w] @ second.tables[0].numpy()[v]
        factor = 2 * eta * min(1.0, (count / n_max) ** 0.75) * gap
        moves = {path: np.zeros_like(values) for path, values in zip(paths, before, strict=True)}
        moves["bias"] += factor
        moves["group_0/table_1"][w] = factor * second.tables[0].numpy()[v]
        moves["group_1/table_1"][v] = factor * first.tables[0].numpy()[w]
        moves["group_0/linear"][w] = moves["group_1/linear"][v] = factor

        def loss(model: Any = model, cell: Any = cell, count: float = count) -> Any:
            return model.step_loss(cell, tf.constant([count]), None, (0, 0), True)

        _, steps = gradients(loss, model)
        for path, step in zip(paths, steps, strict=True):
            np.testing.assert_allclose(-eta * step, moves[path], atol=1e-13, err_msg=path)


@pytest.mark.slow
def test_glove_recovers_log_counts() -> None:
    """Of a matrix that is exactly of low rank but for the biases; the counts reach us as float32."""
    rng = np.random.default_rng(1)
    log = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5)) + rng.normal(size=(6, 1)) + rng.normal(size=5) + 1
    model, inputs, label = glove_model(np.exp(log), 2, 4.0)
    variables = [variable.value for variable in model.trainable_variables]
    minimize(lambda: model.step_loss(inputs, label, None, (0, 0), True), variables, steps=1500)
    np.testing.assert_allclose(model(inputs), log.ravel(), atol=1e-4)


# --- ctx and base against whole rows --------------------------------------------------------------------------------

MODELS = {
    "one level": "dim: 3",
    "linear terms": "dim: 3, bias: true",
    "ranks": "ranks: [1, 4]",
    "ranks strict": "ranks: [1, 2, 4], bias: true, dependents: strict",
    "truncated": "ranks: [1, 4], level_sharing: truncate",
}
OBJECTIVES = ["type: nce", "type: contrastive", "type: negative_sampling", "type: contrastive, correction: false"]


def drawn(model: Any, encoded: Encoded, shared: bool, k: int) -> list[tuple[Target, Rows, npt.NDArray[np.int64], Draw]]:
    """Each unit with some rows, and negatives drawn for them."""
    rng = np.random.default_rng(0)
    ids = row_ids(model, encoded)
    parts = []
    for u in range(len(model.noise.units)):
        target = Target(model, encoded, u)
        unit_rows = ids[rng.permutation(len(ids))[: 4 + u]]
        index = rng.choice(len(target.log_q), (k,) if shared else (len(unit_rows), k), p=np.exp(target.log_q))
        parts.append((target, unit_rows, index, target.draw(unit_rows, index)))
    return parts


def rescored(model: Any, target: Target, ids: Rows, index: npt.NDArray[np.int64]) -> list[Any]:
    """The rows and their negatives, each scored whole: for each level [n, 1 + k]."""
    index = np.broadcast_to(index, (len(ids), index.shape[-1]))
    columns = [ids]
    for j in range(index.shape[1]):
        rows = ids.copy()
        rows[:, list(target.groups)] = target.members[index[:, j]]
        columns.append(rows)
    scores = [model.submodels(entries(model, rows)).scores for rows in columns]
    return [tf.stack(level, axis=1) for level in zip(*scores, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["record", "batch"])
@pytest.mark.parametrize("joint", [False, True], ids=["groups", "joint"])
@pytest.mark.parametrize("kind", MODELS)
def test_negatives_equal_whole_rows(kind: str, joint: bool, shared: bool) -> None:
    """A step's loss and gradient are those of rows that are scored whole; the loss also by loops in NumPy."""
    k, noise = (
        3,
        "negatives: 3" + (", joint: [[a, c]]" if joint else "") + f", sharing: {'batch' if shared else 'record'}",
    )
    for objective in OBJECTIVES if kind == "ranks" else OBJECTIVES[:2]:
        model, encoded = model_and_rows(TABLE, objective, MODELS[kind], noise)
        assert all(len(set(extractor.shape.sizes)) == len(model.dims) for extractor in model.extractors[::2])
        parts = drawn(model, encoded, shared, k)
        ids = np.concatenate([rows for _, rows, _, _ in parts])
        draws = [draw for *_, draw in parts]

        def loss_of_whole_rows(model: Any = model, parts: Any = parts) -> Any:
            total = 0.0
            for target, rows, index, draw in parts:
                offset = model.offsets[target.groups[0]] if hasattr(model, "offsets") else 0.0
                scores = [Noisy(s[:, 0], s[:, 1:]) for s in rescored(model, target, rows, index)]
                above = [Noisy(*map(tf.stop_gradient, s)) for s in scores[1:]]
                log_q = Noisy(draw.log_q_positive, draw.log_q)
                levels = (
                    itertools.zip_longest(scores, above) if has_level_losses(model.schema) else [(scores[-1], None)]
                )
                loss = sum(self_supervised(model.schema.objective, s, log_q, draw.hits, offset, t) for s, t in levels)
                total += tf.reduce_sum(tf.where(draw.present, loss, 0.0))
            return total / sum(len(rows) for _, rows, _, _ in parts)

        def step(model: Any = model, ids: Rows = ids, draws: list[Draw] = draws) -> Any:
            return step_loss(model, ids, draws)

        (loss, got), (whole_loss, expected) = gradients(step, model), gradients(loss_of_whole_rows, model)
        assert math.isclose(loss, whole_loss, rel_tol=1e-12)
        assert math.isclose(loss, looped(model, parts), rel_tol=1e-12)
        for ours, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-13)


def looped(model: Any, parts: Any) -> float:
    """The same loss, row by row."""
    losses = []
    objective = model.schema.objective
    for target, rows, index, draw in parts:
        levels = [scores.numpy() for scores in rescored(model, target, rows, index)]
        levels = levels if has_level_losses(model.schema) else levels[-1:]
        offset = float(model.offsets[target.groups[0]]) if hasattr(model, "offsets") else 0.0
        for r in range(len(rows)):
            log_q = [draw.log_q_positive[r], *np.broadcast_to(draw.log_q, draw.hits.shape)[r]]
            for p, scores in enumerate(levels):
                above = levels[p + 1][r] if p + 1 < len(levels) else None
                correction = getattr(objective, "correction", True)
                loss = reference.row_loss(objective.type, scores[r], log_q, draw.hits[r], offset, above, correction)
                losses.append(loss if rows[r, target.column] >= 0 else 0.0)
    return math.fsum(losses) / sum(len(rows) for _, rows, _, _ in parts)
