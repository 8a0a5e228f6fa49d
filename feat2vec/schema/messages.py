"""Pydantic's errors as mistakes in our words: where, what was expected, what was received, the nearest known word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from feat2vec.errors import suggest
from feat2vec.schema.document import Data, Document, KeyPath, kind_of, shown

JsonSchema = Mapping[str, Any]  # a JSON Schema, or a part of one such as its properties


@dataclass
class Location:
    """A place in a document.

    Args:
        path: The path of keys and indices.
        value: What the document has there.
        holder: The mapping that holds, or should hold, the last key of the path.
        holder_schema: The JSON Schema of the holder.
        type_properties: The properties of each `type` that the value or its holder could have.
        type: The type of the holder, if it has types.

    """

    path: KeyPath = ()
    value: Any = None
    holder: Mapping[str, Data] = field(default_factory=dict)
    holder_schema: JsonSchema = field(default_factory=dict)
    type_properties: Mapping[str, JsonSchema] = field(default_factory=dict)
    type: str = ""

    @property
    def properties(self) -> JsonSchema:
        """The JSON Schemas of the keys that the holder may have."""
        properties: JsonSchema = self.holder_schema.get("properties", {})
        return properties

    def alternatives(self, key: str) -> list[str]:
        """The keys of which exactly one has to be given, if the key is among them."""
        keys = [name for choice in self.holder_schema.get("oneOf", ()) for name in choice.get("required", ())]
        return keys if key in keys else []


class Locator:
    """Finds locations by the JSON Schema of a model."""

    def __init__(self, model: type[BaseModel]) -> None:
        self.root = model.model_json_schema()

    def locate(self, pydantic_location: KeyPath, data: Data) -> Location:
        """Follow one of pydantic's locations as far as the data go."""
        location, schema = Location(value=data), self._resolve(self.root)
        follows_tag = False  # whether the step before was the tag of a union of types
        for step in pydantic_location:
            if "discriminator" in schema:
                location.type_properties, location.type, follows_tag = self._type_properties(schema), str(step), True
                schema = self._resolve({"$ref": schema["discriminator"]["mapping"][step]})
                continue
            if "oneOf" in schema and "properties" not in schema:  # a union of a list and a mapping
                json_type = "object" if isinstance(location.value, dict) else "array"
                schema = next(option for option in schema["oneOf"] if option["type"] == json_type)
                continue
            if not follows_tag:
                location.type_properties, location.type = {}, ""
            if isinstance(location.value, dict):
                location.holder, location.holder_schema = location.value, schema
            follows_tag = False
            if not _holds(location.value, step):
                return location
            location.path, location.value = (*location.path, step), location.value[step]
            property_schema = schema.get("properties", {}).get(step)
            schema = self._resolve(property_schema or schema.get("additionalProperties") or schema.get("items") or {})
        if "discriminator" in schema:
            location.type_properties = self._type_properties(schema)
        return location

    def _type_properties(self, union: JsonSchema) -> dict[str, JsonSchema]:
        """The properties of each type of a union."""
        references = union["discriminator"]["mapping"].items()
        return {tag: self._resolve({"$ref": reference}).get("properties", {}) for tag, reference in references}

    def _resolve(self, schema: JsonSchema) -> JsonSchema:
        """Follow references; of alternatives choose the one that has keys or items."""
        if "$ref" in schema:
            definitions: Mapping[str, JsonSchema] = self.root["$defs"]
            return self._resolve(definitions[schema["$ref"].rsplit("/", 1)[1]])
        for option in schema.get("anyOf", ()):
            resolved = self._resolve(option)
            if any(keyword in resolved for keyword in ("properties", "additionalProperties", "items", "discriminator")):
                return resolved
        return schema


def _holds(value: object, step: str | int) -> bool:
    """Whether a value has an entry of this key or index."""
    if isinstance(value, dict):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and step < len(value)


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
    types: Mapping[str, JsonSchema] = location.type_properties
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
