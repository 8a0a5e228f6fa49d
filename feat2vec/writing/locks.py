"""Locks of folders: one process at a time works in a folder, and a second one is told which.

The lock is SQLite's lock on a file in the folder: the system frees it when the process ends, however it ends.
"""

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
from feat2vec.writing.output_paths import refuse_links_inside

LOCK, HOLDER = "lock", "lock.json"
LOCK_FILES = (LOCK, f"{LOCK}-journal", HOLDER)  # that a locked folder holds


@contextmanager
def locked(folder: Path, work: str) -> Iterator[None]:
    """Hold a folder's lock.

    Args:
        folder: A folder that is there.
        work: What is done in it, for the message, such as "training".

    Raises:
        UserError: It is held already, by another process or by this one.

    """
    for name in LOCK_FILES:
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
    """Whether a process holds a folder's lock; a lock that is a link, or damaged, is held by none."""
    if any(not (folder / name).is_file() or (folder / name).is_symlink() for name in (LOCK, HOLDER)):
        return False
    try:
        _exclusive(folder).close()
    except sqlite3.DatabaseError as error:
        return _is_held(error)
    return False


def _exclusive(folder: Path) -> sqlite3.Connection:
    """A connection that holds the lock of a folder until it is closed."""
    # SQLite takes a path that begins with `file:` for a URI, with a place and options of its own.
    connection = sqlite3.connect((folder / LOCK).absolute(), timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_held(error: sqlite3.DatabaseError) -> bool:
    """Whether a lock cannot be taken because a connection holds it."""
    return str(error) == "database is locked"  # the error's code has a name from Python 3.11 on


def _holder(folder: Path, work: str) -> str:
    """Say which process holds a folder."""
    try:
        facts = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
        return f"{work} is at work in it: process {facts['process']} on {facts['host']} since {facts['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{work} is at work in it in another process"
