"""Graphs that are made once, and no warnings of those of other models."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.model.tracing import with_one_graph, without_retracing_warnings
from feat2vec.space.embed import Embedder
from tests.short_trainings import functions_without_graphs, train


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """What TensorFlow logs, also where another test has told it to be quieter."""
    messages: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, logger = Kept(), tf.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_a_graph_is_made_once_for_any_number_of_rows() -> None:
    calls = []

    def twice(inputs: dict[str, Any]) -> Any:
        calls.append(inputs)
        return 2 * inputs["x"]

    function = with_one_graph(twice, {"x": tf.TensorSpec([None, 2], tf.float32)})
    assert not calls
    for rows in (1, 5, 3):
        x = np.arange(2.0 * rows).reshape(rows, 2).astype(np.float32)
        np.testing.assert_array_equal(function({"x": tf.constant(x)}), 2 * x)
    assert len(calls) == 1
    with functions_without_graphs():
        assert function({"x": tf.ones([1, 3])}).shape == (1, 3)
    assert len(calls) == 2


def test_graphs_of_many_models_are_no_warning(warnings: list[str]) -> None:
    def made() -> Any:
        return tf.function(lambda x: x + 1, autograph=False)

    for _ in range(8):
        made()(tf.constant(1.0))
    assert any("triggered tf.function retracing" in message for message in warnings)
    warnings.clear()
    with without_retracing_warnings():
        for _ in range(8):
            made()(tf.constant(1.0))
        tf.get_logger().warning("something else")
    assert warnings == ["something else"]


def test_what_reads_the_vectors_of_many_models_warns_of_nothing(warnings: list[str]) -> None:
    rows = pa.table({"a": ["1", "2"] * 4, "b": ["3", "4", "5", "6"] * 2})
    schema = {"version": 1, "model": {"dim": 2}, "groups": {"a": {"column": "a"}, "b": {"column": "b"}}}
    run = train({**schema, "training": {"epochs": 1}}, rows, quiet=True)
    first = Embedder(run.fitted, run.model).embed(rows)
    for _ in range(6):
        np.testing.assert_array_equal(Embedder(run.fitted, run.model).embed(rows), first)
    assert not warnings
