"""Checks of what makes a model sparse: the optimizer's penalties, and which keys have a vector."""

from __future__ import annotations

from collections.abc import Iterator

from feat2vec.schema.objectives import ObjectiveSpec
from feat2vec.schema.optimizer_options import Ftrl, Sgd
from feat2vec.schema.options import Schema
from feat2vec.schema.validation import Findings, Problem


def sparsity_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Yield what is wrong with options that leave weights out, although each is right by itself.

    Args:
        schema: The schema, without the keys that are wrong by themselves.
        findings: The data as given, and which keys are wrong by themselves.

    """
    if findings.sound("training", "optimizer"):
        yield from _optimizer_conflicts(schema, findings)
    if schema.model.activation is not None and findings.sound("model"):
        yield from _activation_conflicts(schema, findings)


def _optimizer_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check options of the optimizer that would do nothing."""
    path, options = ("training", "optimizer"), schema.training.optimizer
    if isinstance(options, Sgd) and options.nesterov and not options.momentum:
        yield (*path, "nesterov"), "is a form of momentum; add `momentum: 0.9`"
    if not isinstance(options, Ftrl):
        return
    lacks_terms = not schema.model.bias and findings.sound("model")
    lacks_keys = not _has_keys(schema) and findings.sound("groups")
    for key in (key for key in ("l1", "l2") if options.penalize == "linear" and getattr(options, key)):
        if lacks_terms:
            remedy = "add `bias: true` to the model, or `penalize: tables` for vectors"
            yield (*path, key), f"is of linear terms, and the model has none; {remedy}"
        elif lacks_keys:
            yield (*path, key), "is of the linear terms of keys, and no group is a lookup; remove it"
    if options.penalize == "tables" and not (options.l1 or options.l2):
        yield (*path, "penalize"), "says what l1 and l2 are of; give one of them, or remove it"
    elif options.penalize == "tables" and not schema.model.pairs and findings.sound("model"):
        yield (*path, "penalize"), "tables are of vectors, which `model.pairs: false` leaves out; remove it"


def _activation_conflicts(schema: Schema, findings: Findings) -> Iterator[Problem]:
    """Check `model.activation` against the linear terms, the posterior and the groups."""
    path, model = ("model", "activation"), schema.model
    assert model.activation is not None
    if model.activation.linear and not model.bias:
        yield (*path, "linear"), "asks for linear terms, and the model has none; add `bias: true`"
    learns_all = not findings.sound("objective") or _every_term_learns(schema.objective)
    if model.activation.linear and not learns_all:
        rule = f"asks for linear terms that learn, and {schema.objective.type} only compares the scores of one row"
        yield (*path, "linear"), f"{rule}; remove it, or use another objective"
    if model.posterior == "gaussian":
        yield path, "cannot be combined with `posterior: gaussian`; remove one of them"
    if model.activation.count == 1 and not model.activation.linear:
        yield (*path, "count"), "1 gives a vector to every key; give more, or `linear: true`"
    if findings.sound("groups") and not _has_keys(schema):
        yield path, "is of the keys of lookups, and no group is one; remove it"


def _every_term_learns(objective: ObjectiveSpec) -> bool:
    """Whether linear terms of all groups have a gradient: not one that all scores of a row have in common."""
    return not (objective.has_classes or objective.compares_candidates)


def _has_keys(schema: Schema) -> bool:
    """Whether a group is a lookup."""
    return any(group.extractor.encoding == "items" for group in schema.groups.values())
