"""Stops a training whose loss is not finite, with a message that names the group and the remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import SupportsFloat

import keras
import numpy as np

from feat2vec.errors import FailedError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import pieces


class LossCheck(keras.callbacks.Callback):
    """Raises at a loss that is NaN or infinite, so that the checkpoint before stays.

    Keras' `TerminateOnNaN` ends `fit` without an error. The model keeps its weights from the first such step on
    (`Feat2Vec.failed_at`), so that they can still be looked at.

    Args:
        model: The model.

    """

    def __init__(self, model: Feat2Vec) -> None:
        super().__init__()
        self.set_model(model)
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Remember the epoch, for the message."""
        del logs
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Mapping[str, SupportsFloat] | None = None) -> None:
        """Check the mean loss of the epoch until now."""
        del batch
        loss = float((logs or {}).get("loss", 0.0))
        if math.isfinite(loss):
            return
        group, largest = self._largest_weight()
        learning_rate = self.model.schema.training.optimizer.learning_rate
        raise FailedError(
            f"the loss is {loss} at step {int(self.model.failed_at) + 1} (epoch {self._epoch + 1}); "
            f"the largest weight, {largest:.3g}, is of the group {group!r}.",
            f"Use a lower training.optimizer.learning_rate ({learning_rate:g} now), "
            "a higher training.l2, or another scale for its numbers.",
        )

    def _largest_weight(self) -> tuple[str, float]:
        """The group with the largest absolute weight, and that weight; NaN counts as infinite."""
        largest = {
            name: float(np.max([_largest_absolute(weight) for weight in extractor.weights]))  # NaN if one is
            for name, extractor in zip(self.model.schema.owners, self.model.distinct_extractors(), strict=True)
        }
        group = max(largest, key=lambda name: largest[name] if math.isfinite(largest[name]) else math.inf)
        return group, largest[group]


def _largest_absolute(weight: keras.Variable) -> float:
    """The largest absolute number of a variable, NaN if one is NaN."""
    return float(np.max([np.abs(values).max(initial=0) for _, values in pieces(weight)]))
