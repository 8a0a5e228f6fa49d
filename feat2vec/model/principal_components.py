"""Principal components of a group's training rows, from which a linear map of numbers can start (`start: pca`).

Of all linear maps to k numbers they are the one from which the rows can be told best: the optimum of a linear
autoencoder (Baldi and Hornik, 1989). They follow from the covariance, which is added up piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from feat2vec.arrays import Floats
from feat2vec.encode.arrays_on_disk import release_pages
from feat2vec.encode.encoder import Encoded
from feat2vec.encode.value_tables import Values
from feat2vec.errors import UserError
from feat2vec.model.extractors import NumericExtractor
from feat2vec.model.score_model import ScoreModel

NUMBERS_PER_PIECE = 1 << 22  # of the entries that are held as float64: 32 MB
MOST_NUMBERS = 4096  # of an entry, whose covariance takes 128 MB
LEAST_VARIANCE = 1e-10  # of the largest: components with less are rounding errors,
LEAST_OF_MEAN = 1e-28  # or with less than this share of the mean's square


class Components(NamedTuple):
    """The principal components of rows, those of the largest variance first.

    Args:
        mean: The mean of the rows, [width].
        axes: Unit vectors, each with the sign by which its largest number is positive, [width, components].
        variances: Of the rows along each axis, descending, [components].

    """

    mean: Floats
    axes: Floats
    variances: Floats


def principal_components(values: Values, most: int, shared_with: Sequence[Values] = ()) -> Components:
    """Return the principal components of the rows that hold values.

    Args:
        values: The distinct entries [values, width], and how many rows have each.
        most: The most components; there are as many as the rows have, if these are fewer.
        shared_with: The values of further groups that the components are of, too.

    Returns:
        The components. They do not depend on how the entries are read in pieces, but for rounding.

    """
    from scipy.linalg import eigh

    width = values.entries.shape[1]
    all_values = [values, *shared_with]
    rows = max(float(sum(np.sum(of_group.counts) for of_group in all_values)), 1.0)
    mean = np.zeros(width)
    for entries, counts in _pieces(all_values):
        mean += counts @ entries / rows
    covariance = np.zeros((width, width))
    for entries, counts in _pieces(all_values):
        scaled = (entries - mean) * np.sqrt(counts / rows)[:, None]  # [piece, width]
        covariance += scaled.T @ scaled
    first = max(width - most, 0)
    variances, axes = eigh(covariance, subset_by_index=[first, width - 1])  # ascending
    variances, axes = variances[::-1], axes[:, ::-1]
    is_component = variances > max(LEAST_VARIANCE * variances[0], LEAST_OF_MEAN * float(mean @ mean))
    variances, axes = variances[is_component], axes[:, is_component]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]  # [components]
    return Components(mean, axes * np.sign(largest), variances)


def _pieces(all_values: Sequence[Values]) -> Iterator[tuple[Floats, Floats]]:
    """Entries [piece, width] and counts [piece] in float64, of one group after the other."""
    for values in all_values:
        size = max(NUMBERS_PER_PIECE // values.entries.shape[1], 1)
        for start in range(0, len(values.entries), size):
            piece = slice(start, start + size)
            yield np.asarray(values.entries[piece], np.float64), np.asarray(values.counts[piece], np.float64)
        release_pages(values.entries)


def start_from_components(model: ScoreModel, encoded: Encoded) -> None:
    """Give linear maps that start from principal components those of the training rows, where they are still 0.

    A map that has been trained, or was copied from another run, stays as it is.

    Args:
        model: The model, which is built.
        encoded: The training rows.

    Raises:
        UserError: A group has too many numbers for their covariance.

    """
    for name, extractor in zip(model.schema.owners, model.distinct_extractors(), strict=True):
        if not isinstance(extractor, NumericExtractor) or not extractor.starts_from_components:
            continue
        if any(np.any(weight) for head in extractor.heads for weight in head.get_weights()):
            continue
        width = extractor.shape.width
        if width > MOST_NUMBERS:
            message = f"groups.{name}: `start: pca` takes the covariance of at most {MOST_NUMBERS:,} numbers"
            raise UserError(f"{message}; {width:,} are given", "remove it, or give shorter vectors")
        nested, dims = model.schema.model.levels.nested, extractor.dims
        shared_with = [encoded.values[group] for group in model.schema.sharing(name) if group != name]
        components = principal_components(encoded.values[name], sum(dims) if nested else max(dims), shared_with)
        _start_heads(extractor, components, nested=nested)


def _start_heads(extractor: NumericExtractor, components: Components, *, nested: bool) -> None:
    """Set the kernel and the bias of each level's head, by one factor for each space of vectors."""
    dims = extractor.dims
    first = 0  # the number of the first component of a level
    factor = _factor(components, sum(dims), extractor.scale)
    for head, dim in zip(extractor.heads, dims, strict=True):
        if not nested:
            factor = _factor(components, dim, extractor.scale)
        axes = components.axes[:, first : first + dim] * factor  # [width, components of the level]
        kernel = np.zeros((len(components.mean), dim))
        kernel[:, : axes.shape[1]] = axes
        head.set_weights([kernel, -components.mean @ kernel])
        first += dim if nested else 0


def _factor(components: Components, dim: int, scale: float) -> float:
    """What makes the standard deviation of vectors of the first `dim` components, and zeros for others, `scale`."""
    variance: float = components.variances[:dim].sum() / dim
    return scale / variance**0.5 if variance > 0 else 0.0


__all__ = ["Components", "principal_components", "start_from_components"]
