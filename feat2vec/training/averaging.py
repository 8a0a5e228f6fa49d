"""A running average of the weights at the ends of epochs, which is what is measured and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import keras

from feat2vec.arrays import Array
from feat2vec.encode.arrays_on_disk import release_pages
from feat2vec.encode.process_memory import release_memory
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import copies, pieces_of_array, swap, swap_average
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed

ASIDE = "aside"  # the name of these weights in a checkpoint


class WeightsAside(Protocol):
    """Another value of each weight, out of the way; none before it is kept or read for the first time."""

    @property
    def is_full(self) -> bool:
        """Whether there are any."""

    def keep(self, weights: Sequence[keras.Variable]) -> None:
        """Copy the weights."""

    def swap(self, weights: Sequence[keras.Variable]) -> None:
        """Exchange the two."""

    def swap_average(self, weights: Sequence[keras.Variable], share: float) -> None:
        """Put aside + share * (weights - aside) into the weights, and what they were aside."""

    def streamed(self) -> list[Streamed]:
        """The values, for a checkpoint."""

    def read(self, weights: Sequence[keras.Variable], checkpoint: CheckpointReader, name: str) -> None:
        """Take the values from a checkpoint, where they are called `name` and their number."""


class WeightsInFile:
    """Weights aside in a file, so that they are no second copy of the tables in memory.

    Args:
        path: The file.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: list[Array] = []

    @property
    def is_full(self) -> bool:
        """Whether there are any."""
        return bool(self.arrays)

    def keep(self, weights: Sequence[keras.Variable]) -> None:
        """Copy the weights."""
        release_memory()  # what the first epoch has left
        self.arrays = copies(weights, self.path)

    def swap(self, weights: Sequence[keras.Variable]) -> None:
        """Exchange the two."""
        swap(weights, self.arrays)

    def swap_average(self, weights: Sequence[keras.Variable], share: float) -> None:
        """Put the average into the weights, and what they were aside."""
        swap_average(weights, self.arrays, share)

    def streamed(self) -> list[Streamed]:
        """The values, for a checkpoint."""
        return [Streamed(array.shape, array.dtype, pieces_of_array(array)) for array in self.arrays]

    def read(self, weights: Sequence[keras.Variable], checkpoint: CheckpointReader, name: str) -> None:
        """Take the values from a checkpoint."""
        self.arrays = copies(weights, self.path)  # of their shapes
        for i, array in enumerate(self.arrays):
            for rows, values in checkpoint.pieces(f"{name} {i}"):
                array[rows if array.ndim else ()] = values
                release_pages(array)


class EpochAveraging(keras.callbacks.Callback):
    """Averages the weights at the ends of epochs (`training.averaging`).

    With the weights w_t at the end of epoch t = 0, 1, ... and the fading factor f, the average is

        a_t = sum_{s <= t} f^(t-s) w_s / sum_{s <= t} f^(t-s) = a_{t-1} + (1 - f) / (1 - f^(t+1)) (w_t - a_{t-1}).

    Training itself goes on from w_t. The average is in the model from the end of the last step of an epoch (before
    validation) to the beginning of the next, so that it is what is measured, kept, and seen by other callbacks. The
    weights that are not in the model are in `aside`: the average within an epoch, w_t between two of them.

    Args:
        model: The model.
        fading: The factor f.
        aside: Where these weights are.

    """

    def __init__(self, model: Feat2Vec, fading: float, aside: WeightsAside) -> None:
        super().__init__()
        self.set_model(model)  # `fit` does so too, but a checkpoint is restored before
        self.fading, self.aside = fading, aside
        self._epoch = 0
        self._is_within_epoch = False
        self._resumes_within_epoch = False

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Put the weights of training back into the model."""
        del logs
        self._epoch, self._is_within_epoch = epoch, True
        if self.aside.is_full and not self._resumes_within_epoch:
            self.aside.swap(self.model.weights)
        self._resumes_within_epoch = False

    def on_test_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Put the average into the model before it is validated."""
        del logs
        self._average()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Put the average into the model, if validation has not done so."""
        del epoch, logs
        self._average()

    def _average(self) -> None:
        """Add the epoch to the average and put it into the model, once for each epoch."""
        if not self._is_within_epoch:
            return
        self._is_within_epoch = False
        if not self.aside.is_full:  # the average of one epoch is that epoch
            self.aside.keep(self.model.weights)
            return
        share_of_epoch = (1 - self.fading) / (1 - self.fading ** (self._epoch + 1))
        self.aside.swap_average(self.model.weights, share_of_epoch)

    # --- checkpoints: see `checkpointing.Resumable` -----------------------------------------------------------------

    def facts(self) -> dict[str, object]:
        """None."""
        return {}

    def arrays(self) -> dict[str, Streamed]:
        """The weights that are not in the model."""
        return {f"{ASIDE} {i}": values for i, values in enumerate(self.aside.streamed())}

    def restore(self, checkpoint: CheckpointReader) -> None:
        """Read the weights that are not in the model."""
        self._resumes_within_epoch = checkpoint.facts["step"] > 0
        if f"{ASIDE} 0" in checkpoint.headers:
            self.aside.read(self.model.weights, checkpoint, ASIDE)
