"""`Locks`: of two steps that update a table at the same time, the second begins with it when the first has ended.

An update reads rows and slots, and writes them. If two of them read the same rows before one has written, that one is
lost: most often for the frequent keys, which nearly all steps update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import tensorflow as tf

from feat2vec.model.optimizers import resource_of
from feat2vec.model.optimizers.tables import Variable


class Locks:
    """A lock beside each variable that is updated by rows."""

    _numbers = count()

    def __init__(self) -> None:
        self._locks: dict[object, tf.Tensor] = {}  # by variable

    @contextmanager
    def __call__(self, variables: Sequence[Variable], used: Sequence[tf.Tensor]) -> Iterator[None]:
        """Within it the operations of a graph run while no other graph's do for the same variables.

        Args:
            variables: What is read and written within. The first one's lock is taken, and given back, on its device.
            used: What comes from elsewhere: the lock is not held while it is waited for.

        """
        graph = tf.compat.v1.get_default_graph()
        lock, device = self._lock(resource_of(variables[0])), resource_of(variables[0]).device
        with tf.control_dependencies([tf.identity(tensor) for tensor in used]), tf.device(device):
            held = tf.raw_ops.MutexLock(mutex=lock)
        first = len(graph.get_operations())
        with tf.control_dependencies([held]):
            yield
        with tf.control_dependencies(graph.get_operations()[first:]), tf.device(device):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=held)

    def _lock(self, resource: tf.Variable) -> tf.Tensor:
        """The lock of a variable, on its device."""
        if resource.ref() not in self._locks:
            with tf.init_scope(), tf.device(resource.device):
                name = f"feat2vec_lock_{next(self._numbers)}"
                self._locks[resource.ref()] = tf.raw_ops.MutexV2(shared_name=name, container="")
        return self._locks[resource.ref()]
