"""Settings such as `training.epochs=5`, which replace values of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from feat2vec.errors import UserError
from feat2vec.schema.document import Data, Document, KeyPath
from feat2vec.schema.yaml_text import parse_document


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
    data = _put(document.data, path, value.data.get("value"))
    if not isinstance(data, dict):
        raise _no_setting(setting)
    spelled = {at: text for at, text in document.spelled.items() if at[: len(path)] != path}
    spelled |= {(*path, *at[1:]): text for at, text in value.spelled.items()}
    flaws = [flaw for flaw in document.flaws if flaw.path[: len(path)] != path]
    flaws += [replace(flaw, path=(*path, *flaw.path[1:]), line=0) for flaw in value.flaws]
    settings = {**document.settings, path: setting}
    return replace(document, data=data, spelled=spelled, flaws=tuple(flaws), settings=settings)


def _put(data: Data, path: KeyPath, value: Data) -> Data:
    """Nested mappings with the value at a path. The text `lookup` stands for `{type: lookup}`."""
    if not path:
        return value
    key, remaining_keys = str(path[0]), path[1:]
    holder: dict[str, Data] = {}
    if isinstance(data, dict):
        holder = data
    elif isinstance(data, str):
        holder = {"type": data}
    return {**holder, key: _put(holder.get(key), remaining_keys, value)}
