"""Where results may be written: what is wrong with a place is said before any work is done."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from feat2vec.errors import UserError, refuse_stray_bytes
from feat2vec.writing.signatures import is_signed

LONGEST = 120  # bytes of a name


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
        is_file = f"{out.parent} is a file, not a folder; choose another place"
        raise UserError(
            f"{out}: {is_file if out.parent.exists() else f'there is no folder {out.parent}; make it first'}"
        )
    refuse_unwritable(out, out.parent)
    return out


def refuse_bad_folder(out: str | Path) -> Path:
    """Check that a folder can be made at a place, with those above it, or is there; return its path."""
    out = _named(out, "folder")
    refuse_stray_bytes(out)
    above = next(above for above in out.absolute().parents if above.exists())
    if not above.is_dir():
        raise UserError(f"{out}: {_short(above)} is a file, not a folder; choose another place")
    refuse_unwritable(out, above)
    return out


def _named(out: str | Path, what: str) -> Path:
    """A path whose last part is a name, and no link."""
    text, out = os.fspath(out), Path(out)
    if not text or "\0" in text or out.name in ("", "..") or not out.absolute().name:
        raise UserError(
            f"{text!r} names no new {what}; give a name, such as {'runs/films' if what == 'folder' else 'out/films'}"
        )
    try:
        out.lstat()
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP):
            raise UserError(f"{out}: {error.strerror}; choose another name") from None
    if out.is_symlink():
        raise UserError(
            f"{out}: is a link to {os.readlink(out)}; feat2vec neither follows nor replaces it: name the {what} itself"
        )
    return out


# Errors of a folder in which no file can be made, whatever its permissions say: /proc, /sys, a read-only disk.
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)


def refuse_unwritable(out: Path, folder: Path) -> None:
    """Raise if nothing may be written to a folder; making a file tells more than permissions do."""
    probe = folder / hidden_name(out.name)
    try:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with named_instead(probe, out):
            os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            probe.unlink()
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise UserError(f"{out}: nothing may be written to {_short(folder)}; choose another place") from None


def _short(path: Path) -> Path:
    """A path as seen from here."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def hidden_name(name: str, ending: str = "") -> str:
    """A name beside another one that nothing has, for what is not whole yet; file systems take 255 bytes.

    >>> hidden_name("films.html", ".html").startswith(".films.html-"), len(hidden_name("名" * 85).encode())
    (True, 108)
    """
    first = name.encode("utf-8", "surrogateescape")[:90].decode("utf-8", "ignore")
    return f".{first}-{os.urandom(8).hex()}{ending}"


@contextmanager
def named_instead(hidden: Path, place: Path) -> Iterator[None]:
    """A system's error that names what is not whole yet is raised again with the name that the user gave."""
    try:
        yield
    except OSError as error:
        if error.filename is None or os.fsdecode(error.filename) != str(hidden):
            raise
        raise OSError(error.errno, error.strerror, str(place)) from error


def is_component(name: str) -> bool:
    """Whether a name from a file, such as a recipe's table, can be one part of a path and stays where it is put.

    >>> [is_component(name) for name in ("films", "tag list", "../films", "/abs/films", "..", ".hidden", "a\\nb", "")]
    [True, True, False, False, False, False, False, False]
    """
    whole = bool(name) and name == name.strip() and len(name.encode("utf-8", "surrogatepass")) <= LONGEST
    return whole and name.isprintable() and not name.startswith(".") and not set(name) & set('/\\:*?"<>|')


def refuse_links_inside(folder: Path, name: str) -> Path:
    """The path of an entry below a folder, to which no link leads.

    Raises:
        UserError: The entry or a folder on the way to it is a link.

    """
    path = folder / name
    for part in (path, *path.parents):
        if part == folder:
            break
        if part.is_symlink():
            raise UserError(f"{part}: is a link, which feat2vec neither follows nor replaces; remove it")
    return path


def refuse_inputs_inside(folders: Iterable[Path], inputs: Iterable[str | Path]) -> None:
    """Raise if a file that is read lies in a folder that is about to be replaced or removed.

    Args:
        folders: The folders.
        inputs: Files and folders that are read.

    Raises:
        UserError: One of the inputs is one of the folders, or lies in it.

    """
    replaced = [folder.resolve() for folder in folders]
    for path in inputs:
        read = Path(path).resolve()
        for folder in replaced:
            if read.is_relative_to(folder):
                what = "is read, and would be" if read == folder else f"lies in {_short(folder)}, which is"
                raise UserError(f"{path}: {what} replaced; copy it elsewhere, or choose another --out")
