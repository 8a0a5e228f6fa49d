"""`ClusterFitting`: a training whose steps are computed by workers, and whose variables are on servers.

It is `Fitting` in all but two respects: its variables are made within `Servers.holding()`, and workers call
`Feat2Vec.train_step` in place of Keras' `fit`. Callbacks, checkpoints and the run are the same: they read and write
tables in pieces, wherever the rows are.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from feat2vec.cluster.batch_source import ChiefBatches, EpochSource, batch_source
from feat2vec.cluster.connection import Connection, lost_as_restart
from feat2vec.cluster.load import loads
from feat2vec.cluster.local_copy import MOST_BYTES, bytes_of, local_copy
from feat2vec.cluster.servers import LEAST_BYTES_OF_PART, Servers, whole_variables
from feat2vec.cluster.spread_noise import SpreadNoise
from feat2vec.cluster.weights_on_servers import WeightsOnServers
from feat2vec.cluster.work_size import WorkSize
from feat2vec.encode.encoder import Encoded
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.sampling.noise import Counts, Noise
from feat2vec.shards.encoded_folder import EncodedTable
from feat2vec.training.fitting import Fitting
from feat2vec.training.memory_estimate import spelled
from feat2vec.training.warm_start import WarmStart

BYTES_OF_DRAWN_VALUE = 12  # in the noise: its place and its probability


class ClusterFitting(Fitting):
    """Fits a model on a cluster.

    Args:
        rows, validation_rows, checkpoint, origin: As for `Fitting`.
        connection: The cluster.
        sync: Whether each step begins when the one before has ended, on rows that the chief sends: the result is that
            of one process, to float precision. Otherwise workers compute steps side by side, and none waits.
        table: The folder that the rows come from, if they do; without `sync` workers read their rows there.
        most_copied: The bytes of weights of a model that the chief copies, to measure it on held-out rows.
        least_bytes: The size of a part of a table.
        **kwargs: The other arguments of `Fitting`.

    Raises:
        UserError: The schema asks for what cannot be done on a cluster.
        RestartError: A server was lost.

    """

    def __init__(
        self,
        rows: Encoded,
        validation_rows: Encoded | None,
        checkpoint: Path,
        origin: Mapping[str, object],
        *,
        connection: Connection,
        sync: bool,
        table: EncodedTable | None = None,
        least_bytes: int = LEAST_BYTES_OF_PART,
        most_copied: int = MOST_BYTES,
        **kwargs: Any,
    ) -> None:
        self.connection, self.sync = connection, sync
        self.least_bytes, self.most_copied = least_bytes, most_copied
        self.servers = Servers(connection.server_devices, least_bytes)
        with self.servers.holding(), lost_as_restart():
            super().__init__(rows, validation_rows, checkpoint, origin, **kwargs)
        for line in loads(self.model, rows, self.servers):
            self.reporter.say(line)
        self.source = batch_source(self.model, rows, self.batches, None if sync else table)
        self.work_size = WorkSize(connection.workers, self.batches.steps_at_once, self.source.most_steps)
        self._train = self.source.function(self.model, self.model.train_step)
        if self.validation_batches is not None:
            self.validation_source = ChiefBatches(self.validation_batches)
            self._test = self.validation_source.function(self.model, self.model.test_step)

    def _new_model(self, rows: Encoded, start: WarmStart | None) -> Feat2Vec:
        model = super()._new_model(rows, start)
        model.min_many_groups = sys.maxsize  # tables of many groups are not read at once, as each is on many servers
        if not self.sync:
            model.new_noise = self._new_noise
        return model

    def _new_noise(self, counts: Sequence[Counts], *arguments: Any, **options: Any) -> Noise:
        """Noise whose tables are on the servers, if they are large."""
        if sum(map(len, counts)) * BYTES_OF_DRAWN_VALUE < self.least_bytes:
            return Noise(counts, *arguments, **options)
        return SpreadNoise(counts, *arguments, devices=self.connection.server_devices, **options)

    def _make_slots(self) -> None:
        side_by_side = not self.sync and self.connection.workers > 1
        self.servers.build(self.model.optimizer, self.model.trainable_variables, side_by_side=side_by_side)

    def _weights_aside(self, path: Path) -> WeightsOnServers:
        del path
        return WeightsOnServers(self.model.weights, self.servers)

    def _optimizer_variables(self) -> list[keras.Variable]:
        return whole_variables(self.model.optimizer, self.model.trainable_variables)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _validation_data(self) -> None:
        """None, as workers read the validation rows."""

    def _fit_epochs(self, callbacks: Sequence[keras.callbacks.Callback], validation_data: object) -> None:
        """Fit all epochs that are left, as Keras' `fit` does, with its callbacks."""
        del validation_data
        listeners = keras.callbacks.CallbackList([*self.callbacks, *callbacks], model=self.model)
        self.model.stop_training = False
        listeners.on_train_begin()
        while self.progress.epoch < self.epochs and not self.model.stop_training:
            with lost_as_restart():
                self._fit_epoch(listeners)
        listeners.on_train_end()
        if self.work_size.steps > 1:
            self.reporter.say(f"workers got up to {self.work_size.steps} steps at once")

    def _fit_epoch(self, listeners: keras.callbacks.CallbackList) -> None:
        """Fit an epoch, or the rest of one that was interrupted."""
        epoch, first_step = self.progress.epoch, self.progress.step
        self.model.reset_metrics()
        listeners.on_epoch_begin(epoch)
        source, done, logs = self.source.epoch(epoch, first_step), first_step, {}
        while done < self.batches.steps:
            listeners.on_train_batch_begin(done - first_step)
            done = self._fit_window(source, done)
            # Steps of a worker that was lost may count twice: by this count rates and random draws go on.
            self.model.optimizer.iterations.assign(epoch * self.batches.steps + done)
            logs = self._loss()
            listeners.on_train_batch_end(done - first_step - 1, logs)
        if self.validation_batches is not None:
            logs = {**logs, "val_loss": self._validate(listeners)}
        listeners.on_epoch_end(epoch, logs)

    def _fit_window(self, source: EpochSource, first_step: int) -> int:
        """Let workers do the next steps, and wait for them; return how many steps of the epoch are done."""
        window = self.batches.steps_at_once if self.sync else self.work_size.window
        done, end = first_step, min(first_step + window, self.batches.steps)
        with self.work_size.measured(end - first_step) as pieces:
            while done < end:
                piece = source.piece(self.work_size.next_steps(end - done))
                self.connection.schedule(self._train, piece.arguments)
                if self.sync:
                    self.connection.wait()
                pieces.append(piece)
                done = piece.done
            self.connection.wait()
        return done

    def _validate(self, listeners: keras.callbacks.CallbackList) -> float:
        """Measure the loss of the validation rows."""
        listeners.on_test_begin()
        self.model.reset_metrics()
        source = self.validation_source.epoch(0, 0)
        for _ in range(self.validation_source.batches.steps):
            self.connection.schedule(self._test, source.piece(1).arguments)
            if self.sync:
                self.connection.wait()
        self.connection.wait()
        loss = self._loss()["loss"]
        listeners.on_test_end({"loss": loss})
        return loss

    def model_to_measure(self) -> Feat2Vec | None:
        """A copy of the model in this process; None of one that is too large for that."""
        size = bytes_of(self.model)
        if size > self.most_copied:
            self.reporter.say(
                f"nothing is measured on held-out rows: the chief would hold all weights, {spelled(size)}, "
                f"which is more than {spelled(self.most_copied)}"
            )
            return None
        with lost_as_restart():
            return local_copy(self.model)

    def _loss(self) -> dict[str, float]:
        """The mean loss until now."""
        return {"loss": float(np.asarray(self.model.loss_tracker.result()))}


__all__ = ["ClusterFitting"]
