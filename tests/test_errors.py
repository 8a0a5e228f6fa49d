"""One exception for what a user did wrong, and the words nearest to a misspelt one."""

from __future__ import annotations

import pytest

from feat2vec.errors import UserError, suggest


def test_every_problem_is_a_line() -> None:
    error = UserError("a:1: x: wrong", "a:2: y: wrong")
    assert error.problems == ("a:1: x: wrong", "a:2: y: wrong")
    assert str(error) == "a:1: x: wrong\na:2: y: wrong"


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("lokup", ["lookup", "numeric"], "; did you mean 'lookup'?"),
        ("LOOKUP", ["lookup", "numeric"], "; did you mean 'lookup'?"),
        ("colum", ["column", "columns"], "; did you mean 'column' or 'columns'?"),
        ("Name", ["NAME", "name"], "; did you mean 'NAME'?"),
        ("zebra", ["lookup", "numeric"], ""),
        ("", ["lookup"], ""),
        ("lookup", [], ""),
    ],
)
def test_suggest(word: str, known: list[str], expected: str) -> None:
    assert suggest(word, known) == expected


@pytest.mark.parametrize("word", [None, b"lookup", ["lookup"], {}, 5])
def test_what_is_no_text_is_near_to_nothing(word: object) -> None:
    assert suggest(word, ["lookup", "numeric"]) == ""


def test_no_more_than_three_suggestions() -> None:
    assert suggest("group", [f"group{i}" for i in range(9)]).count("group") == 3
