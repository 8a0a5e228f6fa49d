"""Changes to a document: settings such as `training.epochs=5`, and edits of YAML text that keep its comments."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace

import yaml

from feat2vec.errors import UserError
from feat2vec.schema.document import Data, Document, KeyPath
from feat2vec.schema.yaml_text import dump_document, parse_document


def with_settings(document: Document, settings: Sequence[str]) -> Document:
    """Return a document with values replaced.

    Args:
        document: The document.
        settings: What to replace, each as `key.below.key=value`, the value in YAML. The last one for a key
            counts.

    Returns:
        The new document, whose messages name the settings.

    Raises:
        UserError: A setting is not of that form.

    >>> with_settings(parse_document("model: {dim: 50}"), ["model.dim=8", "training.epochs=5"]).data
    {'model': {'dim': 8}, 'training': {'epochs': 5}}

    """
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not all(key.split(".")):
            raise _no_setting(setting)
        try:
            value = parse_document(f"value: {text}", "--set")
        except UserError as error:
            message = str(error).split(": ", 1)[1]
            raise UserError(f"--set {setting}: {message}") from None
        if len(value.data) > 1:  # the text has a second line with a key
            raise _no_setting(setting)
        document = _with_value(document, tuple(key.split(".")), setting, value)
    return document


def _no_setting(setting: str) -> UserError:
    return UserError(f"--set {setting}: expected key=value, such as training.epochs=5")


def _with_value(document: Document, path: KeyPath, setting: str, value: Document) -> Document:
    """The document with the data of another one, which stand there below `value`, at a path."""
    data = _nested_with(document.data, path, value.data.get("value"))
    if not isinstance(data, dict):
        raise _no_setting(setting)
    spelled = {at: text for at, text in document.spelled.items() if at[: len(path)] != path}
    spelled |= {(*path, *at[1:]): text for at, text in value.spelled.items()}
    flaws = [flaw for flaw in document.flaws if flaw.path[: len(path)] != path]
    flaws += [replace(flaw, path=(*path, *flaw.path[1:]), line=0) for flaw in value.flaws]
    settings = {**document.settings, path: setting}
    return replace(document, data=data, spelled=spelled, flaws=tuple(flaws), settings=settings)


def _nested_with(data: Data, path: KeyPath, value: Data) -> Data:
    """Nested mappings with the value at a path. The text `lookup` stands for `{type: lookup}`."""
    if not path:
        return value
    key, remaining_keys = str(path[0]), path[1:]
    holder: dict[str, Data] = {}
    if isinstance(data, dict):
        holder = data
    elif isinstance(data, str):
        holder = {"type": data}
    return {**holder, key: _nested_with(holder.get(key), remaining_keys, value)}


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
    wanted_data = _wanted_data(text, values, texts_of_keys or {})
    try:
        new_text = text
        for key, inner_text in (texts_of_keys or {}).items():
            node, _ = _find_node(new_text, (key,))
            new_text = _replace_node(new_text, node, "\n" + textwrap.indent(inner_text.strip("\n"), "  "))
        for path, value in values.items():
            new_text = _text_with_value(new_text, path, value)
        if parse_document(new_text).data == wanted_data:
            return new_text
    except (UserError, yaml.YAMLError):
        pass
    return dump_document(wanted_data)


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


def _text_with_value(text: str, path: Keys, value: Data) -> str:
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
