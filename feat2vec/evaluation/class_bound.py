"""Proposition 3.3 of Arora et al. (2019) on a run's row vectors and a label column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.encode.encoder import Encoder
from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.contrastive_bound import Bound, contrastive_bound
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.space.embed import Embedder
from feat2vec.table.kinds import is_list
from feat2vec.table.table import open_table

Floats = npt.NDArray[np.float32]


class ClassBound(NamedTuple):
    """Proposition 3.3 for rows and their classes: `bound.mean_classifier` <= `bound.bound`."""

    label: str
    rows: int
    without_label: int
    classes: int
    negatives: int
    k: int
    bound: Bound


def class_bounds(
    model: Feat2Vec,
    encoder: Encoder,
    data: object,
    label: str,
    settings: Sequence[tuple[int, int | None]] = ((1, 1),),
    draws: int = 200_000,
) -> list[ClassBound]:
    """The contrastive loss of row vectors bounds the loss of the mean classifier (Arora et al. 2019, Proposition 3.3).

    Vectors are sums of the groups that do not hold the label; rows without a label are left out.

    Args:
        model: The model.
        encoder: Its encoder.
        data: Rows with a label column.
        label: That column.
        settings: Pairs of N, the number of negatives, and k; a row is told from k other classes (None: all).
        draws: How many contrastive samples are drawn.

    Returns:
        Both sides of the bound, for each of the settings.

    Raises:
        UserError: The column is missing, holds lists, is in every group, or has one class.

    """
    vectors, labels, without_label = labelled_vectors(model, encoder, data, label)
    classes = len(np.unique(labels))
    if classes < 2:
        raise UserError(f"--label: column {label!r} has {classes} class{'es' * (classes != 1)}; two or more are needed")
    bounds = []
    for negatives, k in settings:
        other_classes = classes - 1 if k is None else k
        bound = contrastive_bound(vectors, labels, negatives, other_classes, draws)
        bounds.append(ClassBound(label, len(labels), without_label, classes, negatives, other_classes, bound))
    return bounds


def labelled_vectors(model: Feat2Vec, encoder: Encoder, data: object, label: str) -> tuple[Floats, Any, int]:
    """The vectors [rows, dim] of the rows that have a label, their labels as numbers, and how many rows have none."""
    table = open_table(data)
    if label not in table.columns:
        near = suggest(label, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"--label: {table.name} has no column {label!r}{near}")
    if is_list(table.columns[label]):
        raise UserError(f"--label: column {label!r} of {table.name} holds lists; a row has one class")
    groups = [name for name, group in encoder.schema.groups.items() if label not in group.columns]
    if not groups:
        raise UserError(f"--label: every group holds {label!r} itself; name another column")
    vector_parts: list[Floats] = []
    label_chunks: list[Any] = []
    for part in Embedder(encoder, model, groups).batches(table, [label]):
        vector_parts.append(part.row_vectors)
        label_column = part.stage.column(label).slice(part.rows.start, len(part.row_vectors)).cast(pa.string())
        label_chunks += label_column.chunks
    labels = pa.chunked_array(label_chunks, pa.string())
    has_label = pc.is_valid(labels).to_numpy()
    codes = labels.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.concatenate(vector_parts)[has_label], codes[has_label], int((~has_label).sum())
