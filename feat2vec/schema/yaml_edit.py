"""YAML text with values replaced, its comments kept."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from feat2vec.errors import UserError
from feat2vec.schema.yaml_text import Data, Document, dump_document, parse_document

Keys = tuple[str, ...]


def edited(text: str, values: Mapping[Keys, Data], below: Mapping[str, str] | None = None) -> str:
    """The text with values at paths of keys, as `Document.with_settings` reads them.

    `below` are texts that become what stands below a key. Where the text is too intricate to be edited, it is written
    anew, without its comments.
    """
    wanted = parse_document(text)
    for key, inner in (below or {}).items():
        wanted = Document(wanted.name, {**wanted.data, key: parse_document(inner).data}, {}, {})
    wanted = wanted.with_settings([f"{'.'.join(path)}={json.dumps(value)}" for path, value in values.items()])
    try:
        new = text
        for key, inner in (below or {}).items():
            new = _replaced(new, _at(new, (key,))[0], "\n" + textwrap.indent(inner.strip("\n"), "  "))
        for path, value in values.items():
            new = _put(new, path, value)
        if parse_document(new).data == wanted.data:
            return new
    except (UserError, yaml.YAMLError):
        pass
    return dump_document(wanted.data)


def _at(text: str, path: Keys) -> tuple[yaml.Node, Keys]:
    """The node of a path, or of as much of it as is there, and the rest of the path."""
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for i, key in enumerate(path):
        inside = node.value if isinstance(node, yaml.MappingNode) else ()
        found = next((value for name, value in inside if name.value == key), None)
        if found is None:
            return node, path[i:]
        node = found
    return node, ()


def _put(text: str, path: Keys, value: Data) -> str:
    node, rest = _at(text, path)
    if not rest:
        return _replaced(text, node, _spelled(value))
    for key in reversed(rest[1:]):
        value = {key: value}
    if not isinstance(node, yaml.MappingNode):  # the short form of a type
        typed = {"type": node.value} if isinstance(node.value, str) and node.value else {}
        return _replaced(text, node, _spelled({**typed, rest[0]: value}))
    line = f"{_spelled(rest[0])}: {_spelled(value)}"
    start = node.start_mark
    if node.flow_style:
        first = start.index + 1
        return f"{text[:first]}{line}{', ' if node.value else ''}{text[first:]}"
    return f"{text[: start.index]}{line}\n{' ' * start.column}{text[start.index :]}"


def _replaced(text: str, node: yaml.Node, new: str) -> str:
    before = text[: node.start_mark.index]
    return (before.rstrip(" ") if new.startswith("\n") else before) + new + text[node.end_mark.index :]


def _spelled(value: Data) -> str:
    """A value in one line; a mapping as schemas are written."""
    if isinstance(value, dict):
        inside = ", ".join(f"{_spelled(key)}: {_spelled(one)}" for key, one in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_spelled, value))}]"
    text = dump_document({"_": value}).strip()
    return text[4:-1] if text.startswith("{") else text[3:]
