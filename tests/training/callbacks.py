"""Callbacks that the tests of training share."""

from __future__ import annotations

from typing import Any

import keras


class StopError(Exception):
    """Stands for a kill."""


class StopAt(keras.callbacks.Callback):
    """Raises after so many executions."""

    def __init__(self, executions: int) -> None:
        super().__init__()
        self.left = executions

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del batch, logs
        self.left -= 1
        if not self.left:
            raise StopError


class WeightsOfEpochs(keras.callbacks.Callback):
    """Keeps the weights at the ends of epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[list[Any]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self.epochs.append([variable.numpy() for variable in self.model.trainable_variables])
