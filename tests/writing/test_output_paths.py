"""Where results may be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from feat2vec.errors import UserError
from feat2vec.writing import file_place, folder_place, is_component, refuse_inputs_inside
from tests.writing.builders import make_folder


def test_a_new_place_is_free() -> None:
    assert file_place("full/new") == Path("full/new")
    assert folder_place("full/some/new", "thing").path == Path("full/some/new")
    assert folder_place("empty", "thing", force=True).path == Path("empty")


@pytest.mark.parametrize(
    ("out", "force", "message"),
    [
        ("file", False, "file: exists already; choose another name, or add --force to replace it"),
        ("file", True, "file: is no file as feat2vec wrote it, and --force replaces nothing else; choose another name"),
        ("full", True, "full: is a folder; choose another name"),
        ("file/x", False, "file/x: file is a file, not a folder; choose another place"),
        ("no/x", False, "no/x: there is no folder no; make it first"),
        ("nowhere", True, "nowhere: is a link to gone; feat2vec neither follows nor replaces it: name the file itself"),
        ("", False, "'' names no new file; give a name, such as out/films"),
    ],
)
def test_a_file_has_no_place(out: str, force: bool, message: str) -> None:
    with pytest.raises(UserError) as error:
        file_place(out, force=force)
    assert str(error.value) == message


@pytest.mark.parametrize("out", ["full/gone/../../full/new", "gone/../new", "file/../new"])
def test_a_path_that_leads_out_of_no_folder_is_refused(out: str) -> None:
    before = sorted(Path.cwd().rglob("*"))
    for place in (file_place, lambda out: folder_place(out, "thing")):
        with pytest.raises(UserError, match=r": there is no folder (full/gone|gone|file), which `\.\.` leads out of"):
            place(out)
    assert sorted(Path.cwd().rglob("*")) == before
    assert folder_place("full/of/../new", "thing").path == Path("full/of/../new")


def test_a_folder_that_may_not_be_written_to_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    for place in (file_place, lambda out: folder_place(out, "thing")):
        with pytest.raises(UserError, match=r"^empty/x: nothing may be written to empty; choose another place$"):
            place("empty/x")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EPERM, errno.EACCES, errno.EROFS])
def test_a_folder_in_which_the_system_makes_no_file_is_said(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: object) -> int:
        raise OSError(number, os.strerror(number), path)  # as /proc and /sys answer root, whatever os.access says

    monkeypatch.setattr(os, "open", refuse)
    for place in (file_place, lambda out: folder_place(out, "thing")):
        with pytest.raises(UserError, match=r"^empty/x: nothing may be written to empty; choose another place$"):
            place("empty/x")


def test_looking_at_a_place_leaves_nothing_there() -> None:
    before = sorted(Path.cwd().rglob("*"))
    assert (file_place("empty/x"), folder_place("empty/x", "thing").path) == (Path("empty/x"), Path("empty/x"))
    assert sorted(Path.cwd().rglob("*")) == before


def test_a_name_that_is_too_long_is_a_mistake() -> None:
    for check in (file_place, lambda out: folder_place(out, "thing")):
        with pytest.raises(UserError, match="File name too long; choose another name"):
            check("x" * 300)
    make_folder("名" * 80)
    assert Path("名" * 80, "inside").exists()


@pytest.mark.parametrize("name", ["/a/sales", "../../x", "..", ".", "", "a/b", "a\\b", "a\nb", "\0", "C:x", "x" * 121])
def test_a_name_that_is_a_path_is_no_component(name: str) -> None:
    assert not is_component(name)
    assert is_component(f"sales {len(name)}")


def test_what_is_read_does_not_lie_in_what_is_replaced() -> None:
    Path("data").symlink_to("full")
    refuse_inputs_inside([Path("empty"), Path("none")], ["full/of/notes", "file"])
    for path in ("full/of/notes", "data/of/notes", "link/of"):
        with pytest.raises(UserError, match="lies in full, which is replaced; copy it elsewhere"):
            refuse_inputs_inside([Path("empty"), Path("full")], [path])
