"""A run beside the baselines that users would try instead: the same rows, the same metrics, and which is better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.baselines import BASELINES, Baseline, BaselineRequest, Metrics
from feat2vec.evaluation.baselines.matrices import matrix_groups
from feat2vec.evaluation.options import LOWER, METRICS
from feat2vec.evaluation.task_names import TaskName
from feat2vec.evaluation.tasks import check_task, evaluate
from feat2vec.space.completer import has_groups_beside
from feat2vec.space.geometry import is_keyed
from feat2vec.space.search_options import RankSimilarity
from feat2vec.table.table import Table, open_table
from feat2vec.terminal import printable, shortened
from feat2vec.training.run_folder import TrainedRun
from feat2vec.training.trained_rows import hashes_of_table, read_trained_rows
from feat2vec.writing.files import JsonObject

DECISIVE = ("mrr", "log_loss", "rmse", "spearman", "mse")  # metrics by which one method is better than another
DIGITS = 4  # of a metric that are shown
LEAST_TRAINED = 0.85  # of the rows of --train; large tables are trained without their held-out tenth
NAMES = [name for name, baseline in BASELINES.items() if not baseline.needs_corpus]


class TaskOptions(NamedTuple):
    """The options of `evaluate` that are for some tasks alone."""

    given: Sequence[str] | None = None
    similarity: RankSimilarity | None = None
    level: int | None = None


NO_OPTIONS = TaskOptions()


def task_of(run: TrainedRun) -> TaskName:
    """The task that a run is for: predict if it has a target, else rank."""
    return "rank" if run.schema.target is None else "predict"


def evaluate_beside(
    run: TrainedRun,
    data: object,
    task: TaskName | None = None,
    target: str | None = None,
    names: Sequence[str] = (),
    train: object = None,
    options: TaskOptions = NO_OPTIONS,
    matrix: Sequence[str] | None = None,
) -> JsonObject:
    """Measure a run on rows, and baselines on the same rows.

    Args:
        run: The run.
        data: Rows that training has not seen.
        task: What to measure; None for what the run is for.
        target: The group that the task is about; for "rank" None stands for all lookup groups.
        names: Of the baselines, as `BASELINES` has them. Those of another task are left out.
        train: The rows that the run was trained on, which most baselines learn from.
        options: Other options of `evaluate`.
        matrix: The groups of the rows and columns of the matrix that `svd`, `als` and `soft_impute` complete; by
            default the first two lookup groups of one key a row.

    Returns:
        What `evaluate` returns, with `beside`, the metrics of each baseline, and `better`, a sentence for each baseline
        that is better; of all groups, `groups` with this for each. `not_measured` names baselines of other tasks.

    Raises:
        UserError: Something is wrong with an option or a table.

    """
    task = task_of(run) if task is None else task
    check_task(task)
    table = open_table(data)
    baselines = _baselines(task, names)
    _check_matrix(run, baselines, matrix)
    train_table = _training_rows(baselines, table, train)
    not_measured = [name for name in dict.fromkeys(names) if BASELINES[name].task != task]
    of_other_tasks: JsonObject = {"not_measured": not_measured} if not_measured else {}
    if target is not None or task != "rank":
        return {**_measured(run, table, task, target, baselines, train_table, options, matrix), **of_other_tasks}
    groups: dict[str, JsonObject] = {}
    for group in _lookup_groups(run, table, options):
        group_options = options if options.given is None else options._replace(given=_without(options.given, group))
        groups[group] = _measured(run, table, task, group, baselines, train_table, group_options)
    return {"task": task, "groups": groups, **of_other_tasks}


def _measured(
    run: TrainedRun,
    table: Table,
    task: TaskName,
    target: str | None,
    baselines: Sequence[Baseline],
    train: Table | None,
    options: TaskOptions,
    matrix: Sequence[str] | None = None,
) -> JsonObject:
    """The metrics of the run and of each baseline for one target."""
    facts = evaluate(run, table, task, target=target, **options._asdict())
    if not baselines:
        return facts
    request = BaselineRequest(run, train, table, target=target, given=options.given, matrix=matrix)
    metrics = {baseline.name: baseline.measure(request) for baseline in baselines}
    target = run.schema.target if target is None else target
    return {"target": target, **facts, "beside": metrics, "better": list(_better(target, facts, metrics))}


def _baselines(task: TaskName, names: Sequence[str]) -> list[Baseline]:
    """The baselines of a task among those that are named."""
    for name in names:
        if name not in NAMES:
            raise UserError(f"--beside: there is no {name!r}{suggest(name, NAMES) or f'; there are {listed(NAMES)}'}")
    baselines = [BASELINES[name] for name in dict.fromkeys(names) if BASELINES[name].task == task]
    if names and not baselines:
        known = [name for name in NAMES if BASELINES[name].task == task]
        remedy = f"for it there are {listed(known)}" if known else "it has none"
        raise UserError(f"--beside: {listed(names)} is not for the task {task}; {remedy}")
    return baselines


def _check_matrix(run: TrainedRun, baselines: Sequence[Baseline], matrix: Sequence[str] | None) -> None:
    """Raise unless the run has the matrix that baselines complete."""
    if any(baseline.completes_matrix for baseline in baselines):
        matrix_groups(run.schema, matrix)
    elif matrix is not None:
        completing = listed(name for name in NAMES if BASELINES[name].completes_matrix)
        raise UserError(f"--matrix: is for {completing}; name one of them by --beside, or remove it")


def _training_rows(baselines: Sequence[Baseline], table: Table, train: object) -> Table | None:
    """The rows to learn from, which cannot be those to measure on."""
    learning = [baseline.name for baseline in baselines if baseline.needs_rows]
    if train is None:
        if learning:
            raise UserError(
                f"--beside: {listed(learning)} learns from the rows that the run was trained on",
                "a run keeps no rows: name them by --train; popularity needs none",
            )
        return None
    train_table = open_table(train)
    if train_table is table or (train_table.files and train_table.files == table.files):
        raise UserError("--train: is the same table as --data; name the rows that the run was trained on")
    return train_table


def _lookup_groups(run: TrainedRun, table: Table, options: TaskOptions) -> list[str]:
    """The groups whose keys can be ranked on a table."""
    schema = run.schema
    groups = [name for name in schema.groups if is_keyed(run.vector_source, name)]
    present = [name for name in groups if set(schema.groups[name].columns) <= set(table.columns)]
    if options.given is None:
        present = [name for name in present if has_groups_beside(schema, name)]
    if options.given is not None and len(set(options.given)) == 1:
        present = [name for name in present if name not in options.given]
    if not present:
        lookups = f"the lookup groups are {listed(groups)}" if groups else "it has no lookup group"
        raise UserError(f"--target: no group can be ranked on {table.name} by another; {lookups}")
    return present


def _without(given: Sequence[str], group: str) -> list[str]:
    return [name for name in given if name != group]


def warning_of_other_rows(run: TrainedRun, train: object) -> str | None:
    """What to tell who gives rows to learn from that are not those of the run; None if nearly all of them are."""
    known = read_trained_rows(run)
    if known is None:
        return None
    table = open_table(train)
    overlap = known.overlap(hashes_of_table(run, table, valueless=known.valueless))
    if overlap.trained >= LEAST_TRAINED * overlap.rows:
        return None
    return (
        f"{table.name}: {overlap.trained:,} of {overlap.rows:,} rows are among those the run was trained on: "
        "what is beside it learns from others, too"
    )


# --- which is better ------------------------------------------------------------------------------------------------


def decisive_metric(facts: Mapping[str, object]) -> str | None:
    """The metric by which methods are compared; None if there is none."""
    return next((metric for metric in DECISIVE if isinstance(facts.get(metric), float)), None)


def _better(target: str | None, facts: Metrics, baseline_metrics: Mapping[str, Metrics]) -> Iterator[str]:
    """A sentence for each baseline that is better than the run."""
    metric = decisive_metric(facts)
    if metric is None:
        return
    for name, metrics in baseline_metrics.items():
        value = metrics.get(metric)
        if value is None or is_tie(value, facts[metric]):
            continue
        if value < facts[metric] if metric in LOWER else value > facts[metric]:
            yield f"{name} is better for {target}: {metric} {value:.{DIGITS}g}, the run {facts[metric]:.{DIGITS}g}"


def is_tie(value: float, other_value: float) -> bool:
    """Whether two values of a metric differ by less than one in the last of the digits that are shown.

    >>> is_tie(0.98211, 0.98214), is_tie(0.9821, 0.9834), is_tie(0.0, 0.0)
    (True, False, True)
    """
    larger = max(abs(value), abs(other_value))
    unit = 10.0 ** (math.floor(math.log10(larger)) - DIGITS + 1) if larger else 0.0
    return value == other_value or abs(value - other_value) < unit


def better_of(facts: JsonObject) -> list[str]:
    """The sentences of what `evaluate_beside` returns."""
    parts = facts["groups"].values() if "groups" in facts else [facts]
    return [sentence for part in parts for sentence in part.get("better", ())]


def table_rows(facts: JsonObject) -> tuple[list[str], list[list[object]]]:
    """What `evaluate_beside` returns as a table: its heads, and for each target a row of the run and of each baseline.

    The first two cells of a row are the target and the method; a method of which a metric is not known has None.
    """
    parts = facts["groups"] if "groups" in facts else {facts.get("target") or "": facts}
    first = next(iter(parts.values()))
    metrics = [metric for metric in METRICS[facts["task"]] if metric in first]
    rows: list[list[object]] = []
    for target, part in parts.items():
        methods = {"the run": part, **part.get("beside", {})}
        for method, values in methods.items():
            rows.append([target, method, values.get("n"), *(values.get(metric) for metric in metrics)])
    return ["target", "method", "n", *metrics], rows


def lines_beside(facts: JsonObject) -> Iterator[str]:
    """The table, aligned, and the sentences about better baselines."""
    heads, rows = table_rows(facts)
    cells = [heads, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        names = [f"{cell:{width}}" for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
        yield "  ".join([*names, *numbers]).rstrip()
    for name in facts.get("not_measured", ()):
        yield f"{name} is for the task {BASELINES[name].task} and was not measured"
    yield from map(printable, better_of(facts))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return f"{value:,}" if isinstance(value, int) else shortened(printable(str(value)), 30)
