"""Checks of a model without pairs, and of the levels of one with ranks; `cross_checks.py` asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from feat2vec.errors import suggest
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.objectives import OBJECTIVES, ObjectiveSpec
from feat2vec.schema.options import Schema
from feat2vec.schema.training_options import Mlp
from feat2vec.schema.validation import Findings, Problem

LEVELS = ("model", "levels")
OF_PAIRS = (  # options of the training that are about vectors alone
    "l2",
    "l2_groups",
    "interaction_dropout",
    "group_dropout",
    "dependent_rate",
)
OF_VECTORS = {"gain": 1.0, "start": "random"}  # the same of extractors, by the value that changes nothing
LEFT_OUT = "is for vectors, which `model.pairs: false` leaves out"


def linear_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check a model without pairs (`pairs: false`): what is about vectors has no meaning beside it.

    Args:
        schema: The schema, whose `model.pairs` is off.
        findings: The data as given, and which keys are wrong by themselves.

    """
    model = schema.model
    for key in given_keys(schema):
        if key in model.unused_keys:
            yield ("model", key), "is of the vectors, which `pairs: false` leaves out; remove one of them"
    if not model.bias:
        yield ("model", "bias"), "cannot be off with `pairs: false`, which leaves nothing else; remove one of them"
    if findings.sound("objective") and not (schema.objective.is_binary or schema.objective.standardizes):
        learnt = [name for name, spec in OBJECTIVES.items() if spec.is_binary or spec.standardizes]
        by = " or ".join(learnt)
        yield ("model", "pairs"), f"false leaves a bias and linear terms, for {by}; {schema.objective.type} is neither"
    if isinstance(schema.head, Mlp) and findings.sound("head"):
        yield ("head",), "learns from the vectors, which `model.pairs: false` leaves out; remove one of them"
    for key in OF_PAIRS:
        if getattr(schema.training, key) and findings.sound("training", key):
            remedy = "use `l2_linear`" if key == "l2" else "remove it"
            yield ("training", key), f"{LEFT_OUT}; {remedy}"
    if schema.training.l2_over == "tables" and findings.sound("training", "l2_over"):
        yield ("training", "l2_over"), f"tables {LEFT_OUT}; remove it"
    for name, group in schema.groups.items():
        if group.share is not None or not findings.sound("groups", name):
            continue
        for key, neutral in OF_VECTORS.items():
            if getattr(group.extractor, key, neutral) != neutral:
                yield ("groups", name, "extractor", key), f"{LEFT_OUT}; remove it"


def level_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check who decides the level of a value, how levels relate, and the learning rate of dependent vectors.

    Args:
        schema: The schema.
        findings: The data as given, and which keys are wrong by themselves.

    """
    model, has_all = schema.model, schema.model.level_sharing == "all"
    if model.ranks is not None and has_all:
        for key in ("levels", "dependents"):
            if key in given_keys(schema):
                yield ("model", key), "is for values of different levels; with `level_sharing: all` each has all levels"
        yield from _whole_models_conflicts(schema, findings)
    elif model.ranks is not None and findings.sound("model", "ranks") and findings.sound(*LEVELS):
        yield from _count_conflicts(model.ranks, model.level_source.counts)
        yield from _column_conflicts(schema, findings)
    has_dependents = model.ranks is not None and model.level_sharing == "separate"
    if schema.training.dependent_rate and not has_dependents and findings.sound("training", "dependent_rate"):
        rule = "is of vectors below a value's level, which separate levels of `ranks` have"
        yield ("training", "dependent_rate"), f"{rule}; remove it"


def tells_no_number(objective: ObjectiveSpec) -> str:
    """That something is for pairs that tell a number, which those of an objective do not."""
    *allowed, last = (name for name, spec in OBJECTIVES.items() if spec.allows_together)
    return f"is for pairs that tell a number, by {', '.join(allowed)} or {last}; {objective.type} is none"


def given_keys(schema: Schema) -> list[str]:
    """The keys that the section `model` gives a value, as they are written."""
    given = [name for name in sorted(schema.model.model_fields_set) if getattr(schema.model, name) is not None]
    return ["levels" if name == "level_source" else name for name in given]


def _whole_models_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check `level_sharing: all`: whole models that learn the label each by itself."""
    path, objective = ("model", "level_sharing"), schema.objective
    if findings.sound("objective") and not objective.allows_together:
        yield path, f"all {tells_no_number(objective)}"
    elif findings.sound("objective") and objective.implicit_group is not None:
        yield path, "all cannot be combined with objective.implicit; remove one of them"
    if isinstance(schema.head, Mlp) and findings.sound("head"):
        yield path, "all cannot be combined with a network, which has `head.members` of its own; remove one of them"


def _count_conflicts(ranks: Sequence[int], counts: Sequence[int] | None) -> Iterator[Problem]:
    """Check the counts from which on values reach the levels above the first."""
    path = (*LEVELS, "counts")
    if counts is None:
        return
    if len(counts) != len(ranks) - 1:
        wanted = f"one number for each rank but the first, {len(ranks) - 1}"
        yield path, f"expected {wanted}; received {len(counts)}"
    if not all(low < high for low, high in pairwise(counts)):
        yield path, f"must ascend, received {list(counts)}"


def _column_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check the columns that hold levels: each is of a group whose rows have one key."""
    if not findings.sound("groups", inside=False):
        return
    groups = findings.data.get("groups")
    group_names = list(groups) if isinstance(groups, dict) else []
    for name, column in schema.model.level_source.columns.items():
        path = (*LEVELS, "columns", name)
        if name not in group_names:
            yield path, f"names {name!r}, which is no group{suggest(name, group_names)}"
            continue
        if not findings.sound("groups", name):
            continue
        extractor = schema.groups[name].extractor
        if not isinstance(extractor, ItemsSpec) or extractor.bag or extractor.bins:
            yield path, f"is for a lookup of one key a row, of which a row tells the level; {name!r} is none"
        elif len(schema.sharing(name)) > 1:
            yield path, f"is for keys of one group; {name!r} shares its vectors with another"
        if column == schema.target:
            yield path, f"the column {column!r} is also the target, which it would give away; name another column"
