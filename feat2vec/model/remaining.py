"""What remains of a model some of whose weights are exactly zero: the keys that have a vector, and how many numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.model.extractors import LookupExtractor
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import assign_rows, pieces
from feat2vec.model.optimizers import resource_of
from feat2vec.model.optimizers.tables import Variable


class Remaining(NamedTuple):
    """What remains of a model.

    Args:
        parameters: The weights that learn and are not zero, those of a few numbers as well as those of tables.
        held: The weights that learn, zeros too, as training and the run hold them.
        keys: The keys of lookups.
        vectors: How many of them have a vector that is not zero.
        terms: How many of them have a linear term that is not zero; 0 without linear terms.

    """

    parameters: int
    held: int
    keys: int
    vectors: int
    terms: int

    def metrics(self) -> dict[str, float | str]:
        """The counts as a run's metrics, which hold the number of all weights already."""
        return {
            "remaining_parameters": self.parameters,
            "keys": self.keys,
            "keys_with_vector": self.vectors,
            "keys_with_linear_term": self.terms,
        }

    def __str__(self) -> str:
        return (
            f"{self.parameters:,} of {self.held:,} weights are not zero: of {self.keys:,} keys {self.vectors:,} have a "
            f"vector, and {self.terms:,} a linear term"
        )


def leaves_weights_out(model: Feat2Vec) -> bool:
    """Whether the schema asks for weights that are exactly zero, so that it is of interest what remains."""
    schema = model.schema
    return schema.model.activation is not None or schema.training.optimizer.makes_zeros


def leave_out_vectors(model: Feat2Vec) -> None:
    """Write zeros over the vectors of keys that have none as their linear term is zero: they are not read anyway.

    Args:
        model: The model; nothing is done without `activation: {linear: true}`.

    """
    for extractor in model.distinct_extractors():
        if not isinstance(extractor, LookupExtractor) or not (extractor.shape.needs_term and extractor.bias):
            continue
        for level, table in enumerate(extractor.tables):
            first_term = 1 if level > 0 else 0  # above level 1 there is no row for unseen keys
            for rows, vectors in pieces(table):
                is_zero = _terms_of(extractor.linear, rows, len(vectors), first_term) == 0  # [rows]
                if is_zero.any():
                    assign_rows(table, rows, np.where(is_zero[:, None], np.float32(0), vectors))


def _terms_of(linear: Variable, rows: slice, count: int, first: int) -> Array:
    """The linear terms of some rows of a table whose first row has the term `first`: [rows]."""
    start = (rows.start or 0) + first
    return np.asarray(resource_of(linear).sparse_read(tf.range(start, start + count)))[:, 0]


def remaining(model: Feat2Vec) -> Remaining:
    """Count what remains of a model, reading its tables in pieces.

    Args:
        model: The model, after `leave_out_vectors`.

    Returns:
        The counts.

    """
    weights = [variable for variable in model.weights if variable is not getattr(model, "answer_scale", None)]
    held = sum(int(np.prod(variable.shape)) for variable in weights)
    parameters = sum(_nonzero(variable) for variable in weights)
    keys = vectors = terms = 0
    for extractor in model.distinct_extractors():
        if isinstance(extractor, LookupExtractor):
            keys += extractor.shape.sizes[0] - 1
            vectors += _keys_with_vector(extractor)
            terms += _nonzero(extractor.linear, first=1) if extractor.bias else 0
    return Remaining(parameters, held, keys, vectors, terms)


def _nonzero(variable: Variable, first: int = 0) -> int:
    """How many numbers of a variable are not zero, from a row on."""
    total = 0
    for rows, values in pieces(variable):
        skipped = max(first - (rows.start or 0), 0)
        total += int(np.count_nonzero(values[skipped:] if skipped else values))
    return total


def _keys_with_vector(extractor: LookupExtractor) -> int:
    """How many keys have a vector that is not zero at the first level, which each key with a vector has."""
    total = 0
    for rows, vectors in pieces(extractor.tables[0]):
        skipped = 1 if not rows.start else 0  # the unseen key
        total += int(np.count_nonzero(np.any(vectors[skipped:] != 0, axis=1)))
    return total
