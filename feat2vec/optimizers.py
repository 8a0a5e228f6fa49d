"""Row-sparse optimizers for Keras models."""

from __future__ import annotations

from feat2vec.model.optimizers import (
    OPTIMIZERS,
    SparseAdagrad,
    SparseAdam,
    SparseFtrl,
    SparseSgd,
    by_row,
    distinct,
    named,
    read_rows,
)

__all__ = [
    "OPTIMIZERS",
    "SparseAdagrad",
    "SparseAdam",
    "SparseFtrl",
    "SparseSgd",
    "by_row",
    "distinct",
    "named",
    "read_rows",
]
