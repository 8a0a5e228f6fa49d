"""Keras variables as arrays of a checkpoint, written and read in pieces."""

from __future__ import annotations

from collections.abc import Iterable

import keras

from feat2vec.arrays import Array
from feat2vec.model.large_variables import assign_rows, pieces
from feat2vec.model.optimizers import is_by_row, resource_of
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed


def streamed(variable: keras.Variable, values: Iterable[Array]) -> Streamed:
    """An array of the variable's shape and type, with these values."""
    return Streamed(tuple(variable.shape), resource_of(variable).dtype.as_numpy_dtype, values)


def streamed_variable(variable: keras.Variable) -> Streamed:
    """A variable's numbers, which are read when they are written."""
    return streamed(variable, (values for _, values in pieces(variable)))


def restore_variable(checkpoint: CheckpointReader, name: str, variable: keras.Variable) -> None:
    """Write an array of a checkpoint into a variable, in place."""
    if is_by_row(variable):
        for rows, values in checkpoint.pieces(name):
            assign_rows(variable, rows, values)
    else:
        assign_rows(variable, slice(None), checkpoint.array(name))
