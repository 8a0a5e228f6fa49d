"""What a training can have written is told from altered facts and arrays."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feat2vec.encode.array_files import Array
from feat2vec.errors import UserError
from feat2vec.training.checkpoint_check import ExpectedCheckpoint, check_checkpoint
from feat2vec.training.checkpoint_file import open_checkpoint, read_checkpoint, write_checkpoint
from tests.altered_runs import mutated, with_another_value

VARIABLES: list[Array] = [np.arange(12, dtype=np.float32).reshape(4, 3), np.array(5, np.int64), np.ones(2, np.float32)]
ARRAYS: dict[str, Any] = {f"state {i}": variable for i, variable in enumerate(VARIABLES)}
ARRAYS |= {"best 0": VARIABLES[0], "best 1": VARIABLES[2]}
EXPECTED = ExpectedCheckpoint(VARIABLES, [VARIABLES[0], VARIABLES[2]], epochs=5, steps=8)
PROGRESS: dict[str, Any] = {
    "schema": "version: 1\n", "data": {"rows": 4}, "epoch": 2, "step": 3, "best": 0.5, "waited": 1, "stopped": False,
    "history": [{"epoch": i, "loss": 0.5, "rows_per_second": 9, "val_loss": float("nan")} for i in (1, 2)],
    "seconds_of_epoch": 0.5, "timed": [1.5, 40], "seconds_before": 2.5,
}  # fmt: skip


def checked(path: Path) -> str:
    """What a checkpoint of this training says."""
    with open_checkpoint(path) as checkpoint:
        check_checkpoint(checkpoint, EXPECTED)
    facts, arrays = read_checkpoint(path)
    return repr((facts, {name: (array.dtype, array.tolist()) for name, array in arrays.items()}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"epoch": 6}, "`epoch` is no whole number up to 5"),
        ({"epoch": "2"}, "`epoch`"),
        ({"epoch": True}, "`epoch`"),
        ({"step": 8}, "`step` is no whole number up to 7"),
        ({"step": -1}, "`step`"),
        ({"waited": 10**12}, "`waited`"),
        ({"epoch": 1}, "`history` has not as many"),
        ({"history": [{}, {}]}, "`history` holds no numbers"),
        ({"history": [{**PROGRESS["history"][0], "loss": "x"}] * 2}, "`history` holds no numbers"),
        ({"best": [1]}, "`best`"),
        ({"timed": [1.5]}, "times"),
        ({"timed": 5}, "times"),
        ({"seconds_before": float("inf")}, "times"),
        ({"stopped": 1}, "`stopped`"),
        ({"epoch": 0, "history": [], "stopped": True}, "`stopped`"),
    ],
)
def test_facts_that_no_training_writes_are_refused(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write_checkpoint(path, PROGRESS, ARRAYS)
    checked(path)
    write_checkpoint(path, {**PROGRESS, **change}, ARRAYS)
    with pytest.raises(UserError, match=rf"was altered or belongs to another training \(.*{problem}.*; start anew"):
        checked(path)
    for name in change:
        write_checkpoint(path, {key: value for key, value in PROGRESS.items() if key != name}, ARRAYS)
        with pytest.raises(UserError, match="was altered"):
            checked(path)


@pytest.mark.parametrize(
    "arrays",
    [
        {name: array for name, array in ARRAYS.items() if name != "state 1"},
        {**ARRAYS, "more": VARIABLES[0]},
        {name: array for name, array in ARRAYS.items() if name != "best 1"},
        {**ARRAYS, "state 0": np.zeros((3, 4), np.float32)},
        {**ARRAYS, "state 0": np.zeros((4, 3))},
        {**ARRAYS, "state 2": np.ones(2, np.int32)},
    ],
)
def test_arrays_that_are_none_of_the_trainings_are_refused(arrays: dict[str, Any], tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c.npz", PROGRESS, arrays)
    with pytest.raises(UserError, match="was altered or belongs to another training"):
        checked(tmp_path / "c.npz")


def test_an_altered_checkpoint_reads_as_the_same_or_is_refused(tmp_path: Path) -> None:
    path, rng = tmp_path / "c.npz", random.Random(0)
    write_checkpoint(path, PROGRESS, ARRAYS)
    content, unaltered = path.read_bytes(), checked(path)
    for _ in range(300):
        path.write_bytes(mutated(content, path.name, rng))
        try:
            same = checked(path) == unaltered
        except UserError as error:
            same = len(str(error).replace(str(path), "").splitlines()) == 1
        assert same


def test_facts_are_altered_at_random(tmp_path: Path) -> None:
    """With sums that match, as whoever alters a checkpoint can have them."""
    path, rng = tmp_path / "c.npz", random.Random(0)
    for _ in range(300):
        facts = with_another_value(json.loads(json.dumps(PROGRESS)), rng)
        write_checkpoint(path, facts, ARRAYS)
        with suppress(UserError):
            checked(path)
