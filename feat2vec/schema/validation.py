"""Plain data to frozen objects: every problem at once, in our words, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from feat2vec.errors import UserError, suggest
from feat2vec.schema.yaml_text import Data, Document, KeyPath, kind_of, shown


class Spec(BaseModel):
    """A part of a file: frozen, and a key it does not know is a problem."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Problem = tuple[KeyPath, str]
Model = TypeVar("Model", bound=Spec)

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
BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong: told at the path `at`; `place` is the path that has no good value because of it.

    A mistake without a message only follows from another one.
    """

    at: KeyPath
    place: KeyPath
    message: str
    kind: str = ""
    line: int | None = None


class Findings:
    """What the checks that look at several keys may rely on: the data as given, and where it is wrong."""

    def __init__(self, data: Mapping[str, Data], mistakes: Sequence[Mistake]) -> None:
        self.data = data
        self._wrong = {mistake.place for mistake in mistakes}
        self._above_wrong = {place[:end] for place in self._wrong for end in range(len(place))}
        self._beside_unknown = {mistake.place[:-1] for mistake in mistakes if mistake.kind == "extra_forbidden"}

    def sound(self, *path: str | int, inside: bool = True) -> bool:
        """Whether a path, or its default, is what the user meant: no mistake at, above or (if `inside`) below it.

        A key that is not given is in doubt when there is an unknown key beside it.
        """
        return not (
            any(path[:end] in self._wrong for end in range(len(path) + 1))
            or (inside and path in self._above_wrong)
            or (path[:-1] in self._beside_unknown and not self._given(path))
        )

    def _given(self, path: KeyPath) -> bool:
        node: Any = self.data
        for key in path:
            if not isinstance(node, dict) or key not in node:
                return False
            node = node[key]
        return True


def validate(
    document: Document,
    model: type[Model],
    conflicts: Callable[[Model, Findings], Iterable[Problem]],
    stand_ins: Mapping[str, Data] | None = None,
    known: Sequence[Problem] = (),
) -> Model:
    """The document as a `model`; `conflicts` yields what is wrong although each key is right by itself.

    `stand_ins` are values for the model's required keys, so that `conflicts` can look at the rest without them;
    `known` are problems that the caller has found already.
    """
    mistakes = [Mistake(flaw.path, flaw.path, flaw.message, "flaw", flaw.line) for flaw in document.flaws]
    mistakes += [Mistake(path, path, message, "known") for path, message in known]
    found, checked = _attempt(document, model)
    mistakes += _causes(found, mistakes)
    if checked is None:
        checked = _rest(document, model, found, stand_ins or {})
    if checked is not None:
        problems = conflicts(checked, Findings(document.data, mistakes))
        mistakes += [Mistake(path, path, message) for path, message in problems]
    told = [mistake for mistake in mistakes if mistake.message]
    if told or checked is None:
        told.sort(key=lambda mistake: mistake.line or document.line(mistake.at))
        raise UserError(*dict.fromkeys(document.problem(each.at, each.message, each.line) for each in told))
    return checked


def _attempt(document: Document, model: type[Model]) -> tuple[list[Mistake], Model | None]:
    try:
        return [], model.model_validate(document.data)
    except ValidationError as error:
        shape = _Shape(model)
        details = error.errors(include_url=False)
        above = {detail["loc"][:end] for detail in details for end in range(len(detail["loc"]))}
        # a list is "too short" as well when one of its items is wrong
        told = [detail for detail in details if detail["type"] != "too_short" or detail["loc"] not in above]
        return [_explain(detail, document, shape) for detail in told], None


def _causes(found: Sequence[Mistake], before: Sequence[Mistake]) -> Iterator[Mistake]:
    """The mistakes, without the messages of those that follow from another one."""
    unreadable = {mistake.at for mistake in before if mistake.kind == "flaw"}
    unloaded = any(mistake.kind == "known" for mistake in before)
    unknown: dict[KeyPath, list[str]] = {}
    for mistake in found:
        if mistake.kind == "extra_forbidden":
            unknown.setdefault(mistake.at[:-1], []).append(str(mistake.at[-1]))
    for mistake in found:
        misspelt = mistake.kind == "missing" and suggest(str(mistake.place[-1]), unknown.get(mistake.at, ()))
        unloaded_type = mistake.kind == "union_tag_invalid" and unloaded
        follows = misspelt or unloaded_type or mistake.at in unreadable
        yield replace(mistake, message="") if follows else mistake


def _rest(document: Document, model: type[Model], found: list[Mistake], stand_ins: Mapping[str, Data]) -> Model | None:
    """What is right, checked without what is wrong; nothing when no such part is left."""
    while True:
        data = _without(document.data, [mistake.at for mistake in found])
        data = {**stand_ins, **data}
        if data == document.data:
            return None
        document = replace(document, data=data)
        found, checked = _attempt(document, model)
        if checked is not None:
            return checked


def _without(data: Any, paths: Sequence[KeyPath]) -> Any:
    """A copy of the data without what stands at the paths."""
    heads = {path[0] for path in paths if len(path) == 1}
    below: dict[str | int, list[KeyPath]] = {}
    for path in paths:
        if len(path) > 1:
            below.setdefault(path[0], []).append(path[1:])
    if isinstance(data, dict):
        return {key: _without(value, below.get(key, [])) for key, value in data.items() if key not in heads}
    if isinstance(data, list):
        return [_without(value, below.get(i, [])) for i, value in enumerate(data) if i not in heads]
    return data


# --- pydantic's errors in our words ---------------------------------------------------------------------------------


def _explain(detail: ErrorDetails, document: Document, shape: _Shape) -> Mistake:
    kind, received, context = detail["type"], detail["input"], detail.get("ctx", {})
    place = shape.place(detail["loc"], document.data)
    path = place.path
    if kind == "extra_forbidden":
        return Mistake(path, path, _unknown_key(place), kind)
    if kind == "missing":
        key = str(detail["loc"][-1])
        names = place.twins(key) or [key]
        only = place.properties.get(key, {}).get("const")
        remedy = "" if only is None else f"; add `{key}: {only}`"
        return Mistake(path, (*path, key), f"the key `{names[0]}` is missing{remedy}", kind)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        at = (*path, "type") if isinstance(place.value, dict) else path
        tags = list(place.types)
        tag = received.get("type") if isinstance(received, dict) else None
        if isinstance(tag, str):
            return Mistake(at, at, f"unknown type {shown(tag)}{_nearest(tag, tags)}", "union_tag_invalid")
        value = shown(tag, document.spelled.get(at))
        return Mistake(at, at, f"expected one of {', '.join(tags)}, received {value}", "union_tag_invalid")
    spelled = None if detail["loc"][-1:] == ("[key]",) else document.spelled.get(path)
    value = shown(received, spelled)
    return Mistake(path, path, _wrong_value(kind, context, received, value, detail["msg"]), kind)


def _wrong_value(kind: str, context: Mapping[str, Any], received: object, value: str, said: str) -> str:
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
        bound, key = BOUNDS[kind]
        return f"must be {bound} {str(context[key]).removesuffix('.0')}, received {value}"
    if kind in EXPECTED:
        return f"expected {EXPECTED[kind]}, received {value}"
    if kind == "value_error":  # a plugin's own check
        return f"{context['error']}, received {value}"
    return f"{said.replace('Input should be', 'expected', 1)}, received {value}"


def _unknown_key(place: _Place) -> str:
    """The message for a key that is not expected where it is; empty if that is another key's fault."""
    key = str(place.path[-1])
    if key in place.properties:
        twin = next(name for name in place.twins(key) if name != key)
        return f"cannot be given beside `{twin}`, which means the same; remove one of them"
    unknown = [other for other in place.holder if other not in place.properties]
    if place.types and "type" not in place.holder and not suggest("type", [key]) and suggest("type", unknown):
        return ""
    owners = [name for name, properties in place.types.items() if key in properties]
    if owners:
        return f"unknown key for the type {place.type!r}; {', '.join(owners)} {'have' if owners[1:] else 'has'} it"
    return f"unknown key{_nearest(key, list(place.properties))}"


def _nearest(word: str, known: Sequence[str]) -> str:
    return suggest(word, known) or f"; known here: {', '.join(known)}"


@dataclass
class _Place:
    """Where one of pydantic's locations is in a document, and what is known there."""

    path: KeyPath = ()
    value: Any = None
    holder: Mapping[str, Any] = field(default_factory=dict)  # the mapping that holds, or should hold, the last key
    schema: Mapping[str, Any] = field(default_factory=dict)  # the holder's JSON Schema
    types: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the properties of each type it could have
    type: str = ""

    @property
    def properties(self) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.schema.get("properties", {})
        return properties

    def twins(self, key: str) -> list[str]:
        """The names of which one has to be given, if the key is among them."""
        names = [name for choice in self.schema.get("oneOf", ()) for name in choice.get("required", ())]
        return names if key in names else []


class _Shape:
    """The keys that a model knows at each place, read off its JSON Schema."""

    def __init__(self, model: type[Spec]) -> None:
        self.whole = model.model_json_schema()

    def place(self, loc: KeyPath, data: Data) -> _Place:
        """Pydantic's location as far as it is in the data, without the tags of its unions, which are no keys."""
        place, below, tagged = _Place(value=data), self._opened(self.whole), False
        for key in loc:
            if "discriminator" in below:
                place.types, place.type, tagged = self._types(below), str(key), True
                below = self._opened({"$ref": below["discriminator"]["mapping"][key]})
                continue
            if "oneOf" in below and "properties" not in below:  # a union that is told apart by the value's kind
                kind = "object" if isinstance(place.value, dict) else "array"
                below = next(option for option in below["oneOf"] if option["type"] == kind)
                continue
            if not tagged:
                place.types, place.type = {}, ""
            if isinstance(place.value, dict):
                place.holder, place.schema = place.value, below
            tagged = False
            if not _holds(place.value, key):
                return place
            place.path, place.value = (*place.path, key), place.value[key]
            properties = below.get("properties", {})
            below = self._opened(properties.get(key) or below.get("additionalProperties") or below.get("items") or {})
        if "discriminator" in below:
            place.types = self._types(below)
        return place

    def _types(self, union: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        branches = union["discriminator"]["mapping"].items()
        return {tag: self._opened({"$ref": ref}).get("properties", {}) for tag, ref in branches}

    def _opened(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """A JSON Schema behind its references; of alternatives the one that has parts."""
        if "$ref" in schema:
            definitions: Mapping[str, Mapping[str, Any]] = self.whole["$defs"]
            return self._opened(definitions[schema["$ref"].rsplit("/", 1)[1]])
        for option in schema.get("anyOf", ()):
            opened = self._opened(option)
            if any(part in opened for part in ("properties", "additionalProperties", "items", "discriminator")):
                return opened
        return schema


def _holds(value: object, key: str | int) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)
