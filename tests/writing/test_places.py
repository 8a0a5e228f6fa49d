"""Where results may be written, and what may be replaced or removed."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import feat2vec
from feat2vec.errors import FailedError, UserError
from feat2vec.writing import (
    CHECKPOINT,
    FILES,
    MARK,
    SIGNATURE,
    discard_temporary,
    file_in,
    file_place,
    folder_place,
    folders,
    is_component,
    is_signed,
    locked,
    mark_folder,
    new_file,
    new_folder,
    partial_folder,
    publish_folder,
    read_mark,
    record,
    refuse_inputs_inside,
    remove_folder,
    remove_inside,
    run_place,
    signed_parquet,
    temporary_folder,
    work_folder,
    write_text,
)

PACKAGE = Path(feat2vec.__file__).parent
AGAIN: list[dict[str, Any]] = [{"resume": True}, {"force": True}, {}]
NO_THING = "is no thing, and --force replaces nothing else; choose another folder"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a user's file, a user's folder that is full, an empty one and a link."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full" / "of").mkdir(parents=True)
    (tmp_path / "full" / "of" / "notes").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("full")
    (tmp_path / "nowhere").symlink_to("gone")


def made(out: str | Path, kind: str = "thing", *, force: bool = False) -> Path:
    """A folder that feat2vec made, with one file."""
    with new_folder(folder_place(out, kind, force=force)) as folder:
        (folder / "inside").write_text("ours")
    return Path(out)


def write_and_fail(context: Any, error: type[BaseException], name: str | None = None) -> None:
    """Write into a new folder or file, and fail before it is whole."""
    with context as path:
        (path if name is None else path / name).write_text("half")
        raise error


def contents(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


# --- places ---------------------------------------------------------------------------------------------------------


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


# --- folders --------------------------------------------------------------------------------------------------------


def test_a_folder_appears_whole_with_its_mark() -> None:
    out = made("runs/films", "run")
    mark = read_mark(out)
    assert mark is not None
    assert (mark.kind, set(mark.names)) == ("run", {"inside"})
    with pytest.raises(RuntimeError):
        write_and_fail(new_folder(folder_place("runs/other", "run")), RuntimeError, "inside")
    assert [path.name for path in Path("runs").iterdir()] == ["films"]


def test_force_replaces_what_feat2vec_wrote_and_an_empty_folder() -> None:
    first = read_mark(made("out"))
    second = read_mark(made("out", force=True))
    assert first is not None
    assert second is not None
    assert first.id != second.id
    made("empty", force=True)
    assert sorted(os.listdir()) == ["empty", "file", "full", "link", "nowhere", "out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_another_kind_is_not_replaced(force: bool) -> None:
    made("out", "run")
    with pytest.raises(
        UserError, match=r"out: (exists already|is no export, .*\n  it is feat2vec's, of the kind 'run')"
    ):
        made("out", "export", force=force)
    assert contents(Path("out"))["inside"] == "ours"


def test_a_mark_that_is_a_link_or_damaged_proves_nothing() -> None:
    made("out")
    for text in (
        "",
        "{}",
        "[" * 9999,
        '{"feat2vec": 1, "kind": "thing"}',
        '{"feat2vec": 2, "kind": "thing", "id": "x"}',
    ):
        Path("full", MARK).write_text(text)
        assert read_mark(Path("full")) is None
    Path("full", MARK).unlink()
    Path("full", MARK).symlink_to(Path("out", MARK).resolve())
    assert read_mark(Path("full")) is None
    with pytest.raises(UserError, match="is no thing, and --force replaces nothing else"):
        made("full", force=True)
    assert Path("full/of/notes").read_text() == "mine"


@pytest.mark.parametrize("name", ["notes.txt", "deeper/notes.txt", "link"])
def test_what_a_user_put_into_a_folder_stays(name: str) -> None:
    made("out")
    if name == "link":
        Path("out", name).symlink_to("../full")
    else:
        Path("out", name).parent.mkdir(exist_ok=True)
        Path("out", name).write_text("mine")
    for remove in (lambda: made("out", force=True), lambda: remove_folder(Path("out"), "thing")):
        with pytest.raises(
            UserError, match=f"out: holds {name}, which feat2vec did not write; move it elsewhere first"
        ):
            remove()
    assert contents(Path("out"))["inside"] == "ours"


def test_what_feat2vec_added_later_goes_with_the_folder() -> None:
    made("out")
    with file_in(Path("out"), "index/a.faiss") as file:
        file.write_text("ours")
    made("out/exports/npz", "export")
    write_text("out/page.html", "<p>ours</p>")
    Path("out/nothing").mkdir()
    made("out", force=True)
    assert set(contents(Path("out"))) == {MARK, "inside"}


def test_a_folder_that_appears_meanwhile_is_not_replaced() -> None:
    made("out")

    def write_late(name: str, *, force: bool) -> None:
        with new_folder(folder_place(name, "thing", force=force)) as folder:
            (folder / "inside").write_text("late")
            remove_folder(Path(name), "thing")
            made(name)

    for name, force in (("new", False), ("new2", True), ("out", True)):
        with pytest.raises(FailedError, match=f"{name}: appeared while the work was done, and is not replaced"):
            write_late(name, force=force)
        assert contents(Path(name))["inside"] == "ours"


def test_a_folder_that_cannot_get_its_name_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(made("out"))
    place, new = folder_place("out", "thing", force=True), made("new")
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path == new:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="No space left"):
        publish_folder(new, place)
    assert contents(Path("out")) == before


@pytest.mark.parametrize("name", ["new", "new.html"])
def test_a_system_s_error_names_the_place_and_not_what_is_hidden(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, *_: Any, **__: Any) -> None:
        if path.name.startswith("."):
            raise OSError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", fail)
    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No such file") as raised:
        write_text(name, "x") if "." in name else made(name)
    assert raised.value.filename == name


def test_a_name_that_is_too_long_is_a_mistake() -> None:
    for check in (file_place, lambda out: folder_place(out, "thing")):
        with pytest.raises(UserError, match="File name too long; choose another name"):
            check("x" * 300)
    made("名" * 80)
    assert Path("名" * 80, "inside").exists()


def test_only_what_feat2vec_wrote_is_removed() -> None:
    for path in ("full", "file", "link"):
        with pytest.raises(UserError, match="it is not removed"):
            remove_folder(Path(path), "thing")
    with pytest.raises(UserError, match="it is not removed"):
        remove_folder(made("out"), "export")
    remove_folder(Path("out"), "thing")
    remove_folder(Path("out"), "thing")
    assert sorted(os.listdir()) == ["empty", "file", "full", "link", "nowhere"]
    assert Path("full/of/notes").read_text() == "mine"


def test_an_entry_is_removed_if_the_mark_names_it_and_a_link_is_not_followed() -> None:
    mark_folder(Path("work"), "training", ["rows/", "data/"])
    Path("work/rows/deep").mkdir(parents=True)
    Path("work/data").symlink_to("../full")
    Path("work/mine").mkdir()
    for name in ("rows", "data", "none"):
        remove_inside(Path("work"), name)
    with pytest.raises(UserError, match="work/mine: feat2vec did not write it"):
        remove_inside(Path("work"), "mine")
    assert sorted(os.listdir("work")) == [MARK, "mine"]
    assert Path("full/of/notes").read_text() == "mine"


def test_nothing_is_marked_that_was_there_before() -> None:
    for folder in ("full", "link"):
        with pytest.raises(UserError, match="move it elsewhere, or choose another --out"):
            mark_folder(Path(folder), "tuning", [])
    mark_folder(Path("empty"), "tuning", [])
    assert not Path("full", MARK).exists()


def test_names_are_recorded_by_several_at_once() -> None:
    made("out")
    threads = [threading.Thread(target=record, args=(Path("out"), *(f"{i}/{k}" for k in range(50)))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mark = read_mark(Path("out"))
    assert mark is not None
    assert mark.names == {"inside"} | {f"{i}/{k}" for i in range(8) for k in range(50)}
    with pytest.raises(UserError, match="full: was not made by feat2vec"):
        record(Path("full"), "of")


def test_a_full_disk_leaves_no_folder_without_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = sorted(os.listdir())
    monkeypatch.setattr(folders, "write_mark", full)
    with pytest.raises(OSError, match=r"No space left on device; make room.*'work'"):
        mark_folder(Path("work"), "tuning", FILES)
    assert sorted(os.listdir()) == before


def test_a_temporary_folder_is_discarded_with_all_it_holds() -> None:
    folder = temporary_folder()
    (folder / "some").mkdir()
    (folder / "some" / "file").write_text("ours")
    discard_temporary(folder)
    assert not folder.exists()
    discard_temporary(Path("full"))
    assert Path("full/of/notes").exists()


# --- files ----------------------------------------------------------------------------------------------------------


def written(name: str) -> Path:
    """A file as a command writes it."""
    if name.endswith(".parquet"):
        schema = pa.schema({"a": pa.int64()})
        with new_file(name) as file, signed_parquet(file, schema) as writer:
            writer.write_table(pa.table({"a": range(1000)}, schema=schema))
    else:
        write_text(name, f"# ours\n{'#' * 9999}")
    return Path(name)


def edited(path: Path) -> Path:
    """A user's version of a file that feat2vec wrote, with what marks it as written by feat2vec kept."""
    if path.suffix == ".parquet":
        table, held = pq.read_table(path), pq.read_metadata(path).metadata
        assert SIGNATURE.encode() in held
        kept = {SIGNATURE.encode(): held[SIGNATURE.encode()]}
        pq.write_table(table.append_column("mine", [range(1000)]).replace_schema_metadata(kept), path)
        assert pq.read_metadata(path).metadata[SIGNATURE.encode()] == held[SIGNATURE.encode()]
    else:
        path.write_text(path.read_text().replace("# ours", "# mine"))
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.yaml", "a.html", "a.svg"])
def test_force_replaces_a_file_as_feat2vec_wrote_it_and_no_other_version(name: str) -> None:
    assert is_signed(written(name))
    with new_file(name, force=True) as file:
        file.write_text("new")
    assert Path(name).read_text() == "new"
    with pytest.raises(UserError, match="is no file as feat2vec wrote it"), new_file(name, force=True):
        pass
    Path(name).unlink()
    mine = edited(written(name))
    assert not is_signed(mine)
    before = mine.read_bytes()
    with pytest.raises(UserError, match="is no file as feat2vec wrote it"), new_file(name, force=True):
        pass
    assert mine.read_bytes() == before


def test_a_users_file_that_speaks_of_feat2vec_is_not_replaced() -> None:
    pq.write_table(pa.table({"written by feat2vec": ["written by feat2vec"]}), "mine.parquet")
    Path("notes.html").write_text("<p>vectors written by feat2vec</p>\n<!-- written by feat2vec -->\n")
    for name in ("mine.parquet", "notes.html"):
        with pytest.raises(UserError, match=f"{name}: is no file as feat2vec wrote it"):
            file_place(name, force=True)


def test_a_parquet_file_is_signed_whatever_its_size() -> None:
    schema = pa.schema({"a": pa.float64()})
    for rows in (0, 1, 300_000):
        with signed_parquet(Path(f"{rows}.parquet"), schema) as writer:
            for part in (rows // 2, rows - rows // 2):
                writer.write_table(pa.table({"a": [0.5] * part}, schema=schema))
        assert is_signed(Path(f"{rows}.parquet"))
        assert pq.read_table(f"{rows}.parquet").num_rows == rows


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_appears_meanwhile_is_not_replaced(force: bool) -> None:
    def write_late() -> None:
        with new_file("new", force=force) as file:
            file.write_text("late")
            Path("new").write_text("mine")

    with pytest.raises(FailedError, match="new: appeared while the file was written"):
        write_late()
    assert Path("new").read_text() == "mine"
    assert sorted(os.listdir()) == ["empty", "file", "full", "link", "new", "nowhere"]


def test_a_file_appears_whole_or_not_at_all() -> None:
    with pytest.raises(RuntimeError):
        write_and_fail(new_file("new"), RuntimeError)
    assert not Path("new").exists()
    assert sorted(os.listdir()) == ["empty", "file", "full", "link", "nowhere"]


def test_a_file_in_a_folder_follows_no_link_and_replaces_its_own_alone() -> None:
    made("out")
    Path("out/index").symlink_to("../full")
    Path("out/notes").write_text("mine")
    for folder, name, message in (
        ("out", "index/of", "out/index: is a link, which feat2vec neither follows"),
        ("out", "notes", "out/notes: is in the way, and feat2vec did not write it"),
        ("full", "new", "full: was not made by feat2vec, or by an earlier version"),
    ):
        with pytest.raises(UserError, match=message), file_in(Path(folder), name) as file:
            file.write_text("ours")
    for text in ("first", "second"):
        with file_in(Path("out"), "results.json") as file:
            file.write_text(text)
    assert Path("out/results.json").read_text() == "second"
    assert sorted(os.listdir("full")) == ["of"]


# --- work -----------------------------------------------------------------------------------------------------------


def test_a_work_folder_is_kept_as_long_as_it_has_a_checkpoint() -> None:
    partial = partial_folder(Path("run"))
    with pytest.raises(KeyboardInterrupt), work_folder(Path("run")):
        raise KeyboardInterrupt
    assert not partial.exists()
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(work_folder(Path("run")), KeyboardInterrupt, CHECKPOINT)
    (partial / "rows").mkdir()
    with pytest.raises(UserError, match="holds a run that was not finished; add --resume"), work_folder(Path("run")):
        pass
    with work_folder(Path("run"), resume=True) as folder:
        assert (folder / CHECKPOINT).exists()
        assert not (folder / "rows").exists()
    assert not partial.exists()


def test_a_training_that_was_to_replace_a_run_is_gone_on_with() -> None:
    made("run", "run")
    place = run_place(Path("run"), force=True)
    assert place is not None
    assert place.replaces is not None
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(work_folder(Path("run"), force=True, replaces=place.replaces), KeyboardInterrupt, CHECKPOINT)
    assert run_place(Path("run"), resume=True) == place
    with pytest.raises(KeyboardInterrupt), work_folder(Path("run"), resume=True, replaces=place.replaces):
        raise KeyboardInterrupt
    assert run_place(Path("run"), resume=True) == place
    Path("run/notes").write_text("mine")
    with pytest.raises(UserError, match="run: holds notes, which feat2vec did not write"):
        run_place(Path("run"), resume=True)
    Path("run").rename("older")
    made("run", "run")
    assert run_place(Path("run"), resume=True) is None  # another run than that which was to be replaced
    partial_folder(Path("run")).rename("empty.partial")
    assert run_place(Path("empty"), resume=True) == folder_place("empty", "run", force=True)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_put_into_a_work_folder_stays_and_fails_nothing(fails: bool) -> None:
    def work() -> None:
        with work_folder(Path("run")) as partial:
            (partial / "rows").mkdir()
            (partial / "notes").write_text("mine")
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        work()
    assert Path("run.partial/notes").read_text() == "mine"
    assert not Path("run.partial/rows").exists()


@pytest.mark.parametrize("options", AGAIN)
def test_a_work_folder_that_is_not_ours_stays(options: dict[str, Any]) -> None:
    for name in "ab":
        partial = partial_folder(Path(name))
        if name == "a":
            partial.mkdir()
            (partial / "notes").write_text("mine")
        else:
            partial.symlink_to("full")
        message = f"{name}.partial: is where the run would train, but"
        with pytest.raises(UserError, match=message), work_folder(Path(name), **options):
            pass
    assert Path("a.partial/notes").read_text() == "mine"
    assert Path("full/of/notes").read_text() == "mine"


HOLD = """
import sys, time
from pathlib import Path
from feat2vec.writing import work_folder
with work_folder(Path("run")) as folder:
    (folder / "checkpoint.npz").write_text("state")
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["lock", "lock.json", "checkpoint.npz", "rows"])
def test_a_link_in_a_work_folder_is_not_written_through(name: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(work_folder(Path("run")), KeyboardInterrupt, CHECKPOINT)
    Path("run.partial", name).unlink(missing_ok=True)
    Path("run.partial", name).symlink_to("../file")
    message = f"{name}(: is a link|, which feat2vec did not write)"
    for options in AGAIN[:2]:
        with pytest.raises(UserError, match=message), work_folder(Path("run"), **options):
            pass
    assert Path("file").read_text() == "mine"


def test_one_process_works_in_a_folder_and_a_kill_frees_it() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    message = rf"run.partial: another training is at work in it: process {holder.pid} on .* since 2.*; wait, or choose"
    for options in AGAIN:
        with pytest.raises(UserError, match=message), work_folder(Path("run"), **options):
            pass
    holder.kill()
    holder.communicate()
    with work_folder(Path("run"), resume=True) as folder:
        assert (folder / CHECKPOINT).read_text() == "state"


def test_a_folder_in_which_a_process_is_at_work_below_is_not_replaced() -> None:
    made("a", "run")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD.replace('"run"', '"a/run"')],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=r"a/run\.partial: another process is at work in it; wait until it has ended"):
        folder_place("a", "run", force=True)
    holder.kill()
    holder.communicate()
    made("a", "run", force=True)
    assert not Path("a/run.partial").exists()


@pytest.mark.parametrize("kind", ["folder", "damaged"])
def test_a_lock_that_is_none_is_told(kind: str) -> None:
    mark_folder(Path("work"), "training", FILES)
    lock = Path("work/lock")
    lock.mkdir() if kind == "folder" else lock.write_bytes(b"no database" * 100)

    def hold() -> None:
        with locked(Path("work"), "another training"):
            pass

    with pytest.raises(UserError, match=r"^work/lock: cannot be locked \(.*\); make room, or remove the file$"):
        hold()


def test_the_same_process_does_not_hold_a_folder_twice() -> None:
    mark_folder(Path("work"), "training", FILES)
    message = f"work: another training is at work in it: process {os.getpid()} on"

    def hold() -> None:
        with locked(Path("work"), "another training"):
            pass

    with locked(Path("work"), "another training"), pytest.raises(UserError, match=message):
        hold()
    with locked(Path("work"), "another training"):
        pass


# --- the one place --------------------------------------------------------------------------------------------------

REMOVERS = {"rmtree", "rmdir", "unlink", "remove", "removedirs", "rename", "renames", "move"}
ALLOWED = {  # what they remove they have made in the same call, below a folder that is theirs
    "training/checkpoint.py": {"unlink"},  # checkpoint.npz.new
    "encode/array_files.py": {"unlink"},  # spilled arrays
    "sklearn.py": {"rename"},  # a frame's columns
}


def removals(path: Path) -> set[str]:
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return {call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in REMOVERS}


def test_nothing_is_removed_or_renamed_outside_of_this_room() -> None:
    found = {path.relative_to(PACKAGE).as_posix(): removals(path) for path in PACKAGE.rglob("*.py")}
    assert removals(PACKAGE / "writing" / "folders.py") >= {"rmtree", "rename"}
    outside = {name: calls for name, calls in found.items() if calls and not name.startswith("writing/")}
    list_methods = {"remove"}  # `list.remove` is not told from `os.remove`: see that it is the first
    assert {name: calls - list_methods for name, calls in outside.items() if calls - list_methods} == ALLOWED
