"""What can be measured: tasks, their options and their metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from feat2vec.errors import suggest
from feat2vec.evaluation.metrics import PREDICTION_METRICS
from feat2vec.evaluation.task_names import TaskName
from feat2vec.schema.document import KeyPath
from feat2vec.schema.extractor_options import Count, Many, Text
from feat2vec.schema.validation import Problem, Spec
from feat2vec.space.search_options import RankSimilarity

METRICS: Mapping[TaskName, tuple[str, ...]] = {
    "rank": ("mpr", "mrr", "top1", "recall_at_10", "median_rank"),
    "nearest": ("mse",),
    "predict": tuple(PREDICTION_METRICS),
    "pairs": ("spearman",),
}
LOWER = ("mpr", "median_rank", "mse", "log_loss", "rmse", "mae")  # metrics of which less is better


class Measurement(Spec):
    """A task of `feat2vec evaluate`, with its options."""

    task: TaskName
    target: Text | None = None
    given: Annotated[tuple[Text, ...], Many, Field(min_length=1)] | None = None
    similarity: RankSimilarity | None = None
    level: Count | None = None


def measurement_conflicts(path: KeyPath, measurement: Measurement) -> Iterator[Problem]:
    """Options that are not for the task, or that it lacks."""
    if measurement.task == "predict":
        for key in ("target", "given", "similarity"):
            if getattr(measurement, key) is not None:
                yield (*path, key), "is not for the task predict; remove it"
    elif measurement.target is None:
        yield path, f"the task {measurement.task} needs a `target`, the group that it is about"
    if measurement.task == "pairs" and measurement.given is not None:
        yield (*path, "given"), "is not for the task pairs; remove it"
    if measurement.similarity == "probability" and measurement.task in ("nearest", "pairs"):
        yield (*path, "similarity"), f"probability is for the task rank; {measurement.task} takes cosine or dot"
    if measurement.level is not None and measurement.task != "predict":
        yield (*path, "level"), "is for the task predict; remove it"


def no_metric(metric: str, task: TaskName) -> str | None:
    """What is wrong with a metric's name."""
    if metric in METRICS[task]:
        return None
    near = suggest(metric, METRICS[task]) or f"; those of {task} are {', '.join(METRICS[task])}"
    return f"is no metric of the task {task}{near}"
