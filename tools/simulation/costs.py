"""What a step costs in seconds of one core, as `calibration` has measured it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REMEDY = "write one with `python tools/simulate_cluster.py --calibrate FILE`"


@dataclass(frozen=True)
class CallCost:
    """Seconds of one process for its part in a step that reads and updates rows of one server.

    Args:
        call: For each step, whatever it carries.
        group: For each group, whose vectors and linear terms are two tables.
        row: For each key.
        byte: For each byte of rows.

    """

    call: float
    group: float
    row: float
    byte: float

    def seconds(self, groups: float, rows: float, size: float) -> float:
        """The seconds of a step."""
        return self.call + self.group * groups + self.row * rows + self.byte * size


@dataclass(frozen=True)
class Costs:
    """The costs of a step of one worker.

    Args:
        step: Seconds of a step's own work on the worker, without tables, whatever its rows.
        step_row: Seconds of it for each row of the batch.
        threads: Cores that this work takes at once.
        chief: The chief's cost of a step that it hands to a worker. It names each table on each server.
        dispatch_worker: Seconds of the worker for it.
        dispatch_latency: Seconds for it in which no process works.
        worker: The worker's cost of reading rows of a server and sending their gradients.
        server: The server's cost of the same, its update included.
        read_share: The share of both costs that falls on reading.
        call_threads: Cores that a call takes at once, of worker and server together.
        call_latency: Seconds of a call in which no process works, other than on a link.
        id_bytes: Bytes of a key's ids in a step: half of them to read rows, half to update them.
        contention: How many times the processor seconds of a piece of work all cores take when each of them is busy,
            of what one takes alone: cores share caches and memory, and two of them may be one with two threads.
        idle_share: The share of the cores that one of `contention` was measured on.
        busy_share: The share of the cores that calls of as many workers as there are cores keep busy at most: the
            processes wait for each other, whatever there is to do.

    """

    step: float
    step_row: float
    threads: float
    chief: CallCost
    dispatch_worker: float
    dispatch_latency: float
    worker: CallCost
    server: CallCost
    read_share: float
    call_threads: float
    call_latency: float
    id_bytes: int
    contention: float
    idle_share: float
    busy_share: float

    def to_json(self) -> dict[str, Any]:
        """The costs as JSON's types."""
        return asdict(self)

    @classmethod
    def of_json(cls, facts: Mapping[str, Any]) -> Costs:
        """The costs of what `to_json` returned.

        Raises:
            ValueError: If something is missing, unknown, or no number of at least 0.

        """
        values = dict(facts)
        for side in ("chief", "worker", "server"):
            values[side] = CallCost(**_numbers(values.get(side), CallCost, side))
        return cls(**_numbers(values, cls, "costs"))


def _numbers(facts: Any, kind: type, name: str) -> dict[str, Any]:
    """The fields of a dataclass, checked."""
    names = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    if not isinstance(facts, Mapping) or set(facts) != names:
        raise ValueError(f"{name}: needs {', '.join(sorted(names))}; received {facts!r}; {REMEDY}")
    for key, value in facts.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
        if not is_number and not isinstance(value, CallCost):
            raise ValueError(f"{name}.{key}: must be a number of at least 0; received {value!r}; {REMEDY}")
    return dict(facts)


def read_costs(path: str | Path) -> Costs:
    """The costs in a calibration's file.

    Raises:
        ValueError: If the file is no calibration.

    """
    try:
        facts = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise ValueError(f"{path}: {problem.strerror}; {REMEDY}") from problem
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}; {REMEDY}") from problem
    if not isinstance(facts, Mapping) or "costs" not in facts:
        raise ValueError(f"{path}: has no 'costs'; {REMEDY}")
    return Costs.of_json(facts["costs"])
