"""Text as lines that a terminal can show: no control characters, no flood."""

from __future__ import annotations

import re
from collections.abc import Sequence

LINES, WIDTH = 5, 200  # of a message
LONGEST_WORD = 80  # of a line that is too long
COUNT = 30  # characters that ` | and 9,999 more` may take
# Control characters, line and paragraph separators, lone surrogates, and what reverses the direction of text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text on one line, in which what a terminal would obey or could not show is escaped.

    >>> print(printable("a\x1b[31m\nb\u202e"))
    a\x1b[31m\nb\u202e
    """
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shortened(text: str, width: int = WIDTH) -> str:
    """The text, or its beginning and its end if it is longer than `width`: a message ends with what to do.

    >>> shortened("the columns are a, b, c, d, e, f; rename one", 34)
    'the columns are a,...f; rename one'
    """
    if len(text) <= width:
        return text
    longest = min(LONGEST_WORD, width)
    text = re.sub(rf"\S{{{longest + 1},}}", lambda match: _without_middle(match[0], longest), text)
    return _without_middle(text, width)


def _without_middle(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    end = (width - 3) * 45 // 100
    return f"{text[: width - 3 - end]}...{text[len(text) - end :]}"


def message_lines(problems: Sequence[str]) -> list[str]:
    """The problems on at most `LINES` lines of at most `WIDTH` characters each.

    Up to `LINES` problems have a line each. Of more, as many as fit are put side by side, and the others are counted.
    """
    if len(problems) <= LINES:
        return [shortened(printable(problem)) for problem in problems]
    lines: list[str] = []
    for shown_problems, problem in enumerate(problems):
        width = WIDTH - COUNT if len(lines) == LINES else WIDTH
        text = shortened(printable(problem.strip()), WIDTH - COUNT)
        if lines and len(lines[-1]) + len(" | ") + len(text) <= width:
            lines[-1] += f" | {text}"
        elif len(lines) < LINES:
            lines.append(text)
        else:
            return [*lines[:-1], f"{lines[-1]} | and {len(problems) - shown_problems:,} more"]
    return lines
