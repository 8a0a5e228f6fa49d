"""`Fitting`: a model, its batches, and the callbacks that `model.fit` is called with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import keras
import tensorflow as tf

from feat2vec.encode.encoder import Encoded
from feat2vec.encode.process_memory import free_cycles, release_memory
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import discard
from feat2vec.model.remaining import leave_out_vectors
from feat2vec.model.sizes import BYTES_OF_WEIGHT
from feat2vec.model.vector_model import vector_weights
from feat2vec.sampling.batches import Batches
from feat2vec.training.averaging import EpochAveraging, WeightsAside, WeightsInFile
from feat2vec.training.checkpointing import Checkpointing, Resumable
from feat2vec.training.execution import DEFAULT_LIMITS, ExecutionLimits, without_graph_optimization
from feat2vec.training.loss_check import LossCheck
from feat2vec.training.patience import Patience
from feat2vec.training.reporting import Progress, Reporter, Reporting
from feat2vec.training.warm_start import WarmStart

BEST_WEIGHTS, WEIGHTS_ASIDE = "best", "aside"  # files beside the checkpoint
MOST_CACHED_ROWS = 20_000  # validation rows that stay in memory as batches
MOST_ROWS_AT_ONCE = 4096  # of a validation batch, where its size changes nothing
MOST_VECTOR_BYTES = 32 << 20  # of its vectors
# Where vectors begin as another run's, the rest learns alone in this share of the epochs; then they do, at this share
# of the learning rate. The epoch that the held-out rows choose says whether they should have.
HEAD_ALONE, STARTED_RATE = 0.1, 0.5


def rows_of_validation(model: Feat2Vec) -> int:
    """How many validation rows are measured at once: many where each has a loss of its own, whatever stands beside it.

    The rows of a training batch are few where that teaches more; a step for each few rows takes its time. Rows that
    share noise are measured with as many others as in training.
    """
    schema = model.schema
    if model.noise is not None:
        return schema.training.batch_size
    bytes_of_row = 4 * max(sum(schema.model.levels.dims), 1) * len(schema.groups)  # a linear model has its terms
    return max(min(MOST_VECTOR_BYTES // bytes_of_row, MOST_ROWS_AT_ONCE), schema.training.batch_size)


class Fitting:
    """Fits a model to encoded rows, from the beginning or from where a checkpoint left off.

    Args:
        rows: The training rows.
        validation_rows: Rows that the loss is measured on after each epoch.
        checkpoint: The file for checkpoints. If it is there, the training goes on from it.
        origin: What the training is learnt from (`fingerprints.learnt_from`), for checkpoints.
        began: The `time.perf_counter()` when this session began.
        quiet: Print nothing.
        start: The run that the model's vectors are taken from, if any.
        epochs: The number of epochs, if training stops before those of the schema, by which the learning rate falls.
        goes_on_from: The checkpoint of a training that this one goes on from; the learning rate falls by `epochs` then.
        limits: How steps are executed.

    Raises:
        UserError: The checkpoint is damaged, or of another training.

    """

    def __init__(
        self,
        rows: Encoded,
        validation_rows: Encoded | None,
        checkpoint: Path,
        origin: Mapping[str, object],
        *,
        began: float,
        quiet: bool,
        start: WarmStart | None = None,
        epochs: int | None = None,
        goes_on_from: Path | None = None,
        limits: ExecutionLimits = DEFAULT_LIMITS,
    ) -> None:
        self.options = rows.encoder.schema.training
        self.epochs = epochs or self.options.epochs
        self.model = self._new_model(rows, start)
        self.starts_elsewhere = start is not None and goes_on_from is None
        self.epochs_of_rate = self.options.epochs if goes_on_from is None else self.epochs
        self.is_short = rows.learnt_rows * self.epochs <= limits.short_training_rows
        has_labels = self.model.schema.target is not None
        groups_at_once = self.is_short or has_labels or len(self.model.groups) >= limits.separate_groups
        self.model.learn_from(rows)
        compiled = limits.compiles(self.model.schema, rows.learnt_rows * self.epochs)
        self.batches = self.model.batches(rows, groups_at_once=groups_at_once, compiled=compiled)
        self.validation_batches: Batches | None = None
        if validation_rows is not None:
            self.validation_batches = self.model.batches(
                validation_rows, rows_of_validation(self.model), shuffle=False, groups_at_once=groups_at_once
            )
        self._compile(limits.eager_steps)
        self.reporter = Reporter(self.batches.steps, self.epochs, quiet=quiet)
        self._make_callbacks(checkpoint, origin, began)
        if goes_on_from is not None and not checkpoint.exists():
            self.checkpointing.begin_with(goes_on_from)
        self.checkpointing.restore()
        release_memory()  # what the tables of values and of the noise were made of

    def _new_model(self, rows: Encoded, start: WarmStart | None) -> Feat2Vec:
        """Make the model, whose weights begin as the schema's seed or another run has them."""
        model = Feat2Vec.from_encoder(rows.encoder)
        if start is not None:
            model.start_from(start.run.model, freeze=start.freeze)
        return model

    def _compile(self, eager_steps: int) -> None:
        """Compile the model with the schema's optimizer, and make the optimizer's slots."""
        options, steps = self.options.optimizer, self.batches.steps
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = options.learning_rate
        if options.decay == "linear":
            learning_rate = keras.optimizers.schedules.PolynomialDecay(
                options.learning_rate, steps * self.epochs_of_rate, end_learning_rate=0.0, power=1.0
            )
        rows_per_step = self.batches.row_count // steps
        optimizer = optimizers.named(options.type, learning_rate, rows_per_step, **options.arguments)
        if self.starts_elsewhere:
            started_weights = [weight for extractor in self.model.extractors for weight in vector_weights(extractor)]
            optimizer.learn_later(started_weights, round(HEAD_ALONE * steps * self.options.epochs), STARTED_RATE)
        self.model.compile(optimizer, steps_per_execution=self.batches.steps_at_once)
        # Not an argument of `compile`, as these are saved with the model.
        self.model.run_eagerly = self.reads_groups_at_once and self._steps_of_all_epochs() <= eager_steps
        self._make_slots()

    def _make_slots(self) -> None:
        """Make the optimizer's slots."""
        self.model.optimizer.build(self.model.trainable_variables)

    def _make_callbacks(self, checkpoint: Path, origin: Mapping[str, object], began: float) -> None:
        """Make the callbacks in the order in which Keras calls them."""
        self.progress = Progress(self.batches, began)
        self.patience = Patience(
            self.model, self.model.schema.patience, checkpoint.with_name(BEST_WEIGHTS), self.reporter.say
        )
        averaging = []
        if self.options.averaging:
            aside = self._weights_aside(checkpoint.with_name(WEIGHTS_ASIDE))
            averaging = [EpochAveraging(self.model, self.options.averaging, aside)]
        stateful: list[Resumable] = [self.patience, *averaging]
        validates = self.validation_batches is not None
        self.checkpointing = Checkpointing(
            checkpoint,
            self.model,
            self.progress,
            stateful,
            origin,
            validates=validates,
            optimizer_variables=self._optimizer_variables(),
        )
        self.callbacks: list[keras.callbacks.Callback] = [
            *averaging,  # first, so that all others see the average between epochs
            LossCheck(self.model),
            self.progress,
            self.patience,
            Reporting(self.reporter, self.progress),
            self.checkpointing,  # last, so that it saves what the others have counted
        ]

    def _weights_aside(self, path: Path) -> WeightsAside:
        """Where the weights are that are not in the model, with averaging."""
        return WeightsInFile(path)

    def _optimizer_variables(self) -> list[keras.Variable]:
        """What the optimizer keeps, for checkpoints."""
        return list(self.model.optimizer.variables)

    @property
    def reads_groups_at_once(self) -> bool:
        """Whether a step reads all groups at once."""
        return self.batches.starts is not None

    def _steps_of_all_epochs(self) -> int:
        validation_steps = 0 if self.validation_batches is None else self.validation_batches.steps
        return (self.batches.steps + validation_steps) * self.epochs

    def fit(
        self,
        callbacks: Sequence[keras.callbacks.Callback],
        *,
        keeps_end: bool = False,
        is_complete: bool = False,
    ) -> None:
        """Train to the end, and leave the weights that are to be kept in the model.

        Args:
            callbacks: Callbacks of the user, which are called after those of feat2vec.
            keeps_end: Write a checkpoint of the end, from which the model that is kept can be made again.
            is_complete: The checkpoint that was restored is that of the end.

        Raises:
            FailedError: The loss is not finite.
            OSError: A checkpoint could not be written.

        """
        validation_data = self._validation_data()
        try:
            while self.progress.epoch < self.epochs and not self.patience.has_stopped and not is_complete:
                self._fit_epochs(callbacks, validation_data)
                if self.model.stop_training:
                    break  # by patience, or by a callback of the user
            if keeps_end:
                self.checkpointing.save_if_new()
            self.checkpointing.wait()
        finally:
            self.checkpointing.close()
            self.reporter.close()
        self.patience.restore_best_weights()
        leave_out_vectors(self.model)
        self._release_slots()

    def _validation_data(self) -> tf.data.Dataset | None:
        """The batches that the loss is measured on; few of them stay in memory, as to make them takes longer."""
        batches = self.validation_batches
        if batches is None:
            return None
        return batches.dataset().cache() if batches.row_count <= MOST_CACHED_ROWS else batches.dataset()

    def _release_slots(self) -> None:
        """Free the optimizer's slots, which a run does not hold: writing it needs memory of its own."""
        optimizer = self.model.optimizer
        without_slots = type(optimizer).from_config(optimizer.get_config())
        without_slots.iterations.assign(optimizer.iterations)
        for variable in optimizer.variables:
            if variable is not optimizer.iterations:
                discard(variable)
        self.model.compile(without_slots, steps_per_execution=self.batches.steps_at_once)
        del optimizer
        free_cycles(BYTES_OF_WEIGHT * (_weights_of_groups(self.model) + _weights_outside_groups(self.model)))

    def _fit_epochs(
        self, callbacks: Sequence[keras.callbacks.Callback], validation_data: tf.data.Dataset | None
    ) -> None:
        """Fit the rest of an epoch that was interrupted, or all epochs that are left.

        The two need a call each: an interrupted epoch has fewer steps, and in one call all epochs have the same number.
        """
        first_epoch, first_step = self.progress.epoch, self.progress.step
        self.batches.start_at(first_epoch, first_step)
        graph_options: AbstractContextManager[None] = nullcontext()
        if self.is_short and self.reads_groups_at_once:
            graph_options = without_graph_optimization()
        with graph_options:
            self.model.fit(
                self.batches.dataset(endless=True),
                steps_per_epoch=self.batches.steps - first_step,
                validation_data=validation_data,
                initial_epoch=first_epoch,
                epochs=first_epoch + 1 if first_step else self.epochs,
                verbose=0,
                callbacks=[*self.callbacks, *callbacks],
            )

    def model_to_measure(self) -> Feat2Vec | None:
        """The model whose weights are kept, in this process; None if it cannot be measured here, which is said."""
        return self.model

    @property
    def kept_epoch(self) -> int:
        """The epoch, counted from 1, whose weights are kept."""
        return self.patience.kept_epoch(self.progress.epoch)

    @property
    def kept_loss(self) -> float:
        """The loss of validation rows after the epoch that is kept."""
        return self.progress.history[self.kept_epoch - 1]["val_loss"]

    def metrics(self) -> dict[str, float]:
        """What metrics.json says of the training."""
        last_epoch = self.progress.history[-1]
        return {
            "parameters": _weights_of_groups(self.model) + _weights_outside_groups(self.model),
            "rows": self.progress.row_count,
            "epochs": self.progress.epoch,
            "kept_epoch": self.kept_epoch,
            "seconds": round(self.progress.seconds, 3),
            "rows_per_second": self.progress.rows_per_second,
            **{key: value for key, value in last_epoch.items() if key.endswith("loss")},
        }


def _weights_of_groups(model: Feat2Vec) -> int:
    """The number of weights of the groups' extractors; those that groups share count once."""
    return sum(extractor.params() for extractor in model.distinct_extractors())


def _weights_outside_groups(model: Feat2Vec) -> int:
    """The number of weights that belong to no group: bias, offsets, classes, the head."""
    of_groups = {id(weight) for extractor in model.extractors for weight in extractor.weights}
    return sum(math.prod(weight.shape) for weight in model.trainable_variables if id(weight) not in of_groups)
