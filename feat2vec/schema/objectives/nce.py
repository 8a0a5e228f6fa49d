"""Noise-contrastive estimation (Gutmann and Hyvärinen, 2010)."""

from __future__ import annotations

from typing import Literal

from feat2vec.schema.objectives.formulas import Noisy, Tensor, binary_noise_loss, binary_odds
from feat2vec.schema.objectives.kinds import NoiseObjective, objective


@objective("nce")
class Nce(NoiseObjective):
    """Noise-contrastive estimation."""

    has_offsets = True

    type: Literal["nce"] = "nce"

    def noise_loss(
        self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor, above: Noisy | None = None
    ) -> Tensor:
        del hits  # a negative that is the row's own value is noise nevertheless
        logits = _logits(scores, log_q, offset)
        return binary_noise_loss(logits, None if above is None else _logits(above, log_q, offset))

    def odds_of_truth(self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor) -> Tensor | None:
        del hits
        return binary_odds(_logits(scores, log_q, offset))


def nce_logit(scores: Tensor, log_q: Tensor, negatives: Tensor, offset: Tensor = 0.0) -> Tensor:
    """Return the logit s + offset - log(k Q2).

    Its sigmoid is exp(s) / (exp(s) + k Q2), where s has its offset.

    Args:
        scores: The scores s, [rows] or [rows, k].
        log_q: log Q2 of the values that are scored, of the same shape or one that is broadcast to it.
        negatives: k, the number of negatives of a row.
        offset: A constant that is added to the scores.

    Returns:
        The logits, of the shape of the scores.

    Example:
        >>> from keras import ops
        >>> float(nce_logit(ops.zeros(1), ops.zeros(1), negatives=1)[0])  # log 1 is 0
        0.0

    """
    from keras import ops

    return (
        scores
        + ops.cast(offset, scores.dtype)
        - (ops.log(ops.cast(negatives, scores.dtype)) + ops.cast(log_q, scores.dtype))
    )


def _logits(scores: Noisy, log_q: Noisy, offset: Tensor) -> Noisy:
    from keras import ops

    negatives = ops.shape(scores.negatives)[-1]
    return Noisy(
        nce_logit(scores.positive, log_q.positive, negatives, offset),
        nce_logit(scores.negatives, log_q.negatives, negatives, offset),
    )
