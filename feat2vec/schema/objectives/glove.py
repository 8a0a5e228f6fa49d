"""GloVe: weighted least squares of log counts (Pennington et al., 2014)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from feat2vec.schema.extractor_options import NotNegative
from feat2vec.schema.objectives.formulas import Array, Tensor
from feat2vec.schema.objectives.kinds import SupervisedObjective, objective


@objective("glove")
class Glove(SupervisedObjective):
    """f(N) (log N - s)^2 with f = min(1, (N / n_max)^alpha); the target is the count N."""

    valid_targets = "above 0"
    has_counts = True
    folds_in = True
    allows_together = True
    why_none_is_held_out = "a row of glove is the count of a pair, which no other row knows"

    type: Literal["glove"] = "glove"
    n_max: Annotated[float, Field(gt=0)] = 100.0
    alpha: NotNegative = 0.75

    @property
    def completes_rows(self) -> bool:
        return True

    def is_valid_target(self, numbers: Array) -> Array:
        return numbers > 0

    def link(self, targets: Array) -> Array:
        import numpy as np

        log_counts: Array = np.log(targets)
        return log_counts

    def inverse_link(self, scores: Array) -> Array:
        import numpy as np

        counts: Array = np.exp(scores)
        return counts

    def label_loss(self, scores: Tensor, label: Tensor, above: Tensor | None = None) -> Tensor:
        return glove(scores, label, self.n_max, self.alpha, above)

    def touching_parabolas(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        import numpy as np

        weights = np.minimum(1.0, targets / self.n_max) ** self.alpha
        return 2 * weights * (scores - self.link(targets)), 2 * weights


def glove(scores: Tensor, count: Tensor, n_max: float, alpha: float, target: Tensor | None = None) -> Tensor:
    """Return f(N) (log N - s)^2 with f = min(1, (N / n_max)^alpha).

    Args:
        scores: The scores s, [rows].
        count: The counts N, above 0, [rows].
        n_max: The count from which on the weight f is 1.
        alpha: The exponent of f.
        target: Scores that stand in for log N, [rows].

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from keras import ops
        >>> float(glove(ops.zeros(1), ops.convert_to_tensor([1.0]), n_max=100.0, alpha=0.75)[0])  # log 1 is 0
        0.0

    """
    from keras import ops

    weight = ops.power(ops.minimum(1.0, count / n_max), alpha)
    return weight * ops.square(scores - (ops.log(count) if target is None else target))
