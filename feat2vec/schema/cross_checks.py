"""Checks of options that are right by themselves and wrong together.

Each check yields problems: the path of a key, and a message. A check that reads a key first asks `findings.sound`
whether that key is what the user meant, so that one mistake does not cause messages about other keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from feat2vec.errors import suggest
from feat2vec.schema.document import KeyPath
from feat2vec.schema.extractor_options import ItemsSpec, Lookup, NumbersSpec
from feat2vec.schema.level_checks import given_keys, level_conflicts, linear_conflicts, tells_no_number
from feat2vec.schema.options import Group, Schema
from feat2vec.schema.sparse_checks import sparsity_conflicts
from feat2vec.schema.training_options import Mlp
from feat2vec.schema.validation import Findings, Problem


def schema_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Yield what is wrong with a schema although each key is right by itself.

    Args:
        schema: The schema, without the keys that are wrong by themselves.
        findings: The data as given, and which keys are wrong by themselves.

    """
    given_groups = findings.data.get("groups")
    # With the groups that are wrong by themselves: their names are known, and can be referred to.
    groups_data: Mapping[str, Any] = given_groups if isinstance(given_groups, dict) else {}
    group_names = list(groups_data)
    for name, group in schema.groups.items():
        if name in groups_data and findings.sound("groups", name):
            yield from _group_conflicts(schema, name, group, groups_data[name])
    yield from _model_conflicts(schema, findings)
    yield from _target_column_conflicts(schema, findings)
    yield from _head_conflicts(schema, findings)
    yield from sparsity_conflicts(schema, findings)
    if schema.model.pairs and schema.model.members > 1 and findings.sound("model"):
        yield from _member_conflicts(schema, findings)
    if schema.model.pairs and schema.model.posterior == "gaussian" and findings.sound("model"):
        yield from _posterior_conflicts(schema, findings)
    if schema.training.refit == "continue" and schema.patience and findings.sound("training"):
        yield (
            ("training", "refit"),
            "continue goes on from the last epoch; patience keeps another: add `patience: 0`",
        )
    if not findings.sound("groups", inside=False):
        return
    for name in schema.groups:
        if name in groups_data and findings.sound("groups", name, "share"):
            yield from _share_conflicts(schema, findings, name, group_names)
    if findings.sound("noise", "joint"):
        yield from _set_conflicts(("noise", "joint"), schema.noise.joint, group_names, "joint noise", "is drawn")
    if findings.sound("training", "l2_groups"):
        yield from _l2_conflicts(schema, findings, group_names)
    if schema.training.time is not None and findings.sound("training", "time"):
        yield from _time_conflicts(schema, findings, schema.training.time, group_names)
    if findings.sound("model", "together"):
        yield from _together_conflicts(schema, findings, group_names)
    if findings.sound("noise", "targets"):
        joint_sets = schema.noise.joint if findings.sound("noise", "joint") else ()
        yield from _noise_target_conflicts(schema.noise.targets, joint_sets, group_names)
    if findings.sound("objective"):
        yield from schema.objective.conflicts(schema, findings, group_names)
    if schema.target is None and len(group_names) < 2 and findings.sound("objective"):
        yield ("groups",), "one group has nothing to be learnt from; add a second one, or an objective with a target"


def _group_conflicts(schema: Schema, name: str, group: Group, group_data: Mapping[str, Any]) -> Iterator[Problem]:
    """Check a group's columns against its extractor and the target."""
    group_path = ("groups", name)
    columns_path = (*group_path, "column" if "column" in group_data else "columns")
    # That of the group whose vectors are shared is told there.
    has_own_extractor = group.share is None or "extractor" in group_data
    for path, message in group.extractor.conflicts(group.columns) if has_own_extractor else ():
        yield ((*group_path, "extractor", *path) if path else columns_path), message
    for column in dict.fromkeys(group.columns):
        if group.columns.count(column) > 1:
            yield columns_path, f"the column {column!r} is here twice; keep one"
    target = schema.target
    if target in group.columns:
        yield columns_path, f"the column {target!r} is also the target, which it would give away; remove the group"
    if target is not None and target == getattr(group.extractor, "weights", None):
        weights_path = (*group_path, "extractor", "weights")
        yield weights_path, f"the column {target!r} is also the target; name another column"


def _share_conflicts(schema: Schema, findings: Findings, name: str, group_names: Sequence[str]) -> Iterator[Problem]:
    """Check the group whose vectors a group shares, and that both have the same columns' kind and extractor."""
    path, group = ("groups", name, "share"), schema.groups[name]
    if group.share is None:
        return
    if group.share == name:
        yield path, "names the group itself; name another group, or remove it"
        return
    if group.share not in group_names:
        yield path, f"names {group.share!r}, which is no group{suggest(group.share, group_names)}"
        return
    origin = schema.groups.get(group.share)
    if origin is None or not findings.sound("groups", group.share):
        return
    if origin.share is not None:
        remedy = f"write `share: {origin.share}`" if origin.share != name else "remove one of the two"
        yield path, f"names {group.share!r}, which shares {origin.share!r} itself; {remedy}"
        return
    if not findings.sound("groups", name):
        return
    extractor_path = ("groups", name, "extractor")
    if group.extractor.type != origin.extractor.type:
        of_origin = f"{group.share!r}, whose vectors it shares, has {origin.extractor.type}"
        yield extractor_path, f"is {group.extractor.type}, and {of_origin}; remove the extractor"
        return
    theirs = origin.extractor.model_dump()
    for key, value in group.extractor.model_dump().items():
        is_same = (value is None) == (theirs[key] is None) if key == "weights" else value == theirs[key]
        if not is_same:
            difference = f"differs from that of {group.share!r}, whose vectors it shares"
            yield (*extractor_path, key), f"{difference}; write the same, or remove the extractor"
    if len(group.columns) != len(origin.columns):
        counts = f"{len(group.columns)} of its own and {len(origin.columns)} of {group.share!r}"
        yield ("groups", name, "columns"), f"shares vectors of as many columns, received {counts}"


def _model_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check `model.pairs` and `model.ranks` against the keys that exclude or need them."""
    model, given = schema.model, given_keys(schema)
    if not model.pairs:
        if findings.sound("model"):
            yield from linear_conflicts(schema, findings)
        return
    yield from level_conflicts(schema, findings)
    if model.ranks is not None:
        if "dim" in given:
            yield ("model", "dim"), "cannot be combined with `ranks`; keep one of them"
        ascending = all(low < high for low, high in pairwise(model.ranks))
        if findings.sound("model", "ranks") and not ascending:
            yield ("model", "ranks"), f"must ascend, received {list(model.ranks)}"
    elif findings.sound("model", "ranks"):
        for key in ("level_sharing", "dependents", "levels"):
            if key in given:
                yield ("model", key), "is for models with `ranks`; remove it, or give ranks"


def _head_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check a network against the objective and the levels of the space."""
    if not isinstance(schema.head, Mlp) or not findings.sound("head"):
        return
    if schema.target is None and findings.sound("objective"):
        yield ("head",), "mlp is for objectives with a target; noise is told by the pairs of groups alone"
    if schema.head.normalize and schema.head.members > 1:
        yield ("head", "normalize"), "cannot be combined with `members`; keep one of them"
    if not schema.head.pairs and schema.model.ranks is not None and schema.model.pairs and findings.sound("model"):
        yield ("head", "pairs"), "cannot be off with `model.ranks`, whose levels learn from pairs; give `dim`"


def _member_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check `model.members` against the space, the objective and the head."""
    path, model, objective = ("model", "members"), schema.model, schema.objective
    if model.ranks is not None:
        yield path, "cannot be combined with `ranks`; give `dim`"
    elif model.dim % model.members:
        yield path, f"must divide `dim`: {model.dim} dimensions are no {model.members} parts of the same size"
    if findings.sound("objective") and not objective.allows_together:
        yield path, tells_no_number(objective)
    elif findings.sound("objective") and objective.implicit_group is not None:
        yield path, "cannot be combined with objective.implicit; remove one of them"
    if isinstance(schema.head, Mlp) and findings.sound("head"):
        yield path, "cannot be combined with a network, which has `head.members` of its own; remove one of them"


def _posterior_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check `model.posterior: gaussian` against the space, the objective, the groups and the training."""
    path, model, training = ("model", "posterior"), schema.model, schema.training
    if findings.sound("objective") and not schema.objective.has_normal_errors:
        yield path, f"gaussian is for numbers whose errors are normal, by regression; {schema.objective.type} is none"
    if model.ranks is not None:
        yield path, "gaussian cannot be combined with `ranks`; give `dim`"
    if model.together:
        yield path, "gaussian cannot be combined with `together`; remove one of them"
    if not model.bias:
        yield path, "gaussian needs the linear terms; add `bias: true`"
    if isinstance(schema.head, Mlp) and findings.sound("head"):
        yield path, "gaussian cannot be combined with a network; remove one of them"
    for name, group in schema.groups.items():
        if findings.sound("groups", name):
            yield from _posterior_conflicts_of_group(name, group)
    if not findings.sound("training"):
        return
    if training.optimizer.type != "adam":
        yield ("training", "optimizer"), "`posterior: gaussian` learns its means by adam; write `adam`"
    is_excluded = {"l2_over": training.l2_over == "tables", "interaction_dropout": training.interaction_dropout > 0}
    for key in (key for key, is_given in is_excluded.items() if is_given):
        yield ("training", key), "cannot be combined with `posterior: gaussian`; remove one of them"
    without_prior = [name for name, group in schema.groups.items() if group.share is None and not training.l2_of(name)]
    if without_prior and findings.sound("groups"):
        yield ("training", "l2"), f"`posterior: gaussian` needs a precision above 0, for {without_prior[0]!r}, too"


def _posterior_conflicts_of_group(name: str, group: Group) -> Iterator[Problem]:
    """Check that a group is a plain lookup, of which a posterior is known."""
    path, extractor = ("groups", name, "extractor"), group.extractor
    if not isinstance(extractor, Lookup) or extractor.type != "lookup":
        yield path, f"{extractor.type} has no `posterior: gaussian`; use lookup"
        return
    is_excluded = {"item_dropout": extractor.item_dropout > 0, "gain": extractor.gain != 1}
    for key in (key for key, is_given in is_excluded.items() if is_given):
        yield (*path, key), "cannot be combined with `posterior: gaussian`; remove one of them"


def _l2_conflicts(schema: Schema, findings: Findings, group_names: Sequence[str]) -> Iterator[Problem]:
    """Check the L2 of single groups."""
    path, weights = ("training", "l2_groups"), schema.training.l2_groups
    for name in weights:
        if name not in group_names:
            yield (*path, name), f"names {name!r}, which is no group{suggest(name, group_names)}"
        elif name in schema.groups and schema.groups[name].share is not None:
            owner = schema.groups[name].share
            yield (*path, name), f"names {name!r}, which has the vectors of {owner!r}; name {owner!r}"
    if weights and schema.training.l2_over == "tables" and findings.sound("training", "l2_over"):
        yield path, "cannot be combined with `l2_over: tables`, which weighs all weights alike; remove one of them"


def _time_conflicts(schema: Schema, findings: Findings, name: str, group_names: Sequence[str]) -> Iterator[Problem]:
    """Check the group that tells the time of rows, and that the last rows are held out and completed."""
    path = ("training", "time")
    if name not in group_names:
        yield path, f"names {name!r}, which is no group{suggest(name, group_names)}"
        return
    objective = schema.objective
    if findings.sound("objective") and not (objective.completes_rows or objective.is_calibrated):
        reason = f"and {objective.type} has neither with these options"
        yield path, f"is for completing rows, or for how sure predictions may be, {reason}; set `time: null`"
    # Told at these keys: `time` may be what `init` proposes, and they what a user has set.
    remedy = "remove it, or set `time: null`"
    if not schema.training.refit and findings.sound("training", "refit"):
        yield ("training", "refit"), f"false never learns the last rows, which `time` holds out; {remedy}"
    if not schema.training.validation and findings.sound("training", "validation"):
        yield ("training", "validation"), f"0 holds no rows out, which `time` needs; {remedy}"
    if findings.sound("groups", name) and not can_tell_time(schema.groups[name]):
        yield path, f"is a group of one column of numbers, years or dates, and {name!r} is none; remove it"


def can_tell_time(group: Group) -> bool:
    """Whether a group can be `training.time`: one column of numbers, or of keys or dates that may be numbers.

    Args:
        group: The group.

    """
    spec = group.extractor
    is_single = isinstance(spec, ItemsSpec) and not (spec.bins or spec.split or spec.multi or spec.weights)
    return len(group.columns) == 1 and (is_single or isinstance(spec, NumbersSpec))


def _target_column_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check that the target's column has no second purpose."""
    if schema.target is None:
        return
    for path, column in ((("objective", "weight"), schema.weight), (("id",), schema.id)):
        if column == schema.target and findings.sound(*path):
            yield path, f"the column {column!r} is also the target; name another column"


def _set_conflicts(
    path: KeyPath, group_sets: Sequence[Sequence[str]], group_names: Sequence[str], purpose: str, verb: str
) -> Iterator[Problem]:
    """Check sets of groups: each has two or more groups, and no group is in two of them.

    Args:
        path: The key that holds the sets.
        group_sets: The names of the groups of each set.
        group_names: The groups of the schema.
        purpose: What a set is for, as the subject of a message.
        verb: What happens to a group of a set, as a predicate.

    """
    seen: set[str] = set()
    for i, group_set in enumerate(group_sets):
        if len(group_set) < 2:
            yield (*path, i), f"names {len(group_set)} of the groups; {purpose} needs two or more"
        for k, name in enumerate(group_set):
            if name not in group_names:
                yield (*path, i, k), f"names {name!r}, which is no group{suggest(name, group_names)}"
            elif name in seen:
                yield (*path, i, k), f"names {name!r} again; a group {verb} once"
            seen.add(name)


def _together_conflicts(schema: Schema, findings: Findings, group_names: Sequence[str]) -> Iterator[Problem]:
    """Check `model.together` against the objective and the groups."""
    path, group_sets, objective = ("model", "together"), schema.model.together, schema.objective
    if group_sets and findings.sound("objective") and not objective.allows_together:
        yield path, tells_no_number(objective)
    elif group_sets and objective.implicit_group is not None:
        yield path, "cannot be combined with objective.implicit; remove one of them"
    elif any(set(group_names) <= set(group_set) for group_set in group_sets):
        yield path, "has every group in one sum, which leaves no pairs; leave a group out"
    yield from _set_conflicts(path, group_sets, group_names, "a sum", "is added up")


def _noise_target_conflicts(
    targets: Sequence[str] | Mapping[str, float], joint_sets: Sequence[Sequence[str]], group_names: Sequence[str]
) -> Iterator[Problem]:
    """Check `noise.targets`: known groups, each once, with all groups that are drawn jointly with it."""
    seen: set[str] = set()
    for i, name in enumerate(targets):
        path = ("noise", "targets", name if isinstance(targets, Mapping) else i)
        if name not in group_names:
            yield path, f"names {name!r}, which is no group{suggest(name, group_names)}"
        elif name in seen:
            yield path, f"names {name!r} again; keep one"
        else:
            joint_set = next((joint_set for joint_set in joint_sets if name in joint_set), ())
            absent = [member for member in joint_set if member in group_names and member not in targets]
            if absent:
                yield path, f"names {name!r} without {absent[0]!r}, which is drawn with it; name both or neither"
        seen.add(name)
