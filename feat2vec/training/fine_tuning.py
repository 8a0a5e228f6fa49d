"""`finetune`: a run's vectors to a run that predicts a column, learnt from labelled rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from feat2vec.encode.workspace import MEMORY, check_memory
from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.options import Schema, read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.numbers import numbers_of
from feat2vec.table.stages import is_list, kind_of_type, stages
from feat2vec.table.table import Table, open_table
from feat2vec.training.run_folder import TrainedRun
from feat2vec.training.train import Start, share_cores, train_into

HeadType = Literal["fm", "mlp"]
ObjectiveType = Literal["logistic", "regression", "softmax"]
# Labelled rows are few: small batches. The rate is the one that tools/bench_finetune.py chooses most often.
TRAINING = {"epochs": 30, "batch_size": 64, "optimizer": {"type": "adam", "learning_rate": 0.01}}
FREE = ("item_dropout", "dropout")  # options of extractors that may differ from the first run's
HEADS, OBJECTIVES = ("fm", "mlp"), ("logistic", "regression", "softmax")


def finetune_into(
    out: Path,
    run: TrainedRun,
    data: object,
    target: str,
    validation: object = None,
    *,
    head: HeadType = "fm",
    freeze: bool = False,
    objective: ObjectiveType | None = None,
    groups: Sequence[str] | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    memory: str = MEMORY,
) -> None:
    """Write a run that predicts a column from a run's vectors into the folder `out`: see `feat2vec.finetune`."""
    check_memory(memory)
    table = open_table(data)
    schema = schema_of(run.schema, table, target, head=head, objective=objective, groups=groups, settings=settings)
    if out.resolve() == run.folder.resolve():
        raise UserError(f"{out}: is the run to begin with, which stays as it is; choose another folder")
    share_cores(schema)
    train_into(
        out,
        schema,
        table,
        validation,
        resume=resume,
        force=force,
        quiet=quiet,
        memory=memory,
        start=Start(run, freeze),
    )


def schema_of(
    first: Schema,
    table: Table,
    target: str,
    *,
    head: HeadType = "fm",
    objective: ObjectiveType | None = None,
    groups: Sequence[str] | None = None,
    settings: Sequence[str] = (),
) -> Schema:
    """The schema of a run that learns a table's column from the vectors of a run with another schema."""
    for option, word, known in (("--head", head, HEADS), ("--objective", objective, (None, *OBJECTIVES))):
        if word not in known:
            raise UserError(f"{option}: is one of {', '.join(filter(None, known))}; received {word!r}")
    if not isinstance(target, str) or target not in table.columns:
        near = suggest(target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"--target: {table.name} has no column {target!r}{near}")
    if is_list(table.columns[target]):
        kind = table.columns[target]
        raise UserError(f"--target: column {target!r} of {table.name} holds lists ({kind}); a row has one value")
    kind_of_objective = objective or objective_of(table, target)
    data: dict[str, Any] = parse_document(first.resolved()).data
    data["groups"] = _without(first, target, groups)
    del data["noise"]
    if data["id"] == target or data["id"] not in table.columns:
        data["id"] = None
    data["model"]["together"] = [] if kind_of_objective == "softmax" else _sets_left(first, list(data["groups"]))
    data["model"]["bias"] = kind_of_objective != "softmax"  # classes have biases of their own, and no linear terms
    data["objective"] = {"type": kind_of_objective, "target": target}
    data["head"] = {"type": head}
    data["training"] = {**TRAINING, "seed": first.training.seed}
    schema = read_schema(data, settings=settings)
    _refuse_other_vectors(first, schema)
    return schema


def objective_of(table: Table, target: str) -> ObjectiveType:
    """What a column's values ask for: logistic for 0 and 1, softmax for text, regression for other numbers."""
    if table.typed and kind_of_type(table.columns[target]) == "text":
        return "softmax"
    binary = True
    for stage in stages(table, [target]):
        try:
            numbers, _ = numbers_of(stage, target)
        except UserError:
            if table.typed:
                raise
            return "softmax"
        binary = binary and bool(np.isin(numbers[~np.isnan(numbers)], (0, 1)).all())
        if table.typed and not binary:
            break
    return "logistic" if binary else "regression"


def _without(first: Schema, target: str, groups: Sequence[str] | None) -> dict[str, Any]:
    """The groups that are asked for, as data; none that holds the target."""
    given = list(first.groups) if groups is None else list(groups)
    for name in given:
        if name not in first.groups:
            near = suggest(name, first.groups) or f"; the groups are {listed(first.groups)}"
            raise UserError(f"--groups: the run has no group {name!r}{near}")
    data: dict[str, Any] = parse_document(first.resolved()).data
    for group in data["groups"].values():
        if "item_dropout" in group["extractor"]:  # it makes noise harder to tell; labels learn better from whole rows
            group["extractor"]["item_dropout"] = 0.0
    left = {
        name: data["groups"][name]
        for name, group in first.groups.items()
        if name in given and target not in _columns(group)
    }
    if not left:
        every = groups is None
        remedy = "train another run" if every else "name others"
        raise UserError(f"--target: {'every group' if every else 'each of --groups'} holds {target!r} itself; {remedy}")
    return left


def _sets_left(first: Schema, groups: Sequence[str]) -> list[list[str]]:
    """What is together of the groups, unless it is all of them."""
    sets = [[name for name in names if name in groups] for names in first.model.together]
    return [names for names in sets if 1 < len(names) < len(groups)]


def _columns(group: Any) -> tuple[str, ...]:
    return (*group.columns, getattr(group.extractor, "weights", None) or "")


def _refuse_other_vectors(first: Schema, schema: Schema) -> None:
    """Vectors can begin as those of the first run only if they are of the same kind."""
    problems = []
    for key in ("dim", "ranks", "level_sharing"):
        before, now = getattr(first.model, key), getattr(schema.model, key)
        if before != now:
            problems.append(f"--set model.{key}: the run's vectors have {before}; received {now}")
    for name, group in schema.groups.items():
        old = first.groups.get(name)
        same = old is not None and old.columns == group.columns and type(old.extractor) is type(group.extractor)
        if (
            old is None
            or not same
            or any(getattr(old.extractor, key) != value for key, value in group.extractor if key not in FREE)
        ):
            problems.append(
                f"--set groups.{name}: the run's vectors are of another kind; only {' and '.join(FREE)} may change"
            )
    if problems:
        raise UserError(*problems)


__all__ = ["Start", "finetune_into", "objective_of", "schema_of"]
