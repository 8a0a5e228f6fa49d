"""JSON objects from files that may have been changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from feat2vec.writing.json_files import read_json


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
