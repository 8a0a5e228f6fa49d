"""Graphs of functions that belong to a model, and TensorFlow's warnings about them.

TensorFlow counts how often it makes a graph of the same Python code, and warns of code whose graph is made again and
again ("triggered tf.function retracing"). Each model has graphs of its own, which are made once: a process that trains
several models does nothing wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import tensorflow as tf

Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")


def with_one_graph(
    function: Callable[[Inputs], Outputs], specs: Mapping[str, tf.TensorSpec]
) -> Callable[[Inputs], Outputs]:
    """The same as a graph that is made when it is first called, for inputs of any number of rows.

    Args:
        function: A function of a mapping of tensors.
        specs: The shapes and types of these tensors.

    Returns:
        The function; where TensorFlow is told to run functions eagerly, as Python.

    Example:
        >>> import tensorflow as tf
        >>> double = with_one_graph(lambda inputs: 2 * inputs["x"], {"x": tf.TensorSpec([None], tf.int32)})
        >>> double({"x": tf.constant([1, 2])}).numpy().tolist()
        [2, 4]

    """
    compiled = tf.function(function, input_signature=[specs], autograph=False)

    @cache
    def graph() -> Callable[[Inputs], Outputs]:
        concrete: Callable[[Inputs], Outputs] = compiled.get_concrete_function()
        return concrete

    def called(inputs: Inputs) -> Outputs:
        if tf.config.functions_run_eagerly():
            return function(inputs)
        return graph()(inputs)

    return called


@contextmanager
def without_retracing_warnings() -> Iterator[None]:
    """Within it TensorFlow does not warn of graphs that are made again and again, as that of each model's step is."""
    logger = logging.getLogger("tensorflow")

    def is_another(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in str(record.msg)

    logger.addFilter(is_another)
    try:
        yield
    finally:
        logger.removeFilter(is_another)
