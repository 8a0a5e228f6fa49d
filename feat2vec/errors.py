"""What went wrong, in words: the exceptions that the command line prints without a traceback."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path

from feat2vec.terminal import shortened


class UserError(Exception):
    """A mistake in what the user wrote. Its message says where, what was received and what to do.

    Args:
        *problems: One message for each problem, each of one line. The text of the exception is one line for each.

    Example:
        >>> error = UserError("films.yaml: has no groups", "films.csv: has no rows")
        >>> len(error.problems), str(error).splitlines()[0]
        (2, 'films.yaml: has no groups')

    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnknownKeyError(UserError, KeyError):
    """A key that a group does not have; to Python code it is a KeyError."""

    __str__ = Exception.__str__  # a KeyError shows its text in quotes


class FailedError(Exception):
    """Something failed that is no mistake in what the user wrote: the command line says it and exits with 1.

    `problems` are as those of a `UserError`.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


RESTART_STATUS = 75  # the exit status that asks a launcher to start the command again (EX_TEMPFAIL of sysexits.h)


class RestartError(FailedError):
    """A process of a cluster was lost, and nothing else is wrong: the same command, started again, goes on.

    The command line says it and exits with `RESTART_STATUS`.
    """


# Remedies that several messages end with.
ROOM = "make room, or choose another folder"
RESTORE = "restore the run from a copy, or train it again"


@contextmanager
def writing(place: str | Path, remedy: str = ROOM) -> Iterator[None]:
    """A system's error, such as a full disk, that names no file is raised again with the place and a remedy."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, f"{error.strerror or error}; {remedy}", str(place)) from error


OPTION = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)\b")  # as `--to-index`
ARGUMENTS = {
    "force": "force=True",
    "group": "groups",
    "html": "out",
    "other": "other_run",
    "resume": "resume=True",
    "set": "settings",
}  # of options whose names are not theirs


NAMES_OPTIONS: ContextVar[bool] = ContextVar("NAMES_OPTIONS", default=False)  # as on the command line


@contextmanager
def naming_options() -> Iterator[None]:
    """Within it messages name options: what is called there by a command was asked for by options."""
    before = NAMES_OPTIONS.set(True)
    try:
        yield
    finally:
        NAMES_OPTIONS.reset(before)


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Within it a message about an option of the command line is raised with the name of the argument instead.

    Commands in a message stay as they are. On the command line nothing changes: see `naming_options`.

    >>> with naming_arguments():
    ...     raise UserError("--to-index: is no number; see `feat2vec explain --help`")
    Traceback (most recent call last):
    feat2vec.errors.UserError: to_index: is no number; see `feat2vec explain --help`
    """
    try:
        yield
    except (UserError, FailedError) as error:
        problems = [_with_arguments(problem) for problem in error.problems]
        if NAMES_OPTIONS.get() or problems == list(error.problems):
            raise
        raise type(error)(*problems) from None


def _with_arguments(problem: str) -> str:
    parts = problem.split("`")
    return "`".join(part if part.startswith("feat2vec ") else OPTION.sub(_argument, part) for part in parts)


def _argument(option: re.Match[str]) -> str:
    return ARGUMENTS.get(option[1], option[1].replace("-", "_"))


def refuse_stray_bytes(path: str | Path) -> None:
    r"""Raise if a path is not UTF-8: DuckDB, Arrow, HDF5 and TensorFlow cannot open what is there.

    >>> refuse_stray_bytes("films")
    """
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise UserError(f"{path}: its name, or that of a folder above it, is not UTF-8; rename it") from None


def in_a_line(error: BaseException) -> str:
    r"""What an error says, on one short line, with its type.

    >>> in_a_line(ValueError("no vectors\nof that name"))
    'ValueError: no vectors of that name'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= 100 else f'{text[:97]}...'}"


MOST_LISTED, LONGEST_LISTED = 8, 40
LONGEST_WORD = 200  # characters of a word that others are suggested for


def listed(words: Iterable[str]) -> str:
    """`a, b, c`; of many words the first, and how many there are.

    >>> listed(["director", "genre"])
    'director, genre'
    >>> listed(f"column {i}" for i in range(10_000)).endswith("column 6, column 7, ... (10,000 in all)")
    True
    """
    all_words = list(words)
    shown = [shortened(word, LONGEST_LISTED) for word in all_words[:MOST_LISTED]]
    return ", ".join(shown) + (f", ... ({len(all_words):,} in all)" if len(all_words) > MOST_LISTED else "")


def suggest(word: object, known: Iterable[str]) -> str:
    """`; did you mean a, b?` for the nearest of the known words, or nothing when none is near.

    >>> suggest("lokup", ["lookup", "numeric"])
    "; did you mean 'lookup'?"
    >>> suggest("zebra", ["lookup", "numeric"])
    ''

    What is no text is near to none: a caller's error names it.

    >>> suggest(["lookup"], ["lookup", "numeric"])
    ''
    """
    if not isinstance(word, str) or len(word) > LONGEST_WORD:
        return ""  # comparing takes time in proportion to the product of the lengths
    folded = {name.casefold(): name for name in reversed(list(known)) if len(name) <= LONGEST_WORD}
    near = get_close_matches(word.casefold(), folded, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(folded[name]) for name in near)}?" if near else ""
