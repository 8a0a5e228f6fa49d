"""Files that appear whole: each is written under a hidden name beside its own, and renamed when it is complete.

Three functions share this, and differ in what may be replaced:

- `new_file`: a file where the user asked for one. It replaces nothing, or with `force` a file that feat2vec signed.
- `file_in`: a file of a marked folder. It replaces a file that feat2vec wrote, and is recorded in the folder's mark.
- `replacing_file`: a file of a folder that is being made, and that nobody else knows yet. It replaces any file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from feat2vec.errors import FailedError, UserError, writing
from feat2vec.writing.folder_marks import (
    Mark,
    make_parents,
    read_mark,
    record,
    record_files,
    record_hidden,
    why_unmarked,
)
from feat2vec.writing.output_paths import file_place, hidden_name, named_instead, refuse_links_inside
from feat2vec.writing.signatures import is_signed, signed_text

LONGEST_SUFFIX = 20  # characters; what is longer is no suffix that a library would look at

JsonObject: TypeAlias = dict[str, Any]  # nested plain data, as JSON holds them


@contextmanager
def new_file(out: str | Path, *, force: bool = False) -> Iterator[Path]:
    """Write a file where the user asked for one.

    Args:
        out: Where it appears.
        force: Whether a file that feat2vec wrote may be replaced.

    Yields:
        The path to write to.

    Raises:
        UserError: The place is taken or no place for a file.
        FailedError: Something has appeared at the place while the file was written.

    """
    out = file_place(out, force=force)

    def publish(hidden: Path) -> None:
        if force and is_signed(out):
            hidden.replace(out)
        else:
            _rename_to_free_name(hidden, out)

    hidden = _hidden_path(out)
    with writing(out), _written_aside(out, hidden, publish):
        record_hidden(hidden)
        yield hidden


def write_text(out: str | Path, text: str, *, force: bool = False) -> None:
    """Write a text as `new_file` does, as UTF-8 and with a signature; what has no encoding is escaped."""
    with new_file(out, force=force) as hidden:
        hidden.write_bytes(signed_text(text, Path(out).suffix))


@contextmanager
def file_in(folder: Path, name: str, *, whatever_it_holds: bool = False) -> Iterator[Path]:
    """Write a file of a folder that feat2vec made, where there is none or one that feat2vec wrote.

    Args:
        folder: A marked folder.
        name: The file's path below it, with "/" between its parts.
        whatever_it_holds: Whether the file is recorded by its name alone, so that it is replaced also if it was
            changed or damaged: for what is computed again at any time.

    Yields:
        The path to write to.

    Raises:
        UserError: The folder has no mark, the way to the file leads over a link, or another file has its name.

    """
    out, mark = check_file_in(folder, name)
    make_parents(out)
    if whatever_it_holds:
        record(folder, name)
    is_known_by_name = whatever_it_holds or (name in mark.names and name not in mark.files)

    def publish(hidden: Path) -> None:
        if not is_known_by_name:
            record_files(folder, {name: hidden})
        hidden.replace(out)

    hidden = _hidden_path(out)
    with writing(out), _written_aside(out, hidden, publish):
        # Before the file is there: a process that is killed may leave it, and it must be known as feat2vec's.
        record(folder, hidden.relative_to(folder).as_posix())
        yield hidden


def check_file_in(folder: Path, name: str) -> tuple[Path, Mark]:
    """Check the place of a file of a marked folder, as `file_in` does; return it and the folder's mark."""
    mark = read_mark(folder)
    if mark is None:
        raise UserError(f"{folder}: {why_unmarked(folder)}; nothing is added to it")
    out = refuse_links_inside(folder, name)
    if out.exists() and not mark.is_as_written(folder, name) and not is_signed(out):
        raise UserError(f"{out}: is in the way, and feat2vec did not write it; move it elsewhere")
    return out, mark


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Write a file of a folder that is being made; the file that it replaces can be read until the new one is whole.

    If the folder has a mark, the file is recorded in it, so that it can be told from what others put there.

    Args:
        path: Where it appears. No check is made: the folder has to be one that `new_folder` or `work_folder` gave.

    Yields:
        The path to write to.

    """

    def publish(hidden: Path) -> None:
        if read_mark(path.parent) is not None:
            record_files(path.parent, {path.name: hidden})
        hidden.replace(path)

    hidden = _hidden_path(path)
    with _written_aside(path, hidden, publish):
        record_hidden(hidden)
        yield hidden


def replace_durably(partial: Path, path: Path) -> None:
    """Rename a file that was written under another name, once the disk has all of it.

    For a file that is written in one thread and renamed in another, as checkpoints are.

    Args:
        partial: The complete file.
        path: Its name, in the same folder. A file that has it is replaced.

    """
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


@contextmanager
def _written_aside(out: Path, hidden: Path, publish: Callable[[Path], object]) -> Iterator[Path]:
    """Yield a hidden path, and call `publish` with it once the file is complete; on an error it is removed."""
    try:
        with named_instead(hidden, out):
            yield hidden
            publish(hidden)
    finally:
        with suppress(OSError):
            hidden.unlink()


def _hidden_path(out: Path) -> Path:
    """A hidden path beside a file's, with its suffix, as libraries tell formats by suffixes."""
    return out.with_name(hidden_name(out.name, out.suffix if len(out.suffix) < LONGEST_SUFFIX else ""))


def _rename_to_free_name(hidden: Path, out: Path) -> None:
    """Rename a file to a name that nothing has; a plain rename would replace a file that has just appeared."""
    appeared = FailedError(f"{out}: appeared while the file was written, and is not replaced; choose another name")
    try:
        os.link(hidden, out)
    except FileExistsError:
        raise appeared from None
    except OSError:  # a file system without hard links
        if os.path.lexists(out):
            raise appeared from None
        hidden.rename(out)


def read_json(path: Path) -> JsonObject:
    """Read a JSON object.

    Raises:
        ValueError: The file is not JSON, or holds another value than an object.
        OSError: The file cannot be read.

    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deep") from None
    if not isinstance(facts, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return facts
