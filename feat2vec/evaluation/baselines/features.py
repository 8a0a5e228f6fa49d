"""Rows as the features of a linear method: TF-IDF of keys and words, numbers with mean 0 and deviation 1, vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feat2vec.arrays import Array, Floats
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec
from feat2vec.encode.encoder import Encoder

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfTransformer


class Features(NamedTuple):
    """How rows become features, as the training rows say.

    Attributes:
        transformer: The weights of items; None without items.
        mean: Of each number, [numbers].
        deviation: Of each number, 1 for a constant, [numbers].

    """

    transformer: TfidfTransformer | None
    mean: Floats
    deviation: Floats

    @classmethod
    def of_training_rows(cls, items: csr_array, numbers: Floats) -> Features:
        """Learn from training rows.

        Args:
            items: How often each row has each item, [rows, items].
            numbers: The numbers of each row, NaN where missing, [rows, numbers].

        """
        from sklearn.feature_extraction.text import TfidfTransformer

        transformer = TfidfTransformer(sublinear_tf=True).fit(items) if items.shape[1] else None
        is_present = ~np.isnan(numbers)
        present_rows = np.maximum(is_present.sum(axis=0), 1)
        mean = np.where(is_present, numbers, 0).sum(axis=0) / present_rows
        deviation = np.sqrt(np.where(is_present, np.square(numbers - mean), 0).sum(axis=0) / present_rows)
        deviation[deviation == 0] = 1
        return cls(transformer, mean, deviation)

    def matrix(self, items: csr_array, numbers: Floats) -> csr_array:
        """The features of rows, [rows, features]: numbers, whether each is missing, and items."""
        from scipy import sparse

        scaled = np.nan_to_num((numbers - self.mean) / self.deviation)
        parts = [sparse.csr_array(np.concatenate([scaled, np.isnan(numbers)], axis=1))]
        if self.transformer is not None:
            parts.append(self.transformer.transform(items))
        return sparse.hstack(parts, format="csr")


def groups_of_items(encoder: Encoder) -> list[str]:
    """The groups of keys and words."""
    return [name for name, codec in encoder.codecs.items() if isinstance(codec, ItemsCodec)]


def numbers_of_entries(encoder: Encoder, entries: Mapping[str, Array]) -> Floats:
    """The numbers of rows as the table has them, and vectors: [rows, numbers]."""
    rows = len(next(iter(entries.values())))
    parts: list[Array] = [np.zeros((rows, 0))]
    for name, group_entries in entries.items():
        codec = encoder.codecs[name]
        if isinstance(codec, NumbersCodec):
            parts.append(codec.numbers(group_entries))
        elif group_entries.dtype == np.float32:
            parts.append(group_entries)
    return np.concatenate(parts, axis=1).astype(np.float64)
