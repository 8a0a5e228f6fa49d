"""What ours must not fall below on the small tables: bounds a little worse than what was measured, and the check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tables.report import NOISE, Medians, loss_of, medians_of
from tables.running import Record
from tables.sources import SMALL

NEED_A_PATH = ("films",)  # among the small tables; the others come with packages
GUARDED = [name for name in SMALL if name not in NEED_A_PATH]
SLACK = 0.03  # of what was measured
LEAST_SLACK = 0.002  # of a loss that is close to zero
OURS = {"complete": "ours", "predict": "init --target"}
LEAST = {"complete": "popularity", "predict": "constant"}  # what ours is never worse than by more than noise
SPLIT = "random"
SEED = 0

Bounds: TypeAlias = dict[str, dict[str, dict[str, dict[str, float]]]]  # of table, task, question: measured and bound


def bounds_of(records: Sequence[Record]) -> Bounds:
    """The bounds that follow from records of the guarded tables, seed 0, split at random."""
    bounds: Bounds = {}
    for (table, _, task, question), candidates in _medians(records).items():
        if table in GUARDED and OURS[task] in candidates:
            measured = _score(task, candidates[OURS[task]])
            bound = measured * (1 - SLACK) if task == "complete" else measured + max(measured * SLACK, LEAST_SLACK)
            of_task = bounds.setdefault(table, {}).setdefault(task, {})
            of_task[question] = {"measured": measured, "bound": float(f"{bound:.4g}")}
    return {name: bounds[name] for name in GUARDED if name in bounds}


def misses(records: Sequence[Record], bounds: Bounds) -> list[str]:
    """What is worse than its bound, or than popularity or the constant; a line for each question.

    Args:
        records: The answers of ours, and of popularity or the constant.
        bounds: The bounds of all questions that must have been answered.

    Returns:
        The lines; none if all is well.

    """
    lines = [f"{record['table']} {record['candidate']}: {record['error']}" for record in records if "error" in record]
    medians = _medians(records)
    for table, tasks in bounds.items():
        for task, questions in tasks.items():
            for question, of_question in questions.items():
                candidates = medians.get((table, SPLIT, task, question), {})
                where = f"{table}, {task} {question}"
                lines += _misses_of(where, task, candidates, of_question)
    expected = {(table, task, name) for table, tasks in bounds.items() for task in tasks for name in tasks[task]}
    extra = {(table, task, name) for table, _, task, name in medians} - expected
    return lines + [f"{table}, {task} {name}: has no bound" for table, task, name in sorted(extra)]


def _misses_of(
    where: str, task: str, candidates: Mapping[str, Mapping[str, float]], bound: Mapping[str, float]
) -> list[str]:
    if OURS[task] not in candidates:
        return [f"{where}: no answer"]
    score = _score(task, candidates[OURS[task]])
    measured = f"{bound['bound']:g} (measured: {bound['measured']:g})"
    lines = [f"{where}: {score:g}, the bound is {measured}"] if _is_worse(task, score, bound["bound"]) else []
    least = candidates.get(LEAST[task])
    if least is None:
        return [*lines, f"{where}: no answer of {LEAST[task]}"]
    with_noise = _score(task, least) / NOISE if task == "complete" else _score(task, least) * NOISE
    if _is_worse(task, score, with_noise):
        lines.append(f"{where}: {score:g}, {LEAST[task]} has {_score(task, least):g}")
    return lines


def _medians(records: Sequence[Record]) -> Medians:
    return medians_of([record for record in records if (record["split"], record["seed"]) == (SPLIT, SEED)])


def _score(task: str, metrics: Mapping[str, float]) -> float:
    """The MRR of what is completed, the loss of what is predicted."""
    return metrics["mrr"] if task == "complete" else loss_of(metrics)


def _is_worse(task: str, score: float, bound: float) -> bool:
    return score < bound if task == "complete" else score > bound
