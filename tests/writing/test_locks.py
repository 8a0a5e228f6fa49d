"""Locks of folders."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from feat2vec.errors import UserError
from feat2vec.writing import LOCK_FILES, locked, mark_folder


@pytest.mark.parametrize("kind", ["folder", "damaged"])
def test_a_lock_that_is_none_is_told(kind: str) -> None:
    mark_folder(Path("work"), "training", LOCK_FILES)
    lock = Path("work/lock")
    lock.mkdir() if kind == "folder" else lock.write_bytes(b"no database" * 100)

    def hold() -> None:
        with locked(Path("work"), "another training"):
            pass

    with pytest.raises(UserError, match=r"^work/lock: cannot be locked \(.*\); make room, or remove the file$"):
        hold()


@pytest.mark.parametrize("folder", [Path("work"), Path("file:work?mode=memory&z=")])  # SQLite knows URIs
def test_the_same_process_does_not_hold_a_folder_twice(folder: Path) -> None:
    mark_folder(folder, "training", LOCK_FILES)
    message = f"{folder}: another training is at work in it: process {os.getpid()} on"

    def hold() -> None:
        with locked(folder, "another training"):
            pass

    with locked(folder, "another training"), pytest.raises(UserError, match=re.escape(message)):
        hold()
    with locked(folder, "another training"):
        assert (folder / "lock").is_file()
