"""The N-pair loss (Sohn, 2016)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from feat2vec.schema.objectives.formulas import Noisy, Tensor, largest, soft_cross_entropy
from feat2vec.schema.objectives.kinds import NoiseObjective, objective

if TYPE_CHECKING:
    from feat2vec.custom_gradients import Backward


@objective("contrastive")
class Contrastive(NoiseObjective):
    """The N-pair loss; `correction` subtracts log Q2 from each logit.

    With `unit: true` a candidate's vectors have length 1 in it, so that candidates are learnt as cosines compare them;
    scores are divided by `temperature`.
    """

    compares_candidates = True

    type: Literal["contrastive"] = "contrastive"
    correction: bool = True
    unit: bool = False
    temperature: Annotated[float, Field(gt=0)] = 1.0

    @property
    def unit_candidates(self) -> bool:
        return self.unit

    @property
    def score_scale(self) -> float:
        return self.temperature

    @property
    def default_patience(self) -> int:
        return 0  # its loss on other rows rises with the scores' confidence, while ranks still get better

    def missing_popularity(self, alpha_values: float) -> float:
        return 0.0 if self.correction else alpha_values  # without it scores are learnt as log p / Q2

    def noise_loss(
        self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor, above: Noisy | None = None
    ) -> Tensor:
        from keras import ops

        del offset  # it would cancel
        kept = ops.logical_not(hits) if self.correction else None  # [rows, k]
        logits = _side_by_side(self._logits(scores, log_q), kept)  # [rows, 1 + k]
        if above is None:
            return n_pair(logits)
        return soft_cross_entropy(logits, ops.softmax(_side_by_side(self._logits(above, log_q), kept)))

    def odds_of_truth(self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor) -> Tensor | None:
        from keras import ops

        del offset
        kept = ops.logical_not(hits) if self.correction else None  # [rows, k]
        logits = _side_by_side(self._logits(scores, log_q), kept)  # [rows, 1 + k]
        return logits[..., :1] - ops.logsumexp(logits[..., 1:], axis=-1, keepdims=True)

    def _logits(self, scores: Noisy, log_q: Noisy) -> Noisy:
        from keras import ops

        positive, negatives = scores.positive / self.temperature, scores.negatives / self.temperature
        if not self.correction:
            return Noisy(positive, negatives)
        return Noisy(
            positive - ops.cast(log_q.positive, positive.dtype),
            negatives - ops.cast(log_q.negatives, negatives.dtype),
        )


def n_pair(rivals: Tensor) -> Tensor:
    """Return log(1 + sum_i exp(s(x_i-) - s(x+))).

    Args:
        rivals: The logit of the positive and those of its negatives, [rows, 1 + k].

    Returns:
        The loss of each row, [rows].

    Example:
        >>> from keras import ops
        >>> ops.convert_to_numpy(n_pair(ops.convert_to_tensor([[2.0, 2.0, 2.0, 2.0]]))).round(4)  # log 4
        array([1.3863], dtype=float32)

    """
    from keras import ops

    from feat2vec.custom_gradients import custom_gradient

    def forward(rivals: Tensor) -> tuple[Tensor, Backward]:
        probability = ops.softmax(rivals)
        right = ops.one_hot(0, ops.shape(rivals)[-1], dtype=rivals.dtype)  # [1 + k]
        loss = largest(rivals) - rivals[..., 0] - ops.log(largest(probability))
        return loss, lambda upstream: (probability - right) * ops.expand_dims(upstream, -1)

    return custom_gradient(forward)(rivals)


def _side_by_side(logits: Noisy, kept: Tensor | None) -> Tensor:
    """Return the positive's logit and those of its negatives, [rows, 1 + k], -inf for negatives that are not kept."""
    from keras import ops

    negatives = logits.negatives if kept is None else ops.where(kept, logits.negatives, -math.inf)
    return ops.concatenate([ops.expand_dims(logits.positive, -1), negatives], axis=-1)
