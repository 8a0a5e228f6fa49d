"""Logistic regression, also of positive rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from feat2vec.errors import suggest
from feat2vec.schema.extractor_options import Text
from feat2vec.schema.objectives.formulas import Array, Tensor, log_loss, sigmoid, soft_log_loss
from feat2vec.schema.objectives.kinds import WeightedClasses, objective
from feat2vec.schema.validation import Findings, Problem

if TYPE_CHECKING:
    from feat2vec.schema.options import Schema

RAREST = 1e-3  # share of a label that the bias begins with, at least


@objective("logistic")
class Logistic(WeightedClasses):
    """Log loss of a target that is 0 or 1.

    With `implicit`, a group's name, rows with a 1 are also told from `noise.negatives` rows in which that group is
    drawn anew; a table without the target's column is all 1. Where rows with a 0 were drawn, some of them are ones that
    nobody has seen: `zero_as` is the probability of a 1 that they are learnt to have.
    """

    valid_targets = "0 or 1"
    is_binary = True
    folds_in = True
    allows_together = True
    metrics = ("log_loss", "auc")

    type: Literal["logistic"] = "logistic"
    implicit: Text | None = None
    zero_as: Annotated[float, Field(ge=0, lt=0.5)] = 0.0

    @property
    def implicit_group(self) -> str | None:
        return self.implicit

    def conflicts(self, schema: Schema, findings: Findings, groups: Sequence[str]) -> Iterator[Problem]:
        if isinstance(self.class_weights, dict):
            yield from _class_weight_conflicts(self.class_weights)
        if self.implicit is not None:
            yield from _implicit_conflicts(self.implicit, schema, findings, groups)

    def is_valid_target(self, numbers: Array) -> Array:
        valid: Array = (numbers == 0) | (numbers == 1)
        return valid

    def problem_of_targets(self, targets: Array | None, class_names: Sequence[str] | None) -> str | None:
        del class_names
        if self.implicit is not None or targets is None:  # implicit negatives are the other label
            return None
        first = targets[0]
        if not (targets == first).all():
            return None
        remedy = "" if not first else ", or draw negatives by objective.implicit"
        return f"is {first:g} in every row; give rows of 0 and of 1{remedy}"

    def starting_bias(self, targets: Array) -> float:
        import numpy as np

        if self.implicit is not None:  # the share of positive rows follows from the number of negatives
            return 0.0
        share = np.clip(np.mean(targets, dtype=np.float64), RAREST, 1 - RAREST)
        return float(np.log(share / (1 - share)))

    def learnt_labels(self, labels: Tensor) -> Tensor:
        return labels + self.zero_as * (1 - labels) if self.zero_as else labels

    def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
        return log_loss(scores, label) if above is None else soft_log_loss(scores, above)

    def touching_parabolas(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Those of Jaakkola and Jordan (2000)."""
        import numpy as np

        halves = np.maximum(np.abs(scores), 1e-6) / 2
        return sigmoid(scores) - self.learnt_labels(targets), np.tanh(halves) / halves / 4

    def prediction_columns(self, scores: Array, class_names: Sequence[str] | None) -> Mapping[str, Array]:
        del class_names
        return {"score": scores, "probability": sigmoid(scores)}


def _class_weight_conflicts(weights: Mapping[str, float]) -> Iterator[Problem]:
    path = ("objective", "class_weights")
    if weights.get("0", 1) == weights.get("1", 1) == 0:
        yield path, "is 0 for both classes, which leaves nothing to learn from; raise one"
    for name in weights:
        if name not in ("0", "1"):
            yield (*path, name), "is no class of a logistic target; those are 0 and 1"


def _implicit_conflicts(group: str, schema: Schema, findings: Findings, groups: Sequence[str]) -> Iterator[Problem]:
    path = ("objective", "implicit")
    if group not in groups:
        yield path, f"names {group!r}, which is no group{suggest(group, groups)}"
    elif len(groups) < 2:
        yield path, f"{group!r} is the only group; its negatives need another one to be told by"
    if findings.sound("noise") and schema.noise.targets:
        yield ("noise", "targets"), "cannot be combined with objective.implicit, which names the group that is drawn"
    if findings.sound("noise") and any(group in joint for joint in schema.noise.joint):
        yield ("noise", "joint"), f"holds {group!r}, which objective.implicit draws alone; remove it there"
    if findings.sound("training") and schema.training.interaction_dropout:
        yield ("training", "interaction_dropout"), "cannot be combined with objective.implicit; set it to 0"
    if findings.sound("head") and schema.head.type == "mlp":
        yield ("head",), "cannot be mlp with objective.implicit, whose negatives share a row's sums; use fm"
