"""Vectors to places on a plane: PCA at once, UMAP and t-SNE by the libraries that have them."""

from __future__ import annotations

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from feat2vec.errors import UserError

Floats = npt.NDArray[np.float32]
MapKind = Literal["pca", "umap", "tsne"]
KINDS: tuple[MapKind, ...] = ("pca", "umap", "tsne")
BLOCK = 1 << 16  # vectors that are multiplied at a time
FEW = 8  # fewer have no neighbourhoods to keep: only PCA shows them
NEIGHBOURS, PERPLEXITY = 15, 30.0  # the libraries' own defaults, for as many vectors or more


class Map(NamedTuple):
    """Places [n, 2], and what made them."""

    xy: Floats
    note: str


def draw(vectors: Floats, kind: MapKind, seed: int = 0) -> Map:
    """A map of vectors [n, dim]. They are compared by cosine, so they are drawn at length 1."""
    given = unit(vectors)
    if kind == "pca":
        xy, share = pca(given)
        return Map(xy, f"PCA: the two axes hold {share:.0%} of the variance")
    if len(given) < FEW:
        raise UserError(f"--map {kind}: needs {FEW} vectors or more, received {len(given)}; use pca")
    return Map(umap(given, seed), "UMAP") if kind == "umap" else Map(tsne(given, seed), "t-SNE")


def unit(vectors: Floats) -> Floats:
    """Vectors of length 1; those of length 0 stay."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Floats = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return found


def pca(vectors: Floats) -> tuple[Floats, float]:
    """The two axes of the largest variance [n, 2], and the share of the variance that they hold.

    An axis points to where its largest weight is positive.
    """
    count, dim = vectors.shape
    mean, square = vectors.mean(axis=0, dtype=np.float64), np.zeros((dim, dim))
    for at in range(0, count, BLOCK):
        part = vectors[at : at + BLOCK] - mean
        square += part.T @ part
    variances, axes = np.linalg.eigh(square)
    two = axes[:, ::-1][:, :2]
    two = two * np.sign(two[np.abs(two).argmax(axis=0), np.arange(two.shape[1])])
    xy = np.zeros((count, 2), np.float32)
    for at in range(0, count, BLOCK):
        xy[at : at + BLOCK, : two.shape[1]] = (vectors[at : at + BLOCK] - mean) @ two
    total = float(variances.sum())
    return xy, float(variances[-2:].sum()) / total if total > 0 else 1.0


def umap(vectors: Floats, seed: int) -> Floats:
    """Uniform manifold approximation (McInnes et al., 2018); with a seed it runs in one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numba, of TensorFlow's parametric variant: nothing that a reader could do
        library = _library("umap", "umap-learn")
        neighbours = min(NEIGHBOURS, len(vectors) - 1)
        fitted = library.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(vectors)
    return _placed(fitted, len(vectors))


def tsne(vectors: Floats, seed: int) -> Floats:
    """t-distributed stochastic neighbour embedding (van der Maaten and Hinton, 2008), from PCA's places."""
    library = _library("sklearn.manifold", "scikit-learn")
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    start = pca(vectors)[0]
    start = start / max(float(start[:, 0].std()), 1e-30) * 1e-4  # so small that it only says who is where
    return _placed(
        library.TSNE(perplexity=perplexity, random_state=seed, init=start).fit_transform(vectors), len(start)
    )


def _placed(xy: Any, count: int) -> Floats:
    """Places; what the library could not place stands in the middle."""
    return np.nan_to_num(np.asarray(xy, np.float32)).reshape(count, 2)


def _library(name: str, package: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise UserError(
            f"--map: {package} is not installed: `pip install 'feat2vec[explore]'`; or use the map pca"
        ) from None


__all__ = ["FEW", "KINDS", "Map", "MapKind", "draw", "pca", "unit"]
