"""Whether a checkpoint's facts and arrays are what a training can have written, checked before they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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

    """

    state: Sequence[Shaped]
    weights: Sequence[Shaped]
    epochs: int
    steps: int


def check_checkpoint(checkpoint: CheckpointReader, expected: ExpectedCheckpoint) -> None:
    """Raise `UserError` if this training cannot have written these facts and arrays."""
    problem = _problem_of_facts(checkpoint.facts, expected) or _problem_of_arrays(checkpoint.headers, expected)
    if problem:
        raise UserError(f"{checkpoint.path}: was altered or belongs to another training ({problem}); {START_ANEW}")


def _problem_of_facts(facts: Mapping[str, Any], expected: ExpectedCheckpoint) -> str | None:
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
    if not all(_is_history_row(row) for row in history):
        return "`history` holds no numbers"
    return None


def _has_times(facts: Mapping[str, Any]) -> bool:
    timed = facts.get("timed")  # [seconds, rows]
    if not isinstance(timed, list) or len(timed) != 2:
        return False
    times = [facts.get("seconds_of_epoch"), facts.get("seconds_before"), *timed]
    return all(_is_number(time) and 0 <= time < 2**63 for time in times)


def _is_history_row(row: object) -> bool:
    if not isinstance(row, dict) or not {"epoch", "loss", "rows_per_second"} <= set(row):
        return False
    return all(_is_number(value) for value in row.values())


def _is_number(value: object) -> bool:
    """Whether a fact is a number. It may be NaN or infinite, as a loss may be."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _problem_of_arrays(headers: Mapping[str, Header], expected: ExpectedCheckpoint) -> str | None:
    expected_arrays = {f"state {i}": variable for i, variable in enumerate(expected.state)}
    for kind in ("best", "aside"):
        if f"{kind} 0" in headers:
            expected_arrays |= {f"{kind} {i}": weight for i, weight in enumerate(expected.weights)}
    if set(headers) != set(expected_arrays):
        return f"{len(headers)} arrays in place of {len(expected_arrays)}"
    for name, variable in expected_arrays.items():
        shape, dtype = headers[name]
        if shape != tuple(variable.shape) or dtype.name != str(variable.dtype):
            return f"{name} is {dtype} {shape} in place of {variable.dtype} {tuple(variable.shape)}"
    return None
