"""Vectors to places on a plane: PCA at once, UMAP and t-SNE by the libraries that have them."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Float32s
from feat2vec.errors import UserError
from feat2vec.pages.explore_options import MapKind

VECTORS_PER_BLOCK = 1 << 16  # vectors that are multiplied at a time
LEAST_VECTORS = 8  # fewer have no neighbourhoods to keep: only PCA shows them
NEIGHBOURS, PERPLEXITY = 15, 30.0  # the libraries' own defaults, for as many vectors or more


class Map(NamedTuple):
    """Places [n, 2], and what made them."""

    xy: Float32s
    note: str


def draw(vectors: Float32s, kind: MapKind, seed: int = 0) -> Map:
    """A map of vectors [n, dim]. They are compared by cosine, so they are drawn at length 1."""
    unit_vectors = unit(vectors)
    if kind == "pca":
        xy, share = pca(unit_vectors)
        return Map(xy, f"PCA: the two axes hold {share:.0%} of the variance")
    if len(unit_vectors) < LEAST_VECTORS:
        raise UserError(f"--map {kind}: needs {LEAST_VECTORS} vectors or more, received {len(unit_vectors)}; use pca")
    return Map(umap(unit_vectors, seed), "UMAP") if kind == "umap" else Map(tsne(unit_vectors, seed), "t-SNE")


def unit(vectors: Float32s) -> Float32s:
    """Vectors of length 1; those of length 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit_vectors: Float32s = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit_vectors


def pca(vectors: Float32s) -> tuple[Float32s, float]:
    """The two axes of the largest variance [n, 2], and the share of the variance that they hold.

    An axis points to where its largest weight is positive.
    """
    count, dim = vectors.shape
    mean = vectors.mean(axis=0, dtype=np.float64)  # [dim]
    scatter = np.zeros((dim, dim))
    for start in range(0, count, VECTORS_PER_BLOCK):
        centred = vectors[start : start + VECTORS_PER_BLOCK] - mean  # [block, dim]
        scatter += centred.T @ centred
    variances, axes = np.linalg.eigh(scatter)
    plane = axes[:, ::-1][:, :2]  # [dim, 2], or [dim, 1] of vectors of one dimension
    plane = plane * np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])
    xy = np.zeros((count, 2), np.float32)
    for start in range(0, count, VECTORS_PER_BLOCK):
        block = slice(start, start + VECTORS_PER_BLOCK)
        xy[block, : plane.shape[1]] = (vectors[block] - mean) @ plane
    total = float(variances.sum())
    return xy, float(variances[-2:].sum()) / total if total > 0 else 1.0


def umap(vectors: Float32s, seed: int) -> Float32s:
    """Uniform manifold approximation (McInnes et al., 2018); with a seed it runs in one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numba, of TensorFlow's parametric variant: nothing that a reader could do
        library = _library("umap", "umap-learn")
        neighbours = min(NEIGHBOURS, len(vectors) - 1)
        fitted = library.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(vectors)
    return _placed(fitted, len(vectors))


def tsne(vectors: Float32s, seed: int) -> Float32s:
    """t-distributed stochastic neighbour embedding (van der Maaten and Hinton, 2008), from PCA's places."""
    library = _library("sklearn.manifold", "scikit-learn")
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    start = pca(vectors)[0]
    start = start / max(float(start[:, 0].std()), 1e-30) * 1e-4  # so small that it only says who is where
    return _placed(
        library.TSNE(perplexity=perplexity, random_state=seed, init=start).fit_transform(vectors), len(start)
    )


def _placed(xy: object, count: int) -> Float32s:
    """Places; what the library could not place stands in the middle."""
    return np.nan_to_num(np.asarray(xy, np.float32)).reshape(count, 2)


def _library(name: str, package: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise UserError(
            f"--map: {package} is not installed: `pip install 'feat2vec[explore]'`; or use the map pca"
        ) from None


__all__ = ["LEAST_VECTORS", "Map", "draw", "pca", "unit"]
