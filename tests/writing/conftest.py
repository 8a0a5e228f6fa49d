"""The folder in which the tests of this room run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a user's file, a user's folder that is full, an empty one and two links."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full" / "of").mkdir(parents=True)
    (tmp_path / "full" / "of" / "notes").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("full")
    (tmp_path / "nowhere").symlink_to("gone")
