"""Arrays and facts in one file that is replaced whole: after a kill it holds the state before or after, never half."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feat2vec.errors import UserError
from feat2vec.run_files import in_a_line
from feat2vec.values import Array

FACTS = "facts"
ANEW = "start anew with --force"


def write_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a checkpoint; until it is whole, the one before stays."""
    partial = path.with_name(f"{path.name}.new")
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    try:
        with partial.open("wb") as file:
            np.savez(file, **{FACTS: text}, **{f"array {name}": array for name, array in arrays.items()})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        remedy = "; the checkpoint before is intact: make room and add --resume" if path.exists() else ""
        raise OSError(error.errno, f"{error.strerror or error}{remedy}", str(path)) from error


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a checkpoint; nothing in it is executed, and nothing is made that is larger than the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive)
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            facts = json.loads(file[FACTS].tobytes())
            if not isinstance(facts, dict):
                raise ValueError("its facts are no JSON object")
            return facts, {name.removeprefix("array "): file[name] for name in file.files if name != FACTS}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError, RecursionError) as error:
        raise UserError(f"{path}: is no checkpoint that can be read ({in_a_line(error)}); {ANEW}") from None


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Raise if an array is not as large as its header says: NumPy makes room for it before it reads it."""
    for info in archive.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"{info.filename} is compressed or encrypted")
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            if version != (1, 0):
                raise ValueError(f"{info.filename} has a header of version {version}")
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
            if dtype.kind not in "biufV" or dtype.hasobject or min(shape, default=0) < 0:
                raise ValueError(f"{info.filename} holds {dtype}, no numbers")
            if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
                raise ValueError(f"{info.filename} has not the shape {shape}")


@dataclass(frozen=True)
class Limits:
    """What a checkpoint of a training has to be like: its variables, and how far it can have come."""

    state: Sequence[Any]  # Keras variables, of which the shapes and types count
    weights: Sequence[Any]
    epochs: int
    steps: int


def check_checkpoint(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array], limits: Limits) -> None:
    """Raise if the facts and arrays are none that this training can have written."""
    problem = _problem_of_facts(facts, limits) or _problem_of_arrays(arrays, limits)
    if problem:
        raise UserError(f"{path}: was altered or belongs to another training ({problem}); {ANEW}")


def _problem_of_facts(facts: Mapping[str, Any], limits: Limits) -> str | None:
    counts = {"epoch": limits.epochs, "step": limits.steps - 1, "waited": limits.epochs}
    for name, most in counts.items():
        value = facts.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            return f"`{name}` is no whole number up to {most}"
    timed = facts.get("timed")
    times = [
        facts.get("seconds_of_epoch"),
        facts.get("seconds_before"),
        *(timed if isinstance(timed, list) else [None]),
    ]
    if len(times) != 4 or not all(_is_number(time) and 0 <= time < 2**63 for time in times):
        return "its times are no numbers"
    if not isinstance(facts.get("stopped"), bool) or (facts["stopped"] and not facts["epoch"]):
        return "`stopped` is neither true nor false"
    if "best" not in facts or not (facts["best"] is None or _is_number(facts["best"])):
        return "`best` is no number"
    history = facts.get("history")
    if not isinstance(history, list) or len(history) != facts["epoch"]:
        return "`history` has not as many rows as epochs"
    rows = [row for row in history if isinstance(row, dict) and {"epoch", "loss", "rows_per_second"} <= set(row)]
    if len(rows) < len(history) or not all(_is_number(value) for row in rows for value in row.values()):
        return "`history` holds no numbers"
    return None


def _is_number(value: object) -> bool:
    """Whether a fact is a number, be it NaN or infinite, as a loss may be."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63)


def _problem_of_arrays(arrays: Mapping[str, Array], limits: Limits) -> str | None:
    wanted = {f"state {i}": variable for i, variable in enumerate(limits.state)}
    for kind in ("best", "aside"):
        if f"{kind} 0" in arrays:
            wanted |= {f"{kind} {i}": variable for i, variable in enumerate(limits.weights)}
    if set(arrays) != set(wanted):
        return f"{len(arrays)} arrays in place of {len(wanted)}"
    for name, like in wanted.items():
        array = arrays[name]
        if array.shape != tuple(like.shape) or array.dtype.name != str(like.dtype):
            return f"{name} is {array.dtype} {array.shape} in place of {like.dtype} {tuple(like.shape)}"
    return None
