"""`train`: a schema and a table to a run; a killed one resumes to the same bytes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from feat2vec.encode.array_files import Array
from feat2vec.encode.columns import check_columns
from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.workspace import MEMORY, check_memory
from feat2vec.errors import FailedError, UserError, writing
from feat2vec.model import optimizers
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.model.large_variables import Kept, copies, pieces, put, swap, swap_average
from feat2vec.model.optimizers import is_by_row, resource_of
from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Logistic, Schema, Softmax, read_schema
from feat2vec.schema.yaml_text import parse_document
from feat2vec.table.table import open_table
from feat2vec.training.checkpoint import (
    Checkpoint,
    Limits,
    Streamed,
    check_checkpoint,
    commit_checkpoint,
    fill_checkpoint,
    open_checkpoint,
)
from feat2vec.training.fingerprints import LEARNT_FROM, differences, fingerprints, hash_of
from feat2vec.training.memory import refuse_too_large, release_memory
from feat2vec.training.progress import Reporter
from feat2vec.training.run_folder import TrainedRun, read_facts, write_run
from feat2vec.writing import (
    CHECKPOINT,
    FolderPlace,
    partial_folder,
    publish_folder,
    refuse_inputs_inside,
    remove_inside,
    run_place,
    work_folder,
)


class Start(NamedTuple):
    """What a run begins with instead of nothing: another run's encoder and its groups' vectors, frozen or not."""

    run: TrainedRun
    freeze: bool = False

    def encode(self, schema: Schema, source: object, folder: Path | None, memory: str) -> Encoded:
        """Rows as the other run has learnt to encode them; only the classes of a target are new."""
        table = open_table(source)
        check_columns(schema, table)
        encoder = replace(self.run.fitted.only(list(schema.groups)), schema=schema, classes=None)
        return encoder.encode(table, folder, memory)

    def facts(self) -> dict[str, Any]:
        """What is begun with."""
        return {"weights": hash_of(self._numbers()), "freeze": self.freeze}

    def _numbers(self) -> Iterator[Array]:
        for weight in self.run.model.weights:
            yield from (values for _, values in pieces(weight))


def train_into(
    out: Path,
    schema: Schema | str | Path | Mapping[str, Any],
    data: object,
    validation: object = None,
    *,
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    memory: str = MEMORY,
    start: Start | None = None,
) -> None:
    """Train a schema on a table and write a run into the folder `out`: see `feat2vec.train`.

    With a `start`, whose schema has the same groups, rows are encoded and vectors begin as in another run.
    """
    schema = read_schema(schema.resolved() if isinstance(schema, Schema) else schema, settings=settings)
    check_memory(memory)
    share_cores(schema)
    Training(schema, validation, resume, force, quiet, tuple(callbacks), memory, start).into(out, data)


@dataclass(frozen=True)
class Training:
    """What `train` is asked for, but for the rows and the place: the arguments have its names."""

    schema: Schema
    validation: object = None
    resume: bool = False
    force: bool = False
    quiet: bool = False
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    memory: str = MEMORY
    start: Start | None = None

    def into(self, out: Path, data: object) -> None:
        """Train into a place that is checked before anything is read, and read rows before anything is removed."""
        place = run_place(out, resume=self.resume, force=self.force)
        if place is None:
            self.finished(out, data)
            return
        table = open_table(data)
        inputs: list[str | Path] = list(table.files)
        if self.validation is not None:
            inputs += open_table(self.validation).files
        if self.start is not None:
            inputs.append(self.start.run.folder)
        refuse_inputs_inside([out, partial_folder(out)], inputs)
        with work_folder(out, resume=self.resume, force=self.force, replaces=place.replaces) as partial:
            self.within(partial, place, table)

    def finished(self, out: Path, data: object) -> None:
        """Refuse the run that is there if it was not learnt from the same schema and rows."""
        run = TrainedRun(out, *read_facts(out))
        _ = run.fitted, run.model, run.history  # altered or mixed parts are refused now
        rows = self._encode(data, None)
        held = None if self.validation is None else _held_out(rows, self.validation, None, self.memory)
        before = {"schema": run.schema.resolved(), **{key: run.manifest.get(key) for key in LEARNT_FROM}}
        _refuse_other(out, before, _facts(rows, held, self.start))
        Reporter(1, 1, quiet=self.quiet).say(f"{out}: was finished already")

    def within(self, partial: Path, place: FolderPlace, data: object) -> None:
        """Train in a work folder, and give the run its name."""
        began, table = time.perf_counter(), open_table(data)
        rows = self._encode(table, partial / "rows")
        held = (
            None if self.validation is None else _held_out(rows, self.validation, partial / "validation", self.memory)
        )
        facts = _facts(rows, held, self.start)
        _refuse_one_class(rows, table.name)
        release_memory()
        refuse_too_large(rows)
        trainer = Trainer(rows, held, partial / CHECKPOINT, facts, quiet=self.quiet, start=self.start)
        if not self.quiet:
            trainer.reporter.say(rows.summary())
        trainer.fit(self.callbacks, began)
        learnt_from = {key: facts[key] for key in LEARNT_FROM}
        with writing(partial, "make room and add --resume, the checkpoint is kept"):
            write_run(partial / "run", trainer.model, trainer.metrics(began), trainer.history, learnt_from)
        del trainer, rows, held  # whose memory the run may need
        try:
            publish_folder(partial / "run", place)
        except (FailedError, UserError) as error:
            remedy = f"the run is kept in {partial}: after that, --resume gives it its name"
            raise FailedError(*error.problems, remedy) from None
        remove_inside(partial, CHECKPOINT)  # nothing is left to go on with

    def _encode(self, data: object, folder: Path | None) -> Encoded:
        encode = fit if self.start is None else self.start.encode
        return encode(self.schema, data, folder, self.memory)


SHORTEST = 1.0  # seconds between checkpoints at the ends of epochs: writing one may take as long as a short epoch
SHORT = 500_000  # rows in all epochs, below which making the graph of many groups takes longer than the steps
FEW_STEPS = 16  # of many groups in all epochs, which take less time than to make a graph; the numbers are the same
MOST_APART = 200  # groups; the graph of more takes gigabytes
SHARE = 0.1  # of the time, at most, that training waits for them


def _facts(rows: Encoded, held: Encoded | None, start: Start | None) -> dict[str, Any]:
    """What a run is made of."""
    validation = None if held is None else fingerprints(held)
    made_of = {"schema": rows.encoder.schema.resolved(), "data": fingerprints(rows), "validation": validation}
    return {**made_of, "start": None if start is None else start.facts()}


def _held_out(rows: Encoded, source: object, folder: Path | None, memory: str) -> Encoded:
    """The validation rows; every column is needed, and something to measure."""
    schema, table = rows.encoder.schema, open_table(source)
    check_columns(schema, table)
    held = rows.encoder.encode(table, folder, memory)
    if isinstance(schema.objective, Softmax) and not (np.asarray(held.target) >= 0).any():
        raise UserError(f"{table.name}: no row has a class of {schema.target!r} that training has seen")
    return held


def _refuse_one_class(rows: Encoded, where: str) -> None:
    """Classes are told from each other; implicit negatives are another class."""
    objective, classes = rows.encoder.schema.objective, rows.encoder.classes
    column = f"{where}: the target {rows.encoder.schema.target!r}"
    if isinstance(objective, Softmax) and classes is not None and len(classes.keys) < 2:
        raise UserError(f"{column} is {classes.keys[0].as_py()!r} in every row; give rows of two or more classes")
    if isinstance(objective, Logistic) and objective.implicit is None and rows.target is not None:
        first = rows.target[0]
        if np.all(rows.target == first):
            more = "" if not first else ", or draw negatives by objective.implicit"
            raise UserError(f"{column} is {first:g} in every row; give rows of 0 and of 1{more}")


def share_cores(schema: Schema) -> None:
    """A lookup's step is many short operations: a core runs several side by side faster than several run one."""
    if all(isinstance(group.extractor, ItemsSpec) for group in schema.groups.values()):
        with suppress(RuntimeError):  # TensorFlow has begun already: it stays as it is
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(os.cpu_count() or 1)


@contextmanager
def as_it_is() -> Iterator[None]:
    """Graphs run as they are made: to improve one of many groups takes longer than a short training's steps."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **before})


def _refuse_other(where: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """A run is resumed with its own schema and data."""
    if before == now:
        return
    if not isinstance(before["schema"], str):
        raise UserError(f"{where}: does not say which schema it was trained with; start with --force")
    old, new = ({**facts, "schema": parse_document(facts["schema"], f"{where}").data} for facts in (before, now))
    changed = list(differences(old, new))
    if changed:
        shown = [f"  {line.removeprefix('schema.')}" for line in changed[:3]]
        shown[-1] += f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise UserError(f"{where}: was trained with another schema or other data:", *shown, "start with --force")


class Trainer(keras.callbacks.Callback):
    """Fits a model to encoded rows, keeps checkpoints and the best weights."""

    def __init__(
        self,
        rows: Encoded,
        held: Encoded | None,
        checkpoint: Path,
        facts: Mapping[str, Any],
        *,
        quiet: bool,
        start: Start | None = None,
    ) -> None:
        super().__init__()
        schema = rows.encoder.schema
        self.spec, self.rows, self.path, self.facts = schema.training, rows, checkpoint, facts
        model = Feat2Vec.from_encoder(rows.encoder)
        if start is not None:
            model.start_from(start.run.model, freeze=start.freeze)
        self.short = len(rows) * self.spec.epochs <= SHORT
        together = self.short or len(model.groups) >= MOST_APART
        self.batches = model.batches(rows, together=together)
        self.held = None if held is None else model.batches(held, shuffle=False, together=together)
        self.steps = self.batches.steps
        steps = (self.steps + (0 if self.held is None else self.held.steps)) * self.spec.epochs
        self.without_graph = steps <= FEW_STEPS and self.batches.starts is not None
        self._compile(model)
        self.set_model(model)
        self.reporter = Reporter(self.steps, self.spec.epochs, quiet=quiet)
        self.epoch = self.step = self.waited = 0
        self.stopped = self.traced = self.averaged = False
        self.history: list[dict[str, float]] = []
        self.best: float | None = None
        self.kept = Kept(checkpoint.with_name("best"), model.weights)  # the best weights, if there is patience
        # The other weights, if epochs are averaged: within an epoch the average, between epochs those of training.
        self.aside: list[Array] = []
        self.seconds_of_epoch = self.timed_seconds = (
            0.0  # of training alone; timed are those after the first execution,
        )
        self.timed_rows = 0  # in which TensorFlow traces the step
        self.seconds_before = 0.0  # of sessions that were killed
        if checkpoint.exists():
            self._restore()
        release_memory()  # what the tables of values and noise were made of
        self.saved, self.seconds_of_save = time.monotonic(), 0.0
        self.writer = ThreadPoolExecutor(1)
        self.writing: Future[None] | None = None

    def _compile(self, model: Feat2Vec) -> None:
        optimizer = self.spec.optimizer
        rate: Any = optimizer.learning_rate
        if optimizer.decay == "linear":
            total = self.steps * self.spec.epochs
            rate = keras.optimizers.schedules.PolynomialDecay(rate, total, end_learning_rate=0.0, power=1.0)
        chosen = optimizers.named(optimizer.type, rate, len(self.rows) // self.steps)
        model.compile(chosen, steps_per_execution=self.batches.steps_at_once)
        model.run_eagerly = self.without_graph  # not by `compile`, whose arguments are saved with the model
        model.optimizer.build(model.trainable_variables)

    def fit(self, callbacks: Sequence[keras.callbacks.Callback], began: float) -> None:
        """Train to the end, from wherever the checkpoint left off."""
        self.began = began
        held = None if self.held is None else self.held.dataset()
        try:
            while self.epoch < self.spec.epochs and not self.stopped:
                first = self.epoch
                # an epoch that was begun has fewer steps left, and Keras wants all epochs of a fit alike
                last = first + 1 if self.step else self.spec.epochs
                self.batches.epoch, self.batches.step = first, self.step
                with as_it_is() if self.short and self.batches.starts is not None else nullcontext():
                    self.model.fit(
                        self.batches.dataset(endless=True),
                        steps_per_epoch=self.steps - self.step,
                        validation_data=held,
                        initial_epoch=first,
                        epochs=last,
                        verbose=0,
                        callbacks=[self, *callbacks],
                    )
                if self.model.stop_training:
                    break  # patience, or a user's callback
            self._written()
        finally:
            self.writer.shutdown()
            self.reporter.close()
        if self.kept.full and self.spec.patience:
            self.kept.put_back()

    # --- what Keras calls -------------------------------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        self.first = self.step
        self.averaged = False
        if not self.step:
            self._swap()
        else:
            for variable, value in zip(self.model.metrics_variables, self.metric_state, strict=True):
                variable.assign(value)
        self.reporter.begin(epoch, self.step)
        self.clock = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        before, self.step = self.step, min(self.first + batch + 1, self.steps)
        self._check(logs or {})
        self._tick(self.batches.bounds(self.step) - self.batches.bounds(before))
        self.reporter.step(self.step)
        due = time.monotonic() - self.saved > self.spec.checkpoint_minutes * 60
        if due and self.step < self.steps:
            self._save()
            self.clock = time.perf_counter()

    def on_test_begin(self, logs: Any = None) -> None:
        del logs
        self._average()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._average()
        logs = {key: float(value) for key, value in (logs or {}).items()}
        speed = len(self.rows) / self.seconds_of_epoch
        row = {"epoch": epoch + 1, **logs, "seconds": round(self.seconds_of_epoch, 3), "rows_per_second": round(speed)}
        self.history.append(row)
        self.epoch, self.step, self.seconds_of_epoch = epoch + 1, 0, 0.0
        self._keep_best(logs.get("val_loss"))
        self.reporter.end(epoch, row)
        pause = min(max(SHORTEST, self.seconds_of_save / SHARE), self.spec.checkpoint_minutes * 60)
        if self.writing is None or time.monotonic() - self.saved >= pause:
            self._save()

    # --- the parts --------------------------------------------------------------------------------------------------

    def _tick(self, rows: int) -> None:
        now = time.perf_counter()
        self.seconds_of_epoch += now - self.clock
        if self.traced:
            self.timed_seconds += now - self.clock
            self.timed_rows += rows
        self.clock, self.traced = now, True

    def _average(self) -> None:
        """Let the average be in the model, once an epoch: measured, kept, and seen by a user's callbacks."""
        if self.averaged or not self.spec.averaging:
            return
        self.averaged = True
        if not self.aside:
            release_memory()  # what the first epoch has left
            self.aside = copies(self.model.weights)
            return
        fading = self.spec.averaging
        share = (1 - fading) / (1 - fading ** (self.epoch + 1))  # of the new epoch; the first has all of it
        swap_average(self.model.weights, self.aside, share)

    def _swap(self) -> None:
        """Put the weights that are aside into the model, and its own aside."""
        if self.aside:
            swap(self.model.weights, self.aside)

    def _check(self, logs: Mapping[str, Any]) -> None:
        """Stop at a loss that is not finite; the checkpoint before stays."""
        loss = float(logs.get("loss", 0.0))
        if math.isfinite(loss):
            return
        sizes = {
            name: float(np.max([np.abs(some).max(initial=0) for w in extractor.weights for _, some in pieces(w)]))
            for name, extractor in zip(self.model.groups, self.model.extractors, strict=True)
        }
        worst = max(sizes, key=lambda name: sizes[name] if math.isfinite(sizes[name]) else math.inf)
        step = int(self.model.failed_at) + 1
        raise FailedError(
            f"the loss is {loss} at step {step} (epoch {self.epoch + 1}); "
            f"the largest weight, {sizes[worst]:.3g}, is of the group {worst!r}.",
            f"Use a lower training.optimizer.learning_rate ({self.spec.optimizer.learning_rate:g} now), "
            "a higher training.l2, or another scale for its numbers.",
        )

    def _keep_best(self, loss: float | None) -> None:
        if loss is None:
            return
        if self.best is None or loss < self.best:
            self.best, self.waited = loss, 0
            if self.spec.patience:
                self.kept.keep()
            return
        self.waited += 1
        if self.spec.patience and self.waited >= self.spec.patience:
            self.stopped = self.model.stop_training = True
            self.reporter.say(f"no better for {self.waited} epochs: back to epoch {self.epoch - self.waited}")

    def _state(self) -> list[Any]:
        """Every variable that training changes."""
        model = self.model
        return [*model.variables, *model.optimizer.variables, *model.metrics_variables]

    def _save(self) -> None:
        """Write a checkpoint. Training waits while its numbers are read, not until the disk has them."""
        arrays: dict[str, Array | Streamed] = {}
        for i, variable in enumerate(self._state()):
            arrays[f"state {i}"] = _streamed(variable, (values for _, values in pieces(variable)))
        if self.kept.full:
            for i, (variable, numbers) in enumerate(zip(self.model.weights, self.kept.arrays(), strict=True)):
                arrays[f"best {i}"] = _streamed(variable, numbers)
        arrays |= {f"aside {i}": array for i, array in enumerate(self.aside)}
        facts = {
            **self.facts,
            "epoch": self.epoch,
            "step": self.step,
            "history": self.history,
            "best": self.best,
            "waited": self.waited,
            "stopped": self.stopped,
            "seconds_of_epoch": self.seconds_of_epoch,
            "timed": [self.timed_seconds, self.timed_rows],
            "seconds_before": self.seconds_before + time.perf_counter() - self.began,
        }
        self._written()
        began = time.monotonic()
        fill_checkpoint(self.path, facts, arrays)
        self.seconds_of_save = time.monotonic() - began
        self.writing = self.writer.submit(commit_checkpoint, self.path)
        self.saved = time.monotonic()

    def _written(self) -> None:
        """Wait for the checkpoint before, which went to the disk while training went on."""
        if self.writing is not None:
            self.writing.result()

    def _restore(self) -> None:
        state = self._state()
        with open_checkpoint(self.path) as checkpoint:
            facts = checkpoint.facts
            _refuse_other(self.path.parent, {key: facts.get(key) for key in self.facts}, self.facts)
            check_checkpoint(checkpoint, Limits(state, self.model.weights, self.spec.epochs, self.steps))
            for i, variable in enumerate(state):
                _restore_variable(checkpoint, f"state {i}", variable)
            self.metric_state = [variable.numpy() for variable in self.model.metrics_variables]
            if "best 0" in checkpoint.headers:
                best = (checkpoint.pieces(f"best {i}") for i in range(len(self.model.weights)))
                self.kept.write(values for array in best for _, values in array)
            if "aside 0" in checkpoint.headers:
                self.aside = copies(self.model.weights)
                for i, array in enumerate(self.aside):
                    for rows, values in checkpoint.pieces(f"aside {i}"):
                        array[rows if array.ndim else ()] = values
        self.epoch, self.step, self.history = facts["epoch"], facts["step"], facts["history"]
        self.best, self.waited, self.stopped = facts["best"], facts["waited"], facts["stopped"]
        self.timed_seconds, self.timed_rows = facts["timed"]
        self.seconds_before, self.seconds_of_epoch = facts["seconds_before"], facts["seconds_of_epoch"]

    def metrics(self, began: float) -> dict[str, Any]:
        """What metrics.json says of training."""
        last = self.history[-1]
        kept = self.epoch - self.waited if self.kept.full and self.spec.patience else self.epoch
        seconds = self.seconds_before + time.perf_counter() - began
        return {
            "parameters": sum(self.model.params()) + self._beside_groups(),
            "rows": len(self.rows),
            "epochs": self.epoch,
            "kept_epoch": kept,
            "seconds": round(seconds, 3),
            "rows_per_second": round(self.timed_rows / self.timed_seconds)
            if self.timed_rows
            else last["rows_per_second"],
            **{key: last[key] for key in last if key.endswith("loss")},
        }

    def _beside_groups(self) -> int:
        """Weights that belong to no group: bias, offsets, classes."""
        inside = {id(weight) for extractor in self.model.extractors for weight in extractor.weights}
        return sum(math.prod(w.shape) for w in self.model.trainable_variables if id(w) not in inside)


def _streamed(variable: Any, numbers: Iterator[Array]) -> Streamed:
    """A variable's numbers, as a checkpoint holds them."""
    return Streamed(tuple(variable.shape), resource_of(variable).dtype.as_numpy_dtype, numbers)


def _restore_variable(checkpoint: Checkpoint, name: str, variable: Any) -> None:
    """Write a variable's numbers in place."""
    if is_by_row(variable):
        for rows, values in checkpoint.pieces(name):
            put(variable, rows, values)
    else:
        put(variable, slice(None), checkpoint.array(name))
