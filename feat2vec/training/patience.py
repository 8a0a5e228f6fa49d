"""Early stopping that survives a kill, with the best weights on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import keras

from feat2vec.arrays import Array
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import Kept
from feat2vec.training.checkpoint_checks import altered
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed
from feat2vec.training.checkpoint_variables import streamed


class Patience(keras.callbacks.Callback):
    """Stops after `patience` epochs without a lower validation loss, and keeps the weights of the best epoch.

    Keras' own `EarlyStopping(restore_best_weights=True)` is not used, for two reasons. It holds the best weights in
    memory, which is another copy of each table. And it starts again with each call of `fit`, so that a resumed training
    would forget the best epoch and how many epochs ago it was.

    Args:
        model: The model.
        patience: After so many epochs training stops; 0 is never.
        best_weights: The file for the best weights.
        say: Prints a line.

    """

    def __init__(self, model: Feat2Vec, patience: int, best_weights: Path, say: Callable[[str], None]) -> None:
        super().__init__()
        self.set_model(model)  # `fit` does so too, but a checkpoint is restored before
        self.patience, self.say = patience, say
        self.best_weights = Kept(best_weights, model.weights)
        self.best_loss: float | None = None
        self.epochs_since_best = 0
        self.has_stopped = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Compare the validation loss, if there is one, with the best one."""
        if self._is_best((logs or {}).get("val_loss")):
            self.best_weights.keep()
        elif self.has_stopped:
            self.model.stop_training = True
            best_epoch = epoch + 1 - self.epochs_since_best
            self.say(f"no better for {self.epochs_since_best} epochs: back to epoch {best_epoch}")

    def _is_best(self, loss: float | None) -> bool:
        """Count an epoch with this validation loss, and return whether it is the best one until now."""
        if loss is None or not self.patience:
            return False
        if self.best_loss is None or loss < self.best_loss:
            self.best_loss, self.epochs_since_best = float(loss), 0
            return True
        self.epochs_since_best += 1
        self.has_stopped = self.epochs_since_best >= self.patience
        return False

    def restore_best_weights(self) -> None:
        """Put the weights of the best epoch into the model, if there is one."""
        if self.best_weights.full:
            self.best_weights.put_back()

    def kept_epoch(self, epochs: int) -> int:
        """The epoch, counted from 1, whose weights are kept after so many epochs."""
        return epochs - self.epochs_since_best if self.best_weights.full else epochs

    # --- checkpoints: see `checkpointing.Resumable` -----------------------------------------------------------------

    def facts(self) -> dict[str, object]:
        """The best loss, and whether training is to stop."""
        return {"best": self.best_loss, "waited": self.epochs_since_best, "stopped": self.has_stopped}

    def arrays(self) -> dict[str, Streamed]:
        """The best weights."""
        if not self.best_weights.full:
            return {}
        pairs = zip(self.model.weights, self.best_weights.arrays(), strict=True)
        return {f"best {i}": streamed(weight, values) for i, (weight, values) in enumerate(pairs)}

    def restore(self, checkpoint: CheckpointReader) -> None:
        """Count the epochs of the history again, and read the best weights back into their file."""
        for row in checkpoint.facts["history"]:
            self._is_best(row.get("val_loss"))
        for name, value in self.facts().items():
            if repr(value) != repr(checkpoint.facts[name]):  # NaN is no different one
                raise altered(checkpoint.path, f"`{name}` is not what its history says")
        if "best 0" in checkpoint.headers:
            self.best_weights.write(self._stored_weights(checkpoint))

    def _stored_weights(self, checkpoint: CheckpointReader) -> Iterator[Array]:
        for i in range(len(self.model.weights)):
            for _, values in checkpoint.pieces(f"best {i}"):
                yield values
