"""Folders that appear whole: each is filled under a hidden name beside its own, and renamed when it is complete.

A folder replaces, and this module removes, only what feat2vec wrote, by its mark (`folder_marks.py`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feat2vec.errors import FailedError, UserError, refuse_stray_bytes, writing
from feat2vec.writing.folder_marks import (
    TEMPORARY,
    TRAINING,
    Mark,
    foreign_paths,
    foreign_paths_below,
    make_parents,
    new_id,
    note,
    read_mark,
    record_all,
    record_folder_in,
    record_hidden,
    was_written,
    why_unmarked,
    write_mark,
)
from feat2vec.writing.locks import is_locked
from feat2vec.writing.output_paths import hidden_name, named_instead, refuse_bad_folder


@dataclass(frozen=True)
class FolderPlace:
    """A place where a folder may appear.

    Args:
        path: The folder.
        kind: What it will be, as its mark says; None for a folder that nothing ever replaces, which gets no mark.
        replaces: The id of the folder that is there and may be replaced; None if the place has to be free.
        replaces_empty: Whether an empty folder may be there.

    """

    path: Path
    kind: str | None
    replaces: str | None = None
    replaces_empty: bool = False


def folder_place(out: str | Path, kind: str | None, *, force: bool = False) -> FolderPlace:
    """Check the place of a folder that is made, with those above it.

    Args:
        out: The folder.
        kind: What it will be: "run", "export", ...; None for a folder that gets no mark, and replaces nothing.
        force: Whether a folder of the same kind that feat2vec wrote may be replaced, or an empty one.

    Returns:
        The place, with the id of what is replaced.

    Raises:
        UserError: The place is taken, a link, no name, or nothing may be written there.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     folder_place(Path(folder) / "runs" / "films", "run").path.name
    'films'

    """
    out = refuse_bad_folder(out)
    finish_replacement(out)
    if not out.exists():
        return FolderPlace(out, kind)
    remedy = "choose another folder"
    if kind is None:
        raise UserError(f"{out}: exists already; remove it or {remedy}")
    if not force:
        raise UserError(f"{out}: exists already; {remedy}, or add --force to replace it")
    if _is_empty(out):
        return FolderPlace(out, kind, replaces_empty=True)
    mark = read_mark(out)
    if mark is None or mark.kind != kind:
        why = why_unmarked(out) if mark is None else f"is feat2vec's, of the kind {mark.kind!r}"
        raise UserError(f"{out}: is no {kind}, and --force replaces nothing else; {remedy}", f"  it {why}")
    refuse_foreign(out)
    return FolderPlace(out, kind, replaces=mark.id)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def refuse_foreign(folder: Path) -> None:
    """Raise if a marked folder holds something that feat2vec did not write, or that a process is writing below it."""
    foreign_path = next(foreign_paths(folder), None)
    if foreign_path is not None:
        name = foreign_path.relative_to(folder)
        what = "was changed after feat2vec wrote it" if was_written(foreign_path) else "feat2vec did not write"
        raise UserError(f"{folder}: holds {name}, which {what}; move it elsewhere first")
    for parent, subfolder_names, _ in os.walk(folder):
        for subfolder in [Path(parent, name) for name in subfolder_names]:
            if read_mark(subfolder) is not None and is_locked(subfolder):
                raise UserError(f"{subfolder}: another process is at work in it; wait until it has ended")


def mark_folder(folder: Path, kind: str, names: Sequence[str]) -> None:
    """Make a marked folder for work that goes on for a while. An empty folder may be there.

    Args:
        folder: The folder. Those above it are made.
        kind: What it is, as its mark says: "training", "tuning", ...
        names: The entries that it will hold, for its mark.

    Raises:
        UserError: Something is there already.

    """
    make_parents(folder)
    if os.path.lexists(folder):
        if folder.is_symlink() or not _is_empty(folder):
            raise UserError(f"{folder}: {why_unmarked(folder)}; move it elsewhere, or choose another --out")
        folder.rmdir()
    hidden = folder.with_name(hidden_name(folder.name))
    is_made = False
    try:
        with writing(folder), named_instead(hidden, folder):
            record_hidden(hidden)
            hidden.mkdir()
            is_made = True
            write_mark(hidden, kind, new_id(), names)
            hidden.rename(folder)  # with its mark: an interrupt leaves no folder without one
    except BaseException:
        if is_made:
            shutil.rmtree(hidden, ignore_errors=True)
        raise


@contextmanager
def new_folder(place: FolderPlace | None) -> Iterator[Path]:
    """Write a folder, which gets its name when it is complete; on an error it is removed.

    Args:
        place: Where it appears. None stands for a temporary folder, which keeps the name it has.

    Yields:
        The folder to write into.

    """
    out = None if place is None else place.path.absolute()
    parent = Path(tempfile.gettempdir()) if out is None else out.parent
    refuse_stray_bytes(parent)
    hidden = parent / hidden_name("feat2vec" if out is None else out.name)
    is_made = False
    try:  # an interrupt leaves nothing behind, whenever it comes
        make_parents(hidden)
        record_hidden(hidden)
        is_made = True  # before it is: an interrupt may come between the two
        try:
            with named_instead(hidden, hidden if place is None else place.path):
                hidden.mkdir(mode=0o700 if out is None else 0o777)
        except OSError:
            is_made = False
            raise
        kind = TEMPORARY if place is None else place.kind
        if kind is not None:
            write_mark(hidden, kind, new_id())
        yield hidden
        if place is not None:
            if place.kind is not None:
                record_all(hidden)
            elif _is_work_folder(parent):
                record_folder_in(parent, place.path.name, hidden)
            publish_folder(hidden, place)
    except BaseException as error:
        if is_made:
            shutil.rmtree(hidden, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:  # such as a full disk, by code that knows no path
            remedy = "make room, or choose another folder" + (" by TMPDIR" if out is None else "")
            raise OSError(error.errno, f"{error.strerror or error}; {remedy}", str(parent)) from error
        raise


def _is_work_folder(folder: Path) -> bool:
    mark = read_mark(folder)
    return mark is not None and mark.kind == TRAINING


def publish_folder(folder: Path, place: FolderPlace) -> None:
    """Rename a finished folder to its place, and then remove what it replaces.

    Args:
        folder: The finished folder, which lies in the same file system.
        place: Where it appears, as `folder_place` checked it before the work began.

    Raises:
        FailedError: Something else has appeared at the place since then. It stays, and so does the finished folder.

    """
    out = place.path.absolute()
    replaced: Path | None = None  # the hidden name of the folder that was there before
    if os.path.lexists(out):
        mark = read_mark(out)
        if place.replaces is not None and mark is not None and mark.id == place.replaces:
            refuse_foreign(out)
            replaced = out.with_name(hidden_name(out.name))
            record_hidden(replaced)
            new_mark = read_mark(folder)
            note(out, **{MOVED: [out.name, replaced.name, "" if new_mark is None else new_mark.id]})
            out.rename(replaced)
        elif place.replaces_empty and not out.is_symlink() and _is_empty(out):
            out.rmdir()
        else:
            raise FailedError(f"{place.path}: appeared while the work was done, and is not replaced; move it elsewhere")
    try:
        folder.rename(out)
    except BaseException:
        if replaced is not None:
            replaced.rename(out)
        raise
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)  # it was checked to be feat2vec's under its own name


MOVED = "moved"  # the note of a folder that is replaced: its name, its hidden name, and the id of the new folder


def finish_replacement(out: Path) -> None:
    """Put right what a process left that was killed while it replaced a folder.

    The new folder gets its name if it is there, else the old one gets its name back.

    Args:
        out: The place of the folder.

    """
    for old, new in _unfinished_replacements(out):
        with suppress(OSError):
            if not os.path.lexists(out):
                (old if new is None else new).rename(out)
            if old.exists() and next(foreign_paths(old), None) is None:
                shutil.rmtree(old, ignore_errors=True)


def hidden_instead(out: Path) -> Path | None:
    """The folder that `finish_replacement` would give this name; None if there is none."""
    replacements = [] if os.path.lexists(out) else _unfinished_replacements(out)
    return next((old if new is None else new for old, new in replacements), None)


def _unfinished_replacements(out: Path) -> list[tuple[Path, Path | None]]:
    """The folders that were moved aside for another one, each with that one, if it is beside it."""
    marks = _hidden_folders_beside(out)
    replacements: list[tuple[Path, Path | None]] = []
    for old, mark in marks.items():
        match mark.notes.get(MOVED):
            case [out.name, old.name, str(new_id)]:
                new = next((path for path, new_mark in marks.items() if new_mark.id == new_id), None)
                replacements.append((old, new))
    return replacements


def _hidden_folders_beside(out: Path) -> dict[Path, Mark]:
    """The marked folders whose hidden names are made of a folder's name."""
    parent, beginning = out.absolute().parent, hidden_name(out.name).rpartition("-")[0]
    if not parent.is_dir():
        return {}
    paths = sorted(path for path in parent.iterdir() if path.name.startswith(f"{beginning}-"))
    marks = {path: read_mark(path) for path in paths}
    return {path: mark for path, mark in marks.items() if mark is not None}


def remove_folder(folder: Path, *kinds: str) -> None:
    """Remove a folder that feat2vec made; one that is not there is fine.

    Args:
        folder: The folder.
        *kinds: What its mark may say that it is.

    Raises:
        UserError: It is a link, has no mark or another kind's, or holds something that feat2vec did not write.

    """
    if not os.path.lexists(folder):
        return
    mark = read_mark(folder)
    if mark is None or mark.kind not in kinds:
        why = why_unmarked(folder)
        raise UserError(f"{folder}: {why}; it is not removed: move it elsewhere, or choose another --out")
    refuse_foreign(folder)
    # Under another name first: an interrupt must not leave half a folder without its mark.
    shutil.rmtree(_hidden_away(folder))


def _hidden_away(folder: Path) -> Path:
    """Give a folder that is about to be removed a hidden name, under which a kill may leave a part of it."""
    hidden = folder.with_name(hidden_name(folder.name))
    record_hidden(hidden)
    folder.rename(hidden)
    return hidden


def remove_inside(folder: Path, name: str) -> None:
    """Remove an entry of a folder whose mark says that feat2vec wrote it; one that is not there is fine.

    Args:
        folder: A marked folder.
        name: The entry, a file or a folder. A link is removed, and not what it leads to.

    Raises:
        UserError: The folder's mark does not name it.

    """
    path, mark = folder / name, read_mark(folder)
    if not os.path.lexists(path):
        return
    is_folder = path.is_dir() and not path.is_symlink()
    foreign_path: Path | None = None
    if is_folder:
        foreign_path = next(foreign_paths_below(folder, name), None)
    elif mark is None or not (mark.covers(name) if path.is_symlink() else mark.is_as_written(folder, name)):
        foreign_path = path
    if foreign_path is not None:
        what = "was changed after feat2vec wrote it" if was_written(foreign_path) else "feat2vec did not write it"
        raise UserError(f"{foreign_path}: {what}; it is not removed: move it elsewhere")
    if is_folder:
        shutil.rmtree(_hidden_away(path))
    else:
        path.unlink()


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process has left under hidden names in a folder that this process holds the lock of."""
    mark = read_mark(folder)
    for name in [] if mark is None else sorted(mark.names):
        if name.startswith("."):
            remove_inside(folder, name.rstrip("/"))


@contextmanager
def scratch_folder(folder: Path, name: str) -> Iterator[Path]:
    """Make a folder below one that is being written; at the end it is removed, whatever happens."""
    scratch = folder / name
    record_hidden(scratch)
    scratch.mkdir(mode=0o700)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def temporary_folder() -> Path:
    """Make a private folder in the system's place for temporary files; `discard_temporary` ends it."""
    folder = Path(tempfile.mkdtemp(prefix="feat2vec-"))
    write_mark(folder, TEMPORARY, new_id())
    return folder


def discard_temporary(folder: Path) -> None:
    """Remove a temporary folder; errors are ignored, as the process may be ending."""
    with suppress(OSError, UserError):
        remove_folder(folder, TEMPORARY)
