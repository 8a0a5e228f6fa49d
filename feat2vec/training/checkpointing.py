"""The Keras callback that keeps checkpoints: when one is written, what it holds, and how a training goes on from it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import keras

from feat2vec.arrays import Array
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.training.checkpoint_checks import ExpectedCheckpoint, check_checkpoint
from feat2vec.training.checkpoint_file import CheckpointReader, Streamed, open_checkpoint
from feat2vec.training.checkpoint_variables import restore_variable, streamed_variable
from feat2vec.training.checkpoint_writer import CheckpointWriter
from feat2vec.training.fingerprints import refuse_other_origin
from feat2vec.training.reporting import Progress

LEAST_SECONDS_BETWEEN = 1.0  # at ends of epochs: writing a checkpoint may take as long as a short epoch
LARGEST_SHARE_OF_TIME = 0.1  # in which training waits for checkpoints at ends of epochs


class Resumable(Protocol):
    """A callback whose state is a part of a checkpoint."""

    def facts(self) -> dict[str, object]:
        """State as JSON. Its keys are the callback's own."""

    def arrays(self) -> Mapping[str, Array | Streamed]:
        """State as arrays. Their names are the callback's own."""

    def restore(self, checkpoint: CheckpointReader) -> None:
        """Take the state from a checkpoint that was checked."""


class Checkpointing(keras.callbacks.Callback):
    """Writes a checkpoint at ends of epochs and every `training.checkpoint_minutes`.

    A checkpoint has every variable that training changes (weights, the optimizer's slots, the metric), the state of
    other callbacks, and what the training is learnt from. The order of rows and all random draws follow from the seed,
    the epoch and the step, so that a training that resumes ends with the same bytes. Keras' `BackupAndRestore` keeps no
    step within an epoch that batches could go on from, and copies the weights.

    Training waits while the variables are read, and goes on while the disk takes them. What has not changed since the
    last whole checkpoint is not written again, where that is much of it. It stands behind the callbacks whose state it
    saves.

    Args:
        path: The file.
        model: The model, compiled.
        progress: How far training has come, which is saved too.
        parts: Other callbacks whose state is saved.
        origin: What the training is learnt from; a checkpoint of another one is refused.
        validates: Whether an epoch has a validation loss.
        optimizer_variables: Those of the optimizer; by default what it names itself.

    """

    def __init__(
        self,
        path: Path,
        model: Feat2Vec,
        progress: Progress,
        parts: Sequence[Resumable],
        origin: Mapping[str, object],
        *,
        validates: bool,
        optimizer_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        super().__init__()
        self.set_model(model)  # `fit` does so too, but a checkpoint is restored before
        self.path, self.progress, self.origin, self.validates = path, progress, origin, validates
        self.parts: list[Resumable] = [progress, *parts]
        self.optimizer_variables = optimizer_variables
        self.steps = progress.batches.steps
        self.longest_pause = model.schema.training.checkpoint_minutes * 60
        self._metric_values: list[Array] = []  # of an epoch that goes on within
        self._file = CheckpointWriter(path)
        self._writer = ThreadPoolExecutor(1)
        self._last_write: Future[None] | None = None
        self._saved_epochs = 0.0  # epochs that the last checkpoint has, with the share of one that goes on
        self._last_saved = time.monotonic()
        self._seconds_to_save = 0.0

    # --- when -------------------------------------------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Go on with the metric of an epoch that was interrupted, which Keras has reset."""
        del epoch, logs
        if self._metric_values:
            for variable, value in zip(self.model.metrics_variables, self._metric_values, strict=True):
                variable.assign(value)
            self._metric_values = []

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Save within a long epoch."""
        del batch, logs
        is_due = time.monotonic() - self._last_saved > self.longest_pause
        if is_due and self.progress.step < self.steps:
            self._save()
            self.progress.restart_clock()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Save at the end of an epoch, unless epochs are short."""
        del epoch, logs
        pause = max(LEAST_SECONDS_BETWEEN, self._seconds_to_save / LARGEST_SHARE_OF_TIME)
        is_due = time.monotonic() - self._last_saved >= min(pause, self.longest_pause)
        if self._last_write is None or is_due:
            self._save()

    def save_if_new(self) -> None:
        """Save, unless the last checkpoint has all that was done."""
        if self._saved_epochs < self._epochs_done:
            self._save()

    @property
    def _epochs_done(self) -> float:
        return self.progress.epoch + self.progress.step / self.steps

    # --- what -------------------------------------------------------------------------------------------------------

    def _variables(self) -> list[keras.Variable]:
        """Every variable that training changes."""
        return [*self._learnt_variables(), *self.model.metrics_variables]

    def _learnt_variables(self) -> list[keras.Variable]:
        """The weights, what training keeps beside them, and what the optimizer does."""
        model, of_optimizer = self.model, self.optimizer_variables
        of_optimizer = model.optimizer.variables if of_optimizer is None else of_optimizer
        return [*model.variables, *model.posterior_variables, *of_optimizer]

    def _save(self) -> None:
        """Read the state into a new file, and let the disk have it while training goes on."""
        facts = dict(self.origin)
        for part in self.parts:
            facts |= part.facts()
        self.wait()
        start = time.monotonic()
        commit = self._file.fill(facts, self._arrays, self.progress.epoch * self.steps + self.progress.step)
        self._seconds_to_save = time.monotonic() - start
        self._last_write = self._writer.submit(commit)
        self._last_saved = time.monotonic()
        self._saved_epochs = self._epochs_done

    def _arrays(self) -> dict[str, Array | Streamed]:
        """The state as arrays, which are read when they are written."""
        arrays: dict[str, Array | Streamed] = {
            f"state {i}": streamed_variable(variable) for i, variable in enumerate(self._variables())
        }
        for part in self.parts:
            arrays |= part.arrays()
        return arrays

    def wait(self) -> None:
        """Wait until the disk has the last checkpoint; raise what went wrong with it."""
        if self._last_write is not None:
            self._last_write.result()

    def close(self) -> None:
        """Write no more."""
        self._writer.shutdown()

    # --- resuming ---------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Go on from the checkpoint, if there is one.

        Raises:
            UserError: It is damaged, or of a training from another schema or other rows.

        """
        if not self.path.exists():
            return
        variables = self._variables()
        with open_checkpoint(self.path) as checkpoint:
            origin_before = {key: checkpoint.facts.get(key) for key in self.origin}
            refuse_other_origin(self.path.parent, origin_before, self.origin)
            options = self.model.schema.training
            expected = ExpectedCheckpoint(
                variables,
                self.model.weights,
                options.epochs,
                self.steps,
                averages=bool(options.averaging),
                validates=self.validates,
                counter=self.model.optimizer.iterations,
            )
            check_checkpoint(checkpoint, expected)
            for i, variable in enumerate(variables):
                restore_variable(checkpoint, f"state {i}", variable)
            for part in self.parts:
                part.restore(checkpoint)
        if self.progress.step:
            self._metric_values = [variable.numpy() for variable in self.model.metrics_variables]
        self._last_saved, self._saved_epochs = time.monotonic(), self._epochs_done

    def begin_with(self, path: Path) -> None:
        """Begin a new training with the weights and the optimizer's slots at the end of another one.

        Args:
            path: The checkpoint of the other training, which was checked when that one was restored, or written by it.

        """
        with open_checkpoint(path) as checkpoint:
            for i, variable in enumerate(self._learnt_variables()):
                if variable is not self.model.optimizer.iterations:  # the learning rate begins anew
                    restore_variable(checkpoint, f"state {i}", variable)
