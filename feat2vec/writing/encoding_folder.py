"""The folder OUT.partial, in which a table is encoded. One process at a time holds it; a killed one leaves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from feat2vec.errors import UserError
from feat2vec.writing.files import JsonObject, read_json
from feat2vec.writing.folder_marks import record_hidden
from feat2vec.writing.folders import (
    FolderPlace,
    finish_replacement,
    folder_place,
    refuse_foreign,
    remove_folder,
    remove_inside,
)
from feat2vec.writing.locks import LOCK_FILES, locked
from feat2vec.writing.output_paths import refuse_bad_folder
from feat2vec.writing.training_folder import KEPT_ENCODING, mark_if_new, partial_folder, refuse_other_work

ENCODED = "encoded"  # the kind of a finished folder, as its mark says
ENCODING = "encoding"  # the kind of the folder beside it, while the work goes on
PLAN = "plan.json"
WORK = "work"  # what is done so far, in that folder


def encoded_place(out: Path, *, resume: bool = False, force: bool = False) -> FolderPlace | None:
    """Check the place of a folder of encoded rows.

    Args:
        out: The folder.
        resume: Whether to go on with what a killed process has left.
        force: Whether to replace a folder of encoded rows that is there.

    Returns:
        The place, or None if the folder is there and `resume` is given.

    Raises:
        UserError: The place is taken or no place for a folder, or both `resume` and `force` are given.

    """
    if resume and force:
        raise UserError("--resume goes on with an encoding, --force starts anew: give one of them")
    refuse_bad_folder(out)
    finish_replacement(out)
    refuse_bad_folder(partial_folder(out))  # its name is longer
    if resume and out.exists():
        return None
    return folder_place(out, ENCODED, force=force)


@contextmanager
def encoding_folder(
    out: Path, plan: Mapping[str, object], *, resume: bool = False, force: bool = False
) -> Iterator[Path]:
    """Hold the folder to encode in. It is removed at the end, and after a mistake in what the user gave.

    Args:
        out: Where the encoded rows will be.
        plan: What the encoding follows from, as JSON: it goes on only with the same.
        resume: Whether to keep what a process has left that was killed.
        force: Whether to start anew where there is something.

    Yields:
        The folder for the work.

    Raises:
        UserError: Another process encodes in it, it was not made by feat2vec, it holds work and neither `resume` nor
            `force` is given, or work of another plan.

    """
    partial = partial_folder(out)
    mark_if_new(partial, ENCODING, [f"{WORK}/", *LOCK_FILES])
    refuse_other_work(partial, ENCODING, "the rows would be encoded", "choose another --out")
    with locked(partial, "another process"):
        refuse_foreign(partial)
        work = partial / WORK
        if work.exists() and not resume:
            if not force:
                remedy = "add --resume to go on with it, or --force to start anew"
                raise UserError(f"{partial}: holds an encoding that was not finished; {remedy}")
            remove_inside(partial, WORK)
        work.mkdir(exist_ok=True)
        _refuse_other_plan(work, json.loads(json.dumps(plan)))
        try:
            yield work
        except UserError:
            remove_inside(partial, WORK)
            remove_folder(partial, ENCODING)
            raise
        remove_inside(partial, WORK)
        remove_folder(partial, ENCODING)


def kept_work(partial: Path, plan: Mapping[str, object]) -> Path:
    """The folder in which the rows of a training are encoded, with what a killed process has left by the same plan.

    Args:
        partial: The work folder of the training, which this process holds.
        plan: What the encoding follows from, as JSON.

    """
    work = partial / KEPT_ENCODING
    record_hidden(work)
    plan = json.loads(json.dumps(plan))
    if work.exists() and not ((work / PLAN).exists() and read_json(work / PLAN) == plan):
        remove_inside(partial, KEPT_ENCODING)
    work.mkdir(exist_ok=True)
    if not (work / PLAN).exists():
        write_durably(work / PLAN, json.dumps(plan))
    return work


def remove_steps(folder: Path) -> None:
    """Remove finished steps that nothing goes on from any more, where there are some.

    Args:
        folder: The folder of the steps, inside of a work folder.

    """
    shutil.rmtree(folder, ignore_errors=True)


def _refuse_other_plan(work: Path, plan: JsonObject) -> None:
    path = work / PLAN
    if not path.exists():
        write_durably(path, json.dumps(plan))
        return
    before = read_json(path)
    changed = [name for name in plan if before.get(name) != plan[name]]
    if changed:
        raise UserError(f"{work.parent}: was begun with other {changed[0]}; start with --force")


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when all of it is there; what a killed process has left of it is removed before.

    Args:
        folder: Its name, inside of a work folder.

    Yields:
        The folder to write to.

    """
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    yield unfinished
    unfinished.rename(folder)


def write_durably(path: Path, text: str) -> None:
    """Write a small file, whole or not at all.

    Args:
        path: The file.
        text: Its text.

    """
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
