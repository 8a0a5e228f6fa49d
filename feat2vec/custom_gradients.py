"""`tf.custom_gradient` without its leak: a gradient lives as long as the graph that uses it.

In a graph, `tf.custom_gradient` (and `keras.ops.custom_gradient`, which calls it) registers each gradient under a new
name in a registry that nothing removes it from. The gradient's closure holds tensors, these hold the graph, and the
graph holds the variables that it captured. A process that trains several models would keep all of their tables. Here
one gradient is registered for all; the closures are in a collection of the graph and are freed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import tensorflow as tf

Tensor: TypeAlias = Any  # TensorFlow ships no types
# the gradients of the results -> those of the arguments
Backward: TypeAlias = Callable[..., Tensor | Sequence[Tensor | None]]
NAME = "Feat2VecCustomGradient"  # of the registered gradient, and of the collection of closures


def custom_gradient(function: Callable[..., tuple[Tensor, Backward]]) -> Callable[..., Tensor]:
    """Return a function of tensors that has the gradient it defines itself, as `tf.custom_gradient` does.

    Args:
        function: takes tensors. Returns a tensor, or a tuple of tensors, and a function that takes the gradient of each
            of them and returns the gradient of each argument, or None.

    Returns:
        A function that takes the same tensors and returns the same results.

    Example:
        >>> @custom_gradient
        ... def clipped_square(x):
        ...     return tf.square(x), lambda upstream: upstream * tf.minimum(2 * x, 1.0)
        >>> @tf.function
        ... def slope(x):
        ...     with tf.GradientTape() as tape:
        ...         tape.watch(x)
        ...         y = clipped_square(x)
        ...     return tape.gradient(y, x)
        >>> float(slope(tf.constant(3.0)))
        1.0

    """

    @wraps(function)
    def call(*args: Tensor) -> Tensor:
        if tf.executing_eagerly():  # nothing is registered then
            return tf.custom_gradient(function)(*args)
        tensors = [tf.convert_to_tensor(arg) for arg in args]
        result, backward = function(*tensors)
        results = tf.nest.flatten(result)
        inputs = [*results, *tensors]
        graph = tf.compat.v1.get_default_graph()
        with graph.gradient_override_map({"IdentityN": NAME}):  # for gradients of a whole function
            outputs = tf.identity_n(inputs)
        graph.add_to_collection(NAME, (outputs[0].op, backward, len(results)))
        tf.__internal__.record_gradient(NAME, inputs, (), outputs)  # for tapes
        return tf.nest.pack_sequence_as(result, outputs[: len(results)])

    return call


@tf.RegisterGradient(NAME)  # type: ignore[untyped-decorator]
def _gradient(node: tf.Operation | None, *upstream: Tensor) -> Sequence[Tensor | None]:
    """Gradients of the node's inputs, which are the results and then the arguments of a custom function."""
    if node is None:  # `tf.saved_model.save` traces it so; a saved function keeps the gradient of its operations
        return upstream
    operation = node.outputs[0].op  # a tape's node is not the operation itself
    for identity, backward, count in operation.graph.get_collection(NAME):
        if identity is operation:
            gradients = backward(*upstream[:count])
            return [None] * count + (list(gradients) if isinstance(gradients, (list, tuple)) else [gradients])
    raise LookupError(f"{operation.name} has no gradient: its graph was made by another process")
