"""How the commands print: names of a table must not control the terminal, and must be one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from feat2vec.errors import writing
from feat2vec.terminal import message_lines, printable, shortened


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


def say_problems(problems: Sequence[str]) -> None:
    """Print what is wrong; a standard error that cannot be written to is no reason to fail in another way."""
    with suppress(OSError):
        for line in message_lines(problems):
            say(line, error=True)
