"""How the commands print: names of a table must not control the terminal, and must be one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from feat2vec.errors import UserError, writing
from feat2vec.terminal import message_lines, printable, shortened

if TYPE_CHECKING:
    from feat2vec.training.run_folder import TrainedRun


def say(line: str, *, error: bool = False, end: str = "\n") -> None:
    """Print a line: what a terminal would obey, and what its encoding cannot express, is escaped.

    A line for standard error is shortened; one for standard output may be what another program reads.
    """
    line = shortened(printable(line)) if error else printable(line)
    encoding = getattr(sys.stderr if error else sys.stdout, "encoding", None) or "utf-8"
    line = line.encode(encoding, "backslashreplace").decode(encoding)
    with writing(f"standard {'error' if error else 'output'}", "make room, or choose another place"):
        click.echo(line, err=error, nl=end != "")


def say_text(text: str, *, error: bool = False) -> None:
    """Print lines, in which names that come from a table are `printable` already: theirs may hold line breaks."""
    for line in text.removesuffix("\n").split("\n"):
        say(line, error=error)


def name_on_a_line(name: str) -> str:
    """A name or a value as a table on standard output shows it."""
    return shortened(printable(name))


def warn_of_trained_rows(run: TrainedRun, data: object) -> None:
    """Say on standard error if a run is measured on rows that it was trained on."""
    from feat2vec.training.trained_rows import warning_of_trained_rows

    warning = warning_of_trained_rows(run, data)
    if warning is not None:
        say(warning, error=True)


def say_missing_columns(run: TrainedRun, data: object, groups: Sequence[str] | None = None) -> None:
    """Say on standard error which columns of a run's groups, or of some of them, a table lacks."""
    from feat2vec.encode.columns import missing_columns
    from feat2vec.table.table import open_table

    line = missing_columns(run.schema, open_table(data), groups)
    if line is not None:
        say(line, error=True)


def say_problems(problems: Sequence[str]) -> None:
    """Print what is wrong; a standard error that cannot be written to is no reason to fail in another way."""
    with suppress(OSError):
        for line in message_lines(problems):
            say(line, error=True)


DEEPEST_NESTING = 16  # lists and objects in one another in a row of JSON


def group_names(text: str | None) -> list[str] | None:
    """The names in a list with commas between them; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",")]


def json_row(option: str, text: str) -> dict[str, object]:
    """Read a row that is given as columns and values, in which numbers are what they are in a JSON file."""
    from feat2vec.table.sources.json_problems import fraction_problem

    fractions: list[str] = []

    def parse_fraction(number: str) -> float:
        fractions.append(number)
        return float(number)

    try:
        row = json.loads(text, parse_float=parse_fraction)
        if _depth(row) > DEEPEST_NESTING:
            raise RecursionError
        json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair has no encoding
    except RecursionError:
        raise UserError(f"{option}: is nested too deeply: a value is text, a number, true, false or a list") from None
    except UnicodeEncodeError:
        raise UserError(f"{option}: holds half of a surrogate pair, which is no text; received {text[:60]!r}") from None
    except ValueError as error:
        raise UserError(f"{option}: is no JSON ({error!s:.80}); received {text[:60]!r}") from None
    if not isinstance(row, dict):
        raise UserError(f'{option}: expected columns and values, such as {{"year": 1985}}; received {text[:60]!r}')
    for problem in map(fraction_problem, fractions):
        if problem:
            raise UserError(f"{option}: {problem}")
    return row


def _depth(value: object) -> int:
    """How many lists and objects are around the innermost value."""
    depth, level = 0, [value]
    while level:
        inside: list[object] = []
        for outer in level:
            inside += outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else []
        depth, level = depth + 1, inside
    return depth - 1
