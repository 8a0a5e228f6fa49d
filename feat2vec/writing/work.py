"""The folder OUT.partial, in which a run trains: held by one process, kept as long as it has a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feat2vec.errors import UserError
from feat2vec.writing.files import file_in
from feat2vec.writing.folders import (
    FolderPlace,
    folder_place,
    mark_folder,
    refuse_foreign,
    remove_folder,
    remove_inside,
)
from feat2vec.writing.locks import FILES, locked
from feat2vec.writing.marks import foreign_paths, read_mark, unmarked
from feat2vec.writing.places import refuse_bad_folder

CHECKPOINT = "checkpoint.npz"
KIND = "training"
REPLACED = "replaced.json"  # the id of the run that --force replaces when the new one is whole
KEPT = (CHECKPOINT, REPLACED)  # what a session leaves to the next
NAMES = (*KEPT, f"{CHECKPOINT}.new", "best", "rows/", "validation/", "data/", "run/")  # what the folder holds


def partial_folder(out: Path) -> Path:
    """Where a run is while it trains."""
    return out.parent / f"{out.name}.partial"


def run_place(out: Path, *, resume: bool = False, force: bool = False) -> FolderPlace | None:
    """Where a run that is trained will be; None if it is there and finished.

    A training with --force that was interrupted is gone on with although the run that it replaces is still there.

    Args:
        out: The run's folder.
        resume: Whether to go on with what an interrupted session left.
        force: Whether to replace a run that is there.

    Raises:
        UserError: The place is taken or no place for a folder, or both `resume` and `force` are given.

    """
    if resume and force:
        raise UserError("--resume goes on with a run, --force starts anew: give one of them")
    if not resume or not refuse_bad_folder(out).exists():
        return folder_place(out, "run", force=force)
    if out.is_dir() and not any(out.iterdir()) and (partial_folder(out) / CHECKPOINT).exists():
        return folder_place(out, "run", force=True)
    mark, replaced = read_mark(out), _replaced_id(partial_folder(out))
    return folder_place(out, "run", force=True) if mark is not None and mark.id == replaced else None


def _replaced_id(partial: Path) -> str | None:
    """The id of the run that an interrupted training was to replace."""
    mark = read_mark(partial)
    if mark is None or mark.kind != KIND or not (partial / CHECKPOINT).exists():
        return None
    try:
        replaced = json.loads((partial / REPLACED).read_text(encoding="utf-8"))["replaced"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return replaced if isinstance(replaced, str) else None


@contextmanager
def work_folder(out: Path, *, resume: bool = False, force: bool = False, replaces: str | None = None) -> Iterator[Path]:
    """The folder to train in, which no other process trains in, without what an interrupted session left half-done.

    It is removed at the end, and after an error unless it has a checkpoint to go on with.

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
    if not os.path.lexists(partial) or (partial.is_dir() and not any(partial.iterdir())):
        mark_folder(partial, KIND, [*NAMES, *FILES])
    _refuse_other_folder(partial)
    with locked(partial, "another training"):
        _refuse_other_folder(partial)  # the one that held it may have ended, and removed it
        refuse_foreign(partial)
        if (partial / CHECKPOINT).exists() and not resume and not force:
            remedy = "add --resume to go on with it, or --force to start anew"
            raise UserError(f"{partial}: holds a run that was not finished; {remedy}")
        for name in NAMES:
            if name not in KEPT or not resume:
                remove_inside(partial, name.rstrip("/"))
        if replaces is not None:
            with file_in(partial, REPLACED) as file:
                file.write_text(json.dumps({"replaced": replaces}) + "\n", encoding="utf-8")
        try:
            yield partial
        except BaseException:
            if not (partial / CHECKPOINT).exists():  # nothing to go on with
                _remove_work(partial)
            raise
        _remove_work(partial)


def _remove_work(partial: Path) -> None:
    """Remove the folder; what somebody else has put into it meanwhile stays, and is no reason to fail."""
    for name in NAMES:
        remove_inside(partial, name.rstrip("/"))
    if next(foreign_paths(partial), None) is None:
        remove_folder(partial, KIND)


def _refuse_other_folder(partial: Path) -> None:
    mark = read_mark(partial)
    if mark is None or mark.kind != KIND:
        why = unmarked(partial) if mark is None else f"is of the kind {mark.kind!r}"
        raise UserError(
            f"{partial}: is where the run would train, but {why}; move it elsewhere, or choose another --out"
        )
