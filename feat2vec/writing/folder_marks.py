"""The mark of a folder that feat2vec made: it tells what feat2vec wrote there from what others wrote.

A mark is the file `.feat2vec` of a folder: a first line with the kind of the folder and a random id, then a line for
each entry that feat2vec wrote there. The line of a finished file has its size, time and digest, so that a file that
somebody else has put under its name is told; that of a file that feat2vec still works with has its name alone. Lines
are only ever appended, so that several processes can record what they add.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from feat2vec.errors import UserError
from feat2vec.writing.signatures import digest_of, is_signed

MARK = ".feat2vec"
FORMAT = 1
TEMPORARY, TRAINING = "temporary", "training"  # kinds of folders
MAX_MARK_BYTES = 1 << 26


class WrittenFile(NamedTuple):
    """A file as feat2vec left it."""

    size: int
    mtime_ns: int
    digest: str

    def is_same(self, path: Path) -> bool:
        """Whether a file is still as it was; it is read only if its time is another one, as that of a copy is."""
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != self.size:
            return False
        return status.st_mtime_ns == self.mtime_ns or digest_of(path) == self.digest


@dataclass(frozen=True)
class Mark:
    """What a folder's mark says.

    Args:
        kind: What the folder is: "run", "export", "encoder", "rows", "training", "tuning" or "temporary".
        id: The random id that was drawn when the folder was made.
        names: Paths below the folder that feat2vec wrote, with "/" between their parts; a name that ends in "/" stands
            for everything below it.
        files: What is known of those that are finished files. Of one that was replaced, each version.
        notes: Facts for whoever comes after a process that was killed, by their names.

    """

    kind: str
    id: str
    names: frozenset[str] = frozenset()
    files: Mapping[str, Sequence[WrittenFile]] = field(default_factory=dict)
    notes: Mapping[str, object] = field(default_factory=dict)

    def covers(self, path: str) -> bool:
        """Whether a path below the folder was recorded, or lies in a folder that was.

        >>> mark = Mark("run", "5e", frozenset({"model.keras", "rows/"}))
        >>> mark.covers("model.keras"), mark.covers("rows/a.npy"), mark.covers("notes.txt")
        (True, True, False)
        """
        return path in self.names or self.covers_all_below(path)

    def covers_all_below(self, path: str) -> bool:
        """Whether a path was recorded as a folder with all that it holds, or lies in one.

        >>> mark = Mark("run", "5e", frozenset({"model.keras", "rows/"}))
        >>> mark.covers_all_below("rows"), mark.covers_all_below("model.keras")
        (True, False)
        """
        if self.kind == TEMPORARY:  # private to the process that made it
            return True
        parts = path.split("/")
        return any("/".join(parts[:count]) + "/" in self.names for count in range(1, len(parts) + 1))

    def is_as_written(self, folder: Path, name: str) -> bool:
        """Whether a file of the marked folder was recorded, and is still as feat2vec left it."""
        if name in self.files and not self.covers_all_below(name):
            return any(file.is_same(folder / name) for file in self.files[name])
        return self.covers(name)


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
        first_line, *lines = (folder / MARK).read_text(encoding="utf-8").splitlines()
        facts = json.loads(first_line)
        if facts["feat2vec"] != FORMAT:
            return None
        return Mark(str(facts["kind"]), str(facts["id"]), *_read_entries(lines))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read_entries(lines: Iterable[str]) -> tuple[frozenset[str], dict[str, list[WrittenFile]], dict[str, object]]:
    """The names that lines record, what they say of files, and notes."""
    names: set[str] = set()
    files: dict[str, list[WrittenFile]] = {}
    notes: dict[str, object] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # a line that a crash cut off
            continue
        if isinstance(entry, str):
            names.add(entry)
        elif isinstance(entry, list) and [type(fact) for fact in entry] == [str, int, int, str]:
            name, *facts = entry
            names.add(name)
            files.setdefault(name, []).append(WrittenFile(*facts))
        elif isinstance(entry, dict):
            notes.update(entry)
    return frozenset(names), files, notes


def record(folder: Path, *names: str) -> None:
    """Add names to a folder's mark: feat2vec wrote them, and may replace or remove them whatever they hold.

    Raises:
        UserError: The folder has no mark, so that nothing in it can be told from what others wrote.

    """
    mark = _mark_to_add_to(folder)
    _append(folder, [name for name in names if name not in mark.names])


def record_files(folder: Path, paths: Mapping[str, Path], digests: Mapping[str, str] | None = None) -> None:
    """Add finished files to a folder's mark, as they are now.

    Args:
        folder: The folder.
        paths: Where the file of each name is now, which may be another place.
        digests: The SHA-256 of files, by their names, where it is known already; "" where none is needed.

    Raises:
        UserError: The folder has no mark.

    """
    mark = _mark_to_add_to(folder)
    lines: list[list[object]] = []
    for name, path in paths.items():
        status = path.stat()
        digest = digest_of(path) if digests is None or name not in digests else digests[name]
        written = WrittenFile(status.st_size, status.st_mtime_ns, digest)
        if written not in mark.files.get(name, ()):
            lines.append([name, *written])
    _append(folder, lines)


def record_all(folder: Path) -> None:
    """Record every file below a folder that nobody else could write to until now, and every empty folder."""
    mark = _mark_to_add_to(folder)
    paths: dict[str, Path] = {}
    empty_folders: list[str] = []
    for parent, folder_names, file_names in os.walk(folder):
        if not folder_names and not file_names:
            empty_folders.append(Path(parent).relative_to(folder).as_posix())
        for file_name in file_names:
            path = Path(parent, file_name)
            name = path.relative_to(folder).as_posix()
            if path != folder / MARK and name not in mark.names:
                paths[name] = path
    record(folder, *sorted(empty_folders))
    record_files(folder, dict(sorted(paths.items())))


def record_folder_in(root: Path, name: str, folder: Path) -> None:
    """Record the files of a folder in the mark of another one, in which it gets a name.

    They have no digest, as there may be many gigabytes of them and nobody copies them.

    Args:
        root: The folder with the mark.
        name: The name below it that the folder gets.
        folder: The folder, which nobody else could write to until now.

    """
    paths = {f"{name}/{path.relative_to(folder).as_posix()}": path for path in folder.rglob("*")}
    record(root, *(name for name, path in paths.items() if path.is_dir()))
    files = {name: path for name, path in paths.items() if path.is_file()}
    record_files(root, files, dict.fromkeys(files, ""))


def record_hidden(path: Path) -> None:
    """Record a hidden file or folder, with all below it, in the marked folder that it lies in, if it lies in one.

    It is done before the path is made: a process that is killed may leave it, and it must be known as feat2vec's.
    """
    path = path.absolute()
    root = next((parent for parent in path.parents if read_mark(parent) is not None), None)
    if root is not None:
        with suppress(PermissionError):  # of a folder of somebody else's, in which there is one that can be written to
            record(root, f"{path.relative_to(root).as_posix()}/")


def make_parents(path: Path) -> None:
    """Make the folders above a path; those within a marked folder are recorded in it, as they may stay empty."""
    path = path.absolute()
    missing = [parent for parent in path.parents if not parent.exists()]
    if missing:
        root = next((parent for parent in missing[-1].parents if read_mark(parent) is not None), None)
        if root is not None:
            record(root, *(parent.relative_to(root).as_posix() for parent in missing))
    path.parent.mkdir(parents=True, exist_ok=True)


def _mark_to_add_to(folder: Path) -> Mark:
    mark = read_mark(folder)
    if mark is None:
        raise UserError(f"{folder}: {why_unmarked(folder)}; nothing is added to it")
    return mark


def note(folder: Path, **notes: object) -> None:
    """Add facts to a folder's mark; each takes the place of an earlier one of its name."""
    _append(folder, [notes])


def _append(folder: Path, entries: Sequence[object]) -> None:
    """Add lines to a folder's mark."""
    if not entries:
        return
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(folder / MARK, flags), "ab") as file:
        file.write(text.encode())


def why_unmarked(folder: Path) -> str:
    """Say why a path has no mark: it is a link, no folder, or not made by feat2vec."""
    if folder.is_symlink():
        return "is a link, which feat2vec does not follow"
    if not folder.is_dir():
        return "is no folder"
    return f"was not made by feat2vec, or by an earlier version (it has no {MARK})"


def was_written(path: Path) -> bool:
    """Whether the mark of a folder above records a file's name."""
    marks = ((parent, read_mark(parent)) for parent in path.parents)
    return any(mark is not None and path.relative_to(parent).as_posix() in mark.files for parent, mark in marks)


def foreign_paths(folder: Path) -> Iterator[Path]:
    """Yield the paths in a marked folder that feat2vec did not write, or that were changed since.

    Of a folder without a mark, itself.
    """
    mark = read_mark(folder)
    if mark is None:
        yield folder
        return
    yield from _foreign_below(folder, mark, "")


def foreign_paths_below(root: Path, name: str) -> Iterator[Path]:
    """Yield the paths in a folder of a marked one that feat2vec did not write, or that were changed since."""
    mark = read_mark(root)
    if mark is None:
        yield root / name
    elif read_mark(root / name) is not None and not mark.covers_all_below(name):
        yield from foreign_paths(root / name)
    elif not mark.covers_all_below(name):
        yield from _foreign_below(root, mark, f"{name}/")


def _foreign_below(root: Path, mark: Mark, prefix: str) -> Iterator[Path]:
    """Yield the foreign paths of the folder that lies at `prefix` below the marked one, `root`."""
    with os.scandir(root / prefix) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    if not entries and prefix.rstrip("/") not in mark.names:
        yield root / prefix
    for entry in entries:
        path, name = Path(entry.path), f"{prefix}{entry.name}"
        if entry.is_symlink():
            yield path
        elif entry.is_dir():
            if mark.covers_all_below(name):
                continue
            yield from foreign_paths(path) if read_mark(path) is not None else _foreign_below(root, mark, f"{name}/")
        elif name != MARK and not mark.is_as_written(root, name) and not is_signed(path):
            yield path
