"""A folder that one process works in: the second is told who holds it, and a crash leaves no lock behind."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feat2vec.errors import UserError
from feat2vec.writing.files import file_in
from feat2vec.writing.places import refuse_links_inside

LOCK, HOLDER = "lock", "lock.json"
FILES = (LOCK, f"{LOCK}-journal", HOLDER)  # what a locked folder holds for it


@contextmanager
def locked(folder: Path, work: str) -> Iterator[None]:
    """Hold a folder's lock.

    The lock is SQLite's on a file in the folder: the system frees it when the process ends, however it ends.

    Args:
        folder: A folder that is there.
        work: What is done in it, for the message, such as "training".

    Raises:
        UserError: It is held already, by another process or by this one.

    """
    for name in FILES:
        refuse_links_inside(folder, name)
    connection: sqlite3.Connection | None = None
    try:
        try:
            connection = _exclusive(folder)
        except sqlite3.DatabaseError as error:
            if not _is_held(error):
                raise UserError(f"{folder / LOCK}: cannot be locked ({error}); make room, or remove the file") from None
            raise UserError(f"{folder}: {_holder(folder, work)}; wait, or choose another --out") from None
        facts = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with file_in(folder, HOLDER) as file:
            file.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        yield
    finally:
        if connection is not None:
            connection.close()


def is_locked(folder: Path) -> bool:
    """Whether a process is at work in a folder; a lock that is a link, or damaged, is nobody's."""
    if any(not (folder / name).is_file() or (folder / name).is_symlink() for name in (LOCK, HOLDER)):
        return False
    try:
        _exclusive(folder).close()
    except sqlite3.DatabaseError as error:
        return _is_held(error)
    return False


def _exclusive(folder: Path) -> sqlite3.Connection:
    """A connection that holds the lock of a folder until it is closed."""
    connection = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_held(error: sqlite3.DatabaseError) -> bool:
    """Whether a lock cannot be had because a connection has it."""
    return str(error) == "database is locked"  # the error's code has a name from Python 3.11 on


def _holder(folder: Path, work: str) -> str:
    """Who holds a folder."""
    try:
        facts = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return f"{work} is at work in it: process {facts['process']} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{work} is at work in it in another process"
