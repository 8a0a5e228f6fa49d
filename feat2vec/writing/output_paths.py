"""Checks of the places where results are to be written, before any work is done."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from feat2vec.errors import UserError, refuse_stray_bytes
from feat2vec.writing.folder_marks import record_hidden
from feat2vec.writing.signatures import is_signed

MAX_COMPONENT_BYTES = 120  # of a name that a recipe gives to a file
MAX_HIDDEN_BYTES = 90  # of a name that a hidden name begins with; file systems take 255


def file_place(out: str | Path, *, force: bool = False) -> Path:
    """Check the place of a file: a new name in a folder that is there.

    Args:
        out: The file.
        force: Whether a file that feat2vec wrote may be replaced.

    Returns:
        The file's path.

    Raises:
        UserError: The place is taken, a link, no name, or in a folder that is not there or may not be written to.

    """
    out = _named(out, "file")
    if out.is_dir():
        raise UserError(f"{out}: is a folder; choose another name")
    if out.exists() and not force:
        raise UserError(f"{out}: exists already; choose another name, or add --force to replace it")
    if out.exists() and not is_signed(out):
        raise UserError(
            f"{out}: is no file as feat2vec wrote it, and --force replaces nothing else; choose another name"
        )
    if not out.parent.is_dir():
        if out.parent.exists():
            raise UserError(f"{out}: {out.parent} is a file, not a folder; choose another place")
        raise UserError(f"{out}: there is no folder {out.parent}; make it first")
    refuse_unwritable(out, out.parent)
    return out


def refuse_bad_folder(out: str | Path) -> Path:
    """Check that a folder can be made at a place, with those above it, or is there; return its path."""
    out = _named(out, "folder")
    refuse_stray_bytes(out)
    ancestor = next(parent for parent in out.absolute().parents if parent.exists())
    if not ancestor.is_dir():
        raise UserError(f"{out}: {_short(ancestor)} is a file, not a folder; choose another place")
    refuse_unwritable(out, ancestor)
    return out


def _named(out: str | Path, kind: str) -> Path:
    """The path of a new file or folder, after a check that its last part is a name, and no link."""
    text, out = os.fspath(out), Path(out)
    if not text or "\0" in text or out.name in ("", "..") or not out.absolute().name:
        example = "runs/films" if kind == "folder" else "out/films"
        raise UserError(f"{text!r} names no new {kind}; give a name, such as {example}")
    try:
        out.lstat()
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP):
            raise UserError(f"{out}: {error.strerror}; choose another name") from None
    for count, part in enumerate(out.parts):
        above = Path(*out.parts[:count])
        if part == ".." and not above.is_dir():  # to make it would be of no use: the path leads out of it again
            raise UserError(f"{out}: there is no folder {above}, which `..` leads out of; leave it out of the path")
    if out.is_symlink():
        raise UserError(
            f"{out}: is a link to {os.readlink(out)}; feat2vec neither follows nor replaces it: name the {kind} itself"
        )
    return out


# Errors of folders in which no file can be made, whatever their permissions say: /proc, /sys, a read-only disk.
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def refuse_unwritable(out: Path, folder: Path) -> None:
    """Raise if no file can be made in a folder. A file is made and removed, as permissions do not tell."""
    probe = folder / hidden_name(out.name)
    try:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        record_hidden(probe)
        with named_instead(probe, out):
            os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            probe.unlink()
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        raise UserError(f"{out}: nothing may be written to {_short(folder)}; choose another place") from None


def _short(path: Path) -> Path:
    """A path relative to the working directory, if it lies below."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def hidden_name(name: str, ending: str = "") -> str:
    """A random hidden name beside another one, for a file or folder that is not complete yet.

    >>> hidden_name("films.html", ".html").startswith(".films.html-"), len(hidden_name("名" * 85).encode())
    (True, 108)
    """
    beginning = name.encode("utf-8", "surrogateescape")[:MAX_HIDDEN_BYTES].decode("utf-8", "ignore")
    return f".{beginning}-{os.urandom(8).hex()}{ending}"


@contextmanager
def named_instead(hidden: Path, place: Path) -> Iterator[None]:
    """Raise a system's error about a hidden path again, with the path that the user gave."""
    try:
        yield
    except OSError as error:
        if error.filename is None or os.fsdecode(error.filename) != str(hidden):
            raise
        raise OSError(error.errno, error.strerror, str(place)) from error


def is_component(name: str) -> bool:
    """Whether a name from a file, such as that of a recipe's table, can be one part of a path.

    >>> [is_component(name) for name in ("films", "tag list", "../films", "/abs/films", "..", ".hidden", "a\\nb", "")]
    [True, True, False, False, False, False, False, False]
    """
    if not name or name != name.strip() or len(name.encode("utf-8", "surrogatepass")) > MAX_COMPONENT_BYTES:
        return False
    return name.isprintable() and not name.startswith(".") and not set(name) & set('/\\:*?"<>|')


def refuse_links_inside(folder: Path, name: str) -> Path:
    """Check that no link leads to an entry of a folder.

    Args:
        folder: The folder, which may itself be a link.
        name: The entry's path below it, with "/" between its parts.

    Returns:
        The entry's path.

    Raises:
        UserError: The entry or a folder on the way to it is a link.

    """
    entry = folder / name
    for path in (entry, *entry.parents):
        if path == folder:
            break
        if path.is_symlink():
            raise UserError(f"{path}: is a link, which feat2vec neither follows nor replaces; remove it")
    return entry


def refuse_inputs_inside(folders: Iterable[Path], inputs: Iterable[str | Path]) -> None:
    """Raise if a file that is read lies in a folder that is about to be replaced or removed.

    Args:
        folders: The folders.
        inputs: Files and folders that are read.

    Raises:
        UserError: One of the inputs is one of the folders, or lies in it.

    """
    replaced_folders = [folder.resolve() for folder in folders]
    for path in inputs:
        input_path = Path(path).resolve()
        for folder in replaced_folders:
            if input_path.is_relative_to(folder):
                is_folder = input_path == folder
                reason = "is read, and would be" if is_folder else f"lies in {_short(folder)}, which is"
                raise UserError(f"{path}: {reason} replaced; copy it elsewhere, or choose another --out")
