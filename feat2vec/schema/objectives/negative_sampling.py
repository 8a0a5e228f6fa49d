"""Negative sampling (Mikolov et al., 2013)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from feat2vec.schema.objectives.formulas import Array, Noisy, Tensor, binary_noise_loss, binary_odds, sigmoid
from feat2vec.schema.objectives.kinds import NoiseObjective, objective


@objective("negative_sampling")
class NegativeSampling(NoiseObjective):
    """Binary cross-entropy of the scores."""

    type: Literal["negative_sampling"] = "negative_sampling"

    def missing_popularity(self, alpha_values: float) -> float:
        return alpha_values  # scores are learnt as log p / (k Q2)

    def noise_loss(
        self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor, above: Noisy | None = None
    ) -> Tensor:
        del log_q, hits, offset
        return binary_noise_loss(scores, above)

    def odds_of_truth(self, scores: Noisy, log_q: Noisy, hits: Tensor, offset: Tensor) -> Tensor | None:
        del log_q, hits, offset
        return binary_odds(scores)

    def prediction_columns(self, scores: Array, class_names: Sequence[str] | None) -> Mapping[str, Array]:
        del class_names
        return {"score": scores, "probability": sigmoid(scores)}
