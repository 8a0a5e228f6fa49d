"""The mark of a folder that feat2vec made: it tells what feat2vec wrote there from what others wrote.

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
MAX_MARK_BYTES = 1 << 26


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
        if path in self.names:
            return True
        parts = path.split("/")
        return any("/".join(parts[:count]) + "/" in self.names for count in range(1, len(parts) + 1))


def new_id() -> str:
    """A random id for a folder."""
    return secrets.token_hex(16)


def write_mark(folder: Path, kind: str, folder_id: str, names: Iterable[str] = ()) -> None:
    """Mark a folder that was just made; one that has a mark already is an error."""
    facts = {"feat2vec": FORMAT, "kind": kind, "id": folder_id}
    lines = [json.dumps(facts), *(json.dumps(name) for name in names)]
    with (folder / MARK).open("x", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def read_mark(folder: Path) -> Mark | None:
    """The mark of a folder; None where there is none that can be read, and for links."""
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return None
        status = (folder / MARK).lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_MARK_BYTES:
            return None
        first_line, *name_lines = (folder / MARK).read_text(encoding="utf-8").splitlines()
        facts = json.loads(first_line)
        if facts["feat2vec"] != FORMAT:
            return None
        return Mark(str(facts["kind"]), str(facts["id"]), frozenset(_read_names(name_lines)))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_names(lines: Iterable[str]) -> Iterator[str]:
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
        raise UserError(f"{folder}: {why_unmarked(folder)}; nothing is added to it")
    text = "".join(json.dumps(name) + "\n" for name in names if name not in mark.names)
    if text:
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(folder / MARK, flags), "ab") as file:
            file.write(text.encode())


def record_all(folder: Path) -> None:
    """Record every file below a folder that nobody else could write to until now."""
    names = []
    for parent, _, file_names in os.walk(folder):
        for file_name in file_names:
            path = Path(parent, file_name)
            if path != folder / MARK:
                names.append(path.relative_to(folder).as_posix())
    record(folder, *sorted(names))


def why_unmarked(folder: Path) -> str:
    """Say why a path has no mark: it is a link, no folder, or not made by feat2vec."""
    if folder.is_symlink():
        return "is a link, which feat2vec does not follow"
    if not folder.is_dir():
        return "is no folder"
    return f"was not made by feat2vec, or by an earlier version (it has no {MARK})"


def foreign_paths(folder: Path) -> Iterator[Path]:
    """Yield the paths in a marked folder that feat2vec did not write; of a folder without a mark, itself."""
    mark = read_mark(folder)
    if mark is None:
        yield folder
        return
    yield from _foreign_below(folder, mark, "")


def _foreign_below(folder: Path, mark: Mark, prefix: str) -> Iterator[Path]:
    """Yield the foreign paths of a folder that lies at `prefix` below the one that is marked."""
    with os.scandir(folder) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
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
