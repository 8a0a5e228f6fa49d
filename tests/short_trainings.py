"""Trainings of a few steps without a graph: for tests whose subject is the run, not how it was trained.

To make the graph of a step takes seconds, to run the step's operations one by one a fraction of one. The losses and the
weights are those of the graph but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from unittest import mock

import tensorflow as tf

from feat2vec import run
from feat2vec.training.fitting import Fitting

MOST_STEPS = 24  # more of them take longer than their graph

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def functions_without_graphs() -> Iterator[None]:
    """Run each `tf.function` as Python, also those of Keras that fit and evaluate."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextmanager
def without_graphs() -> Iterator[None]:
    """Fit models without a graph, if they are fitted in a few steps."""
    fit_epochs = Fitting._fit_epochs

    def fit_epochs_without_graph(fitting: Fitting, *arguments: Any) -> None:
        if fitting._steps_of_all_epochs() > MOST_STEPS:
            return fit_epochs(fitting, *arguments)
        with functions_without_graphs():
            return fit_epochs(fitting, *arguments)

    with mock.patch.object(Fitting, "_fit_epochs", fit_epochs_without_graph):
        yield


def of_few_steps(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that does the same, and trains without a graph."""

    @wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        with without_graphs():
            return function(*arguments, **options)

    return called


train = of_few_steps(run.train)
finetune = of_few_steps(run.finetune)
