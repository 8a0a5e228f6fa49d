"""Where pydantic's locations of errors are in a document, and which keys are known there.

Pydantic locates an error by the path in its own schema, in which the tags of unions stand between the keys. The paths
of a document have keys and indices alone. What keys there are is read from the model's JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from feat2vec.schema.document import Data, KeyPath

JsonSchema = Mapping[str, Any]


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
    holder: Mapping[str, Any] = field(default_factory=dict)
    holder_schema: JsonSchema = field(default_factory=dict)
    type_properties: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    type: str = ""

    @property
    def properties(self) -> Mapping[str, Any]:
        """The JSON Schemas of the keys that the holder may have."""
        properties: Mapping[str, Any] = self.holder_schema.get("properties", {})
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

    def _type_properties(self, union: JsonSchema) -> dict[str, Mapping[str, Any]]:
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
