"""`finetune`: the schema of a run that predicts a column from the vectors of another run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feat2vec.errors import UserError, listed, suggest
from feat2vec.schema.cross_checks import can_tell_time
from feat2vec.schema.extractor_options import NumbersSpec
from feat2vec.schema.model_options import ModelSpec
from feat2vec.schema.objectives import OBJECTIVES
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.reading import read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.numbers import numbers_of
from feat2vec.table.propose import propose_schema
from feat2vec.table.propose.defaults_supervised import supervised_defaults
from feat2vec.table.propose.learning import tell_of_later_rows
from feat2vec.table.table import Table, stages
from feat2vec.table.types import is_list, kind_of_type
from feat2vec.training.fine_tuning_options import HEAD_TYPES, OBJECTIVE_TYPES, HeadType, ObjectiveType
from feat2vec.writing.files import JsonObject

# Of the head fm. Labelled rows are few: small batches. tools/bench_finetune.py chooses this rate most often.
TRAINING_DEFAULTS = {"epochs": 30, "batch_size": 64, "optimizer": {"type": "adam", "learning_rate": 0.01}}
FEWEST_LABELS = 5
SHARED_SETTINGS = ("head.", "training.")  # that the training from scratch has too
CHANGEABLE_OPTIONS = ("item_dropout", "dropout")  # of extractors; all others decide what the vectors are


def schema_of(
    first: Schema,
    table: Table,
    target: str,
    *,
    head: HeadType = "mlp",
    objective: ObjectiveType | None = None,
    groups: Sequence[str] | None = None,
    settings: Sequence[str] = (),
    has_validation_rows: bool = False,
) -> Schema:
    """The schema of a run that learns a column of a table from the vectors of another run.

    It has the `training.time` of that run if there are as many labelled rows as `init --target` asks for.

    Args:
        first: The schema of the run that the vectors are taken from.
        table: The labelled rows.
        target: The column to predict.
        head: What turns vectors into a prediction.
        objective: What is learnt; by default it follows from the column (`objective_of`).
        groups: The groups to learn from; all that do not hold the target by default.
        settings: Values that replace the new schema's.
        has_validation_rows: Whether other rows say how sure predictions may be: the last ones are then learnt from.

    Returns:
        The schema.

    Raises:
        UserError: An argument is unknown, or the settings change what the vectors are.

    """
    _check_words(head, objective)
    _check_target(table, target)
    chosen_objective = objective or objective_of(table, target)
    if not first.model.pairs:
        raise UserError(f"{first.name}: the run has no vectors to learn from, as its schema has `pairs: false`")
    data: JsonObject = parse_document(first.resolved()).data
    data["groups"] = _chosen_groups(first, target, groups)
    del data["noise"]
    if data["id"] == target or data["id"] not in table.columns:
        data["id"] = None
    has_classes = OBJECTIVES[chosen_objective].has_classes
    data["model"]["together"] = [] if has_classes else _chosen_sets(first, list(data["groups"]))
    data["model"]["bias"] = not has_classes  # classes have biases of their own, and no linear terms
    data["model"]["posterior"] = "point"
    if first.model.ranks is not None:
        data["model"] = _model_of_levels(first.model, data["model"], list(data["groups"]))
    _keep_vectors_active(data["model"])
    data["objective"] = {"type": chosen_objective, "target": target}
    labelled_rows = _labelled_rows(table, target)
    data["head"], data["training"] = _head_and_training(first, head, labelled_rows, chosen_objective)
    schema = read_schema(data, settings=settings)
    _refuse_other_vectors(first, schema)
    if not has_validation_rows and _holds_last_rows_out(first, schema, table, labelled_rows, settings):
        data["training"]["time"] = first.training.time
        schema = read_schema(data, settings=settings)
    return schema


def scratch_schema(schema: Schema, table: Table, target: str, settings: Sequence[str] = ()) -> Schema | None:
    """The schema that learns the same target from scratch, as `feat2vec init --target` writes it.

    Its last rows by time are those of the other run, or it has none.

    Args:
        schema: That of the run that learns from vectors. Columns that it does not read are not read from scratch.
        table: The labelled rows.
        target: The column to predict.
        settings: Values that replace that schema's; those of the head and the training count here too.

    Returns:
        The schema; None if `init` proposes none, or nothing from these columns.

    """
    try:
        data: JsonObject = parse_document(propose_schema(table, target=target).text).data
    except UserError:
        return None
    known_columns = {column for group in schema.groups.values() for column in _columns(group)}
    groups = {
        name: group
        for name, group in data["groups"].items()
        if known_columns.issuperset(group["columns"] if "columns" in group else [group["column"]])
    }
    if not groups:
        return None
    model = {**data["model"], "bias": schema.model.bias}
    data |= {"id": schema.id, "groups": groups, "model": model, "training": {**data["training"]}}
    data["objective"] = parse_document(schema.resolved()).data["objective"]
    data["training"] |= {"seed": schema.training.seed, "time": None}
    shared = [setting for setting in settings if setting.startswith(SHARED_SETTINGS) and not _sets_time(setting)]
    fresh_schema = read_schema(data, settings=shared)
    time = _same_time(schema, fresh_schema)
    if time is None:
        return fresh_schema
    data["training"]["time"] = time
    return read_schema(data, settings=shared)


def _holds_last_rows_out(
    first: Schema, schema: Schema, table: Table, labelled_rows: int, settings: Sequence[str]
) -> bool:
    """Whether a new run has the `training.time` of the first one although no setting says so."""
    time, training = first.training.time, schema.training
    if time not in schema.groups or any(map(_sets_time, settings)) or not tell_of_later_rows(labelled_rows):
        return False
    are_learnt = bool(training.refit) and training.validation > 0
    return are_learnt and schema.objective.is_calibrated and set(schema.groups[time].columns) <= set(table.columns)


def _sets_time(setting: str) -> bool:
    return setting.partition("=")[0] in ("training", "training.time")


def _same_time(schema: Schema, fresh_schema: Schema) -> str | None:
    """The group of another schema that tells the time which `training.time` tells; None if there is none."""
    if schema.training.time is None:
        return None
    columns = schema.groups[schema.training.time].columns
    names = [name for name, group in fresh_schema.groups.items() if group.columns == columns and can_tell_time(group)]
    return min(names, key=lambda name: not isinstance(fresh_schema.groups[name].extractor, NumbersSpec), default=None)


def _model_of_levels(model: ModelSpec, data: JsonObject, groups: Sequence[str]) -> JsonObject:
    """The section model for the vectors of a run with ranks, and some of its groups.

    Whole models side by side are vectors of one level, which need not learn by themselves. Levels that a column told
    are in the vocabularies.
    """
    if model.level_sharing == "all":
        kept = {key: value for key, value in data.items() if key not in ("ranks", "level_sharing")}
        return {**kept, "dim": model.levels.ranks[0]}
    return {**data, "levels": {**data["levels"], "columns": _level_columns(model, groups)}}


def _level_columns(model: ModelSpec, groups: Sequence[str]) -> dict[str, str]:
    """The columns that told the levels of these groups' keys."""
    return {name: column for name, column in model.level_source.columns.items() if name in groups}


def _head_and_training(
    first: Schema, head: HeadType, rows: int, objective: ObjectiveType
) -> tuple[JsonObject, JsonObject]:
    """The sections head and training: for a network those that `init --target` writes for so many rows."""
    if head == "fm":
        return {"type": "fm"}, {**TRAINING_DEFAULTS, "seed": first.training.seed}
    settings: JsonObject = dict(supervised_defaults(rows, objective, {}).settings)
    has_levels = first.model.ranks is not None and first.model.level_sharing != "all"
    network = {**settings["head"], "pairs": has_levels}  # which learn from pairs
    return network, {**settings["training"], "seed": first.training.seed}


def _labelled_rows(table: Table, target: str) -> int:
    """How many rows have a value of the target; those without one are left out."""
    labelled = sum(stage.rows - int(stage.column(target).null_count) for stage in stages(table, [target]))
    if 0 < labelled < FEWEST_LABELS:
        rows = "one row has" if labelled == 1 else f"{labelled} rows have"
        raise UserError(f"{table.name}: {rows} a value of {target!r}, too few to learn from; label some dozens")
    return labelled


def _check_words(head: str, objective: str | None) -> None:
    for option, word, allowed in (
        ("--head", head, HEAD_TYPES),
        ("--objective", objective, OBJECTIVE_TYPES),
    ):
        is_default = option == "--objective" and word is None
        if word not in allowed and not is_default:
            raise UserError(f"{option}: is one of {', '.join(allowed)}; received {word!r}")


def _check_target(table: Table, target: str) -> None:
    if not isinstance(target, str) or target not in table.columns:
        hint = suggest(target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"--target: {table.name} has no column {target!r}{hint}")
    kind = table.columns[target]
    if is_list(kind):
        raise UserError(f"--target: column {target!r} of {table.name} holds lists ({kind}); a row has one value")


def objective_of(table: Table, target: str) -> ObjectiveType:
    """The objective that fits a column: logistic for 0 and 1, softmax for text, regression for other numbers."""
    if table.typed and kind_of_type(table.columns[target]) == "text":
        return "softmax"
    is_binary = True
    for stage in stages(table, [target]):
        try:
            numbers, _ = numbers_of(stage, target, nan="missing")
        except UserError:
            if table.typed:
                raise
            return "softmax"  # a CSV has no types: the column holds text
        is_binary = is_binary and bool(np.isin(numbers[~np.isnan(numbers)], (0, 1)).all())
        if table.typed and not is_binary:
            break
    return "logistic" if is_binary else "regression"


def _chosen_groups(first: Schema, target: str, groups: Sequence[str] | None) -> dict[str, object]:
    """The groups to learn from, as data. None of them holds the target."""
    names = list(first.groups) if groups is None else list(groups)
    for name in names:
        if name not in first.groups:
            hint = suggest(name, first.groups) or f"; the groups are {listed(first.groups)}"
            raise UserError(f"--groups: the run has no group {name!r}{hint}")
    data: JsonObject = parse_document(first.resolved()).data
    kept = [name for name, group in first.groups.items() if name in names and target not in _columns(group)]
    chosen: dict[str, object] = {}
    for name, group in first.groups_of(kept).items():
        # It makes noise harder to tell from rows, but labels are learnt better from all items.
        if "item_dropout" in data["groups"][name]["extractor"]:
            data["groups"][name]["extractor"]["item_dropout"] = 0.0
        chosen[name] = {**data["groups"][name], "share": group.share}
    if not chosen:
        if groups is None:
            raise UserError(f"--target: every group holds {target!r} itself; train another run")
        raise UserError(f"--target: each of --groups holds {target!r} itself; name others")
    return chosen


def _chosen_sets(first: Schema, groups: Sequence[str]) -> list[list[str]]:
    """The sets of `model.together` with the groups that are left, without sets of one group or of all groups."""
    sets = [[name for name in names if name in groups] for names in first.model.together]
    return [names for names in sets if 1 < len(names) < len(groups)]


def _keep_vectors_active(model: JsonObject) -> None:
    """Let the same keys have vectors as in the first run, also while their linear terms, which are new, are zero."""
    activation = model.get("activation")
    if activation is not None:
        activation["linear"] = False
        if activation["count"] == 1:
            del model["activation"]


def _columns(group: Group) -> tuple[str, ...]:
    """The columns that a group reads, with that of its items' weights."""
    weights = getattr(group.extractor, "weights", None)
    return (*group.columns, weights) if weights else group.columns


def _refuse_other_vectors(first: Schema, schema: Schema) -> None:
    """Raise if the vectors of the first run cannot be those of the new schema."""
    problems = []
    are_same_levels = first.model.levels == schema.model.levels
    if _level_columns(first.model, list(schema.groups)) != schema.model.level_source.columns:
        problems.append("--set model.levels.columns: the levels of the run's keys cannot change; remove it")
    for key in ("dim", "ranks", "level_sharing"):
        before, now = getattr(first.model, key), getattr(schema.model, key)
        if before != now and not are_same_levels:
            problems.append(f"--set model.{key}: the run's vectors have {before}; received {now}")
    before, now = (1 if model.activation is None else model.activation.count for model in (first.model, schema.model))
    if before != now:
        problems.append(f"--set model.activation: the run's keys with a vector have {before} rows; received {now}")
    for name, group in schema.groups.items():
        if name in first.groups and set(schema.sharing(name)) != set(first.sharing(name)) & set(schema.groups):
            problems.append(f"--set groups.{name}.share: the run's groups share vectors, or not; leave that as it is")
        elif name not in first.groups or not _has_same_vectors(first.groups[name], group):
            problems.append(
                f"--set groups.{name}: the run's vectors are of another kind; "
                f"only {' and '.join(CHANGEABLE_OPTIONS)} may change"
            )
    if problems:
        raise UserError(*problems)


def _has_same_vectors(before: Group, now: Group) -> bool:
    """Whether two groups read the same columns by the same extractor."""
    if before.columns != now.columns or type(before.extractor) is not type(now.extractor):
        return False
    return all(
        getattr(before.extractor, option) == value
        for option, value in now.extractor
        if option not in CHANGEABLE_OPTIONS
    )


__all__ = ["objective_of", "schema_of", "scratch_schema"]
