"""Whether a checkpoint's facts and arrays are what a training can have written, checked before they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from feat2vec.errors import UserError
from feat2vec.training.checkpoint_file import START_ANEW, CheckpointReader, Header


class Shaped(Protocol):
    """A variable or an array: its shape and type are all that is checked."""

    @property
    def shape(self) -> Sequence[int]:
        """The size of each axis."""

    @property
    def dtype(self) -> object:
        """Its type, whose text is a name such as `float32`."""


@dataclass(frozen=True)
class ExpectedCheckpoint:
    """What the checkpoints of a training hold.

    Args:
        state: The variables that training changes, in the order of the arrays `state 0`, `state 1`, ...
        weights: The model's weights, in the order of the arrays `best 0`, ... and `aside 0`, ...
        epochs: The number of epochs of the training.
        steps: The number of steps of an epoch.
        averages: Whether epochs are averaged, so that there are weights aside from the first epoch on.
        validates: Whether an epoch has a validation loss.
        counter: The variable of the state that counts steps, by which rates and random draws go on; None if none does.

    """

    state: Sequence[Shaped]
    weights: Sequence[Shaped]
    epochs: int
    steps: int
    averages: bool = False
    validates: bool = False
    counter: Shaped | None = None


def check_checkpoint(checkpoint: CheckpointReader, expected: ExpectedCheckpoint) -> None:
    """Raise `UserError` if this training cannot have written these facts and arrays."""
    facts, headers = checkpoint.facts, checkpoint.headers
    problem = _problem_of_facts(facts, expected) or _problem_of_arrays(facts, headers, expected)
    if problem or (problem := _problem_of_numbers(checkpoint, expected)):
        raise altered(checkpoint.path, problem)


def altered(path: Path, problem: str) -> UserError:
    """The error of a checkpoint that this training cannot have written."""
    return UserError(f"{path}: was altered or belongs to another training ({problem}); {START_ANEW}")


def _problem_of_facts(facts: Mapping[str, object], expected: ExpectedCheckpoint) -> str | None:
    highest_counts = {"epoch": expected.epochs, "step": expected.steps - 1, "waited": expected.epochs}
    for name, highest in highest_counts.items():
        count = facts.get(name)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= highest:
            return f"`{name}` is no whole number up to {highest}"
    if not _has_times(facts):
        return "its times are no numbers"
    if not isinstance(facts.get("stopped"), bool) or (facts["stopped"] and not facts["epoch"]):
        return "`stopped` is neither true nor false"
    if "best" not in facts or not (facts["best"] is None or _is_number(facts["best"])):
        return "`best` is no number"
    history = facts.get("history")
    if not isinstance(history, list) or len(history) != facts["epoch"]:
        return "`history` has not as many rows as epochs"
    columns = {"epoch", "loss", "seconds", "rows_per_second"} | ({"val_loss"} if expected.validates else set())
    if not all(_is_history_row(row, columns) for row in history):
        return "`history` holds no numbers, or other ones than this training's"
    if [row["epoch"] for row in history] != list(range(1, facts["epoch"] + 1)):
        return "`history` does not count the epochs"
    return None


def _has_times(facts: Mapping[str, object]) -> bool:
    timed = facts.get("timed")  # [seconds, rows]
    if not isinstance(timed, list) or len(timed) != 2:
        return False
    times = [facts.get("seconds_of_epoch"), facts.get("seconds_before"), *timed]
    return all(_is_number(time) and 0 <= time < 2**63 for time in times)


def _is_history_row(row: object, columns: set[str]) -> bool:
    return isinstance(row, dict) and set(row) == columns and all(_is_number(value) for value in row.values())


def _is_number(value: object) -> bool:
    """Whether a fact is a number. It may be NaN or infinite, as a loss may be."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _problem_of_arrays(
    facts: Mapping[str, Any], headers: Mapping[str, Header], expected: ExpectedCheckpoint
) -> str | None:
    expected_arrays = {f"state {i}": variable for i, variable in enumerate(expected.state)}
    has_kind = {"best": facts["best"] is not None, "aside": expected.averages and facts["epoch"] > 0}
    for kind in ("best", "aside"):
        if has_kind[kind]:
            expected_arrays |= {f"{kind} {i}": weight for i, weight in enumerate(expected.weights)}
    if set(headers) != set(expected_arrays):
        return f"{len(headers)} arrays in place of {len(expected_arrays)}"
    for name, variable in expected_arrays.items():
        shape, dtype = headers[name]
        if shape != tuple(variable.shape) or dtype.name != str(variable.dtype):
            return f"{name} is {dtype} {shape} in place of {variable.dtype} {tuple(variable.shape)}"
    return None


def _problem_of_numbers(checkpoint: CheckpointReader, expected: ExpectedCheckpoint) -> str | None:
    """A count of steps that is not that of the facts, and weights that are not finite.

    Training stops before it keeps any of these, and a run with them can be used for nothing.
    """
    facts = checkpoint.facts
    for i, variable in enumerate(expected.state):
        steps = facts["epoch"] * expected.steps + facts["step"]
        if variable is expected.counter and checkpoint.array(f"state {i}") != steps:
            return f"state {i} counts other steps than `epoch` and `step`"
    weight_ids = {id(weight) for weight in expected.weights}
    names = [f"state {i}" for i, variable in enumerate(expected.state) if id(variable) in weight_ids]
    names += [name for name in checkpoint.headers if not name.startswith("state ")]
    for name in names:
        if checkpoint.headers[name].dtype.kind != "f":
            continue
        for _, values in checkpoint.pieces(name):
            if not np.isfinite(values).all():
                return f"{name} holds a number that is not finite"
    return None
