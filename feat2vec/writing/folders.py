"""Folders that appear whole, take the place of nothing that is not feat2vec's own, and are removed only if they are."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feat2vec.errors import FailedError, UserError, refuse_stray_bytes, writing
from feat2vec.writing.locks import is_locked
from feat2vec.writing.marks import TEMPORARY, foreign_paths, new_id, read_mark, record_all, unmarked, write_mark
from feat2vec.writing.places import hidden_name, named_instead, refuse_bad_folder


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
        why = unmarked(out) if mark is None else f"is feat2vec's, of the kind {mark.kind!r}"
        raise UserError(f"{out}: is no {kind}, and --force replaces nothing else; {remedy}", f"  it {why}")
    refuse_foreign(out)
    return FolderPlace(out, kind, replaces=mark.id)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def refuse_foreign(folder: Path) -> None:
    """Raise if a marked folder holds something that feat2vec did not write, or that a process is writing below it."""
    strange = next(foreign_paths(folder), None)
    if strange is not None:
        raise UserError(
            f"{folder}: holds {strange.relative_to(folder)}, which feat2vec did not write; move it elsewhere first"
        )
    for above, names, _ in os.walk(folder):
        for inside in (Path(above, name) for name in names):
            if read_mark(inside) is not None and is_locked(inside):
                raise UserError(f"{inside}: another process is at work in it; wait until it has ended")


def mark_folder(folder: Path, kind: str, names: Sequence[str]) -> None:
    """Make a folder for work that goes on for a while, or take one that is empty; `names` are what it will hold."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(folder):
        if folder.is_symlink() or not _is_empty(folder):
            raise UserError(f"{folder}: {unmarked(folder)}; move it elsewhere, or choose another --out")
        folder.rmdir()
    made = folder.with_name(hidden_name(folder.name))
    is_made = False
    try:
        with writing(folder), named_instead(made, folder):
            made.mkdir()
            is_made = True
            write_mark(made, kind, new_id(), names)
            made.rename(folder)  # with its mark: an interrupt leaves no folder without one
    except BaseException:
        if is_made:
            shutil.rmtree(made, ignore_errors=True)
        raise


@contextmanager
def new_folder(place: FolderPlace | None) -> Iterator[Path]:
    """A folder to write into, which gets its name when it is whole; on an error it is removed.

    Args:
        place: Where it appears. None stands for a temporary folder, which keeps the name it has.

    Yields:
        The folder that is written to.

    """
    out = None if place is None else place.path.absolute()
    parent = Path(tempfile.gettempdir()) if out is None else out.parent
    refuse_stray_bytes(parent)
    folder = parent / hidden_name("feat2vec" if out is None else out.name)
    is_made = False
    try:  # an interrupt leaves nothing behind, whenever it comes
        parent.mkdir(parents=True, exist_ok=True)
        with named_instead(folder, folder if place is None else place.path):
            folder.mkdir(mode=0o700 if out is None else 0o777)
        is_made = True
        kind = TEMPORARY if place is None else place.kind
        if kind is not None:
            write_mark(folder, kind, new_id())
        yield folder
        if place is not None:
            if place.kind is not None:
                record_all(folder)
            publish_folder(folder, place)
    except BaseException as error:
        if is_made:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk, told by who knows no place
            remedy = "make room, or choose another folder" + (" by TMPDIR" if out is None else "")
            raise OSError(error.errno, f"{error.strerror or error}; {remedy}", str(parent)) from error
        raise


def publish_folder(folder: Path, place: FolderPlace) -> None:
    """Give a finished folder its name; what it replaces is removed after that.

    Args:
        folder: The finished folder, which lies in the same file system.
        place: Where it appears, as `folder_place` checked it before the work began.

    Raises:
        FailedError: Something else has appeared at the place since then. It stays, and so does the finished folder.

    """
    out, old = place.path.absolute(), None
    if os.path.lexists(out):
        mark = read_mark(out)
        if place.replaces is not None and mark is not None and mark.id == place.replaces:
            refuse_foreign(out)
            old = out.with_name(hidden_name(out.name))
            out.rename(old)
        elif place.replaces_empty and not out.is_symlink() and _is_empty(out):
            out.rmdir()
        else:
            raise FailedError(f"{place.path}: appeared while the work was done, and is not replaced; move it elsewhere")
    try:
        folder.rename(out)
    except BaseException:
        if old is not None:
            old.rename(out)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)  # it was proven to be feat2vec's own under its name


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
        raise UserError(f"{folder}: {unmarked(folder)}; it is not removed: move it elsewhere, or choose another --out")
    refuse_foreign(folder)
    # Under another name first: an interrupt must not leave half a folder without its mark.
    gone = folder.with_name(hidden_name(folder.name))
    folder.rename(gone)
    shutil.rmtree(gone)


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
    if mark is None or not mark.covers(name):
        raise UserError(f"{path}: feat2vec did not write it, and does not remove it; move it elsewhere")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def scratch_folder(folder: Path, name: str) -> Iterator[Path]:
    """A folder below one that is being written, which is removed at the end, whatever happens."""
    scratch = folder / name
    scratch.mkdir()
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
    """Remove a temporary folder, as far as that can be: it may be the end of the process."""
    with suppress(OSError, UserError):
        remove_folder(folder, TEMPORARY)
