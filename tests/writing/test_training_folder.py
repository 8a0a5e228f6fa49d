"""The folder in which a run is trained."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from feat2vec.errors import UserError
from feat2vec.writing import (
    CHECKPOINT,
    LOCK_FILES,
    MARK,
    folder_place,
    mark_folder,
    new_folder,
    note_finished,
    partial_folder,
    publish_folder,
    remove_inside,
    replacing_file,
    run_place,
    work_folder,
)
from feat2vec.writing.training_folder import ENTRIES
from tests.writing.builders import make_folder, training_in_another_process, write_and_fail

AGAIN: list[dict[str, Any]] = [{"resume": True}, {"force": True}, {}]


def test_a_work_folder_is_kept_as_long_as_it_has_a_checkpoint() -> None:
    partial = partial_folder(Path("run"))
    with pytest.raises(KeyboardInterrupt), work_folder(Path("run")):
        raise KeyboardInterrupt
    assert not partial.exists()
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(work_folder(Path("run")), KeyboardInterrupt, CHECKPOINT)
    with new_folder(folder_place(partial / "rows", None)) as rows:
        (rows / "values").mkdir()
        (rows / "values" / "a.npy").write_text("ours")
    with pytest.raises(UserError, match="holds a run that was not finished; add --resume"), work_folder(Path("run")):
        pass
    with work_folder(Path("run"), resume=True) as folder:
        assert (folder / CHECKPOINT).exists()
        assert not (folder / "rows").exists()
    assert not partial.exists()


@pytest.mark.parametrize("options", AGAIN)
def test_a_kill_after_a_run_got_its_name_leaves_nothing_to_go_on_with(options: dict[str, Any]) -> None:
    def killed() -> None:
        with work_folder(Path("run")) as partial:
            (partial / CHECKPOINT).write_text("state")
            make_folder(partial / "run", "run")
            note_finished(partial)
            publish_folder(partial / "run", folder_place("run", "run"))
            raise KeyboardInterrupt  # the folder stays as it has a checkpoint, as after a kill

    with pytest.raises(KeyboardInterrupt):
        killed()
    assert Path("run.partial").exists()
    if options:
        run_place(Path("run"), **options)
    else:
        with pytest.raises(UserError, match="run: exists already"):
            run_place(Path("run"))
    assert not Path("run.partial").exists()
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(work_folder(Path("run")), KeyboardInterrupt, CHECKPOINT)
    run_place(Path("run"), force=True)
    assert Path("run.partial").exists()  # of another run


def test_a_training_that_was_to_replace_a_run_is_gone_on_with() -> None:
    make_folder("run", "run")
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
    make_folder("run", "run")
    assert run_place(Path("run"), resume=True) is None  # another run than that which was to be replaced
    partial_folder(Path("run")).rename("empty.partial")
    assert run_place(Path("empty"), resume=True) == folder_place("empty", "run", force=True)


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_put_into_a_work_folder_stays_and_fails_nothing(fails: bool) -> None:
    def work() -> None:
        with work_folder(Path("run")) as partial:
            with new_folder(folder_place(partial / "rows", None)) as rows:
                (rows / "a.npy").write_text("ours")
            (partial / "notes").write_text("mine")
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        work()
    assert Path("run.partial/notes").read_text() == "mine"
    assert not Path("run.partial/rows").exists()


@pytest.mark.parametrize("name", ["notes", "a.npy", "values"])
def test_what_is_put_into_the_rows_of_a_work_folder_stays(name: str) -> None:
    def work() -> None:
        with work_folder(Path("run")) as partial:
            (partial / CHECKPOINT).write_text("state")
            with new_folder(folder_place(partial / "rows", None)) as rows:
                (rows / "a.npy").write_text("ours")
            path = partial / "rows" / name
            path.mkdir() if name == "values" else path.write_text("what is mine")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    for options in AGAIN[:2]:
        message = f"run.partial: holds rows/{name}, which .*; move it elsewhere first"
        with pytest.raises(UserError, match=message), work_folder(Path("run"), **options):
            pass
    assert Path("run.partial/rows", name).exists()


def test_a_kill_while_rows_are_encoded_leaves_nothing_in_the_way() -> None:
    mark_folder(Path("run.partial"), "training", [*ENTRIES, *LOCK_FILES])
    killed = new_folder(folder_place("run.partial/rows", None))
    (killed.__enter__() / "a.npy").write_text("half")
    with work_folder(Path("run")) as partial:
        assert not [path for path in partial.iterdir() if path.name not in (MARK, *LOCK_FILES)]


@pytest.mark.parametrize("name", ["notes", "train.parquet", None])
def test_what_is_put_into_the_data_of_a_work_folder_stays(name: str | None) -> None:
    def work() -> None:
        with work_folder(Path("run")) as partial:
            (partial / CHECKPOINT).write_text("state")
            mark_folder(partial / "data", "data", ())
            with replacing_file(partial / "data" / "train.parquet") as file:
                file.write_text("ours")
            if name is not None:
                (partial / "data" / name).write_text("what is mine")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    for options in AGAIN[:2]:
        refused = pytest.raises(UserError, match=f"holds data/{name}, which .*; move it")
        with nullcontext() if name is None else refused, work_folder(Path("run"), **options) as partial:
            assert not (partial / "data").exists()
    assert name is None or Path("run.partial/data", name).read_text() == "what is mine"


class _Killed(BaseException):
    """What no handler expects."""


@pytest.mark.parametrize("moment", ["a place is tried", "a folder is made", "rows are removed", "a run is removed"])
@pytest.mark.parametrize("options", AGAIN[:2])
def test_a_kill_leaves_nothing_in_the_way(
    moment: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> None:
        raise _Killed

    def removed_in_part(folder: Path, **_: Any) -> None:
        next(path for path in sorted(folder.rglob("*")) if path.is_file()).unlink()  # of a run, this is its mark
        raise _Killed

    def work(patched: pytest.MonkeyPatch) -> None:
        if moment == "a place is tried":
            patched.setattr(Path, "unlink", killed)
            folder_place("run.partial/rows", None)
        elif moment == "a folder is made":
            patched.setattr(Path, "rename", killed)
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)
            mark_folder(Path("run.partial/data"), "data", ())
        else:
            name, kind = ("run", "run") if moment == "a run is removed" else ("rows", None)
            with new_folder(folder_place(f"run.partial/{name}", kind)) as folder:
                (folder / "a.npy").write_text("ours")
            patched.setattr(shutil, "rmtree", removed_in_part)
            remove_inside(Path("run.partial"), name)

    mark_folder(Path("run.partial"), "training", [*ENTRIES, *LOCK_FILES])
    with monkeypatch.context() as patched, pytest.raises(_Killed):
        work(patched)
    with work_folder(Path("run"), **options) as partial:
        assert not [path for path in partial.iterdir() if path.name not in (MARK, *LOCK_FILES)]


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
    with training_in_another_process("run") as holder:
        message = rf"another training is at work in it: process {holder.pid} on .* since 2.*; wait, or choose"
        for options in AGAIN:
            with pytest.raises(UserError, match=rf"run\.partial: {message}"), work_folder(Path("run"), **options):
                pass
    with work_folder(Path("run"), resume=True) as folder:
        assert (folder / CHECKPOINT).read_text() == "state"


def test_a_name_too_long_for_the_folder_to_train_in_is_a_mistake() -> None:
    with pytest.raises(UserError, match="File name too long; choose another name"):
        run_place(Path("n" * 250))


@pytest.mark.parametrize("out", [r"a\b", r"a\b/run", r"..\up"])
def test_a_path_that_keras_takes_for_another_one_is_refused(out: str) -> None:
    with pytest.raises(UserError, match="a path has no backslash"):
        run_place(Path(out))
