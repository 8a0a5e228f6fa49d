"""Files that appear whole, and take the place of nothing that feat2vec did not write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feat2vec.errors import FailedError, UserError, writing
from feat2vec.writing.marks import read_mark, record, unmarked
from feat2vec.writing.places import file_place, hidden_name, named_instead, refuse_links_inside
from feat2vec.writing.signatures import is_signed, signed_text


@contextmanager
def new_file(out: str | Path, *, force: bool = False) -> Iterator[Path]:
    """A file to write, which gets its name when it is whole; on an error it is removed.

    Args:
        out: Where it appears.
        force: Whether a file that feat2vec wrote may be replaced.

    Yields:
        The path that is written to.

    Raises:
        UserError: The place is taken or no place for a file.
        FailedError: Something has appeared at the place while the file was written.

    """
    out = file_place(out, force=force)
    partial = _beside(out)
    try:
        with writing(out), named_instead(partial, out):
            yield partial
            if force and is_signed(out):
                partial.replace(out)
            else:
                _give_free_name(partial, out)
    finally:
        with suppress(OSError):
            partial.unlink()


def write_text(out: str | Path, text: str, *, force: bool = False) -> None:
    """Write text as UTF-8 into a file, signed, as `new_file` does; what has no encoding is escaped."""
    with new_file(out, force=force) as partial:
        partial.write_bytes(signed_text(text, Path(out).suffix))


def _give_free_name(partial: Path, out: Path) -> None:
    """Rename a file to a name that nothing has."""
    appeared = FailedError(f"{out}: appeared while the file was written, and is not replaced; choose another name")
    try:
        os.link(partial, out)
    except FileExistsError:
        raise appeared from None
    except OSError:  # a file system without hard links
        if os.path.lexists(out):
            raise appeared from None
        partial.rename(out)


def _beside(out: Path) -> Path:
    return out.with_name(hidden_name(out.name, out.suffix if len(out.suffix) < 20 else ""))


@contextmanager
def file_in(folder: Path, name: str) -> Iterator[Path]:
    """A file of a folder that feat2vec made, new or in the place of one that it wrote; it appears whole.

    Args:
        folder: A marked folder.
        name: The file's path below it, with "/" between its parts.

    Yields:
        The path that is written to.

    Raises:
        UserError: The folder has no mark, the way to the file leads over a link, or another file has its name.

    """
    mark = read_mark(folder)
    if mark is None:
        raise UserError(f"{folder}: {unmarked(folder)}; nothing is added to it")
    out = refuse_links_inside(folder, name)
    if out.exists() and not mark.covers(name) and not is_signed(out):
        raise UserError(f"{out}: is in the way, and feat2vec did not write it; move it elsewhere")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(out)
    try:
        with writing(out), named_instead(partial, out):
            # before it is there: an interrupt may leave it
            record(folder, name, partial.relative_to(folder).as_posix())
            yield partial
            partial.replace(out)
    finally:
        with suppress(OSError):
            partial.unlink()
