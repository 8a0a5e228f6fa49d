"""Where results may be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from feat2vec.errors import UserError
from feat2vec.places import file_place, folder_place


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "full" / "of").mkdir(parents=True)
    (tmp_path / "empty").mkdir()


def is_full(folder: Path) -> bool:
    return (folder / "of").exists()


def test_a_new_place_is_free() -> None:
    assert file_place("full/new") == Path("full/new")
    assert file_place("file", force=True) == Path("file")
    assert folder_place("full/some/new") == Path("full/some/new")
    for known in ("full", "empty"):
        assert folder_place(known, "thing", is_full, force=True) == Path(known)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file", "file: exists already; choose another name, or add --force to replace it"),
        ("full", "full: is a folder; choose another name"),
        ("file/x", "file/x: file is a file, not a folder; choose another place"),
        ("no/x", "no/x: there is no folder no; make it first"),
    ],
)
def test_a_file_has_no_place(out: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        file_place(out)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("out", "force", "message"),
    [
        ("full", False, "full: exists already; choose another folder, or add --force to replace it"),
        ("file", True, "file: is no thing, and --force replaces nothing else; choose another folder"),
        ("full/of/..", True, "full/of/..: is no thing, and --force replaces nothing else; choose another folder"),
        ("file/a/b", False, "file/a/b: file is a file, not a folder; choose another place"),
    ],
)
def test_a_folder_has_no_place(out: str, force: bool, message: str) -> None:
    with pytest.raises(UserError) as error:
        folder_place(out, "thing", lambda folder: folder.name == "full", force=force)
    assert str(error.value) == message


def test_a_folder_that_may_not_be_written_to_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    for place in (file_place, folder_place):
        with pytest.raises(UserError, match=r"^empty/x: nothing may be written to empty; choose another place$"):
            place("empty/x")
