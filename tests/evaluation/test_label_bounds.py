"""Lemmas 3.1 and 3.2 for classes of any frequency, by enumeration, and what the sentences say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import feat2vec
from feat2vec.errors import UserError
from feat2vec.evaluation import bounds
from feat2vec.evaluation.bounds import bounds_of_vectors, class_means, gain_of_best_linear, right_share
from feat2vec.evaluation.label_bounds import (
    LabelBounds,
    label_bounds,
    label_bounds_of_vectors,
    lemma_3_1,
    lemma_3_2,
)
from feat2vec.evaluation.linear_classifier import best_classifier, classifier_loss
from tests import reference
from tests.evaluation.tables import people

Classes = list[np.ndarray]


def classes_of(seed: int, sizes: tuple[int, ...], d: int = 2, scale: float = 1.0) -> tuple[Classes, np.ndarray]:
    """Encoded rows of each class, and the classes' shares of the rows."""
    rng = np.random.default_rng(seed)
    return [scale * rng.normal(size=(size, d)) for size in sizes], np.array(sizes) / sum(sizes)


def losses_of(rows_of_class: Classes) -> tuple[float, float]:
    """L_sup and L_sup^mu of rows that count the same."""
    features = np.concatenate(rows_of_class)
    class_ids = np.repeat(np.arange(len(rows_of_class)), [len(rows) for rows in rows_of_class])
    even, means = np.full(len(features), 1 / len(features)), class_means(features, class_ids)
    mean_loss = classifier_loss(features, class_ids, even, means.T)
    return best_classifier(features, class_ids, even, means.T).loss, mean_loss


@pytest.mark.parametrize(("sizes", "n"), [((1, 3), 1), ((2, 1, 1), 3), ((1, 3, 2), 3)])
def test_losses_and_lemmas_are_those_of_the_loops(sizes: tuple[int, ...], n: int) -> None:
    rows, shares = classes_of(0, sizes)
    rng = np.random.default_rng(0)
    mean_loss = reference.mean_classifier_loss(rows, shares)
    assert losses_of(rows)[1] == pytest.approx(mean_loss, rel=1e-12)
    first, tighter = lemma_3_1(rows, shares, "kind", mean_loss, 200_000, rng)
    loss = reference.unsupervised_loss(rows, shares, 1)
    assert first[:2] == ("lemma 3.1", 1)
    assert first.contrastive == pytest.approx(loss, rel=1e-12)
    assert (first.chance, first.exact) == (min(shares), True)
    assert first.bound == pytest.approx(loss / min(shares) + math.log(len(sizes)), rel=1e-12)
    assert tighter.bound == pytest.approx((loss - math.log(2) * sum(shares**2)) / min(shares), rel=1e-12)
    second = lemma_3_2(rows, shares, "kind", n, 200_000, rng)
    if n < len(sizes):
        assert second[1:6] == (n, None, 0.0, None, False)
        return
    of_draws = [math.prod(shares[list(drawn)]) for drawn in itertools.product(range(len(sizes)), repeat=n)
                if len(set(drawn)) == len(sizes)]  # fmt: skip
    assert second.chance == pytest.approx(sum(of_draws), rel=1e-9)
    assert second.bound == pytest.approx(reference.unsupervised_loss(rows, shares, n) / sum(of_draws), rel=1e-9)


@st.composite
def drawn_classes(draw: st.DrawFn) -> tuple[Classes, np.ndarray]:
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    scale = draw(st.sampled_from([0.0, 0.3, 1.0, 4.0]))
    return classes_of(draw(st.integers(0, 10_000)), tuple(sizes), draw(st.integers(1, 3)), scale)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(drawn_classes())
def test_lemmas_3_1_and_3_2(case: tuple[Classes, np.ndarray]) -> None:
    rows, shares = case
    best, mean_loss = losses_of(rows)
    rng = np.random.default_rng(0)
    lemmas = [*lemma_3_1(rows, shares, "kind", mean_loss, 200_000, rng)]
    lemmas += [lemma_3_2(rows, shares, "kind", n, 200_000, rng) for n in range(len(rows), 4)]
    assert best <= mean_loss
    for lemma in lemmas:
        assert lemma.exact
        assert lemma.bound is not None
        assert mean_loss <= lemma.bound + 1e-9


def of_lemma_3_1(form: Callable[[float, np.ndarray], float]) -> Callable[[Classes, np.ndarray], float]:
    return lambda rows, shares: form(reference.unsupervised_loss(rows, shares, 1), shares)


WRONG: dict[str, Callable[[Classes, np.ndarray], float]] = {
    "3.1 without the share": of_lemma_3_1(lambda loss, shares: loss + math.log(len(shares)) / 2),
    "the tighter one without the share": of_lemma_3_1(lambda loss, shares: 2 * (loss - math.log(2) * sum(shares**2))),
    "the tighter one less twice what is slack": of_lemma_3_1(
        lambda loss, shares: (loss - 2 * math.log(2) * sum(shares**2)) / shares.min()
    ),
    "3.2 without the chance": lambda rows, shares: reference.unsupervised_loss(rows, shares, len(rows)) / 1.5,
    "3.2 with one negative": lambda rows, shares: reference.unsupervised_loss(rows, shares, 1),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_lemmas_can_fail(wrong: str) -> None:
    """A counterexample to each wrong form is among a few encoders whose classes are far apart or back to front."""
    cases = [classes_of(seed, (1,) * c, 1, scale) for seed in range(8) for c in (2, 3, 4) for scale in (0.05, 0.5, 3.0)]
    assert not all(losses_of(rows)[1] <= WRONG[wrong](rows, shares) for rows, shares in cases)


def spread_labels(counts: tuple[int, ...], noise: float, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around a direction of each class, and the classes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(counts)), counts)
    return 3 * np.eye(d)[labels] + noise * rng.normal(size=(len(labels), d)), labels


def test_a_label_that_vectors_tell() -> None:
    vectors, labels = spread_labels((60, 60, 20), 0.2)
    found = label_bounds_of_vectors(vectors, labels, "kind", 5, draws=4_000)
    assert (found.rows, found.classes, found.rarest, found.most_frequent) == (140, 3, 1 / 7, 3 / 7)
    assert found.best_linear <= found.mean_classifier < found.shares_loss < found.guess == math.log(3)
    assert [lemma.name for lemma in found.lemmas] == ["lemma 3.1", "lemma 3.1, tighter", "lemma 3.2", "lemma 3.2"]
    first, tighter, few, many = found.lemmas
    assert first.bound is not None
    assert tighter.bound is not None
    assert tighter.bound < first.bound
    assert few.negatives == 5
    assert many.chance >= 0.9
    assert all(lemma.bound is not None and lemma.bound >= found.mean_classifier for lemma in found.lemmas)
    assert found.probe is not None
    assert found.probe.accuracy > 0.95
    assert "of what a learnt linear head gains" in found.meaning
    assert "14.29% to 42.86%" in found.frequencies
    assert f"takes {many.negatives} negatives" in found.frequencies
    assert "they are better by" in first.meaning
    assert "tells kind in 100.0% of" in found.probe_meaning
    assert found == label_bounds_of_vectors(vectors, labels, "kind", 5, draws=4_000)


def sentences(found: LabelBounds) -> str:
    return " ".join([found.meaning, found.frequencies, *(lemma.meaning for lemma in found.lemmas), found.probe_meaning])


def test_what_the_sentences_say() -> None:
    vectors, labels = spread_labels((40, 40), 0.05, d=2)
    proven = sentences(label_bounds_of_vectors(4 * vectors, labels, "kind", 1, draws=4_000))
    assert "equally frequent" in proven
    assert "a probability of 0, so it says nothing about kind" in proven  # one negative, two classes
    noise = np.random.default_rng(1).normal(size=(200, 2))
    nothing = sentences(label_bounds_of_vectors(0.1 * noise, np.arange(200) % 2, "kind", 5, draws=4_000))
    assert "say next to nothing of kind" in nothing
    assert "proves nothing about kind" in nothing
    turned = sentences(label_bounds_of_vectors(np.array([[1.0], [20.0]] * 9), np.arange(18) % 2, "kind", 5, draws=999))
    assert "no better than a guess" in turned  # the vector of class 0 is more like the mean of class 1
    assert "they are worse by" in turned
    few = sentences(label_bounds_of_vectors(np.eye(2), np.arange(2), "kind", 5, draws=999))
    assert "too few rows to hold some out" in few
    rare = np.array([0] * 30_000 + [1])
    needed = label_bounds_of_vectors(np.ones((30_001, 1)), rare, "kind", 5, draws=50)
    assert "It takes more than 10,000 negatives" in needed.frequencies
    assert [lemma.negatives for lemma in needed.lemmas] == [1, 1, 5]
    assert needed.lemmas[2].chance == pytest.approx(1 - (30_000 / 30_001) ** 5, rel=1e-6)


def test_the_tighter_lemma_3_1_is_an_equality_for_two_rows() -> None:
    for seed in range(5):
        rows, shares = classes_of(seed, (1, 1))
        mean_loss = losses_of(rows)[1]
        lemma = lemma_3_1(rows, shares, "kind", mean_loss, 200_000, np.random.default_rng(0))[1]
        assert lemma.bound == pytest.approx(mean_loss, rel=1e-12)


def test_lemma_3_2_can_prove_something() -> None:
    """Long vectors in opposite directions, and negatives enough: the bound is below a guess."""
    rows, shares = [np.full((2, 1), 30.0), np.full((2, 1), -30.0)], np.array([0.5, 0.5])
    lemma = lemma_3_2(rows, shares, "kind", 6, 200_000, np.random.default_rng(0))
    loss = sum(math.comb(6, same) * math.log1p(same) for same in range(7)) / 2**6
    assert lemma.contrastive == pytest.approx(loss, rel=1e-9)
    assert lemma.chance == pytest.approx(1 - 2**-5)
    assert "proves nothing" in lemma.meaning
    rows, shares = [np.eye(12)[[c]] * 30 for c in range(12)], np.full(12, 1 / 12)
    many = lemma_3_2(rows, shares, "kind", 60, 20_000, np.random.default_rng(0))
    assert many.bound is not None
    assert many.bound < math.log(12)
    assert "proves that mean vectors tell kind better than a guess" in many.meaning


def test_the_share_of_right_rows_follows_from_the_loss() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        logs = np.log(rng.dirichlet(np.full(3, 0.2), size=40) + 1e-12)
        assert (logs.argmax(axis=1) == 0).mean() >= right_share(-logs[:, 0].mean())


def test_the_best_classifier_of_sets_of_classes() -> None:
    """Of all sets by the definition, of many sets by draws; never above the mean classifier's."""
    vectors, labels = spread_labels((30, 10, 20, 5), 2.5)
    for k in (1, 2, 3):
        found = bounds_of_vectors(vectors, labels, "kind", 0, [(1, k)], draws=2_000)[0]
        losses = []
        for task in itertools.combinations(range(4), k + 1):
            rows = [vectors[labels == c] for c in task]
            features, class_ids = np.concatenate(rows), np.repeat(np.arange(k + 1), [len(part) for part in rows])
            weights = np.concatenate([np.full(len(part), 1 / (k + 1) / len(part)) for part in rows])
            losses.append(best_classifier(features, class_ids, weights, np.zeros((4, k + 1))).loss)
        assert found.best_linear == pytest.approx(np.mean(losses), abs=1e-5)
        assert found.best_linear <= found.bound.mean_classifier <= found.bound.bound
        assert ("proves nothing" in found.meaning) == (found.bound.bound >= math.log(k + 1))
    proven = bounds_of_vectors(9 * np.eye(2), np.arange(2), "kind", 0, [(1, 1)])[0]
    assert "tell kind from 1 other in at least 100% of the rows" in proven.meaning


def test_of_many_sets_of_classes_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 8
    vectors = rng.normal(size=(8, 4))[labels] + 1.5 * rng.normal(size=(240, 4))
    exact = gain_of_best_linear(vectors, labels, 1)  # of 28 sets
    monkeypatch.setattr(bounds, "MOST_TASKS", 10)
    drawn = [gain_of_best_linear(vectors, labels, 1, seed) for seed in range(8)]
    assert np.std(drawn) > 0
    assert abs(np.mean(drawn) - exact) < 4 * np.std(drawn) / math.sqrt(8)
    for found in bounds_of_vectors(vectors, labels, "kind", 0, [(1, 1), (5, 1), (5, 3)], draws=50):
        assert 0 <= found.best_linear <= found.bound.mean_classifier  # although both are drawn


@pytest.mark.slow
def test_of_a_run(people_run: feat2vec.Run) -> None:
    found = label_bounds(people_run.model, people_run.fitted, people(), "kind", draws=2_000)
    assert (found.label, found.rows, found.classes) == ("kind", 245, 3)
    assert found.best_linear <= found.mean_classifier
    assert found.lemmas[2].negatives == people_run.schema.noise.negatives == 5
    with pytest.raises(UserError, match="column 'title' has 1 class; two or more"):
        label_bounds_of_vectors(np.eye(2), np.zeros(2, int), "title", 5)
