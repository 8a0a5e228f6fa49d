"""The folder OUT.partial, in which the run OUT is trained.

One process at a time holds it. After an interruption it stays if it has a checkpoint, for `--resume`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from feat2vec.errors import FailedError, UserError
from feat2vec.writing.files import file_in
from feat2vec.writing.folder_marks import TRAINING, foreign_paths, note, read_mark, record, why_unmarked
from feat2vec.writing.folders import (
    FolderPlace,
    finish_replacement,
    folder_place,
    mark_folder,
    refuse_foreign,
    remove_folder,
    remove_inside,
    remove_leftovers,
)
from feat2vec.writing.locks import LOCK_FILES, is_locked, locked
from feat2vec.writing.output_paths import refuse_bad_folder

CHECKPOINT = "checkpoint.npz"
REFIT_CHECKPOINT = "refit.npz"  # of the training on all rows, after the one that chose the epoch
CHANGES = ".changes"  # the end of the name of a file beside a checkpoint: what has changed since
REPLACED = "replaced.json"  # the id of the run that --force replaces when the new one is complete
LEFT_OUT = "left_out.npy"  # the rows that the first training does not learn from
KEPT_ENCODING = "encoding"  # the rows of a large table as far as they are encoded
SCRATCH = "scratch"  # the run from scratch that is trained beside one that begins with vectors
SCRATCH_WORK = f"{SCRATCH}.partial"
IS_NO_PLACE = "the run would train", "move it elsewhere, or choose another --out"  # of a folder of something else

CHECKPOINTS = tuple(f"{name}{end}" for name in (CHECKPOINT, REFIT_CHECKPOINT) for end in ("", CHANGES))
FILES_KEPT = (*CHECKPOINTS, REPLACED)
ENTRIES = (
    *FILES_KEPT,
    *(f"{name}.new" for name in CHECKPOINTS),
    LEFT_OUT,
    "best",
    "aside",
)  # what it holds, by name
FOLDERS = (
    "data",
    "rows",
    "validation",
    "run",
    KEPT_ENCODING,
    SCRATCH,
    SCRATCH_WORK,
)  # that are recorded, or marked, when they are whole

KEPT = (*FILES_KEPT, KEPT_ENCODING, SCRATCH, SCRATCH_WORK)  # the entries that a later session goes on with


def changes_path(checkpoint: Path) -> Path:
    """The file of what has changed since a checkpoint was written whole."""
    return checkpoint.with_name(f"{checkpoint.name}{CHANGES}")


def partial_folder(out: Path) -> Path:
    """The folder in which a run is trained."""
    return out.parent / f"{out.name}.partial"


def run_place(out: Path, *, resume: bool = False, force: bool = False) -> FolderPlace | None:
    """Check the place of a run that is to be trained.

    With `resume`, a run may be there if an interrupted training was to replace it.

    Args:
        out: The run's folder.
        resume: Whether to go on with what an interrupted session left.
        force: Whether to replace a run that is there.

    Returns:
        The place, or None if the run is there and finished.

    Raises:
        UserError: The place is taken or no place for a folder, or both `resume` and `force` are given.

    """
    if resume and force:
        raise UserError("--resume goes on with a run, --force starts anew: give one of them")
    refuse_bad_folder(out)
    refuse_backslash(out)
    finish_replacement(out)
    _remove_finished_work(out)
    is_there = out.exists()
    partial = refuse_bad_folder(partial_folder(out))  # its name is longer
    if not resume or not is_there:
        return folder_place(out, "run", force=force)
    if out.is_dir() and not any(out.iterdir()) and (partial / CHECKPOINT).exists():
        return folder_place(out, "run", force=True)
    mark = read_mark(out)
    if mark is not None and mark.id == _replaced_id(partial):
        return folder_place(out, "run", force=True)
    return None


def refuse_backslash(out: Path) -> None:
    """Raise if a run's path, or that of a folder in which runs are trained, has a backslash.

    Keras would make folders at the path with `/` instead.
    """
    if "\\" in out.absolute().as_posix():
        raise UserError(f"{out}: a path has no backslash, which Keras takes for a `/`; choose another name")


def _replaced_id(partial: Path) -> str | None:
    """The id of the run that an interrupted training was to replace."""
    mark = read_mark(partial)
    if mark is None or mark.kind != TRAINING or not (partial / CHECKPOINT).exists():
        return None
    try:
        replaced_id = json.loads((partial / REPLACED).read_text(encoding="utf-8"))["replaced"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return replaced_id if isinstance(replaced_id, str) else None


MADE = "made"  # the note of a folder whose run is about to get its name: the run's id


def note_finished(partial: Path) -> None:
    """Note in a work folder which run was made in it, before the run gets its name."""
    mark = read_mark(partial / "run")
    if mark is not None:
        note(partial, **{MADE: mark.id})


def _remove_finished_work(out: Path) -> None:
    """Remove the folder in which the run that is there was trained, if a process was killed before it could."""
    partial, run_mark = partial_folder(out), read_mark(out)
    mark = read_mark(partial)
    if mark is None or run_mark is None or mark.kind != TRAINING or mark.notes.get(MADE) != run_mark.id:
        return
    if not is_locked(partial):
        _remove_work(partial)


@contextmanager
def work_folder(out: Path, *, resume: bool = False, force: bool = False, replaces: str | None = None) -> Iterator[Path]:
    """Hold the folder to train in, without what an interrupted session left half-done.

    It is removed at the end; after an error it is removed unless it has a checkpoint to go on with, or, after an
    interruption, rows that are encoded.

    Args:
        out: Where the run will be.
        resume: Whether to keep the checkpoint of a session that was interrupted.
        force: Whether to start anew where there is one.
        replaces: The id of the run that will be replaced, so that `run_place` knows it if this session is interrupted.

    Yields:
        The folder.

    Raises:
        UserError: Another process trains in it, it was not made by feat2vec, or it holds a checkpoint and neither
            `resume` nor `force` is given.

    """
    partial = partial_folder(out)
    mark_if_new(partial, TRAINING, [*ENTRIES, *LOCK_FILES])
    refuse_other_work(partial, TRAINING, *IS_NO_PLACE)
    with locked(partial, "another training"):
        refuse_other_work(
            partial, TRAINING, *IS_NO_PLACE
        )  # again: the process that held it may have ended, and removed it
        refuse_foreign(partial)
        record(partial, *ENTRIES)  # an earlier version has made it, which writes fewer files
        if (partial / CHECKPOINT).exists() and not resume and not force:
            remedy = "add --resume to go on with it, or --force to start anew"
            raise UserError(f"{partial}: holds a run that was not finished; {remedy}")
        for name in (*ENTRIES, *FOLDERS):
            if name not in KEPT or not resume:
                remove_inside(partial, name)
        remove_leftovers(partial)
        if replaces is not None:
            with file_in(partial, REPLACED) as file:
                file.write_text(json.dumps({"replaced": replaces}) + "\n", encoding="utf-8")
        try:
            yield partial
        except BaseException as error:
            is_failed = isinstance(error, (UserError, FailedError))
            if not can_go_on(partial, encoding_counts=not is_failed):
                _remove_work(partial)
            raise
        _remove_work(partial)


def can_go_on(partial: Path, *, encoding_counts: bool = True) -> bool:
    """Whether a work folder holds something that `--resume` goes on with.

    Args:
        partial: The folder.
        encoding_counts: Whether rows count that are encoded, of which nothing has been learnt.

    """
    return (partial / CHECKPOINT).exists() or (encoding_counts and (partial / KEPT_ENCODING).exists())


def _remove_work(partial: Path) -> None:
    """Remove the folder; if somebody else has put files into it, they and the folder stay."""
    for name in (*ENTRIES, *FOLDERS):
        with suppress(UserError):  # what is not feat2vec's stays
            remove_inside(partial, name)
    with suppress(UserError):
        remove_leftovers(partial)
    if next(foreign_paths(partial), None) is None:
        remove_folder(partial, TRAINING)


def mark_if_new(partial: Path, kind: str, entries: Sequence[str]) -> None:
    """Mark a folder for work, if it is not there or empty.

    Args:
        partial: The folder.
        kind: The kind of the work.
        entries: What the work may make in it.

    """
    if not os.path.lexists(partial) or (partial.is_dir() and not any(partial.iterdir())):
        mark_folder(partial, kind, entries)


def refuse_other_work(partial: Path, kind: str, use: str, remedy: str) -> None:
    """Raise if a folder was not made by work of a kind.

    Args:
        partial: The folder.
        kind: The kind of the work.
        use: What it would be used for, for the message.
        remedy: What to do.

    Raises:
        UserError: The folder has no mark, or that of another kind.

    """
    mark = read_mark(partial)
    if mark is None or mark.kind != kind:
        why = why_unmarked(partial) if mark is None else f"is of the kind {mark.kind!r}"
        raise UserError(f"{partial}: is where {use}, but {why}; {remedy}")
