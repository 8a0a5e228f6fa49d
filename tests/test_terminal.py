"""Messages: at most five lines of 200 characters, in which nothing is obeyed by a terminal."""

from __future__ import annotations

import pytest

from feat2vec.terminal import LINES, WIDTH, message_lines, printable, shortened

HOSTILE = "a\x1b[31m\x9b2J\n\r\x07\u202ecod\u2066\u2028\ud800z"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    shown = printable(HOSTILE)
    assert shown == r"a\x1b[31m\x9b2J\n\r\x07\u202ecod\u2066\u2028\ud800z"
    assert printable("Agnès Varda 東京 🎬") == "Agnès Varda 東京 🎬"


@pytest.mark.parametrize(
    "line",
    [
        f"{'folder/' * 60}run: exists already; choose another folder, or add --force to replace it",
        f"films.csv: has no column {'c' * 5000!r}, which groups.a.columns names; rename the column",
        f"{'word ' * 100}; choose another word, the first one that comes to mind",
    ],
)
def test_a_long_line_keeps_its_beginning_and_what_to_do(line: str) -> None:
    cut = shortened(line)
    assert len(cut) <= WIDTH
    assert "..." in cut
    assert cut.startswith(line[:10])
    assert cut.endswith(line[line.index(";") + 2 :])


def test_a_short_line_stays() -> None:
    assert shortened("x" * WIDTH) == "x" * WIDTH
    assert message_lines(["  a", "b"]) == ["  a", "b"]


@pytest.mark.parametrize("count", [6, 9, 2000])
@pytest.mark.parametrize("problem", ["row {}: wrong", "row {}: " + "wrong " * 30, "row {}: \x1b" + "w" * 900])
def test_many_problems_are_told_on_five_lines(count: int, problem: str) -> None:
    lines = message_lines([problem.format(i) for i in range(count)])
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isprintable() for line in lines)
    told = sum(line.count("row ") for line in lines)
    if told < count:
        assert lines[-1].endswith(f" | and {count - told:,} more")
    assert f"row {told - 1}:" in lines[-1]


def test_a_problem_that_has_no_room_is_counted() -> None:
    lines = message_lines([f"{i}{'x' * 150}" for i in range(7)])
    assert [line[0] for line in lines] == list("01234")
    assert lines[-1].endswith(" | and 2 more")
