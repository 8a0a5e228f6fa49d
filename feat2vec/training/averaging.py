"""A running average of the weights at the ends of epochs, which is what is measured and kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import keras

from feat2vec.arrays import Array
from feat2vec.encode.arrays_on_disk import release_pages
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import copies, pieces_of_array, swap, swap_average
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed
from feat2vec.training.memory_estimate import release_memory


class EpochAveraging(keras.callbacks.Callback):
    """Averages the weights at the ends of epochs (`training.averaging`).

    With the weights w_t at the end of epoch t = 0, 1, ... and the fading factor f, the average is

        a_t = sum_{s <= t} f^(t-s) w_s / sum_{s <= t} f^(t-s) = a_{t-1} + (1 - f) / (1 - f^(t+1)) (w_t - a_{t-1}).

    Training itself goes on from w_t. The average is in the model from the end of the last step of an epoch (before
    validation) to the beginning of the next, so that it is what is measured, kept, and seen by other callbacks. The
    weights that are not in the model are in `weights_aside`: the average within an epoch, w_t between two of them.

    Args:
        model: The model.
        fading: The factor f.
        path: The file of `weights_aside`, so that they are no second copy of the tables in memory.

    """

    def __init__(self, model: Feat2Vec, fading: float, path: Path) -> None:
        super().__init__()
        self.set_model(model)  # `fit` does so too, but a checkpoint is restored before
        self.fading, self.path = fading, path
        self.weights_aside: list[Array] = []  # empty until the first epoch is complete
        self._epoch = 0
        self._is_within_epoch = False
        self._resumes_within_epoch = False

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Put the weights of training back into the model."""
        del logs
        self._epoch, self._is_within_epoch = epoch, True
        if self.weights_aside and not self._resumes_within_epoch:
            swap(self.model.weights, self.weights_aside)
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
        if not self.weights_aside:  # the average of one epoch is that epoch
            release_memory()  # what the first epoch has left
            self.weights_aside = copies(self.model.weights, self.path)
            return
        share_of_epoch = (1 - self.fading) / (1 - self.fading ** (self._epoch + 1))
        swap_average(self.model.weights, self.weights_aside, share_of_epoch)

    # --- checkpoints: see `checkpointing.Resumable` -----------------------------------------------------------------

    def facts(self) -> dict[str, object]:
        """None."""
        return {}

    def arrays(self) -> dict[str, Streamed]:
        """The weights that are not in the model."""
        return {
            f"aside {i}": Streamed(array.shape, array.dtype, pieces_of_array(array))
            for i, array in enumerate(self.weights_aside)
        }

    def restore(self, checkpoint: CheckpointReader) -> None:
        """Read the weights that are not in the model."""
        self._resumes_within_epoch = checkpoint.facts["step"] > 0
        if "aside 0" in checkpoint.headers:
            self.weights_aside = copies(self.model.weights, self.path)  # of their shapes
            for i, array in enumerate(self.weights_aside):
                for rows, values in checkpoint.pieces(f"aside {i}"):
                    array[rows if array.ndim else ()] = values
                    release_pages(array)
