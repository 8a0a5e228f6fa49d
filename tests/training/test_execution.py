"""How steps are executed: many groups at once, graphs as they are made, or no graph, with the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from feat2vec.schema.reading import read_schema
from feat2vec.training.execution import DEFAULT_LIMITS, ExecutionLimits
from feat2vec.training.train import TrainingRequest, train_into
from tests.training.callbacks import StopAt, StopError


@pytest.mark.slow
def test_many_groups_are_trained_at_once_in_a_graph_that_stays_as_it_is(tmp_path: Path) -> None:
    names = [f"g{i:02}" for i in range(32)]
    table = pa.table({name: ["x", "y", "z", "x"] for name in names})
    schema = {
        "version": 1,
        "groups": {name: {"column": name} for name in names},
        "training": {"validation": 0, "epochs": 1},
    }
    seen: list[tuple[bool, bool]] = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            options = tf.config.optimizer.get_experimental_options()
            seen.append((self.model.joined_values is not None, options.get("disable_meta_optimizer", False)))

    short = ExecutionLimits(eager_steps=0)
    long = ExecutionLimits(eager_steps=0, separate_groups=32, short_training_rows=3)
    for name, limits in (("short", short), ("long", long)):
        request = TrainingRequest(read_schema(schema), quiet=True, callbacks=(Look(),), limits=limits)
        train_into(tmp_path / name, request, table)
    assert seen == [(True, True), (True, False)]
    assert not tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [False, True])
def test_a_few_steps_of_many_groups_make_no_graph_and_the_same_file(labelled: bool, tmp_path: Path) -> None:
    names = [f"g{i:02}" for i in range(32)]
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.choice(list("abcde"), 24) for name in names} | {"y": [0, 1] * 12})
    schema: dict[str, Any] = {
        "version": 1, "groups": {name: {"column": name} for name in names},
        "training": {"validation": 0, "epochs": 2, "batch_size": 8, "l2": 0.01, "averaging": 0.5},
    }  # fmt: skip
    if labelled:
        schema["objective"] = {"type": "logistic", "target": "y"}
    seen: list[bool] = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            seen.append(self.model.run_eagerly)

    # Two epochs of three steps, and as many of validation, whose rows are measured at once where no noise is drawn.
    fewer_steps = ExecutionLimits(eager_steps=7 if labelled else 11)
    for name, limits in (("eager", DEFAULT_LIMITS), ("graph", fewer_steps)):
        request = TrainingRequest(read_schema(schema), table, quiet=True, callbacks=(Look(),), limits=limits)
        train_into(tmp_path / name, request, table)
    assert seen == [True, False]
    assert (tmp_path / "eager" / "model.keras").read_bytes() == (tmp_path / "graph" / "model.keras").read_bytes()


@pytest.mark.slow
def test_a_compiled_training_that_is_interrupted_ends_with_the_bytes_of_one_that_is_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.choice(list("abcdefgh"), 200) for name in "xyz"} | {"hit": [0, 1] * 100})
    schema: dict[str, Any] = {
        "version": 1, "model": {"dim": 4, "bias": True}, "groups": {name: {"column": name} for name in "xyz"},
        "objective": {"type": "logistic", "target": "hit"},
        "training": {
            "validation": 0, "epochs": 3, "batch_size": 8, "checkpoint_minutes": 1e-9, "interaction_dropout": 0.5,
        },
    }  # fmt: skip
    limits = ExecutionLimits(eager_steps=0, compiled_coordinates=1)
    seen: list[bool] = []

    class Look(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            del logs
            seen.append(self.model.compiled_step is not None)

    def train(name: str, callback: keras.callbacks.Callback, *, resume: bool = False) -> None:
        options: dict[str, Any] = {"quiet": True, "resume": resume, "limits": limits, "callbacks": (Look(), callback)}
        train_into(tmp_path / name, TrainingRequest(read_schema(schema), **options), table)

    train("whole", keras.callbacks.Callback())
    with pytest.raises(StopError):
        train("killed", StopAt(3))  # within the second epoch
    train("killed", keras.callbacks.Callback(), resume=True)
    assert len(seen) >= 3
    assert all(seen)
    assert (tmp_path / "whole" / "model.keras").read_bytes() == (tmp_path / "killed" / "model.keras").read_bytes()


def test_what_takes_longer_to_compile_than_it_saves_is_not_compiled() -> None:
    def compiles(model: dict[str, Any], rows: int) -> bool:
        groups = {name: {"column": name} for name in "xy"}
        objective = {"type": "logistic", "target": "hit"}
        schema = {"version": 1, "model": model, "groups": groups, "objective": objective}
        return ExecutionLimits(compiled_coordinates=80).compiles(read_schema(schema), rows)

    assert compiles({"dim": 4}, 10)
    assert not compiles({"dim": 4}, 9)
    assert not compiles({"dim": 4, "members": 2}, 10)
    assert not compiles({"ranks": [4, 8]}, 100)
    assert not compiles({"pairs": False}, 100)
