"""`train`: a schema and a table to a run. A training that was killed resumes to the same bytes.

The path: `train_into` checks the place, opens the table and takes the work folder; `train_in_work_folder` encodes the
rows, lets `Learning` learn from them, writes the run and gives it its name.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from feat2vec.encode.columns import check_columns, missing_columns
from feat2vec.encode.encoder import Encoded, fit
from feat2vec.encode.process_memory import release_memory
from feat2vec.encode.targets import no_target
from feat2vec.encode.workspace import check_memory
from feat2vec.errors import FailedError, UserError, writing
from feat2vec.shards.encoded_folder import EncodedTable
from feat2vec.table.table import Table, open_table
from feat2vec.training.encoding import rows_of_training
from feat2vec.training.execution import refuse_dtype_policy, share_cores
from feat2vec.training.fingerprints import LEARNT_FROM, first_difference, learnt_from, refuse_other_origin
from feat2vec.training.learning import Learning, Learnt, TrainingRequest
from feat2vec.training.memory_estimate import refuse_too_large
from feat2vec.training.reporting import Reporter
from feat2vec.training.run_folder import UNUSED_COLUMNS, TrainedRun, read_facts, write_run
from feat2vec.writing import (
    CHECKPOINTS,
    SCRATCH,
    FolderPlace,
    note_finished,
    partial_folder,
    publish_folder,
    refuse_inputs_inside,
    remove_inside,
    run_place,
    work_folder,
)


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
    refuse_dtype_policy()
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
    _say_missing_columns(request, table)
    rows = _encode(request, table, partial)
    _refuse_rows_without_targets(rows, table.name)
    validation_rows = _encode_validation(request, rows, partial / "validation")
    origin = learnt_from(rows, validation_rows, _start_facts(request))
    _refuse_targets_without_information(rows, table.name)
    release_memory()
    if request.holds_weights:
        refuse_too_large(rows)
    learning = Learning(request, table, rows, validation_rows, partial, origin, began)
    learnt = learning.learn()
    scratch = _learn_from_scratch(request, partial, table, learnt)
    origin_in_manifest = {key: origin[key] for key in LEARNT_FROM}
    used = rows.encoder.schema.columns()
    origin_in_manifest[UNUSED_COLUMNS] = [column for column in table.columns if column not in used]
    with writing(partial, "make room and add --resume, the checkpoint is kept"):
        files = {**learnt.files, **request.files}
        write_run(partial / "run", learnt.model, learnt.metrics, learnt.history, origin_in_manifest, files, scratch)
    del learning, learnt, rows, validation_rows  # the caller loads the run, and may need their memory for it
    _publish(partial, place)


def _learn_from_scratch(request: TrainingRequest, partial: Path, table: Table, learnt: Learnt) -> Path | None:
    """Train the run from scratch in the work folder, or go on with it; return its folder, None if there is none."""
    if request.from_scratch is None:
        return None
    reporter = Reporter(1, 1, quiet=request.quiet)
    reporter.say("the same target from scratch:")
    folder, file = partial / SCRATCH, request.from_scratch.file
    try:
        train_into(folder, replace(request.from_scratch.request, resume=True), table)
    except UserError as error:  # such as a validation table without one of its columns, which are no columns of the run
        reporter.say(f"nothing is learnt from scratch: {error}")
        return None
    kept = (folder / file).read_bytes() if (folder / file).exists() else None
    weights = request.from_scratch.weigh(learnt.files.get(file), kept)
    seconds = float(learnt.metrics["seconds"]) + float(read_facts(folder)[1]["seconds"])
    learnt.metrics |= {**weights.metrics, "seconds": round(seconds, 3)}
    learnt.files |= weights.files
    for line in weights.lines:
        reporter.say(line)
    return folder


def _publish(partial: Path, place: FolderPlace) -> None:
    """Give the run that is in the work folder its name."""
    note_finished(partial)
    try:
        publish_folder(partial / "run", place)
    except (FailedError, UserError) as error:
        remedy = f"the run is kept in {partial}: after that, --resume gives it its name"
        raise FailedError(*error.problems, remedy) from None
    for name in CHECKPOINTS:
        remove_inside(partial, name)  # which has nothing left to resume


# --- rows -----------------------------------------------------------------------------------------------------------


def _encode(request: TrainingRequest, data: object, partial: Path | None) -> Encoded:
    """The training rows, encoded into the work folder; into a temporary one where there is none."""
    folder = None if partial is None else partial / "rows"
    if isinstance(data, EncodedTable):
        if request.start is not None:
            raise UserError(
                f"{data.name}: holds rows encoded by another encoder than that of the run; give the table itself"
            )
        return data.encoded(request.schema, folder, first_difference)
    if request.start is not None:
        return request.start.encode(request.schema, data, folder, request.memory)
    if partial is None:
        return fit(request.schema, data, None, request.memory)
    return rows_of_training(partial, request.schema, open_table(data), request.memory)


def _say_missing_columns(request: TrainingRequest, table: Table) -> None:
    """Say which columns of the run to begin with the table lacks."""
    if request.start is not None and (line := missing_columns(request.schema, table)) is not None:
        Reporter(1, 1, quiet=request.quiet).say(line)


def _encode_validation(request: TrainingRequest, rows: Encoded, folder: Path | None) -> Encoded | None:
    """The validation rows, if there are any. They need every column, and a row that has a loss."""
    if request.validation is None:
        return None
    schema, table = rows.encoder.schema, open_table(request.validation)
    check_columns(schema, table, with_groups=request.start is None)
    validation_rows = rows.encoder.encode(table, folder, request.memory)
    _refuse_rows_without_targets(validation_rows, table.name)
    if schema.objective.has_classes and not (np.asarray(validation_rows.target) >= 0).any():
        raise UserError(f"{table.name}: no row has a class of {schema.target!r} that training has seen")
    return validation_rows


def _start_facts(request: TrainingRequest) -> dict[str, object] | None:
    return None if request.start is None else request.start.facts()


def _refuse_rows_without_targets(rows: Encoded, table_name: str) -> None:
    if not rows.learnt_rows:
        raise no_target(table_name, str(rows.encoder.schema.target))


def _refuse_targets_without_information(rows: Encoded, table_name: str) -> None:
    """Raise if nothing can be learnt from the targets, such as one class in every row."""
    schema, classes = rows.encoder.schema, rows.encoder.classes
    class_names = None if classes is None else classes.keys.to_pylist()
    problem = schema.objective.problem_of_targets(rows.learnt_target, class_names)
    if problem is not None:
        raise UserError(f"{table_name}: the target {schema.target!r} {problem}")


__all__ = ["TrainingRequest", "check_finished_run", "train_in_work_folder", "train_into"]
