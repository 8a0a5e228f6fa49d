"""Where results may be written: what is wrong with a place is said before any work is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from feat2vec.errors import UserError


def file_place(out: str | Path, *, force: bool = False) -> Path:
    """The place of a file: not taken, or by a file that `force` replaces, in a folder that is there."""
    out = Path(out)
    if out.is_dir():
        raise UserError(f"{out}: is a folder; choose another name")
    if out.exists() and not force:
        raise UserError(f"{out}: exists already; choose another name, or add --force to replace it")
    if not out.parent.is_dir():
        is_file = f"{out.parent} is a file, not a folder; choose another place"
        raise UserError(
            f"{out}: {is_file if out.parent.exists() else f'there is no folder {out.parent}; make it first'}"
        )
    _writable(out, out.parent)
    return out


def folder_place(
    out: str | Path, what: str = "", is_one: Callable[[Path], bool] | None = None, *, force: bool = False
) -> Path:
    """The place of a folder that is made, with those above it.

    `force` replaces one that is there, if it is empty or what `is_one` says.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     folder_place(Path(folder) / "runs" / "films").name
    'films'
    """
    out = Path(out)
    if out.exists():
        remedy = "remove it or choose another folder" if is_one is None else "choose another folder"
        if not force:
            more = "" if is_one is None else ", or add --force to replace it"
            raise UserError(f"{out}: exists already; {remedy}{more}")
        empty = out.is_dir() and not any(out.iterdir())
        if not empty and not (is_one is not None and is_one(out)):
            raise UserError(f"{out}: is no {what}, and --force replaces nothing else; {remedy}")
    above = next(above for above in out.absolute().parents if above.exists())
    if not above.is_dir():
        raise UserError(f"{out}: {_short(above)} is a file, not a folder; choose another place")
    _writable(out, above)
    return out


def _writable(out: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{out}: nothing may be written to {_short(folder)}; choose another place")


def _short(path: Path) -> Path:
    """A path as seen from here."""
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
