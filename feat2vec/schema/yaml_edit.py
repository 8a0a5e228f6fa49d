"""YAML text with values replaced, its comments kept."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

import yaml

from feat2vec.errors import UserError
from feat2vec.schema.document import Data, Document
from feat2vec.schema.settings import with_settings
from feat2vec.schema.yaml_text import dump_document, parse_document

Keys = tuple[str, ...]


def edited(text: str, values: Mapping[Keys, Data], texts_of_keys: Mapping[str, str] | None = None) -> str:
    r"""Replace values in YAML text.

    Args:
        text: The text.
        values: The new values, by their paths of keys. Paths are read as those of `with_settings`.
        texts_of_keys: YAML texts that become the values of keys, with their comments.

    Returns:
        The new text. If it is too intricate to be edited, it is written anew, without comments.

    >>> edited("model: {dim: 50}  # small\n", {("model", "dim"): 8})
    'model: {dim: 8}  # small\n'

    """
    wanted = _wanted_data(text, values, texts_of_keys or {})
    try:
        new_text = text
        for key, inner_text in (texts_of_keys or {}).items():
            node, _ = _find_node(new_text, (key,))
            new_text = _replace_node(new_text, node, "\n" + textwrap.indent(inner_text.strip("\n"), "  "))
        for path, value in values.items():
            new_text = _put(new_text, path, value)
        if parse_document(new_text).data == wanted:
            return new_text
    except (UserError, yaml.YAMLError):
        pass
    return dump_document(wanted)


def _wanted_data(text: str, values: Mapping[Keys, Data], texts_of_keys: Mapping[str, str]) -> dict[str, Data]:
    """The data that the edited text has to have."""
    document = parse_document(text)
    for key, inner_text in texts_of_keys.items():
        document = Document(document.name, {**document.data, key: parse_document(inner_text).data}, {}, {})
    settings = [f"{'.'.join(path)}={json.dumps(value)}" for path, value in values.items()]
    return with_settings(document, settings).data


def _find_node(text: str, path: Keys) -> tuple[yaml.Node, Keys]:
    """The node of a path, or of as much of it as is there, and the rest of the path."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None  # the text was parsed before, and an empty one refused
    for i, key in enumerate(path):
        entries = node.value if isinstance(node, yaml.MappingNode) else ()
        value_node = next((value for name, value in entries if name.value == key), None)
        if value_node is None:
            return node, path[i:]
        node = value_node
    return node, ()


def _put(text: str, path: Keys, value: Data) -> str:
    """The text with a value at a path, which may be new."""
    node, missing_keys = _find_node(text, path)
    if not missing_keys:
        return _replace_node(text, node, _one_line(value))
    for key in reversed(missing_keys[1:]):
        value = {key: value}
    if not isinstance(node, yaml.MappingNode):  # the short form of a type: `lookup` for `{type: lookup}`
        typed = {"type": node.value} if isinstance(node.value, str) and node.value else {}
        return _replace_node(text, node, _one_line({**typed, missing_keys[0]: value}))
    entry = f"{_one_line(missing_keys[0])}: {_one_line(value)}"
    start = node.start_mark
    if node.flow_style:
        index_inside = start.index + 1  # behind the bracket
        return f"{text[:index_inside]}{entry}{', ' if node.value else ''}{text[index_inside:]}"
    return f"{text[: start.index]}{entry}\n{' ' * start.column}{text[start.index :]}"


def _replace_node(text: str, node: yaml.Node, new_text: str) -> str:
    before = text[: node.start_mark.index]
    if new_text.startswith("\n"):
        before = before.rstrip(" ")
    return before + new_text + text[node.end_mark.index :]


def _one_line(value: Data) -> str:
    """A value as YAML in one line."""
    if isinstance(value, dict):
        entries = [f"{_one_line(key)}: {_one_line(entry)}" for key, entry in value.items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_one_line(item) for item in value)}]"
    text = dump_document({"_": value}).strip()
    return text[4:-1] if text.startswith("{") else text[3:]
