"""Clusters of vectors: planted ones are found, and named by their most typical values."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from feat2vec.arrays import Float32s, Int64s
from feat2vec.errors import UserError
from feat2vec.pages import clusters as module
from feat2vec.pages.clusters import Clusters, clusters_of


def planted(sizes: list[int], dim: int = 12) -> tuple[Float32s, Int64s]:
    """Vectors around as many directions, the nearest to a middle the first of its cluster; and their true clusters."""
    rng = np.random.default_rng(0)
    middles = np.eye(dim)[: len(sizes)] + 0.2
    truth = np.repeat(np.arange(len(sizes)), sizes)
    vectors = middles[truth] + 0.12 * rng.normal(size=(len(truth), dim))
    first = np.cumsum(sizes) - sizes
    vectors[first] = middles
    return (vectors * rng.uniform(0.5, 2, (len(truth), 1))).astype(np.float32), truth


def found(vectors: Float32s, counts: Int64s | None = None, seed: int = 0) -> Clusters:
    counts = np.ones(len(vectors), np.int64) if counts is None else counts
    return clusters_of(vectors, counts, lambda places: [f"v{place}" for place in places], seed)


def test_planted_clusters_are_found_the_largest_first() -> None:
    vectors, truth = planted([40, 90, 60])
    clusters = found(vectors)
    np.testing.assert_array_equal(clusters.codes, np.array([2, 0, 1])[truth])
    assert int(np.argmin(clusters.bic)) + 1 == 3
    assert len(clusters.bic) == module.MOST_CLUSTERS
    assert [name[:2] for name in clusters.names] == ["1:", "2:", "3:"]


def test_a_name_is_of_values_near_the_middle_among_the_more_frequent_half() -> None:
    vectors, truth = planted([40, 90])
    clusters = found(vectors)
    for cluster, first in ((0, 40), (1, 0)):
        assert f"v{first}" in clusters.names[cluster].partition(": ")[2].split(", ")
    counts = np.where(np.arange(len(vectors)) % 4 == 1, 9, 1)
    counts[truth == 0] = np.arange(40) + 1
    named = found(vectors, counts).names[1].partition(": ")[2].split(", ")
    assert len(named) == module.TYPICAL_VALUES
    assert all(20 <= int(name[1:]) < 40 for name in named)


def test_vectors_of_one_cloud_or_one_direction_are_one_cluster() -> None:
    cloud = (np.random.default_rng(1).normal(size=(300, 6)) * 0.1 + 1).astype(np.float32)
    assert found(cloud).codes.max() == 0
    alike = np.outer(np.arange(1, 9), np.ones(3)).astype(np.float32)
    assert found(alike).names == ["1: v0, v1, v2"]
    assert found(np.zeros((4, 3), np.float32)).codes.tolist() == [0, 0, 0, 0]
    assert found(np.ones((1, 3), np.float32)).names == ["1: v0"]


def test_of_many_values_some_are_learnt_from_and_all_get_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, truth = planted([40, 90, 60])
    monkeypatch.setattr(module, "VALUES_LEARNT_FROM", 80)
    monkeypatch.setattr(module, "VALUES_PER_BLOCK", 7)
    clusters = found(vectors)
    np.testing.assert_array_equal(clusters.codes, np.array([2, 0, 1])[truth])
    again, other = found(vectors), found(vectors, seed=1)
    assert clusters.bic == again.bic
    assert clusters.bic != other.bic


def test_without_scikit_learn_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError) as caught:
        found(planted([5, 5])[0])
    assert str(caught.value) == "clusters: scikit-learn is not installed: `pip install 'feat2vec[explore]'`"
