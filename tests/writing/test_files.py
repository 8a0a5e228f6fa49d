"""Files that appear whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from feat2vec.errors import FailedError, UserError
from feat2vec.writing import file_in, new_file, replace_durably, replacing_file
from feat2vec.writing.files import read_json
from tests.writing.builders import USER_ENTRIES, make_folder, write_and_fail


@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_appears_meanwhile_is_not_replaced(force: bool) -> None:
    def write_late() -> None:
        with new_file("new", force=force) as file:
            file.write_text("late")
            Path("new").write_text("mine")

    with pytest.raises(FailedError, match="new: appeared while the file was written"):
        write_late()
    assert Path("new").read_text() == "mine"
    assert sorted(os.listdir()) == sorted([*USER_ENTRIES, "new"])


def test_a_file_appears_whole_or_not_at_all() -> None:
    with pytest.raises(RuntimeError):
        write_and_fail(new_file("new"), RuntimeError)
    assert not Path("new").exists()
    assert sorted(os.listdir()) == USER_ENTRIES


def test_a_file_in_a_folder_follows_no_link_and_replaces_its_own_alone() -> None:
    make_folder("out")
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


def test_a_file_that_is_replaced_can_be_read_until_the_new_one_is_complete() -> None:
    path = Path("full/of/rows.txt")
    path.write_text("before")
    with pytest.raises(RuntimeError):
        write_and_fail(replacing_file(path), RuntimeError)
    assert path.read_text() == "before"
    with replacing_file(path) as partial:
        partial.write_text(path.read_text() + " and after")
    assert path.read_text() == "before and after"
    assert sorted(os.listdir("full/of")) == ["notes", "rows.txt"]


def test_a_file_is_renamed_to_the_name_of_another_one() -> None:
    for name, text in (("checkpoint", "before"), ("checkpoint.new", "after")):
        Path("full", name).write_text(text)
    replace_durably(Path("full/checkpoint.new"), Path("full/checkpoint"))
    assert Path("full/checkpoint").read_text() == "after"
    assert sorted(os.listdir("full")) == ["checkpoint", "of"]


def test_a_json_object_is_read() -> None:
    Path("facts.json").write_text('{"seed": 1, "name": "ä"}', encoding="utf-8")
    assert read_json(Path("facts.json")) == {"seed": 1, "name": "ä"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "facts.json holds no JSON object"),
        (b"[" * 100_000, "facts.json is nested too deep"),
        (b"{", "Expecting property name"),
        (b"\xff", "can't decode byte"),
    ],
)
def test_what_is_no_json_object_is_refused(content: bytes, message: str) -> None:
    Path("facts.json").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_json(Path("facts.json"))
