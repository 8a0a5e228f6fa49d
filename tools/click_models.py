"""Models of clicks that are trained by FTRL-Proximal, and how many of their weights remain: for `bench_*.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from feat2vec.run import Run


def schema(
    columns: Iterable[str], target: str, model: Mapping[str, Any], l1: float, **training: float
) -> dict[str, Any]:
    """A model of single keys, one group a column, with linear terms.

    Args:
        columns: The columns.
        target: The column of 0 and 1.
        model: The options of `model`.
        l1: The penalty of FTRL-Proximal.
        **training: Options of `training`.

    """
    optimizer = {"type": "ftrl", "learning_rate": 0.1, "l1": l1}
    return {
        "version": 1,
        "model": {"bias": True, **model},
        "groups": {name: {"column": name} for name in columns},
        "objective": {"type": "logistic", "target": target},
        "training": {"validation": 0, "optimizer": optimizer, **training},
    }


def weights_of(run: Run) -> dict[str, int]:
    """How many weights a run holds, how many are not zero, and how many of its keys have a vector that is not zero."""
    from feat2vec.model.remaining import remaining

    counts = remaining(run.model)
    return {
        "held": counts.held,
        "remaining": counts.parameters,
        "keys": counts.keys,
        "keys_with_vector": counts.vectors,
    }
