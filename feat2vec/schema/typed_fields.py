"""Fields that hold options of one of several types, which their key `type` names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from feat2vec.schema.validation import Spec


@dataclass(frozen=True)
class ShortForm:
    """The annotation of a field with a `type`: the text `lookup` is short for `{type: lookup}`.

    A mapping without a `type` has the default one.
    """

    default: str

    def fill(self, value: object) -> object:
        """Return the value as a mapping with its type."""
        if isinstance(value, dict):
            return {"type": self.default, **value}
        return {"type": value} if isinstance(value, str) else value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.fill, handler(source))

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        long_form = handler(source)
        short_forms: list[str] = []  # the types that need no other key
        for reference in long_form.get("oneOf", [long_form]):
            option = handler.resolve_ref_schema(reference)
            type_schema, required = option["properties"]["type"], option.get("required", [])
            types = type_schema.get("enum", [type_schema.get("const")])
            if not required:
                short_forms += types
            if self.default not in types:
                option["required"] = ["type", *(key for key in required if key != "type")]
        return {"anyOf": [{"enum": short_forms}, long_form]}


@dataclass(frozen=True)
class Registered:
    """The annotation of a field that holds options of a registered extractor or objective, by their `type`."""

    registry: Mapping[str, type[Spec]]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        choices = {name: handler.generate_schema(spec) for name, spec in self.registry.items()}
        return core_schema.tagged_union_schema(choices, discriminator="type")
