"""The bound of Arora et al. (2019) against enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation.bounds import Bound, class_bounds, contrastive_bound, draws_per_chunk, labelled_vectors
from tests import reference
from tests.evaluation.tables import people

Floats = npt.NDArray[np.float64]


def encoder(seed: int, sizes: Sequence[int], d: int = 3, scale: float = 1.0) -> tuple[Floats, list[str]]:
    """Random features of classes of these sizes, and the classes' names."""
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(sum(sizes), d)), [f"c{c}" for c, size in enumerate(sizes) for _ in range(size)]


def slow_bound(features: Floats, labels: Sequence[str], n: int, k: int) -> tuple[float, float]:
    """L^mu_sup,k and L_un^N by loops over all the tuples."""
    classes = sorted(set(labels))
    members = {c: [f for f, label in zip(features, labels, strict=True) if label == c] for c in classes}
    mean = {c: np.mean(members[c], axis=0) for c in classes}
    mean_classifier, unsupervised, tasks = 0.0, 0.0, list(itertools.permutations(classes, k + 1))
    for task in tasks:  # the first class is the right one
        for x in members[task[0]]:
            loss = -reference.log_shares([float(x @ mean[c]) for c in task])[0]
            mean_classifier += loss / len(tasks) / len(members[task[0]])
    for drawn in itertools.product(classes, repeat=n + 1):
        rows = [members[drawn[0]], members[drawn[0]], *(members[c] for c in drawn[1:])]
        chance = len(classes) ** -(n + 1.0) / math.prod(map(len, rows))
        for x, positive, *negatives in itertools.product(*rows):
            unsupervised += chance * math.log1p(sum(math.exp(x @ (other - positive)) for other in negatives))
    return mean_classifier, unsupervised


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
    bound = contrastive_bound(features / 10, labels, negatives=64, k=1, draws=5_000)
    assert not bound.exact
    assert bound.mean_classifier <= bound.bound
    assert sum(draws_per_chunk(1003, 10, limit=100)) == 1003
    assert max(draws_per_chunk(1003, 10, limit=100)) == 10


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
    bound = contrastive_bound(*case)
    assert bound.exact
    assert holds(bound.mean_classifier, bound.bound)


def test_the_bound_is_tight() -> None:
    """With one row a class, Jensen's inequalities are equalities, and so is the proposition for N = k = 1."""
    for seed in range(5):
        bound = contrastive_bound(*encoder(seed, (1,) * (2 + seed)), negatives=1, k=1)
        assert math.isclose(bound.mean_classifier, bound.bound, rel_tol=1e-12)


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
    cases_with_bounds = [
        (contrastive_bound(*encoder(seed, (1,) * c, d=1, scale=scale), n, k), n, k, c)
        for seed, c, n, k in cases
        for scale in (0.3, 3.0)
    ]
    assert not all(holds(bound.mean_classifier, WRONG[wrong](bound, n, k, c)) for bound, n, k, c in cases_with_bounds)


@pytest.mark.slow
def test_the_contrastive_loss_bounds_the_classifiers(people_run: feat2vec.Run) -> None:
    vectors, labels, without = labelled_vectors(people_run.model, people_run.fitted, people(), "kind")
    assert (len(vectors), without) == (245, 5)
    kinds = [kind for kind in people()["kind"].to_pylist() if kind is not None]
    assert len(set(zip(kinds, labels.tolist(), strict=True))) == 3
    labelled = [kind is not None for kind in people()["kind"].to_pylist()]
    np.testing.assert_allclose(vectors, people_run.embed(people())[labelled], atol=1e-6)
    for one in class_bounds(people_run.model, people_run.fitted, people(), "kind", ((1, 1), (2, None)), draws=20_000):
        assert (one.classes, one.rows) == (3, 245)
        assert one.k == (1 if one.negatives == 1 else 2)
        assert one.bound.tau == pytest.approx(3.0**-one.negatives)
        inside = one.bound.contrastive - one.bound.tau * math.log(one.negatives + 1)
        assert one.bound.bound == pytest.approx(one.k / (1 - one.bound.tau) * inside)
        assert one.bound.mean_classifier <= one.bound.bound
    own, _, _ = labelled_vectors(
        people_run.model, people_run.fitted, people(), "who"
    )  # without the group that holds the label
    there = [who is not None for who in people()["who"].to_pylist()]
    np.testing.assert_allclose(own, people_run.embed(people(), ["tags", "title", "score"])[there], atol=1e-6)
    for label, message in (("kinds", "did you mean 'kind'"), ("tags", "holds lists"), ("one", "has 1 class; two")):
        rows = people().append_column("one", pa.array(["x"] * 250))
        with pytest.raises(UserError, match=message):
            class_bounds(people_run.model, people_run.fitted, rows, label)
