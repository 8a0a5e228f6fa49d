"""Pydantic's errors as mistakes in our words: what was expected, what was received, and the nearest known word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from feat2vec.errors import suggest
from feat2vec.schema.document import Document, KeyPath, kind_of, shown
from feat2vec.schema.locations import Location, Locator

# Pydantic's kinds of errors, and what was expected.
EXPECTED = {
    "string_type": "text",
    "string_unicode": "text of whole characters",
    "string_too_short": "text that is not empty",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "a type, or keys and values",
}
# Those of bounds: their words, and the key of the bound in the error's context.
BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in a document.

    Args:
        at: The path at which the user is told.
        place: The path that has no good value because of it. It differs from `at` if a key is missing.
        message: What is wrong; empty if the mistake only follows from another one.
        kind: Pydantic's kind of error; "flaw" for one of the text itself, "known" for one that was found before.
        line: The line, if it is known better than by the path.

    """

    at: KeyPath
    place: KeyPath
    message: str
    kind: str = ""
    line: int | None = None


def mistake_of(detail: ErrorDetails, document: Document, locator: Locator) -> Mistake:
    """Translate one of pydantic's errors."""
    kind, received = detail["type"], detail["input"]
    location = locator.locate(detail["loc"], document.data)
    path = location.path
    if kind == "extra_forbidden":
        return Mistake(path, path, _unknown_key(location), kind)
    if kind == "missing":
        return _missing_key(str(detail["loc"][-1]), location)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_type(received, document, location)
    is_of_key = detail["loc"][-1:] == ("[key]",)  # a key of a mapping is wrong, not its value
    spelled = None if is_of_key else document.spelled.get(path)
    return Mistake(path, path, _wrong_value(detail, shown(received, spelled)), kind)


def _missing_key(key: str, location: Location) -> Mistake:
    shown_key = (location.alternatives(key) or [key])[0]
    only_value = location.properties.get(key, {}).get("const")
    remedy = "" if only_value is None else f"; add `{key}: {only_value}`"
    return Mistake(location.path, (*location.path, key), f"the key `{shown_key}` is missing{remedy}", "missing")


def _unknown_type(received: object, document: Document, location: Location) -> Mistake:
    at = (*location.path, "type") if isinstance(location.value, dict) else location.path
    types = list(location.type_properties)
    type_ = received.get("type") if isinstance(received, dict) else None
    if isinstance(type_, str):
        message = f"unknown type {shown(type_)}{_nearest(type_, types)}"
    else:
        message = f"expected one of {', '.join(types)}, received {shown(type_, document.spelled.get(at))}"
    return Mistake(at, at, message, "union_tag_invalid")


def _wrong_value(detail: ErrorDetails, value: str) -> str:
    """The message for a value of a wrong type or size, of which `value` is the spelling."""
    kind, received, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "literal_error":
        words = [word.strip(" '") for word in context["expected"].replace(" or ", ", ").split(",")]
        near = suggest(received, words) if isinstance(received, str) and received not in words else ""
        return f"expected {context['expected']}, received {value}{near}"
    if kind == "too_short":
        least = context["min_length"]
        return f"needs at least {least} {'entry' if least == 1 else 'entries'}, received {value}"
    if kind == "string_type" and isinstance(received, (bool, int, float)):
        return f'expected text, received {value}, {kind_of(received)}; put it in quotes: "{value}"'
    if kind == "float_type" and isinstance(received, int) and not isinstance(received, bool):
        return f"expected a number that fits 64 bits, received {value}"
    if kind in BOUNDS:
        words_of_bound, key = BOUNDS[kind]
        return f"must be {words_of_bound} {str(context[key]).removesuffix('.0')}, received {value}"
    if kind in EXPECTED:
        return f"expected {EXPECTED[kind]}, received {value}"
    if kind == "value_error":  # a plugin's own check
        return f"{context['error']}, received {value}"
    return f"{detail['msg'].replace('Input should be', 'expected', 1)}, received {value}"


def _unknown_key(location: Location) -> str:
    """The message for a key that is not expected where it is; empty if another key is the cause."""
    key = str(location.path[-1])
    if key in location.properties:
        alternative = next(name for name in location.alternatives(key) if name != key)
        return f"cannot be given beside `{alternative}`, which means the same; remove one of them"
    types: Mapping[str, Mapping[str, Any]] = location.type_properties
    unknown_keys = [name for name in location.holder if name not in location.properties]
    # A misspelt `type` makes the keys of that type unknown.
    type_is_misspelt = types and "type" not in location.holder and suggest("type", unknown_keys)
    if type_is_misspelt and not suggest("type", [key]):
        return ""
    types_with_key = [name for name, properties in types.items() if key in properties]
    if types_with_key:
        verb = "have" if len(types_with_key) > 1 else "has"
        return f"unknown key for the type {location.type!r}; {', '.join(types_with_key)} {verb} it"
    return f"unknown key{_nearest(key, list(location.properties))}"


def _nearest(word: str, known: Sequence[str]) -> str:
    return suggest(word, known) or f"; known here: {', '.join(known)}"
