"""Training on another device than the first processor, and with shorter numbers: what a GPU asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from tests import short_trainings

GROUPS: dict[str, Any] = {
    "who": {"column": "who"},
    "tags": {"column": "tags", "extractor": {"type": "lookup", "split": "words"}},
    "size": {"columns": ["size"], "extractor": {"type": "numeric", "hidden": [4]}},
}
KEYS = {name: GROUPS[name] for name in ("who", "tags")}


def table(rows: int = 256) -> pa.Table:
    rng = np.random.default_rng(0)
    who = rng.integers(0, 20, rows)
    return pa.table(
        {
            "who": [f"w{i}" for i in who],
            "tags": [f"t{i % 7} u{j}" for i, j in zip(who, rng.integers(0, 9, rows), strict=True)],
            "size": (who + rng.normal(size=rows)).tolist(),
            "label": (who % 2).tolist(),
        }
    )


def schema(objective: dict[str, Any], groups: dict[str, Any] = GROUPS, **model: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "model": {"dim": 6, **model},
        "groups": groups,
        "objective": objective,
        "training": {"epochs": 2, "batch_size": 64, "validation": 0},
    }


LABEL = {"type": "logistic", "target": "label"}
SCHEMAS = {
    "factorization machine": schema(LABEL, KEYS, bias=True),
    "regression": schema({"type": "regression", "target": "size"}, KEYS, bias=True),
    "nce": schema({"type": "nce"}),
    "contrastive": schema({"type": "contrastive"}),
}


@contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(
    "name",
    [
        "regression",
        pytest.param("factorization machine", marks=pytest.mark.slow),
        pytest.param("nce", marks=pytest.mark.slow),
    ],
)
def test_a_run_in_bfloat16_is_that_in_float32_but_for_rounding(name: str, tmp_path: Path) -> None:
    expected = short_trainings.train(SCHEMAS[name], table(), quiet=True)
    with dtype_policy("mixed_bfloat16"):
        run = short_trainings.train(SCHEMAS[name], table(), tmp_path / "run", quiet=True)
        assert {variable.dtype for variable in run.model.variables} == {"float32"}
        assert run.history[-1]["loss"] == pytest.approx(expected.history[-1]["loss"], rel=0.03)
        if run.schema.target is None:
            assert run.embed(table()).dtype == np.float32
        else:
            scores = run.predict(table())
            assert all(np.asarray(column).dtype != object for column in scores.values())
        assert run.vectors("who").vectors.dtype == np.float32
    loaded = feat2vec.load(tmp_path / "run").vectors("who")["w3"]  # the file holds no shorter numbers
    np.testing.assert_allclose(loaded, expected.vectors("who")["w3"], atol=0.05)


@pytest.mark.parametrize("policy", ["mixed_float16", "float64"])
def test_other_types_are_refused_before_anything_is_learnt(policy: str, tmp_path: Path) -> None:
    with dtype_policy(policy), pytest.raises(UserError, match=f"'{policy}'; runs are trained with 'float32' or"):
        feat2vec.train(SCHEMAS["nce"], table(), tmp_path / "run", quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_model_in_float16_is_not_compiled() -> None:
    encoder = feat2vec.fit(SCHEMAS["contrastive"], table()).encoder
    with dtype_policy("mixed_float16"):
        model = Feat2Vec.from_encoder(encoder)
        with pytest.raises(ValueError, match=r"use the dtype policy 'mixed_bfloat16'.*Received: mixed_float16"):
            model.compile()


ON_TWO_DEVICES = """
import tensorflow as tf

processor, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
import feat2vec
from tests.training.test_devices import SCHEMAS, table

for name in ("contrastive", "factorization machine"):
    losses, encoded = [], feat2vec.fit(SCHEMAS[name], table())
    for device in ("CPU:0", "CPU:1"):
        with tf.device(device):
            model = feat2vec.Feat2Vec.from_encoder(encoded.encoder)
            model.learn_from(encoded)
            batches = model.batches(encoded, groups_at_once=True)
            model.compile(steps_per_execution=batches.steps_at_once)
        inputs = batches.dataset(endless=True)  # which is read on the first processor
        with tf.device(device):
            history = model.fit(inputs, epochs=2, steps_per_epoch=batches.steps, verbose=0)
        losses.append(history.history["loss"])
        learnt = {variable.value.device[-5:] for variable in [*model.variables, *model.optimizer.variables]}
        entries = {variable.device[-5:] for variable in batches.tables.values()}
        assert learnt == {device}, learnt
        assert entries == {"CPU:0"}, entries
    assert losses[0] == losses[1], losses
print("the same")
"""


@pytest.mark.slow
def test_on_another_device_a_training_is_the_same_and_its_rows_stay_on_the_processor() -> None:
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", ON_TWO_DEVICES], capture_output=True, text=True, cwd=root, check=False)
    assert done.stdout == "the same\n", done.stderr[-3000:]
