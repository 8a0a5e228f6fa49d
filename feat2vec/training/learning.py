"""From encoded rows to the model that is kept: one training, or two where rows are held out.

Where rows are held out (`training.validation`), the first training learns from the others, and the held-out rows'
loss chooses the epoch. With `training.refit` a second training learns from all rows: from the beginning for as many
epochs, or from the end of the first one for a quarter of them. Each has a checkpoint of its own: that of the first
stays until the run is whole, so that a training which is resumed in the second finds the model of the first again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import keras

from feat2vec.encode.encoder import Encoded
from feat2vec.encode.process_memory import free_cycles
from feat2vec.encode.workspace import MEMORY
from feat2vec.errors import UserError
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.remaining import leaves_weights_out, remaining
from feat2vec.model.sizes import BYTES_OF_WEIGHT
from feat2vec.schema.options import Schema
from feat2vec.table.table import Table
from feat2vec.training.calibration import fitted_temperature, take_temperatures, temperature_of_new_times
from feat2vec.training.chosen_model import Additions, OnChosen, chosen_model
from feat2vec.training.execution import DEFAULT_LIMITS, ExecutionLimits
from feat2vec.training.fitting import Fitting, rows_of_validation
from feat2vec.training.held_out import Split, is_learnt_again, split_off, why_none_is_held_out
from feat2vec.training.memory_estimate import reused_memory
from feat2vec.training.reporting import Reporter
from feat2vec.training.run_folder import TrainedRun
from feat2vec.training.trained_rows import TRAINED_ROWS, groups_without_values, hashes_of_encoded, trained_rows
from feat2vec.training.warm_start import WarmStart
from feat2vec.writing import CHECKPOINT, LEFT_OUT, REFIT_CHECKPOINT

CONTINUED_SHARE = 1 / 4  # of the epochs: how long a training goes on with all rows


@dataclass(frozen=True)
class FromScratch:
    """The training from scratch beside one that begins with a run's vectors; the new run predicts the mean of both.

    Args:
        request: What is trained.
        weigh: Decides what each counts, given what `TrainingRequest.on_chosen` has left for it in a file of the run
            that begins with vectors, and of the one from scratch.
        file: The name of that file in both runs.

    """

    request: TrainingRequest
    weigh: Callable[[bytes | None, bytes | None], Additions]
    file: str


@dataclass(frozen=True)
class TrainingRequest:
    """What `feat2vec.train` is asked for, except for the rows and the place. The fields are named as its arguments.

    Args:
        schema: The schema, with the settings that replace its values.
        validation: The source of the validation rows.
        resume: Go on from a checkpoint.
        force: Replace the run that is there.
        quiet: Print nothing.
        callbacks: Keras' own callbacks.
        memory: What encoding may hold.
        start: The run to begin with, if any.
        limits: How steps are executed.
        on_chosen: Functions that measure the chosen model on rows that it was not trained on, and give its run entries
            of metrics.json and files. They are called once the first training has ended, if there are such rows:
            held-out ones or validation rows; after a kill once more, with the same model and rows.
        files: Further files of the run's folder, by their names.
        from_scratch: Another training, whose run this one keeps.
        fitting: What fits a model to rows, a class derived from `Fitting` or a function with its arguments. It may
            keep the weights outside of this process.

    """

    schema: Schema
    validation: object = None
    resume: bool = False
    force: bool = False
    quiet: bool = False
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    memory: str = MEMORY
    start: WarmStart | None = None
    limits: ExecutionLimits = DEFAULT_LIMITS
    on_chosen: tuple[OnChosen, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    from_scratch: FromScratch | None = None
    fitting: Callable[..., Fitting] = Fitting

    @property
    def holds_weights(self) -> bool:
        """Whether this process holds the weights."""
        return self.fitting is Fitting


@dataclass
class Learnt:
    """A model that is kept, and what its run says of it.

    Args:
        model: The model.
        metrics: What metrics.json says.
        history: The numbers of each epoch, in the first training if there were two.
        files: Further files of the run's folder.
        lines: What is said once the training has ended.

    """

    model: Feat2Vec
    metrics: dict[str, float | str]
    history: list[dict[str, float]]
    files: dict[str, bytes] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Learning:
    """The trainings of a run.

    Args:
        request: What is trained.
        table: The table of the training rows.
        rows: The same, encoded.
        validation_rows: Those of the validation table, if there is one.
        folder: The work folder.
        origin: What the training is learnt from, for checkpoints.
        began: The `time.perf_counter()` when this session began.

    """

    request: TrainingRequest
    table: Table
    rows: Encoded
    validation_rows: Encoded | None
    folder: Path
    origin: Mapping[str, object]
    began: float

    def learn(self) -> Learnt:
        """Train to the end.

        Returns:
            The model that is kept.

        Raises:
            FailedError: The loss is not finite.
            OSError: A checkpoint could not be written.

        """
        split = split_off(self.rows, self.folder / LEFT_OUT) if self.validation_rows is None else None
        is_refitted = split is not None and is_learnt_again(self.rows)
        learnt = self._first_training(split, is_refitted=is_refitted)
        learnt_rows = self.rows if split is None or is_refitted else split.learnt
        if is_refitted:
            self._refit(learnt)
        if leaves_weights_out(learnt.model):
            counts = remaining(learnt.model)
            learnt.metrics |= counts.metrics()
            learnt.lines.append(str(counts))
        hashes = hashes_of_encoded(learnt_rows)
        learnt.files[TRAINED_ROWS] = trained_rows(hashes, valueless=groups_without_values(learnt_rows)).as_file()
        for line in learnt.lines:
            Reporter(1, 1, quiet=self.request.quiet).say(line)
        return learnt

    def _first_training(self, split: Split | None, *, is_refitted: bool) -> Learnt:
        """The training whose epoch is chosen by the loss of the measured rows, if there are any."""
        rows = self.rows if split is None else split.learnt
        measured = self.validation_rows if split is None else split.held_out
        fitting = self._fitting(rows, measured, CHECKPOINT, self.origin, self.began)
        say = fitting.reporter.say
        if not self.request.quiet:
            say(self.rows.summary())
        say_left_out(say, self.rows)
        if self.validation_rows is None:
            say_held_out(say, self.rows, split)
        elif self.rows.encoder.schema.training.time is not None:
            say("training.time is not looked at: the validation rows are another table")
        is_complete = all((self.folder / name).exists() for name in (CHECKPOINT, REFIT_CHECKPOINT))
        fitting.fit(self.request.callbacks, keeps_end=is_refitted, is_complete=is_complete)
        learnt = Learnt(fitting.model, {**fitting.metrics()}, fitting.progress.history)
        if len(self.rows.left_out):
            learnt.metrics["without_target"] = len(self.rows.left_out)
        if split is not None:
            held_out = len(split.places)
            learnt.metrics |= {"held_out": held_out, "held_out_loss": fitting.kept_loss}
            if len(split.later):
                learnt.metrics["held_out_last"] = len(split.later)
            say(
                f"kept epoch {fitting.kept_epoch} of {fitting.options.epochs}, "
                f"loss {fitting.kept_loss:.4g} on {held_out:,} held-out rows"
            )
        if fitting.validation_batches is not None:
            learnt.metrics |= self._temperatures(fitting, split)
            self._take_temperatures(learnt)
        if measured is not None:
            self._measure(learnt, fitting, rows, measured, split)
        return learnt

    def _temperatures(self, fitting: Fitting, split: Split | None) -> dict[str, float]:
        """The temperatures of the answers, as metrics: that of held-out rows, and that of the last rows, if any."""
        assert fitting.validation_batches is not None
        model, temperatures = fitting.model, {}
        temperature = fitted_temperature(model, fitting.validation_batches)
        if temperature is not None:
            temperatures["temperature"] = round(temperature, 6)
            if split is not None and len(split.later):
                later = self.rows.only(split.later)
                of_last = fitted_temperature(model, model.batches(later, rows_of_validation(model), shuffle=False))
                if of_last is not None:
                    temperatures["temperature_later"] = round(temperature_of_new_times(temperature, of_last), 6)
        return temperatures

    def _take_temperatures(self, learnt: Learnt) -> None:
        """Give the model the temperatures that the first training has found, if it has."""
        metrics = learnt.metrics
        if "temperature" in metrics:
            temperature = float(metrics["temperature"])
            of_later = float(metrics.get("temperature_later", temperature))
            take_temperatures(learnt.model, temperature, of_later, self.rows.encoder)

    def _measure(self, learnt: Learnt, fitting: Fitting, rows: Encoded, measured: Encoded, split: Split | None) -> None:
        """Give the run what the functions of the request find in the chosen model."""
        if not self.request.on_chosen:
            return
        model = fitting.model_to_measure()
        if model is None:
            return
        run = TrainedRun.of_model(model)
        try:
            chosen = chosen_model(run, self.table, rows, measured, self.request.validation, split)
        except UserError as error:  # the table can be read only once
            fitting.reporter.say(f"nothing is measured on held-out rows: {error}")
            return
        for function in self.request.on_chosen:
            with reused_memory():
                additions = function(chosen)
            learnt.metrics |= additions.metrics
            learnt.files |= additions.files
            learnt.lines += additions.lines

    def _refit(self, learnt: Learnt) -> None:
        """Learn from all rows: go on, or begin anew for as many epochs as were kept, by their learning rates."""
        goes_on = self.rows.encoder.schema.training.refit == "continue"
        epochs = int(learnt.metrics["kept_epoch"])
        if goes_on:
            epochs = max(1, round(epochs * CONTINUED_SHARE))
        del learnt.model  # whose memory the second one needs
        free_cycles(BYTES_OF_WEIGHT * int(learnt.metrics["parameters"]))
        origin = {**self.origin, "refit": {"epochs": epochs}}
        fitting = self._fitting(self.rows, None, REFIT_CHECKPOINT, origin, time.perf_counter(), epochs, goes_on=goes_on)
        plural = "" if epochs == 1 else "s"
        verb = "on with" if goes_on else "again on"
        fitting.reporter.say(f"{verb} all {self.rows.learnt_rows:,} rows: {epochs} epoch{plural}")
        fitting.fit(self.request.callbacks)
        metrics, first_seconds = fitting.metrics(), float(learnt.metrics["seconds"])
        learnt.model = fitting.model
        self._take_temperatures(learnt)
        learnt.metrics |= {
            "rows": metrics["rows"],
            "seconds": round(first_seconds + fitting.progress.seconds, 3),
            "refit_epochs": metrics["epochs"],
            "refit_loss": metrics["loss"],
        }

    def _fitting(
        self,
        rows: Encoded,
        measured: Encoded | None,
        checkpoint: str,
        origin: Mapping[str, object],
        began: float,
        epochs: int | None = None,
        *,
        goes_on: bool = False,
    ) -> Fitting:
        request = self.request
        return request.fitting(
            rows,
            measured,
            self.folder / checkpoint,
            origin,
            began=began,
            quiet=request.quiet,
            start=request.start,
            epochs=epochs,
            goes_on_from=self.folder / CHECKPOINT if goes_on else None,
            limits=request.limits,
        )


def say_left_out(say: Callable[[str], None], rows: Encoded) -> None:
    """Say how many rows are left out as they have no target, if there are any."""
    if len(rows.left_out):
        count = len(rows.left_out)
        say(f"{count:,} {'row' if count == 1 else 'rows'} without {rows.encoder.schema.target} are left out")


def say_held_out(say: Callable[[str], None], rows: Encoded, split: Split | None) -> None:
    """Say how many rows are held out, or why none are if the schema asks for some."""
    if split is not None:
        schema = rows.encoder.schema
        time = schema.training.time
        learnt = f"{split.learnt.learnt_rows:,} rows to learn from"
        say(f"{learnt}, {len(split.places):,} held out to choose the epoch by their loss")
        if len(split.later):
            labels = schema.target is not None
            purpose = "how sure answers for later rows may be" if labels else "how later rows are completed"
            say(f"and the last {len(split.later):,} by {time}, to see {purpose}")
        elif time is not None:
            say(f"no last rows by {time}: it tells too few times, or not all rows are learnt in the end")
    elif rows.encoder.schema.training.validation:
        say(f"no rows are held out to choose the epoch by: {why_none_is_held_out(rows)}")
