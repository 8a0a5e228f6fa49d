"""A document: plain data with the line of every key, and how paths and values are shown in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Data = None | bool | int | float | str | list["Data"] | dict[str, "Data"]
KeyPath = tuple[str | int, ...]  # keys of mappings and indices of lists

MAX_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True)
class Flaw:
    """Something in the text that cannot be read as data; the document's data have nothing at its path."""

    line: int
    path: KeyPath
    message: str


@dataclass(frozen=True)
class Document:
    """Data with the line of each of its keys.

    Args:
        name: What messages call the document, such as its file.
        data: The data.
        lines: The line of each path.
        spelled: The text of each plain scalar, by its path.
        flaws: What could not be read; `validate` reports them together with what is wrong with the data.
        settings: The values that `--set` gave, by their paths, as they were written.

    """

    name: str
    data: dict[str, Data]
    lines: dict[KeyPath, int]
    spelled: dict[KeyPath, str]
    flaws: tuple[Flaw, ...] = ()
    settings: Mapping[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """The line of a path, or of its nearest ancestor that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def problem(self, path: KeyPath, message: str, line: int | None = None) -> str:
        """A message with its place: `file:line: path: message`, or `--set key=value: path: message`."""
        origin = f"{self.name}:{line or self.line(path)}"
        for setting_path, setting in self.settings.items():
            is_inside = path[: len(setting_path)] == setting_path
            is_above = path not in self.lines and setting_path[: len(path)] == path  # a key that only the setting has
            if path and (is_inside or is_above):
                origin = f"--set {setting}"
        return ": ".join([origin, *([dotted(path)] if path else []), message])


def dotted(path: KeyPath) -> str:
    """A path as messages show it; keys that are not words stand in brackets.

    >>> dotted(("groups", "cast", "columns", 0)), dotted(("groups", "a: b", "column"))
    ('groups.cast.columns[0]', "groups['a: b'].column")
    """
    text = ""
    for key in path:
        is_word = isinstance(key, str) and re.fullmatch(rf"[\w-]{{1,{MAX_SHOWN}}}", key)
        text += f".{key}" if is_word else f"[{shown(key)}]"
    return text.removeprefix(".")


def shown(value: object, spelled: str | None = None) -> str:
    """A value as messages show it, in one line: a scalar as it was spelled, of anything larger only the kind.

    >>> shown(0.001, "1e-3"), shown([1, 2]), shown({})
    ('1e-3', 'a list', 'an empty mapping')
    """
    if isinstance(value, (list, tuple, Mapping)):
        return kind_of(value) if value else f"an empty {'mapping' if isinstance(value, Mapping) else 'list'}"
    if spelled == "" or (value is None and spelled is None):
        return "nothing"
    text = repr(value) if spelled is None or not spelled.isprintable() else spelled
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def kind_of(value: object) -> str:
    """What messages call a value's type.

    >>> kind_of(True), kind_of(1), kind_of({})
    ('a boolean', 'a whole number', 'keys and values')
    """
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if value is None:
        return "nothing"
    return "a list" if isinstance(value, Sequence) else "keys and values"
