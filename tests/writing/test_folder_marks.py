"""The marks of folders that feat2vec made."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from feat2vec.errors import UserError
from feat2vec.writing import MARK, read_mark, record
from tests.writing.builders import make_folder


def test_a_mark_that_is_a_link_or_damaged_proves_nothing() -> None:
    make_folder("out")
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
        make_folder("full", force=True)
    assert Path("full/of/notes").read_text() == "mine"


def test_names_are_recorded_by_several_at_once() -> None:
    make_folder("out")
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
