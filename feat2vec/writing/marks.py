"""The mark of a folder that feat2vec made: the proof that it, and what it holds, is its own.

A mark is the file `.feat2vec` of a folder: a first line with the kind of the folder and a random id, then a line for
each entry that feat2vec wrote there. Lines are only ever appended, so that several processes can record what they add.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from feat2vec.errors import UserError
from feat2vec.writing.signatures import is_signed

MARK = ".feat2vec"
FORMAT = 1
TEMPORARY = "temporary"
LARGEST_MARK = 1 << 26  # bytes


@dataclass(frozen=True)
class Mark:
    """What a folder's mark says.

    Args:
        kind: What the folder is: "run", "export", "encoder", "rows", "training", "tuning" or "temporary".
        id: The random id that was drawn when the folder was made.
        names: Paths below the folder that feat2vec wrote, with "/" between their parts; a name that ends in "/" stands
            for everything below it.

    """

    kind: str
    id: str
    names: frozenset[str] = frozenset()

    def covers(self, path: str) -> bool:
        """Whether a path below the folder was recorded, or lies in a folder that was.

        >>> mark = Mark("run", "5e", frozenset({"model.keras", "rows/"}))
        >>> mark.covers("model.keras"), mark.covers("rows/a.npy"), mark.covers("notes.txt")
        (True, True, False)
        """
        if self.kind == TEMPORARY:  # private to the process that made it
            return True
        parts = path.split("/")
        above = ("/".join(parts[:count]) + "/" for count in range(1, len(parts) + 1))
        return path in self.names or any(name in self.names for name in above)


def new_id() -> str:
    """A random id for a folder."""
    return secrets.token_hex(16)


def write_mark(folder: Path, kind: str, folder_id: str, names: Iterable[str] = ()) -> None:
    """Mark a folder that was just made; one that has a mark already is an error."""
    first = {"feat2vec": FORMAT, "kind": kind, "id": folder_id}
    lines = [json.dumps(first), *map(json.dumps, names)]
    with (folder / MARK).open("x", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def read_mark(folder: Path) -> Mark | None:
    """The mark of a folder; None where there is none that can be read, and for links."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return None
        found = (folder / MARK).lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_MARK:
            return None
        first, *rest = (folder / MARK).read_text(encoding="utf-8").splitlines()
        facts = json.loads(first)
        if facts["feat2vec"] != FORMAT:
            return None
        return Mark(str(facts["kind"]), str(facts["id"]), frozenset(_names(rest)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _names(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        try:
            name = json.loads(line)
        except (ValueError, RecursionError):  # a line that a crash cut off
            continue
        if isinstance(name, str):
            yield name


def record(folder: Path, *names: str) -> None:
    """Add names to a folder's mark: feat2vec wrote them, and may replace or remove them.

    Raises:
        UserError: The folder has no mark, so that nothing in it can be told from what others wrote.

    """
    mark = read_mark(folder)
    if mark is None:
        raise UserError(f"{folder}: {unmarked(folder)}; nothing is added to it")
    text = "".join(json.dumps(name) + "\n" for name in names if name not in mark.names)
    if text:
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(folder / MARK, flags), "ab") as file:
            file.write(text.encode())


def record_all(folder: Path) -> None:
    """Record every file that a folder holds, for one that nobody else could write to until now."""
    paths = (Path(above, name) for above, _, names in os.walk(folder) for name in names)
    record(folder, *sorted(path.relative_to(folder).as_posix() for path in paths if path != folder / MARK))


def unmarked(folder: Path) -> str:
    """What is said of a folder without a mark, or a link."""
    if folder.is_symlink():
        return "is a link, which feat2vec does not follow"
    if not folder.is_dir():
        return "is no folder"
    return f"was not made by feat2vec, or by an earlier version (it has no {MARK})"


def foreign_paths(folder: Path) -> Iterator[Path]:
    """What lies in a marked folder and was not written by feat2vec."""
    mark = read_mark(folder)
    if mark is None:
        yield folder
        return
    yield from _foreign_below(folder, mark, "")


def _foreign_below(folder: Path, mark: Mark, prefix: str) -> Iterator[Path]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path, name = Path(entry.path), f"{prefix}{entry.name}"
        if entry.is_symlink():
            yield path
            continue
        if name == MARK or mark.covers(name):
            continue
        if not entry.is_dir():
            if not is_signed(path):
                yield path
        elif read_mark(path) is not None:
            yield from foreign_paths(path)
        else:
            yield from _foreign_below(path, mark, f"{name}/")
