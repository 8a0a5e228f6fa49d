"""Losses against loops in float64 (tests/reference.py), and Proposition 3.3 against enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from feat2vec.model import losses as objectives
from feat2vec.model.losses import Bound, Noisy, contrastive_bound, self_supervised, supervised
from feat2vec.schema.options import Contrastive, Glove, Logistic, Nce, NegativeSampling, Regression, Softmax
from tests import reference

Floats = npt.NDArray[np.float64]
NOISY = [
    Nce(),
    NegativeSampling(),
    *(Contrastive(correction=c, temperature=t) for c in (True, False) for t in (1.0, 0.4)),
]
SUPERVISED = [Logistic(target="y"), Regression(target="y"), Softmax(target="y"), Glove(target="y", n_max=3.0)]
EXTREMES = [-1e4, -89.0, -20.0, 0.0, 1.0, 20.0, 89.0, 1e4]


def name(objective: Any) -> str:
    plain, temperature = (
        "" if getattr(objective, "correction", True) else " plain",
        getattr(objective, "temperature", 1.0),
    )
    return f"{objective.type}{plain}{'' if temperature == 1 else f' at {temperature}'}"


each_noisy = pytest.mark.parametrize("objective", NOISY, ids=name)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


class Case:
    """Scores, log Q2 and hits of some rows; of the rows' negatives the last row's are all hits."""

    def __init__(self, rows: int = 5, k: int = 3, shared: bool = False, seed: int = 0, extreme: bool = False) -> None:
        rng = np.random.default_rng(seed)
        shape = (rows, 1 + k)
        self.scores, self.target = (rng.choice(EXTREMES, shape) if extreme else rng.normal(size=shape) for _ in "st")
        self.log_q = np.log(rng.uniform(1e-3, 1, shape))
        if shared:
            self.log_q[:, 1:] = self.log_q[0, 1:]
        self.hits = rng.random((rows, k)) < 0.3
        self.hits[-1] = True
        self.shared, self.offset = shared, float(rng.normal())

    def loss(self, objective: Any, dtype: str, target: bool, scores: Any = None) -> Any:
        def noisy(x: Any, one_pool: bool = False) -> Noisy:
            x = tf.cast(x, dtype)
            return Noisy(x[:, 0], x[0, 1:] if one_pool else x[:, 1:])

        above = noisy(self.target) if target else None
        scores = noisy(self.scores if scores is None else scores)
        offset = tf.constant(self.offset, dtype)
        return self_supervised(objective, scores, noisy(self.log_q, self.shared), self.hits, offset, above)

    def expected(self, objective: Any, target: bool) -> list[float]:
        rows = zip(self.scores, self.log_q, self.hits, self.target, strict=True)
        correction, temperature = getattr(objective, "correction", True), getattr(objective, "temperature", 1.0)
        return [
            reference.row_loss(objective.type, s, q, h, self.offset, t if target else None, correction, temperature)
            for s, q, h, t in rows
        ]

    def gradient(self, objective: Any, dtype: str, target: bool) -> Any:
        scores = tf.constant(self.scores, dtype)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            loss = tf.reduce_sum(self.loss(objective, dtype, target, scores))
        return tape.gradient(loss, scores).numpy()


def central(function: Callable[[Floats], float], at: Floats, step: float = 1e-5) -> Floats:
    """The gradient by central differences."""
    found = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[i] += step
        down[i] -= step
        found[i] = (function(up) - function(down)) / (2 * step)
    return found


# --- against negatives ----------------------------------------------------------------------------------------------


@each_noisy
@each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@pytest.mark.parametrize("shared", [False, True], ids=["record", "batch"])
def test_noise_losses(objective: Any, dtype: str, target: bool, shared: bool) -> None:
    for k in (1, 3):
        case = Case(k=k, shared=shared)
        got = case.loss(objective, dtype, target)
        assert got.dtype == dtype
        tolerance = 1e-12 if dtype == "float64" else 2e-6
        np.testing.assert_allclose(got, case.expected(objective, target), rtol=tolerance, atol=tolerance)


@each_noisy
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_noise_gradients(objective: Any, target: bool) -> None:
    case = Case(seed=1)
    case.scores[0] = 0.0  # where |s| and relu have kinks

    def total(scores: Floats) -> float:
        return float(tf.reduce_sum(case.loss(objective, "float64", target, scores)))

    np.testing.assert_allclose(
        case.gradient(objective, "float64", target), central(total, case.scores), rtol=1e-7, atol=1e-9
    )


@each_noisy
@each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_noise_losses_at_extremes(objective: Any, dtype: str, target: bool) -> None:
    case = Case(rows=400, extreme=True)
    got = case.loss(objective, dtype, target).numpy()
    temperature = getattr(objective, "temperature", 1.0)
    # At 1e4 a float32 is 1e-3 apart from the next, and a probability made of such logits is as inexact.
    rtol, atol = (1e-6, 1e-11) if dtype == "float64" else (1e-3 / temperature if target else 1e-6, 2e-3 / temperature)
    np.testing.assert_allclose(got, case.expected(objective, target), rtol=rtol, atol=atol)
    gradient = case.gradient(objective, dtype, target)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient) * temperature <= 1 + 1e-6).all()


@each_dtype
def test_confident_logits_keep_their_gradient(dtype: str) -> None:
    scores = tf.constant([[-20.0, 20.0], [20.0, -20.0]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = self_supervised(NegativeSampling(), Noisy(scores[:, 0], scores[:, 1:]), Noisy(0.0, 0.0), None, 0.0)
    low = math.exp(-20) / (1 + math.exp(-20))
    np.testing.assert_allclose(loss, [40 + 2 * low, 2 * low], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, scores)[1], [-low, low], rtol=1e-6)


def test_nce_probability() -> None:
    """Seed 000: p(y=1|x) = exp(s) / (exp(s) + k Q2(x_i))."""
    scores = np.array([-2.0, 0.0, 1.5])
    log_q = np.log([0.2, 0.01, 0.9])
    got = tf.sigmoid(objectives.nce_logit(tf.constant(scores), log_q.astype(np.float32), 7, 0.25))
    shifted = np.exp(scores + 0.25)
    np.testing.assert_allclose(got, shifted / (shifted + 7 * np.exp(log_q)), rtol=1e-6)


def test_nce_in_a_graph_that_does_not_know_k() -> None:
    case = Case()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float64)])
    def loss(scores: Any) -> Any:
        return case.loss(Nce(), "float64", False, scores)

    np.testing.assert_allclose(loss(case.scores), case.expected(Nce(), False))


@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
def test_hits_are_masked_where_the_correction_is_on(target: bool) -> None:
    """A masked negative changes neither loss nor gradient; where none is left, both are 0."""
    case, other = Case(seed=2), Case(seed=2)
    other.scores[:, 1:][case.hits] += 3.0
    for objective in NOISY:
        loss, moved = (x.loss(objective, "float64", target).numpy() for x in (case, other))
        assert np.allclose(loss, moved, atol=1e-15) == getattr(objective, "correction", False)
    gradient = case.gradient(Contrastive(), "float64", target)
    assert (gradient[:, 1:][case.hits] == 0).all()
    assert (gradient[-1] == 0).all()
    assert case.loss(Contrastive(), "float64", target)[-1] == 0


@pytest.mark.parametrize("seed", range(3))
def test_n_pair_form(seed: int) -> None:
    """Equation (6): log(1 + sum exp(f(x).(f(x_i^-) - f(x^+))))."""
    case = Case(seed=seed)
    expected = np.log1p(np.exp(case.scores[:, 1:] - case.scores[:, :1]).sum(1))
    np.testing.assert_allclose(case.loss(Contrastive(correction=False), "float64", False), expected)


@each_noisy
def test_a_certain_target_is_a_label(objective: Any) -> None:
    case = Case(seed=3)
    case.target[:, 0], case.target[:, 1:] = 2e3, -2e3
    plain, soft = (case.loss(objective, "float64", target) for target in (False, True))
    np.testing.assert_allclose(plain, soft, rtol=1e-13, atol=1e-300)
    plain, soft = (case.gradient(objective, "float64", target) for target in (False, True))
    np.testing.assert_allclose(plain, soft, rtol=1e-13, atol=1e-300)


@each_noisy
def test_a_target_is_reached_at_itself(objective: Any) -> None:
    """The gradient is 0 where a level's scores are those of the level above."""
    case = Case(seed=4)
    case.target = case.scores
    np.testing.assert_allclose(case.gradient(objective, "float64", True), 0, atol=1e-15)


# --- against labels -------------------------------------------------------------------------------------------------


def labelled(objective: Any, rng: np.random.Generator, rows: int = 6) -> tuple[Floats, Floats, Floats]:
    """Scores, targets above, labels."""
    shape = (rows, 4) if isinstance(objective, Softmax) else (rows,)
    scores, target = rng.normal(size=shape), rng.normal(size=shape)
    match objective:
        case Softmax():
            return scores, target, rng.integers(0, 4, rows).astype(float)
        case Logistic():
            return scores, target, rng.integers(0, 2, rows).astype(float)
        case Glove():
            return scores, target, rng.uniform(0.1, 10.0, rows)
    return scores, target, rng.normal(size=rows)


def slow(objective: Any, s: Any, y: float, t: Any) -> float:
    """A row's loss."""
    match objective:
        case Softmax():
            return -reference.log_shares(s)[int(y)] if t is None else reference.shared_loss(s, t)
        case Logistic():
            p, q = (y, 1 - y) if t is None else (reference.sigmoid(t), reference.sigmoid(-t))
            return reference.binary_loss(s, p, q)
        case Glove():
            weight = min(1.0, (y / objective.n_max) ** objective.alpha)
            return float(weight * ((math.log(y) if t is None else t) - s) ** 2)
    return float((s - (y if t is None else t)) ** 2)


@each_dtype
@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@pytest.mark.parametrize("objective", SUPERVISED, ids=name)
def test_supervised_losses(objective: Any, target: bool, dtype: str) -> None:
    scores, above, label = labelled(objective, np.random.default_rng(0))
    got = supervised(objective, *(tf.constant(x, dtype) for x in (scores, label, *([above] if target else []))))
    assert got.dtype == dtype
    rows = zip(scores, label, above, strict=True)
    expected = [slow(objective, s, y, t if target else None) for s, y, t in rows]
    np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("target", [False, True], ids=["labels", "target"])
@pytest.mark.parametrize("objective", SUPERVISED, ids=name)
def test_supervised_gradients(objective: Any, target: bool) -> None:
    at, above, label = labelled(objective, np.random.default_rng(1))
    at[0] = 0.0

    def loss(scores: Any) -> Any:
        return tf.reduce_sum(supervised(objective, scores, tf.constant(label), tf.constant(above) if target else None))

    scores = tf.constant(at)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        total = loss(scores)
    expected = central(lambda x: float(loss(tf.constant(x))), at)
    np.testing.assert_allclose(tape.gradient(total, scores), expected, rtol=1e-6, atol=1e-9)


@each_dtype
@pytest.mark.parametrize("objective", SUPERVISED, ids=name)
def test_supervised_losses_at_extremes(objective: Any, dtype: str) -> None:
    rng = np.random.default_rng(2)
    _, above, label = labelled(objective, rng, rows=100)
    scores = tf.constant(rng.choice(EXTREMES, above.shape), dtype)
    targets = rng.choice(EXTREMES, above.shape)
    for target in (None, targets):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            more = () if target is None else (tf.constant(target, dtype),)
            loss = supervised(objective, scores, tf.constant(label, dtype), *more)
        rows = zip(scores.numpy().astype(float), label, targets, strict=True)
        expected = [slow(objective, s, y, None if target is None else t) for s, y, t in rows]
        rtol, atol = (1e-6, 1e-11) if dtype == "float64" else (2e-5, 1e-6)
        np.testing.assert_allclose(loss, expected, rtol=rtol, atol=atol)
        assert np.isfinite(tape.gradient(loss, scores).numpy()).all()


def test_a_certain_target_is_a_label_as_well() -> None:
    rng = np.random.default_rng(3)
    for objective in SUPERVISED:
        scores, _, label = labelled(objective, rng)
        match objective:
            case Softmax():
                above = 2e3 * np.eye(4)[label.astype(int)]
            case Logistic():
                above = 4e3 * label - 2e3
            case Glove():
                above = np.log(label)
            case _:
                above = label
        got = supervised(objective, *(tf.constant(x) for x in (scores, label, above)))
        expected = supervised(objective, *(tf.constant(x) for x in (scores, label)))
        np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_an_unseen_class_has_no_probability() -> None:
    """And is not the last one."""
    scores = tf.constant([[0.0, 1.0], [0.0, 1.0]])
    loss = supervised(Softmax(target="y"), scores, tf.constant([-1.0, 1.0])).numpy()
    assert loss[0] == math.inf
    assert math.isclose(loss[1], math.log1p(math.exp(-1)), rel_tol=1e-6)


def test_glove_weight() -> None:
    count = tf.constant([1e-30, 0.5, 3.0, 30.0, 1e30])
    got = objectives.glove(tf.math.log(count) + 1, count, n_max=3.0, alpha=0.75)
    np.testing.assert_allclose(got, [0.0, (0.5 / 3) ** 0.75, 1.0, 1.0, 1.0], rtol=1e-5, atol=1e-20)
    np.testing.assert_allclose(objectives.glove(tf.math.log(count) + 1, count, 3.0, 0.0), 1.0, rtol=1e-5)


# --- Proposition 3.3 ------------------------------------------------------------------------------------------------


def encoder(seed: int, sizes: Sequence[int], d: int = 3, scale: float = 1.0) -> tuple[Floats, list[str]]:
    """Random features of classes of these sizes, and the classes' names."""
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(sum(sizes), d)), [f"c{c}" for c, size in enumerate(sizes) for _ in range(size)]


def slow_bound(features: Floats, labels: Sequence[str], n: int, k: int) -> tuple[float, float]:
    """L^mu_sup,k and L_un^N by loops over all the tuples."""
    classes = sorted(set(labels))
    members = {c: [f for f, label in zip(features, labels, strict=True) if label == c] for c in classes}
    mean = {c: np.mean(members[c], axis=0) for c in classes}
    supervised_, unsupervised, tasks = 0.0, 0.0, list(itertools.permutations(classes, k + 1))
    for task in tasks:  # the first class is the right one
        for x in members[task[0]]:
            loss = -reference.log_shares([float(x @ mean[c]) for c in task])[0]
            supervised_ += loss / len(tasks) / len(members[task[0]])
    for drawn in itertools.product(classes, repeat=n + 1):
        rows = [members[drawn[0]], members[drawn[0]], *(members[c] for c in drawn[1:])]
        chance = len(classes) ** -(n + 1.0) / math.prod(map(len, rows))
        for x, positive, *negatives in itertools.product(*rows):
            unsupervised += chance * math.log1p(sum(math.exp(x @ (other - positive)) for other in negatives))
    return supervised_, unsupervised


@pytest.mark.parametrize(
    ("sizes", "n", "k"), [((2, 1), 1, 1), ((1, 3, 2), 2, 1), ((2, 1, 1), 3, 2), ((1, 2, 1, 2), 2, 3)]
)
def test_bound_by_enumeration(sizes: tuple[int, ...], n: int, k: int) -> None:
    features, labels = encoder(0, sizes)
    got = contrastive_bound(features, labels, negatives=n, k=k)
    mean, unsupervised = slow_bound(features, labels, n, k)
    tau = len(sizes) ** -n
    bound = k / (1 - tau) * (unsupervised - tau * math.log(n + 1))
    np.testing.assert_allclose(got, (mean, bound, unsupervised, tau, True), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_bound_by_draws(k: int) -> None:
    features, labels = encoder(1, (3, 1, 2, 1, 2))
    exact = contrastive_bound(features, labels, 2, k)
    drawn = contrastive_bound(features, labels, 2, k, draws=1500)
    assert (exact.exact, drawn.exact) == (True, False)
    assert drawn.contrastive != exact.contrastive
    np.testing.assert_allclose(drawn[:4], exact[:4], rtol=0.06)
    assert drawn == contrastive_bound(features, labels, 2, k, draws=1500)
    assert drawn != contrastive_bound(features, labels, 2, k, draws=1500, seed=1)


def test_bound_by_draws_converges() -> None:
    features, labels = encoder(1, (3, 1, 2, 1, 2, 4))
    exact = contrastive_bound(features, labels, 3, 3, draws=1_000_000)
    drawn = contrastive_bound(features, labels, 3, 3, draws=50_000)
    assert (exact.exact, drawn.exact) == (True, False)
    np.testing.assert_allclose(drawn[:4], exact[:4], rtol=0.01)


def test_drawn_sets_of_classes() -> None:
    """With few draws the mean classifiers' loss is estimated as well: over seeds it has the right mean."""
    features, labels = encoder(2, (2, 1, 3, 1, 1, 2))
    exact = contrastive_bound(features, labels, 1, 2).mean_classifier
    drawn = [contrastive_bound(features, labels, 1, 2, draws=40, seed=seed).mean_classifier for seed in range(400)]
    assert np.std(drawn) > 0
    assert abs(np.mean(drawn) - exact) < 5 * np.std(drawn) / math.sqrt(len(drawn))


def test_bound_of_many_rows() -> None:
    """Neither all pairs of rows nor all the draws are in memory at once."""
    features, labels = encoder(0, (20_000, 20_000), d=20)
    found = contrastive_bound(features / 10, labels, negatives=64, k=1, draws=5_000)
    assert not found.exact
    assert found.mean_classifier <= found.bound
    assert sum(objectives._chunks(1003, 10, limit=100)) == 1003
    assert max(objectives._chunks(1003, 10, limit=100)) == 10


@pytest.mark.parametrize(
    ("features", "labels", "n", "k", "message"),
    [
        (np.zeros((2, 1)), [0, 1], 1, 2, r"Received: k=2, negatives=1, draws=200000, classes=2"),
        (np.zeros((2, 1)), [0, 1], 1, 0, r"Received: k=0, negatives=1, draws=200000, classes=2"),
        (np.zeros((2, 1)), [0, 0], 1, 1, r"Received: k=1, negatives=1, draws=200000, classes=1"),
        (np.zeros((2, 1)), [0, 1], 0, 1, r"Received: k=1, negatives=0, draws=200000, classes=2"),
        (np.zeros((2, 1)), [0, 1, 1], 1, 1, r"Received: features \(2, 1\), labels \(3,\)"),
        (np.zeros(2), [0, 1], 1, 1, r"Received: features \(2,\), labels \(2,\)"),
        (np.array([[np.nan], [0.0]]), [0, 1], 1, 1, r"needs finite features \[rows, d\] and a label for each row"),
    ],
)
def test_bound_errors(features: Any, labels: list[int], n: int, k: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        contrastive_bound(features, labels, negatives=n, k=k)


def test_bound_needs_draws() -> None:
    with pytest.raises(ValueError, match=r"Received: k=1, negatives=1, draws=0, classes=2"):
        contrastive_bound(np.zeros((2, 1)), [0, 1], 1, 1, draws=0)


@st.composite
def encoders(draw: st.DrawFn) -> tuple[Floats, list[str], int, int]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    features = encoder(
        draw(st.integers(0, 10_000)), sizes, draw(st.integers(1, 4)), draw(st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    )
    n = draw(st.integers(1, 3 if sum(sizes) <= 8 else 2))
    return *features, n, draw(st.integers(1, len(sizes) - 1))


def holds(mean: float, bound: float) -> bool:
    return mean <= bound + 1e-9 * (1 + abs(bound))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(encoders())
def test_proposition_3_3(case: tuple[Floats, list[str], int, int]) -> None:
    found = contrastive_bound(*case)
    assert found.exact
    assert holds(found.mean_classifier, found.bound)


def test_the_bound_is_tight() -> None:
    """With one row a class, Jensen's inequalities are equalities, and so is the proposition for N = k = 1."""
    for seed in range(5):
        found = contrastive_bound(*encoder(seed, (1,) * (2 + seed)), negatives=1, k=1)
        assert math.isclose(found.mean_classifier, found.bound, rel_tol=1e-12)


WRONG: dict[str, Callable[[Bound, int, int, int], float]] = {
    "tau term left out of the factor": lambda f, n, k, _: k * (f.contrastive - f.tau * math.log(n + 1)),
    "tau left out": lambda f, _, k, __: k * f.contrastive,
    "N + 2 for N + 1": lambda f, n, k, _: k / (1 - f.tau) * (f.contrastive - f.tau * math.log(n + 2)),
    "k left out": lambda f, n, _, __: (f.contrastive - f.tau * math.log(n + 1)) / (1 - f.tau),
    "tau = C^-(N + 1)": lambda f, n, k, c: k / (1 - f.tau / c) * (f.contrastive - f.tau / c * math.log(n + 1)),
    "tau = C^-(N - 1) / 2": lambda f, n, k, c: (
        k / (1 - f.tau * c / 2) * (f.contrastive - f.tau * c / 2 * math.log(n + 1))
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_property_can_fail(wrong: str) -> None:
    """A counterexample to each wrong form of the proposition is among a few random encoders."""
    cases = [(seed, c, n, k) for seed in range(10) for c in (3, 4) for n in (1, 2) for k in range(1, c)]
    found = [
        (contrastive_bound(*encoder(seed, (1,) * c, d=1, scale=scale), n, k), n, k, c)
        for seed, c, n, k in cases
        for scale in (0.3, 3.0)
    ]
    assert not all(holds(bound.mean_classifier, WRONG[wrong](bound, n, k, c)) for bound, n, k, c in found)
