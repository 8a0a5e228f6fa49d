"""`train`: a schema and a table to a run. A training that was killed resumes to the same bytes.

The path: `train_into` checks the place, opens the table and takes the work folder; `train_in_work_folder` encodes the
rows, makes a `Fitting`, fits, writes the run and gives it its name.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np

from feat2vec.encode.columns import check_columns
from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.workspace import MEMORY, check_memory
from feat2vec.errors import FailedError, UserError, writing
from feat2vec.schema.options import Schema
from feat2vec.table.table import open_table
from feat2vec.training.execution import DEFAULT_LIMITS, ExecutionLimits, share_cores
from feat2vec.training.fingerprints import LEARNT_FROM, learnt_from, refuse_other_origin
from feat2vec.training.fitting import Fitting
from feat2vec.training.memory_estimate import refuse_too_large, release_memory
from feat2vec.training.reporting import Reporter
from feat2vec.training.run_folder import TrainedRun, read_facts, write_run
from feat2vec.training.warm_start import WarmStart
from feat2vec.writing import (
    CHECKPOINT,
    FolderPlace,
    note_finished,
    partial_folder,
    publish_folder,
    refuse_inputs_inside,
    remove_inside,
    run_place,
    work_folder,
)


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
        files: Further files of the run's folder, by their names.

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
    files: Mapping[str, bytes] = field(default_factory=dict)


def train_into(out: Path, request: TrainingRequest, data: object) -> None:
    """Train on a table and write a run into the folder `out`: see `feat2vec.train`.

    Nothing is removed before the place was checked and the table was opened.

    Args:
        out: Where the run will be.
        request: What is trained. With a `start`, rows are encoded and vectors begin as in that run, whose groups the
            schema has.
        data: The source of the training rows.

    Raises:
        UserError: Something is wrong with the request, the place or the table.
        FailedError: The loss is not finite, or the run could not be written.

    """
    check_memory(request.memory)
    share_cores(request.schema)
    if request.start is not None and out.resolve() == request.start.run.folder.resolve():
        raise UserError(f"{out}: is the run to begin with, which stays as it is; choose another folder")
    place = run_place(out, resume=request.resume, force=request.force)
    if place is None:
        check_finished_run(request, out, data)
        return
    table = open_table(data)
    inputs: list[str | Path] = list(table.files)
    if request.validation is not None:
        inputs += open_table(request.validation).files
    if request.start is not None:
        inputs.append(request.start.run.folder)
    refuse_inputs_inside([out, partial_folder(out)], inputs)
    with work_folder(out, resume=request.resume, force=request.force, replaces=place.replaces) as partial:
        train_in_work_folder(request, partial, place, table)


def check_finished_run(request: TrainingRequest, out: Path, data: object) -> None:
    """Raise `UserError` if the run at `out` is damaged, or was learnt from another schema or other rows."""
    run = TrainedRun(out, *read_facts(out))
    _ = run.fitted, run.model, run.history  # reading them checks them
    rows = _encode(request, data, None)
    validation_rows = _encode_validation(request, rows, None)
    now = learnt_from(rows, validation_rows, _start_facts(request))
    before = {"schema": run.schema.resolved(), **{key: run.manifest.get(key) for key in LEARNT_FROM}}
    refuse_other_origin(out, before, now)
    Reporter(1, 1, quiet=request.quiet).say(f"{out}: was finished already")


def train_in_work_folder(request: TrainingRequest, partial: Path, place: FolderPlace, data: object) -> None:
    """Train in a work folder, and give the run its name.

    Args:
        request: What is trained.
        partial: The work folder, which this process holds.
        place: Where the run will be.
        data: The source of the training rows.

    Raises:
        UserError: Something is wrong with the rows, or they need more memory than there is.
        FailedError: The loss is not finite, or the place was taken in the meantime.
        OSError: The run could not be written; its checkpoint stays.

    """
    began, table = time.perf_counter(), open_table(data)
    rows = _encode(request, table, partial / "rows")
    validation_rows = _encode_validation(request, rows, partial / "validation")
    origin = learnt_from(rows, validation_rows, _start_facts(request))
    _refuse_targets_without_information(rows, table.name)
    release_memory()
    refuse_too_large(rows)
    fitting = Fitting(
        rows,
        validation_rows,
        partial / CHECKPOINT,
        origin,
        began=began,
        quiet=request.quiet,
        start=request.start,
        limits=request.limits,
    )
    if not request.quiet:
        fitting.reporter.say(rows.summary())
    fitting.fit(request.callbacks)
    origin_in_manifest = {key: origin[key] for key in LEARNT_FROM}
    with writing(partial, "make room and add --resume, the checkpoint is kept"):
        history = fitting.progress.history
        write_run(partial / "run", fitting.model, fitting.metrics(), history, origin_in_manifest, request.files)
    del fitting, rows, validation_rows  # the caller loads the run, and may need their memory for it
    _publish(partial, place)


def _publish(partial: Path, place: FolderPlace) -> None:
    """Give the run that is in the work folder its name."""
    note_finished(partial)
    try:
        publish_folder(partial / "run", place)
    except (FailedError, UserError) as error:
        remedy = f"the run is kept in {partial}: after that, --resume gives it its name"
        raise FailedError(*error.problems, remedy) from None
    remove_inside(partial, CHECKPOINT)  # which has nothing left to resume


# --- rows -----------------------------------------------------------------------------------------------------------


def _encode(request: TrainingRequest, data: object, folder: Path | None) -> Encoded:
    encode = fit if request.start is None else request.start.encode
    return encode(request.schema, data, folder, request.memory)


def _encode_validation(request: TrainingRequest, rows: Encoded, folder: Path | None) -> Encoded | None:
    """The validation rows, if there are any. They need every column, and a row that has a loss."""
    if request.validation is None:
        return None
    schema, table = rows.encoder.schema, open_table(request.validation)
    check_columns(schema, table)
    validation_rows = rows.encoder.encode(table, folder, request.memory)
    if schema.objective.has_classes and not (np.asarray(validation_rows.target) >= 0).any():
        raise UserError(f"{table.name}: no row has a class of {schema.target!r} that training has seen")
    return validation_rows


def _start_facts(request: TrainingRequest) -> dict[str, object] | None:
    return None if request.start is None else request.start.facts()


def _refuse_targets_without_information(rows: Encoded, table_name: str) -> None:
    """Raise if nothing can be learnt from the targets, such as one class in every row."""
    schema, classes = rows.encoder.schema, rows.encoder.classes
    class_names = None if classes is None else classes.keys.to_pylist()
    problem = schema.objective.problem_of_targets(rows.target, class_names)
    if problem is not None:
        raise UserError(f"{table_name}: the target {schema.target!r} {problem}")
