"""Tables: variables that are read and written row by row, their marks, and the variables that hold their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from feat2vec.model.optimizers.divided_rows import DividedRows

Variable: TypeAlias = Any  # a keras.Variable or a tf.Variable
BY_ROW = "feat2vec_by_row"  # the attribute that marks tables
LINEAR_TERMS = "feat2vec_linear_terms"  # the attribute that marks tables of linear terms
SLOT_OF = "feat2vec_slot_of"  # the attribute of a slot that is its variable


def by_row(table: Variable) -> Variable:
    """Mark a variable as a table: each of its rows belongs to a few rows of data, not to all.

    Args:
        table: a variable.

    Returns:
        The same variable.

    Example:
        >>> table = by_row(keras.Variable([[1.0, 2.0]]))
        >>> is_by_row(table)
        True

    """
    _mark(table, BY_ROW)
    return table


def is_by_row(variable: Variable) -> bool:
    """Return whether rows of a variable are read and written alone: a table, or a slot of one."""
    return bool(getattr(variable, BY_ROW, False))


def linear_terms(table: Variable) -> Variable:
    """Mark a table as linear terms, one number a row, which an optimizer may be asked to penalize alone.

    Args:
        table: a table.

    Returns:
        The same table.

    Example:
        >>> is_linear_terms(linear_terms(by_row(keras.Variable([[1.0], [2.0]]))))
        True

    """
    _mark(table, LINEAR_TERMS)
    return table


def is_linear_terms(variable: Variable) -> bool:
    """Return whether a variable holds linear terms of keys."""
    return bool(getattr(variable, LINEAR_TERMS, False))


def _mark(table: Variable, mark: str) -> None:
    """Mark a table, and the parts of one that is divided."""
    for variable in {id(variable): variable for variable in (table, *parts_of(table))}.values():
        setattr(variable, mark, True)


def resource_of(variable: Variable) -> tf.Variable:
    """Return TensorFlow's variable behind Keras', or the `DividedRows` of a table in several variables."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def parts_of(variable: Variable) -> list[Variable]:
    """Return the variables that hold a variable's numbers: those of a divided table, or the variable itself."""
    resource = resource_of(variable)
    return resource.parts if isinstance(resource, DividedRows) else [variable]


def mark_slot(slot: Variable, variable: Variable) -> Variable:
    """Return a slot, which has its variable's mark, and is marked as a table if the variable is one."""
    if slot is not None:  # Keras makes none for a variable of float8
        setattr(slot, SLOT_OF, variable)
    return by_row(slot) if is_by_row(variable) else slot


def mark_slots(slots: Sequence[Variable], variables: Sequence[Variable]) -> None:
    """Mark a slot of each variable; see `mark_slot`."""
    for slot, variable in zip(slots, variables, strict=True):
        mark_slot(slot, variable)
