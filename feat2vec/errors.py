"""What went wrong, in words: the exceptions that the command line prints without a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake of the user's: says where, what was received and what to do.

    `problems` holds one message a problem; the text of the exception is one line for each.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnknownKeyError(UserError, KeyError):
    """A key that a group does not have; to Python code it is a KeyError."""

    __str__ = Exception.__str__  # a KeyError shows its text in quotes


class FailedError(Exception):
    """Something failed that is no mistake in what the user wrote: the command line says it and exits with 1."""


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean a, b?` for the nearest of the known words, or nothing when none is near.

    >>> suggest("lokup", ["lookup", "numeric"])
    "; did you mean 'lookup'?"
    >>> suggest("zebra", ["lookup", "numeric"])
    ''
    """
    folded = {name.casefold(): name for name in reversed(list(known))}
    near = get_close_matches(word.casefold(), folded, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(folded[name]) for name in near)}?" if near else ""
