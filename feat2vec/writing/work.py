"""The folder OUT.partial, in which a run trains: held by one process, kept as long as it has a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feat2vec.errors import UserError
from feat2vec.writing.folders import mark_folder, refuse_foreign, remove_folder, remove_inside
from feat2vec.writing.locks import FILES, locked
from feat2vec.writing.marks import read_mark, unmarked

CHECKPOINT = "checkpoint.npz"
KIND = "training"
NAMES = (CHECKPOINT, f"{CHECKPOINT}.new", "best", "rows/", "validation/", "data/", "run/")  # what the folder holds


def partial_folder(out: Path) -> Path:
    """Where a run is while it trains."""
    return out.parent / f"{out.name}.partial"


@contextmanager
def work_folder(out: Path, *, resume: bool = False, force: bool = False) -> Iterator[Path]:
    """The folder to train in, which no other process trains in, without what an interrupted session left half-done.

    It is removed at the end, and after an error unless it has a checkpoint to go on with.

    Args:
        out: Where the run will be.
        resume: Whether to keep the checkpoint of a session that was interrupted.
        force: Whether to start anew where there is one.

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
            if name != CHECKPOINT or not resume:
                remove_inside(partial, name.rstrip("/"))
        try:
            yield partial
        except BaseException:
            if not (partial / CHECKPOINT).exists():  # nothing to go on with
                remove_folder(partial, KIND)
            raise
        remove_folder(partial, KIND)


def _refuse_other_folder(partial: Path) -> None:
    mark = read_mark(partial)
    if mark is None or mark.kind != KIND:
        why = unmarked(partial) if mark is None else f"is of the kind {mark.kind!r}"
        raise UserError(
            f"{partial}: is where the run would train, but {why}; move it elsewhere, or choose another --out"
        )
