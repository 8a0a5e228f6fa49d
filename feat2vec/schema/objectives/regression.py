"""Regression by least squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from feat2vec.schema.objectives.formulas import Tensor
from feat2vec.schema.objectives.kinds import SupervisedObjective, objective

if TYPE_CHECKING:
    from feat2vec.arrays import Array


@objective("regression")
class Regression(SupervisedObjective):
    """Squared error of a number, which is learnt in units of its deviation from the mean of the training rows."""

    allows_together = True
    standardizes = True
    folds_in = True
    has_normal_errors = True

    type: Literal["regression"] = "regression"

    def problem_of_targets(self, targets: Array | None, class_names: Sequence[str] | None) -> str | None:
        del class_names
        if targets is None or not (targets == targets[0]).all():
            return None
        return f"is {targets[0]:g} in every row; give rows of which it differs"

    def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
        from keras import ops

        return ops.square(scores - (label if above is None else above))

    def touching_parabolas(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        import numpy as np

        return 2 * (scores - targets), np.full(len(scores), 2.0)
