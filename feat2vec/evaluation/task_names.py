"""The names of the tasks. The command line imports this when it starts, so it imports nothing heavy."""

from __future__ import annotations

from typing import Literal, get_args

TaskName = Literal["rank", "nearest", "predict", "pairs"]

TASK_NAMES: tuple[TaskName, ...] = get_args(TaskName)
