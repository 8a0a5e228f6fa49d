"""Folders that appear whole, and what may be replaced or removed."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from feat2vec.errors import FailedError, UserError
from feat2vec.writing import (
    LOCK_FILES,
    MARK,
    discard_temporary,
    file_in,
    folder_place,
    folders,
    hidden_instead,
    mark_folder,
    new_folder,
    publish_folder,
    read_mark,
    remove_folder,
    remove_inside,
    temporary_folder,
    write_text,
)
from feat2vec.writing.folder_marks import note
from tests.writing.builders import USER_ENTRIES, make_folder, texts_below, training_in_another_process, write_and_fail


@pytest.mark.parametrize(
    ("out", "force", "message"),
    [
        ("full", False, "full: exists already; choose another folder, or add --force to replace it"),
        (
            "file",
            True,
            "file: is no thing, and --force replaces nothing else; choose another folder\n  it is no folder",
        ),
        (
            "full",
            True,
            "full: is no thing, and --force replaces nothing else; choose another folder\n  it was not made by",
        ),
        ("file/a/b", False, "file/a/b: file is a file, not a folder; choose another place"),
        ("link", True, "link: is a link to full; feat2vec neither follows nor replaces it: name the folder itself"),
        ("nowhere", False, "nowhere: is a link to gone; feat2vec neither follows"),
        ("", True, "'' names no new folder; give a name, such as runs/films"),
        (".", True, "'.' names no new folder"),
        ("/", True, "'/' names no new folder"),
        ("full/of/..", True, "'full/of/..' names no new folder"),
    ],
)
def test_a_folder_has_no_place(out: str, force: bool, message: str) -> None:
    with pytest.raises(UserError) as error:
        folder_place(out, "thing", force=force)
    assert str(error.value).startswith(message)


def test_a_folder_appears_whole_with_its_mark() -> None:
    out = make_folder("runs/films", "run")
    mark = read_mark(out)
    assert mark is not None
    assert (mark.kind, set(mark.names)) == ("run", {"inside"})
    with pytest.raises(RuntimeError):
        write_and_fail(new_folder(folder_place("runs/other", "run")), RuntimeError, "inside")
    assert [path.name for path in Path("runs").iterdir()] == ["films"]


def test_force_replaces_what_feat2vec_wrote_and_an_empty_folder() -> None:
    first_mark = read_mark(make_folder("out"))
    second_mark = read_mark(make_folder("out", force=True))
    assert first_mark is not None
    assert second_mark is not None
    assert first_mark.id != second_mark.id
    make_folder("empty", force=True)
    assert sorted(os.listdir()) == [*USER_ENTRIES, "out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_another_kind_is_not_replaced(force: bool) -> None:
    make_folder("out", "run")
    with pytest.raises(
        UserError, match=r"out: (exists already|is no export, .*\n  it is feat2vec's, of the kind 'run')"
    ):
        make_folder("out", "export", force=force)
    assert texts_below(Path("out"))["inside"] == "ours"


@pytest.mark.parametrize("name", ["notes.txt", "deeper/notes.txt", "link"])
def test_what_a_user_put_into_a_folder_stays(name: str) -> None:
    make_folder("out")
    if name == "link":
        Path("out", name).symlink_to("../full")
    else:
        Path("out", name).parent.mkdir(exist_ok=True)
        Path("out", name).write_text("mine")
    for remove in (lambda: make_folder("out", force=True), lambda: remove_folder(Path("out"), "thing")):
        with pytest.raises(
            UserError, match=f"out: holds {name}, which feat2vec did not write; move it elsewhere first"
        ):
            remove()
    assert texts_below(Path("out"))["inside"] == "ours"


@pytest.mark.parametrize("case", ["another size", "the same size", "a folder", "an empty folder", "below a folder"])
def test_what_a_user_put_under_a_name_of_ours_stays(case: str) -> None:
    folder = make_folder("out")
    make_folder("out/exports/npz", "export")
    path = folder / ("exports/npz/inside" if case == "below a folder" else "inside")
    what = "which was changed after feat2vec wrote it"
    if case == "an empty folder":
        path, what = folder / "mine", "which feat2vec did not write"
        path.mkdir()
    elif case == "a folder":
        path.unlink()
        path.mkdir()
        (path / "notes").write_text("mine")
        path, what = path / "notes", "which feat2vec did not write"
    else:
        path.write_text("mine" if case == "the same size" else "what is mine")
    with pytest.raises(UserError, match=f"out: holds {path.relative_to(folder)}, {what}; move it elsewhere first"):
        make_folder("out", force=True)
    with pytest.raises(UserError, match=f"out: holds {path.relative_to(folder)}, {what}; move it elsewhere first"):
        remove_folder(folder, "thing")
    assert path.is_dir() or "mine" in path.read_text()


def test_a_copy_of_a_folder_is_as_feat2vec_wrote_it() -> None:
    make_folder("out")
    shutil.copytree("out", "copy", copy_function=shutil.copyfile)  # the files get times of their own
    os.utime("copy/inside", (1, 1))
    make_folder("copy", force=True)


def test_what_feat2vec_added_later_goes_with_the_folder() -> None:
    make_folder("out")
    with file_in(Path("out"), "index/a.faiss") as file:
        file.write_text("ours")
    make_folder("out/exports/npz", "export")
    write_text("out/page.html", "<p>ours</p>")
    with pytest.raises(RuntimeError):
        write_and_fail(new_folder(folder_place("out/finetuned/a", "run")), RuntimeError, "inside")
    make_folder("out", force=True)
    assert set(texts_below(Path("out"))) == {MARK, "inside"}


def test_a_folder_that_appears_meanwhile_is_not_replaced() -> None:
    make_folder("out")

    def write_late(name: str, *, force: bool) -> None:
        with new_folder(folder_place(name, "thing", force=force)) as folder:
            (folder / "inside").write_text("late")
            remove_folder(Path(name), "thing")
            make_folder(name)

    for name, force in (("new", False), ("new2", True), ("out", True)):
        with pytest.raises(FailedError, match=f"{name}: appeared while the work was done, and is not replaced"):
            write_late(name, force=force)
        assert texts_below(Path(name))["inside"] == "ours"


def test_a_folder_that_cannot_get_its_name_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_mark(make_folder("out"))
    place, new_folder_path = folder_place("out", "thing", force=True), make_folder("new")
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path == new_folder_path:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="No space left"):
        publish_folder(new_folder_path, place)
    after = read_mark(Path("out"))
    assert before is not None
    assert after is not None
    assert (before.id, texts_below(Path("out"))["inside"]) == (after.id, "ours")


class _Killed(BaseException):
    """What no handler expects."""


@pytest.mark.parametrize("moment", ["before the first rename", "between the renames", "before the old one goes"])
@pytest.mark.parametrize("name", ["out", "n" * 120])
def test_a_kill_while_a_folder_is_replaced_leaves_the_place_in_order(
    moment: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = make_folder(name)
    before = read_mark(out)
    with monkeypatch.context() as patched:  # a kill cleans nothing up
        rename, renamed = Path.rename, []

        def killed_rename(path: Path, target: Path) -> Path:
            renamed.append(path)
            if len(renamed) > ["before the first rename", "between the renames"].index(moment):
                raise _Killed
            return rename(path, target)

        if moment != "before the old one goes":
            patched.setattr(Path, "rename", killed_rename)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(_Killed) if moment != "before the old one goes" else nullcontext():
            make_folder(name, force=True)
    assert out.exists() == (moment != "between the renames")
    assert (hidden_instead(out) is None) == out.exists()
    folder_place(name, "thing", force=True)
    after = read_mark(out)
    assert before is not None
    assert after is not None
    assert (before.id == after.id) == (moment == "before the first rename")
    assert texts_below(out)["inside"] == "ours"
    hidden = [path for path in Path().iterdir() if path.name.startswith(".")]
    assert len(hidden) == (moment == "before the first rename")  # the new one, of which nothing is known


def test_a_folder_that_was_moved_aside_gets_its_name_back() -> None:
    out = make_folder("out")
    out.rename(".out-0123")
    folder_place("out", "thing")
    assert not out.exists()  # as it does not say so
    note(Path(".out-0123"), moved=["out", ".out-0123", "5e"])
    make_folder(".out-4567").joinpath("inside").write_text("half")
    with pytest.raises(UserError, match="out: exists already"):
        folder_place("out", "thing")
    assert sorted(os.listdir()) == [".out-4567", *USER_ENTRIES, "out"]


@pytest.mark.parametrize("name", ["new", "new.html"])
def test_a_system_s_error_names_the_place_and_not_what_is_hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, *_: Any, **__: Any) -> None:
        if path.name.startswith("."):
            raise OSError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", fail)
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No such file") as raised:
        write_text(name, "x") if "." in name else make_folder(name)
    assert raised.value.filename == name


def test_only_what_feat2vec_wrote_is_removed() -> None:
    for path in ("full", "file", "link"):
        with pytest.raises(UserError, match="it is not removed"):
            remove_folder(Path(path), "thing")
    with pytest.raises(UserError, match="it is not removed"):
        remove_folder(make_folder("out"), "export")
    remove_folder(Path("out"), "thing")
    remove_folder(Path("out"), "thing")
    assert sorted(os.listdir()) == USER_ENTRIES
    assert Path("full/of/notes").read_text() == "mine"


def test_an_entry_is_removed_if_the_mark_names_it_and_a_link_is_not_followed() -> None:
    mark_folder(Path("work"), "training", ["rows/", "data/", "best"])
    Path("work/rows/deep").mkdir(parents=True)
    Path("work/data").symlink_to("../full")
    Path("work/mine").mkdir()
    Path("work/best/of").mkdir(parents=True)
    for name in ("rows", "data", "none"):
        remove_inside(Path("work"), name)
    for name in ("mine", "best"):  # a file of ours is no folder
        with pytest.raises(UserError, match=f"work/{name}.*: feat2vec did not write it"):
            remove_inside(Path("work"), name)
    assert sorted(os.listdir("work")) == [MARK, "best", "mine"]
    assert Path("full/of/notes").read_text() == "mine"


def test_nothing_is_marked_that_was_there_before() -> None:
    for folder in ("full", "link"):
        with pytest.raises(UserError, match="move it elsewhere, or choose another --out"):
            mark_folder(Path(folder), "tuning", [])
    mark_folder(Path("empty"), "tuning", [])
    assert not Path("full", MARK).exists()


def test_a_full_disk_leaves_no_folder_without_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(os.listdir())
    monkeypatch.setattr(folders, "write_mark", full)
    with pytest.raises(OSError, match=r"No space left on device; make room.*'work'"):
        mark_folder(Path("work"), "tuning", LOCK_FILES)
    assert sorted(os.listdir()) == before


def test_a_temporary_folder_is_discarded_with_all_it_holds() -> None:
    folder = temporary_folder()
    (folder / "some").mkdir()
    (folder / "some" / "file").write_text("ours")
    discard_temporary(folder)
    assert not folder.exists()
    discard_temporary(Path("full"))
    assert Path("full/of/notes").exists()


def test_a_folder_in_which_a_process_is_at_work_below_is_not_replaced() -> None:
    make_folder("a", "run")
    message = r"a/run\.partial: another process is at work in it; wait until it has ended"
    with training_in_another_process("a/run"), pytest.raises(UserError, match=message):
        folder_place("a", "run", force=True)
    make_folder("a", "run", force=True)
    assert not Path("a/run.partial").exists()
