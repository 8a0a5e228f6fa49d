"""Values of options: lists of groups, and rows as JSON."""

from __future__ import annotations

import json

from feat2vec.errors import UserError

DEEPEST_NESTING = 16  # lists and objects in one another in a row of JSON


def group_names(text: str | None) -> list[str] | None:
    """The names in a list with commas between them; None stays None."""
    return None if text is None else [name.strip() for name in text.split(",")]


def json_row(option: str, text: str) -> dict[str, object]:
    """Read a row that is given as columns and values."""
    try:
        row = json.loads(text)
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
