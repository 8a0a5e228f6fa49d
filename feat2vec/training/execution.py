"""How TensorFlow executes the steps of a training. Only speed and memory depend on it, not the results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import keras
import tensorflow as tf

from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec
from feat2vec.schema.options import Schema
from feat2vec.schema.training_options import Mlp


@dataclass(frozen=True)
class ExecutionLimits:
    """Sizes by which a way of execution is chosen.

    A step of many groups can read all of them at once (`Feat2Vec.batches(groups_at_once=True)`). Its graph is smaller,
    and made faster, than one with operations for each group.

    Args:
        short_training_rows: Up to so many rows in all epochs, making a graph for each group takes longer than the
            steps. Graphs of such trainings are not optimized either.
        eager_steps: Up to so many steps in all epochs, of many groups, take less time than making a graph.
        separate_groups: From so many groups on, a graph with operations for each of them is slower to make and to run.
        compiled_coordinates: From so many coordinates of groups' vectors on, in the rows of all epochs, compiling a
            step of labelled rows takes less time than it saves.

    """

    short_training_rows: int = 500_000
    eager_steps: int = 16
    separate_groups: int = 32
    compiled_coordinates: int = 2_000_000_000

    def compiles(self, schema: Schema, rows: int) -> bool:
        """Return whether a step of labelled rows is to be compiled.

        With several ranks or members a compiled step is no faster on two cores, and takes twice as long to compile.

        Args:
            schema: The model's.
            rows: Those of all epochs.

        """
        dims = schema.model.levels.dims
        if len(dims) != 1 or len(schema.model.member_dims) > 1:
            return False
        return rows * len(schema.groups) * dims[0] >= self.compiled_coordinates


DEFAULT_LIMITS = ExecutionLimits()


POLICIES = ("float32", "mixed_bfloat16")  # of Keras, that runs can be trained with


def refuse_dtype_policy() -> None:
    """Raise if a run cannot be trained with Keras' dtype policy.

    Weights of runs are float32. Gradients of float16 need a loss that is scaled up, which optimizers by rows do not do.

    Raises:
        UserError: If the policy is neither float32 nor mixed_bfloat16.

    """
    policy = keras.config.dtype_policy().name
    if policy not in POLICIES:
        raise UserError(
            f"the dtype policy of Keras is {policy!r}; runs are trained with {' or '.join(map(repr, POLICIES))}: "
            "call keras.config.set_dtype_policy('float32') before"
        )


def share_cores(schema: Schema) -> None:
    """Let each operation use one core, if all groups are lookups and numbers, and no network stands on them.

    Such a step is many short operations. To run several side by side is faster than to split each of them.
    """
    are_short = all(isinstance(group.extractor, (ItemsSpec, NumbersSpec)) for group in schema.groups.values())
    if are_short and not isinstance(schema.head, Mlp):
        with suppress(RuntimeError):  # TensorFlow has started already, and its threads cannot be changed
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(os.cpu_count() or 1)


@contextmanager
def without_graph_optimization() -> Iterator[None]:
    """Run graphs as they are made. To optimize one of many groups takes longer than the steps of a short training."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **before})
