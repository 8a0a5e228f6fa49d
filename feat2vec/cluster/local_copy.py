"""A copy in this process of a model whose variables are on servers, so that it can be measured as that of a run."""

from __future__ import annotations

import math

import tensorflow as tf

from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import copy_to, tables_aside
from feat2vec.model.optimizers import resource_of
from feat2vec.model.vector_model import shapes_of

MOST_BYTES = 1 << 30  # of a model that the chief copies


def bytes_of(model: Feat2Vec) -> int:
    """The bytes of a model's weights.

    Args:
        model: The model.

    """
    return sum(math.prod(weight.shape) * tf.as_dtype(weight.dtype).size for weight in model.weights)


def local_copy(model: Feat2Vec) -> Feat2Vec:
    """A model of the same weights, not compiled, whose variables this process holds.

    Args:
        model: The model, with its encoder. Its tables are read in pieces.

    """
    encoder = model.encoder
    assert encoder is not None
    classes = 0 if encoder.classes is None else len(encoder.classes.keys)
    with tables_aside():  # each of which is written below
        copy = Feat2Vec(encoder.schema.resolved(), shapes_of(encoder), classes)
        copy.encoder = encoder
        copy.build()
    for weight, source in zip(copy.weights, model.weights, strict=True):
        copy_to(resource_of(weight), source)
    return copy
