"""Maps: PCA against a singular value decomposition, clusters in the others, libraries that are missing."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from feat2vec.errors import UserError
from feat2vec.pages.explore.maps import draw, pca, unit


def test_pca_is_that_of_a_singular_value_decomposition() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 7), scale=np.arange(1, 8)).astype(np.float32)
    xy, share = pca(vectors)
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(axes[np.arange(7), np.abs(axes).argmax(axis=1)])
    np.testing.assert_allclose(xy, (left * sizes * signs)[:, :2], atol=1e-4)
    assert share == pytest.approx((sizes[:2] ** 2).sum() / (sizes**2).sum())


@pytest.mark.parametrize("shape", [(1, 4), (5, 1), (4, 3)])
def test_pca_of_little(shape: tuple[int, int]) -> None:
    vectors = np.ones(shape, np.float32)
    drawn_map = draw(vectors, "pca")
    assert drawn_map.xy.shape == (shape[0], 2)
    assert np.isfinite(drawn_map.xy).all()
    assert (unit(np.zeros((2, 3), np.float32)) == 0).all()


def clusters() -> Any:
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(size=(3, 8)), 20, axis=0).astype(np.float32) + rng.normal(0, 0.05, (60, 8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsne", "umap"])
def test_maps_keep_clusters_and_are_the_same_each_time(kind: Any) -> None:
    vectors = clusters().astype(np.float32)
    xy = draw(vectors, kind, seed=1).xy
    np.testing.assert_array_equal(xy, draw(vectors, kind, seed=1).xy)
    distances = np.linalg.norm(xy[:, None] - xy[None], axis=2) + np.eye(60) * 1e9
    assert (distances.argmin(axis=1) // 20 == np.arange(60) // 20).mean() > 0.95
    with pytest.raises(UserError, match=f"--map {kind}: needs 8 vectors or more, received 7; use pca"):
        draw(vectors[:7], kind)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(UserError, match=r"scikit-learn is not installed: `pip install 'feat2vec\[explore\]'`"):
        draw(clusters(), "tsne")
