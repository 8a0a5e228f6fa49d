"""`evaluate`: one of the tasks by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.key_pairs import pairs
from feat2vec.evaluation.prediction import predict
from feat2vec.evaluation.ranking import nearest, rank
from feat2vec.evaluation.task_names import TaskName
from feat2vec.space.search_options import RankSimilarity
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.files import JsonObject


class Task(NamedTuple):
    """What measures a run, and the options that it has."""

    measure: Callable[..., JsonObject]
    options: tuple[str, ...]


TASKS: Mapping[TaskName, Task] = {
    "rank": Task(rank, ("target", "given", "similarity")),
    "nearest": Task(nearest, ("target", "given", "similarity")),
    "pairs": Task(pairs, ("target", "similarity")),
    "predict": Task(predict, ("level",)),
}


def evaluate(
    run: TrainedRun,
    data: object,
    task: TaskName,
    *,
    target: str | None = None,
    given: Sequence[str] | None = None,
    similarity: RankSimilarity | None = None,
    level: int | None = None,
) -> JsonObject:
    """Measure a run on rows.

    Args:
        run: The run.
        data: Rows that training has not seen.
        task: "rank", "nearest", "pairs" or "predict": see the functions of these names.
        target: The group that the task is about; not for "predict".
        given: The groups to find the target by, for "rank" and "nearest".
        similarity: "cosine" or "dot", not for "predict"; for "rank" also "probability", which is its default.
        level: The submodel of a model with `ranks`, for "predict".

    Returns:
        The metrics by name, with the options.

    Raises:
        UserError: An option is not for this task, or is missing.

    """
    check_task(task)
    measure, known_options = TASKS[task]
    options = {"target": target, "given": given, "similarity": similarity, "level": level}
    given_options = {name: value for name, value in options.items() if value is not None}
    for name in given_options:
        if name not in known_options:
            raise UserError(f"--{name}: is not for --task {task}; remove it")
    if similarity == "probability" and task != "rank":
        raise UserError(f"--similarity: probability is for --task rank; {task} takes cosine or dot")
    if "target" in known_options and target is None:
        raise UserError(f"--task {task} needs --target, the group that it is about")
    return measure(run, data, **given_options)


def check_task(task: object) -> None:
    """Raise unless there is such a task."""
    if task not in TASKS:
        remedy = suggest(task, TASKS) or f"; there are {listed(TASKS)}"
        raise UserError(f"--task: there is no {task!r:.60}{remedy}")
