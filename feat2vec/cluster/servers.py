"""`Servers`: where the variables of a training are, and how much of it each server has.

Within `Servers.holding()` each variable that is made is on a server. A table is divided among them: each server draws
its own rows, so that no process holds a whole table. The arrays that noise and entries are read from are divided, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from feat2vec.arrays import Array
from feat2vec.cluster.entry_rows import GraphRows, KeyRows, key_rows
from feat2vec.cluster.locks import Locks
from feat2vec.cluster.spread import Spread
from feat2vec.cluster.spread_rows import NewPart, SpreadRows, as_keras_variable, copy_part, draw_part
from feat2vec.model.large_variables import Undrawn, undrawn_tables
from feat2vec.model.optimizers import RowSparse, by_row, resource_of
from feat2vec.model.optimizers.divided_rows import DividedRows
from feat2vec.model.optimizers.tables import SLOT_OF, Variable, parts_of

Created: TypeAlias = tf.Variable | DividedRows | KeyRows | GraphRows
LEAST_BYTES_OF_PART = 256 << 10  # of a table; each part takes some operations of each step


class Servers:
    """The parameter servers, as places of variables.

    Args:
        devices: The names of their devices.
        least_bytes: The size of a part of a table: smaller tables have fewer parts.

    """

    def __init__(self, devices: Sequence[str], least_bytes: int = LEAST_BYTES_OF_PART) -> None:
        self.devices, self.least_bytes = list(devices), least_bytes
        self.bytes = [0] * len(self.devices)  # that each server holds
        self._is_placed = False  # whether the variable that is being made is on a server already
        self._first = 0  # the server that has the first part of the next table

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Within it variables are made on the servers."""
        with tf.variable_creator_scope(self._create), undrawn_tables():
            yield

    def _create(
        self, next_creator: Callable[..., tf.Variable], **kwargs: Any
    ) -> tf.Variable | DividedRows | KeyRows | GraphRows:
        """Make a variable, as `tf.variable_creator_scope` asks for."""
        if self._is_placed:
            return self._counted(next_creator(**kwargs))
        value = kwargs["initial_value"]
        value = value() if callable(value) else value
        if isinstance(value, tf.Tensor) and value.device in self.devices:  # of who makes it
            return self._counted(next_creator(**{**kwargs, "initial_value": value}))
        if isinstance(value, Undrawn):
            spread = self._spread(value.shape, "float32")
            parts = self._new_parts(spread, value.shape, "float32", kwargs["name"], trainable=kwargs["trainable"])
            with ThreadPoolExecutor(len(parts)) as pool:  # servers draw side by side
                for _ in pool.map(partial(draw_part, spread=spread, start=value.start), parts):
                    pass
            return SpreadRows([part.variable for part in parts], value.shape)
        if isinstance(value, np.ndarray) and value.ndim:
            if (keys := key_rows(value)) is not None:
                return keys
            return GraphRows(value) if value.nbytes < self.least_bytes else self._divided(value, kwargs["name"])
        with self._placing(), tf.device(self.devices[int(np.argmin(self.bytes))]):
            return self._counted(next_creator(**{**kwargs, "initial_value": value}))

    def _divided(self, array: Array, name: str | None) -> SpreadRows:
        """An array that does not change, divided among the servers."""
        spread = self._spread(array.shape, array.dtype)
        parts = self._new_parts(spread, array.shape, array.dtype.name, name, trainable=False)
        for part in parts:
            copy_part(part, spread, array)
        return SpreadRows([part.variable for part in parts], array.shape)

    def _spread(self, shape: Sequence[int], dtype: str | np.dtype[Any]) -> Spread:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        most = min(len(self.devices), max(shape[0], 1), max(size // self.least_bytes, 1))
        return Spread(shape[0], most)

    def _new_parts(
        self, spread: Spread, shape: Sequence[int], dtype: str, name: str | None, *, trainable: bool
    ) -> list[NewPart]:
        """The parts of a table, on as many servers, with zeros."""
        parts = []
        for number in range(spread.parts):
            device = self.devices[(self._first + number) % len(self.devices)]
            with self._placing(), tf.device(device):
                variable = keras.Variable(
                    lambda shape, dtype: tf.zeros(shape, dtype),
                    shape=(spread.rows(number), *shape[1:]),
                    dtype=dtype,
                    trainable=trainable,
                    autocast=False,
                    name=f"{name or 'table'}_part_{number}",
                )
            parts.append(NewPart(variable, device, number))
        self._first = (self._first + spread.parts) % len(self.devices)  # the next table's first rows are elsewhere
        return parts

    def beside(self, variable: keras.Variable) -> Variable:
        """Make a variable of zeros like one that is on the servers, each part where that one's is; within `holding`.

        Args:
            variable: A variable, or a whole table.

        """
        parts = []
        for part in map(resource_of, parts_of(variable)):
            with self._placing(), tf.device(part.device):
                zeros = partial(tf.zeros, part.shape, part.dtype)
                parts.append(tf.Variable(zeros, trainable=False, shape=part.shape))
        if not isinstance(resource_of(variable), DividedRows):
            return parts[0]
        return as_keras_variable(SpreadRows([by_row(part) for part in parts], variable.shape), f"{variable.name}_aside")

    @contextmanager
    def _placing(self) -> Iterator[None]:
        """Within it variables are made on the device that was chosen already."""
        before, self._is_placed = self._is_placed, True
        try:
            yield
        finally:
            self._is_placed = before

    def _counted(self, variable: tf.Variable) -> tf.Variable:
        """The variable, whose bytes count as those of its server."""
        size = math.prod(variable.shape) * variable.dtype.size
        self.bytes[self.devices.index(variable.device)] += size
        return variable

    def build(self, optimizer: RowSparse, variables: Sequence[keras.Variable], *, side_by_side: bool = False) -> None:
        """Make an optimizer's slots beside their variables.

        Args:
            optimizer: The optimizer. It will compute each update where the variable is.
            variables: What it updates, whole tables among it.
            side_by_side: Whether several workers update them at the same time.

        """
        optimizer.updates_beside_variables = True
        if side_by_side:
            optimizer.locks = Locks()
        with self._placing():
            optimizer.build(variables)


def whole_variables(optimizer: RowSparse, variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    """An optimizer's variables, the slots of each divided table as one: those that it has for whole tables.

    Args:
        optimizer: The optimizer, built.
        variables: What it updates, whole tables among it.

    """
    tables = {id(part): variable for variable in variables for part in _parts(variable)}
    slots: dict[tuple[int, int], list[Variable]] = {}  # by the table and the number of the slot
    slots_before: dict[int, int] = {}  # of each part
    joined: list[list[Variable]] = []  # one slot of all parts of a table, or one variable
    for slot in optimizer.variables:
        part = getattr(slot, SLOT_OF, None)
        if id(part) not in tables:
            joined.append([slot])
            continue
        number = slots_before.get(id(part), 0)
        slots_before[id(part)] = number + 1
        key = (id(tables[id(part)]), number)
        if key not in slots:
            slots[key] = []
            joined.append(slots[key])
        slots[key].append(slot)
    return [_joined(parts, tables) for parts in joined]


def _parts(variable: keras.Variable) -> list[Variable]:
    resource = resource_of(variable)
    return resource.parts if isinstance(resource, DividedRows) else []


def _joined(slots: Sequence[Variable], tables: Mapping[int, keras.Variable]) -> keras.Variable:
    """The slots of all parts of a table as one variable; what is no slot of a table as it is."""
    part = getattr(slots[0], SLOT_OF, None)
    if id(part) not in tables:
        return slots[0]
    shape = (tables[id(part)].shape[0], *slots[0].shape[1:])
    return as_keras_variable(SpreadRows(slots, shape), slots[0].name)
